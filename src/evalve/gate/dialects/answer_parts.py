"""What every dialect reads from an answer: whole JSON, the ends of a stream, an error safe to show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evalve.gate.dialects.headers import retry_after_s
from evalve.gate.messages import Dimension, Problem, ProblemKind, Reply, Stated
from evalve.secrecy import without_credentials

Refusal = Dimension | Literal["concurrency", "ramp"]
"""Which limit refused."""

DONE = "[DONE]"
"""The last event of an OpenAI stream: the only one that is not JSON."""

_LONGEST_MESSAGE = 500
_NEVER_SERVED = (501, 505, 510)
"""Not implemented, or another version of HTTP is wanted: every repeat would be told the same."""
_MISTAKES = frozenset(
    {
        "accessdeniedexception",
        "authentication_error",
        "context_length_exceeded",
        "failed_precondition",
        "not_found",
        "not_found_error",
        "permission_denied",
        "permission_error",
        "request_too_large",
        "resourcenotfoundexception",
        "unauthenticated",
        "validation",
        "validationexception",
    }
)
"""What providers call an error of who asks, beside all that begins with "invalid"."""
_SECRETS = re.compile(
    r"\b(?:sk|pk|rk)-[\w*.\-]{4,}"  # Anthropic, OpenAI and most who copy them
    r"|\bAIza[\w\-]{10,}"
    r"|(?i:\bbearer\s+)[^\s\"',;]+"
    r"|(?i:x-api-key\W{1,4})[^\s\"',;]+"
)
_UNKNOWN_KEY = 401


class ParsedOnce:
    """Parses JSON, and remembers the last body: whether it is whole and what it used are asked in a row."""

    def __init__(self, read: Callable[[bytes], Any] | None = None) -> None:
        self._read = read or read_json
        self._last: tuple[bytes, Any] | None = None

    def __call__(self, body: bytes) -> Any:
        """The parsed body; `None` where it is broken."""
        last = self._last  # one tuple, so that another thread cannot change half of it
        if last is not None and last[0] is body:
            return last[1]
        try:
            parsed = self._read(body)
        except (ValueError, RecursionError):
            parsed = None
        self._last = (body, parsed)
        return parsed


def read_json(body: bytes) -> Any:
    """`json.loads` that forgives single bytes: an answer is not paid for again because of them."""
    try:
        return json.loads(body)
    except UnicodeDecodeError:
        return json.loads(legible(body))


def legible(body: bytes) -> bytes:
    """The body with U+FFFD in place of what is no UTF-8."""
    if body.isascii():
        return body
    try:
        body.decode()
    except UnicodeDecodeError:
        return body.decode(errors="replace").encode()
    return body


def is_stream(body: bytes) -> bool:
    """Server-sent events rather than JSON: read from the bytes, since an error may answer either request."""
    start = body[:64].lstrip()
    return start.startswith((b"event:", b"data:", b"id:", b"retry:", b":"))


def first_event(body: bytes) -> Any:
    """The first event with data; `None` where there is none or it is broken."""
    body = body if b"\n" in body else body.replace(b"\r", b"\n")
    start = 0 if body.startswith(b"data:") else body.find(b"\ndata:") + 1
    if start == 0 and not body.startswith(b"data:"):
        return None
    end = body.find(b"\n", start)
    return _event(body[start + 5 : end if end >= 0 else len(body)])


def events_from_the_end(body: bytes) -> Iterator[Any]:
    """Data of the events, the last first, so that the length of a stream costs nothing.

    A newline inside JSON is escaped, so a line that starts with `data:` is a whole event.
    """
    end = len(body)
    if b"\r" in body and b"\n" not in body:  # the third way in which a line may end
        body = body.replace(b"\r", b"\n")
    while end > 0:
        start = body.rfind(b"\n", 0, end) + 1
        if body.startswith(b"data:", start):
            yield _event(body[start + 5 : end])
        end = start - 1


def _event(data: bytes) -> Any:
    data = data.strip()
    if data == b"[DONE]":
        return DONE
    try:
        return read_json(data)
    except (ValueError, RecursionError):
        return None


def kind_by_status(status: int) -> ProblemKind:
    """What a status means where the body says nothing better."""
    if status == 429:
        return "rate_limit"
    if status in (503, 529):
        return "overload"
    if status in _NEVER_SERVED:
        return "permanent"
    if status in (408, 409, 425) or status >= 500:
        return "server"
    return "spent" if status == 402 else "permanent"


def kind_in_200(*names: str) -> ProblemKind:
    """What an error means that comes in a 200, where only its name tells whose it is."""
    lower = [name.lower() for name in names]
    is_mistake = any(name in _MISTAKES or name.startswith("invalid") for name in lower)
    return "permanent" if is_mistake else "server"


def kind_of(named: ProblemKind | None, by_status: ProblemKind, status: int) -> ProblemKind:
    """What an error means whose body names a kind, too.

    The body may say better than the status what is the matter, but not that a refused request (4xx) is the
    server's fault: formats have one word for every error that they know no other for.
    """
    if named is None or by_status == "spent" or (named == "server" and 400 <= status < 500):
        return by_status
    return named


def broken(reply: Reply, what: str) -> Problem:
    """For a 2xx whose body has no end: the server's fault, since its connection was closed in order."""
    return Problem("server", f"the answer broke off: {what}", status=reply.status)


def problem_of(
    kind: ProblemKind,
    reply: Reply,
    said: str,
    dimension: Refusal | None = None,
    hinted_wait_s: float | None = None,
    *,
    refuses_key: bool = False,
) -> Problem:
    """A problem with what the headers add. A server that was told not to be asked again is not."""
    if kind in ("server", "overload") and reply.headers.get("x-should-retry") == "false":
        kind = "permanent"
    wait_s = retry_after_s(reply.headers) if kind not in ("permanent", "spent") else None
    if wait_s is None and kind == "rate_limit":
        wait_s = hinted_wait_s
    return Problem(
        kind,
        said,
        status=reply.status,
        retry_after_s=wait_s,
        dimension=dimension if kind == "rate_limit" else None,
        refuses_key=refuses_key or reply.status == _UNKNOWN_KEY,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """What a provider says of an error."""

    name: str
    text: str
    kind: ProblemKind | None = None
    """What its name means, where that is known."""
    wait_s: float | None = None
    refusal: Refusal | None = None
    refuses_key: bool = False


def problem_told(who: str, reply: Reply, told: Told, by_status: ProblemKind) -> Problem:
    """A problem from what a provider says of it."""
    kind = told.kind if told.kind == "spent" else kind_of(told.kind, by_status, reply.status)
    said = f"{who} answered {reply.status} {told.name}".rstrip() + moved_to(reply)
    text = safe_text(f"{said}: {told.text or body_text(reply.body)}")
    return problem_of(kind, reply, text, told.refusal, told.wait_s, refuses_key=told.refuses_key)


THROTTLED: dict[str, ProblemKind] = dict.fromkeys(
    (
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    "rate_limit",
)
"""Amazon's names for a refusal, which comes with a status of 400 or 403."""


def amazon_name(reply_headers: Mapping[str, str], parsed: Any) -> str:
    """`ThrottlingException` and the like, as Amazon names an error in a header or in the body."""
    name = reply_headers.get("x-amzn-errortype") or (parsed.get("__type") if isinstance(parsed, dict) else "")
    return str(name or "").partition(":")[0].rpartition("#")[2]


def moved_to(reply: Reply) -> str:
    """Where a redirect points, without what may be a key in it; nothing for any other answer."""
    location = reply.headers.get("location", "")
    if not 300 <= reply.status < 400 or not location:
        return ""
    return f" (it has moved to {without_credentials(location)}: use that address)"


def safe_text(text: str) -> str:
    """One line, not too long, and without anything that looks like a key."""
    line = _SECRETS.sub("[redacted]", " ".join(text.split()))
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + "…"


def body_text(body: bytes) -> str:
    """The beginning of a body that is not the provider's JSON, such as a proxy's page."""
    return body[:2000].decode("utf-8", "replace")


def exhausted(stated: Mapping[Dimension, Stated]) -> Dimension | None:
    """The one dimension of which nothing remains; `None` where that does not single one out."""
    empty = [name for name, value in stated.items() if value.remaining is not None and value.remaining <= 0]
    return empty[0] if len(empty) == 1 else None


def mapping_at(value: Any, *path: str) -> Mapping[str, Any]:
    """The object at a path inside foreign JSON, or an empty one."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
