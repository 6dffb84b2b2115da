"""What the parts of the gate hand to each other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Dimension = Literal["requests", "input_tokens", "output_tokens", "tokens"]
"""What a provider counts per minute; `tokens` is OpenAI's combined count."""

Cost = Mapping[Dimension, float]
"""How much a call takes of each dimension."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request to a provider. Header names are lower case."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    _parsed: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def json(self) -> Any:
        """The body, parsed once: what it asks for and its name in the cache are read in a row.

        Raises `ValueError` or `RecursionError` where it is no JSON.
        """
        if not self._parsed:
            self._parsed.append(json.loads(self.body))
        return self._parsed[0]

    def forget_json(self) -> None:
        """It is not needed while the answer is awaited, and may be large."""
        self._parsed.clear()


@dataclass(slots=True)
class Reply:
    """A whole answer: for a stream, all of its bytes as they came."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cached: bool = False
    problem: Problem | None = None
    """What is finally wrong with it, as the gate found: a 200, too, may be no answer."""


@dataclass(slots=True)
class StreamedReply:
    """An answer whose body is still arriving."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    cached: bool = False
    problem: Problem | None = None
    """As of a `Reply`; then the chunks are all that came."""


class Sender(Protocol):
    """Carries a request over the network, once.

    A failure to get a complete answer is a `SendError`; every status is an answer.
    """

    async def send(self, request: Request) -> Reply: ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[StreamedReply]: ...


class SendError(Exception):
    """No complete answer came. `reached` says whether the provider may have worked on the request.

    What came and cannot be read as HTTP would not be readable in a repeat either: `is_unreadable`.
    """

    def __init__(
        self, message: str, *, reached: bool, timed_out: bool = False, is_unreadable: bool = False
    ) -> None:
        super().__init__(message)
        self.reached = reached
        self.timed_out = timed_out
        self.is_unreadable = is_unreadable

    def as_problem(self) -> Problem:
        return Problem("unreadable" if self.is_unreadable else "connection", str(self))


class Withheld(SendError):
    """Nothing was sent, by our own decision; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reached=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A request as its dialect understands it."""

    provider: str
    """`anthropic`, `openai`, or the host of a compatible server."""
    host: str
    model: str
    pool: str
    """Models that share one limit have one pool; mostly the model itself."""
    key_hash: str
    """Of the API key; the key itself goes no further than the sender."""
    input_bytes: int
    """Of everything that is counted as input: what the token estimate starts from."""
    max_output_tokens: int | None
    streams: bool
    dialect: str = ""
    """Whose wire it speaks: `anthropic`, `openai`; also where the host is another's."""
    endpoint: str = ""
    """What it asks for, by the end of its path (`messages`, `chat/completions` …): that decides which form
    an answer has."""

    @property
    def scope(self) -> str:
        """What a limit belongs to."""
        return f"{self.host}/{self.key_hash}/{self.pool}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a provider says it counted."""

    input_tokens: int = 0
    """Read at full price."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    long_cache_write_tokens: int = 0
    """Of those written to a cache, those that it keeps for an hour, which costs more."""

    @property
    def total_input_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class Stated:
    """What response headers say about one dimension."""

    per_minute: float | None = None
    remaining: float | None = None
    rounding: float = 0.0
    """How far `remaining` may be from the truth."""
    full_in_s: float | None = None
    """Until the bucket is full again, by the provider's own clock."""
    is_dated: bool = False
    """Whether that is counted from the answer's `Date`, which is cut to whole seconds: it may be one less."""


ProblemKind = Literal[
    "rate_limit", "overload", "server", "connection", "no_answer", "unreadable", "permanent", "spent"
]
"""`no_answer` is a whole 200 without the form of an answer: it says nothing against its host. `unreadable` is
what no repeat would make readable: not HTTP, packed in a way that nobody asked for, nested too deeply."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an exchange did not give an answer that can be used."""

    kind: ProblemKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    dimension: Dimension | Literal["concurrency", "ramp"] | None = None
    """Which limit refused, where the answer says."""
    refuses_key: bool = False
    """The key is wrong, whatever the request."""


class Dialect(Protocol):
    """What one provider's HTTP means. Pure: bytes and headers in, values out."""

    name: str
    meaning_headers: frozenset[str]
    """Request headers that change what is answered, and so belong into the cache key."""

    def read(self, request: Request) -> Call | None:
        """The call in a request, or `None` where this dialect does not limit, cache or retry it."""

    def booked(self, call: Call, *, input_tokens: float, output_tokens: float) -> Cost:
        """What to reserve for a call with these estimates."""

    def charged(self, call: Call, usage: Usage) -> Cost:
        """What a call with this usage really took."""

    def usage(self, call: Call, body: bytes) -> Usage | None:
        """Usage in a complete body, streamed or not; `None` where it is not there or the body is broken."""

    def stated(self, headers: Mapping[str, str]) -> dict[Dimension, Stated]:
        """Limits in response headers."""

    def begins(self, call: Call, data: bytes) -> bool:
        """Whether an event of a stream has a piece of the answer in it, and not only what precedes it."""

    def ends(self, data: bytes) -> bool:
        """Whether an event of a stream is its last, well or with an error."""

    def problem(self, reply: Reply, call: Call | None = None) -> Problem | None:
        """What is wrong with a whole reply; `None` for an answer.

        Without the call a 2xx need only be whole; with it, it must have the form of what was asked for.
        """


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a scope: a rate, and how much of it may come at once."""

    per_minute: float
    burst: float | None = None
    """The bucket's depth; `None` where answers will show it, and a second's worth holds until then."""
    source: str = "configured"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a person configured for a provider, pool or model; the total for the key."""

    by_dimension: Mapping[Dimension, Limit] = field(default_factory=dict)
    concurrency: int | None = None
    source: str = ""
