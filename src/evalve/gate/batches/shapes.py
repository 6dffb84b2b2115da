"""What a provider's batch API looks like, so that one queue serves several. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from evalve.gate.cache.key import SECRET_HEADERS, may_change_the_answer
from evalve.gate.dialects.request_parts import key_hash
from evalve.gate.messages import Call, Reply, Request

PRICE_SHARE = 0.5
"""Of the usual price: with both providers, for all usage."""

BATCH_HEADER = "evalve-batch"
"""With an answer: the batch that it came from. It is kept in the cache beside it."""

Kind = Literal["succeeded", "invalid", "errored", "expired", "canceled", "missing"]
"""What a request came to. `invalid` would fail again; `errored`, `expired` and `missing` need not."""
SENT_AGAIN: frozenset[Kind] = frozenset({"errored", "expired", "missing"})


@dataclass(frozen=True, slots=True)
class Result:
    """One line of results."""

    custom_id: str
    kind: Kind
    status: int = 200
    body: bytes = b""
    """The answer, or the error as the provider words it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch as its provider shows it."""

    id: str
    has_ended: bool
    status: str
    """In the provider's own word."""
    count: int
    created_s: float
    expires_s: float | None = None
    result_urls: tuple[str, ...] = ()
    intent: str | None = None
    """Where the provider keeps what we told it of ourselves."""
    queue_is_full: bool = False
    failure: str = ""
    """Why it was not even begun."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What requests must have in common to go in one batch."""

    dialect: str
    url: str
    """Where one of them would go alone."""
    headers: tuple[tuple[str, str], ...]
    """Those that change what is answered; no credentials."""
    key_hash: str
    model: str = ""
    """Where a batch may have only one."""


def lane_of(request: Request, call: Call, *, meaning: frozenset[str], one_model: bool) -> Lane:
    headers = tuple(
        (str(name), str(value))
        for name, value in sorted(request.headers.items())
        if name not in SECRET_HEADERS and (name in meaning or may_change_the_answer(name))
    )
    url = str(request.url).partition("?")[0]
    # of the key itself, whatever account a person says that it is of: batches are found again with it
    own = key_hash(request.headers, request.url)
    return Lane(call.dialect, url, headers, own, call.model if one_model else "")


def credentials_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that let a person ask; they are held in memory alone."""
    return {name: value for name, value in headers.items() if name in SECRET_HEADERS}


class Api(Protocol):
    """One provider's batch API: requests to write, replies to read."""

    name: str
    one_model: bool
    largest: int
    """Requests in one batch."""
    largest_bytes: int
    kept_s: float
    """For how long results can be fetched, from the creation."""
    tells_intent: bool

    def takes(self, call: Call, request: Request) -> str:
        """Why a call cannot go in a batch, in words; empty where it can."""

    def line(self, lane: Lane, custom_id: str, body: bytes) -> bytes:
        """One request as it stands in the file, on one line."""

    def framing(self) -> tuple[bytes, bytes, bytes]:
        """What stands before all lines, between two, and behind all."""

    def upload(self, lane: Lane) -> Request | None:
        """Where the file goes first; `None` where it is the body of the submission."""

    def uploaded(self, reply: Reply) -> str:
        """The id of the file."""

    def create(self, lane: Lane, *, intent: str, file_id: str) -> Request: ...

    def look(self, lane: Lane, batch_id: str) -> Request: ...

    def cancel(self, lane: Lane, batch_id: str) -> Request: ...

    def listing(self, lane: Lane, *, after: str) -> Request: ...

    def page(self, lane: Lane, reply: Reply) -> tuple[list[Seen], str]:
        """Batches, latest first, and behind which the next page begins; empty at the end."""

    def seen(self, lane: Lane, reply: Reply) -> Seen: ...

    def result(self, line: bytes) -> Result:
        """Raises `ValueError` where the line is none."""


def one_line(body: bytes) -> bytes:
    """JSON without line breaks, which stand only between its parts."""
    return body.replace(b"\r", b" ").replace(b"\n", b" ") if b"\n" in body or b"\r" in body else body
