"""What `httpx2` and `httpx` have in common, seen from the gate: requests, responses and streams.

The two libraries have the same classes under different names, so a library is handed in as its module.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from evalve.errors import OptionError
from evalve.gate.dialects.answer_parts import legible
from evalve.gate.doors.discreet_logs import hide_keys_in_log_of
from evalve.gate.messages import Problem, ProblemKind, Reply, Request, SendError, Withheld
from evalve.gate.sender import FRAMING, Timeouts
from evalve.gate.ungated import asks_a_model
from evalve.secrecy import discreet, discreet_headers

LibraryName = Literal["httpx2", "httpx"]
Library = Any
"""The module `httpx2` or `httpx`; no type says "either of them"."""

_GAVE_UP = "got no answer and has given up"
_STATUS_OF_MISFIT: dict[ProblemKind, int] = {"permanent": 400, "spent": 402, "overload": 529}


def library_named(name: LibraryName | None) -> Library:
    """The library, or the newer of those installed."""
    if name not in (None, "httpx2", "httpx"):
        raise OptionError(
            f"library= is 'httpx2' or 'httpx', or nothing for the newer that is installed; got {name!r}"
        )
    for candidate in (name,) if name else ("httpx2", "httpx"):
        if importlib.util.find_spec(candidate):
            hide_keys_in_log_of(candidate)
            return importlib.import_module(candidate)
    raise OptionError(f"{name or 'httpx2'} is not installed; install it, or the SDK that brings it")


# -- requests and responses


def as_gate_request(library: Library, request: Any) -> Request | None:
    """A JSON POST whose body is there already; `None` for uploads and all else, which are left unread."""
    if not may_be_json_post(request):
        return None
    if isinstance(request.stream, library.ByteStream):
        request.read()  # it is in memory; a request that follows a redirect has it only there
    try:
        body = request.content
    except library.RequestNotRead:
        return None
    return Request("POST", discreet(str(request.url)), discreet_headers(request.headers), body)


def may_be_json_post(request: Any) -> bool:
    """JSON that nobody has named so, as where it is given as text, is looked for where models are asked."""
    if request.method != "POST":
        return False
    content_type = request.headers.get("content-type", "")
    return "json" in content_type or asks_a_model("POST", str(request.url))


def timeouts_of(request: Any) -> Timeouts:
    """What the caller allowed. The pause between two reads is what httpx calls a read timeout."""
    given = request.extensions.get("timeout", {})
    return Timeouts(answer_s=given.get("read"), connect_s=given.get("connect"))


def final_headers(status: int, headers: Mapping[str, str]) -> dict[str, str]:
    """An answer's headers; a final error tells the SDK that trying again has been seen to."""
    kept = {name: value for name, value in headers.items() if name not in FRAMING}
    if status >= 400:
        kept["x-should-retry"] = "false"
    return kept


def whole_response(library: Library, reply: Reply) -> Any:
    if reply.problem is not None and reply.status < 300:
        return misfit_response(library, reply.problem)
    body = legible(reply.body) if reply.status < 300 else reply.body
    return library.Response(reply.status, headers=final_headers(reply.status, reply.headers), content=body)


def misfit_response(library: Library, problem: Problem) -> Any:
    """An error in place of a 200 that is none, in which an SDK would look for an answer in vain."""
    status = _STATUS_OF_MISFIT.get(problem.kind, 502)
    return _error_response(library, status, f"{_GAVE_UP}: {problem.message}")


def unanswered_response(library: Library, error: SendError) -> Any:
    """A 503 in place of an exception, which an SDK would take as a reason to try again."""
    happened = "sent nothing" if isinstance(error, Withheld) else _GAVE_UP
    return _error_response(library, 503, f"{happened}: {error}")


def _error_response(library: Library, status: int, happened: str) -> Any:
    """The body has what Anthropic's and OpenAI's errors have."""
    told = {"type": "api_error", "message": f"evalve {happened}", "param": None, "code": None}
    body = json.dumps({"type": "error", "error": told}).encode()
    return whole_response(library, Reply(status, {"content-type": "application/json"}, body))


# -- streams


class _AsyncChunks:
    def __init__(
        self, library: Library, chunks: AsyncIterator[bytes], close: Callable[[], Awaitable[None]]
    ) -> None:
        self._library = library
        self._chunks = chunks
        self._close = close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_as_theirs(self._library):
            async for chunk in self._chunks:
                yield chunk

    async def aclose(self) -> None:
        await self._close()


class _Chunks:
    def __init__(self, library: Library, chunks: Iterable[bytes], close: Callable[[], None]) -> None:
        self._library = library
        self._chunks = chunks
        self._close = close

    def __iter__(self) -> Iterator[bytes]:
        with _errors_as_theirs(self._library):
            yield from self._chunks

    def close(self) -> None:
        self._close()


@functools.cache
def _stream_type(library: Library, ours: type, theirs: str) -> Any:
    """Ours, as a subclass of theirs, which the clients insist on."""
    return type(ours.__name__, (ours, getattr(library, theirs)), {})


def async_stream(library: Library, chunks: AsyncIterator[bytes], close: Callable[[], Awaitable[None]]) -> Any:
    return _stream_type(library, _AsyncChunks, "AsyncByteStream")(library, chunks, close)


def sync_stream(library: Library, chunks: Iterable[bytes], close: Callable[[], None]) -> Any:
    return _stream_type(library, _Chunks, "SyncByteStream")(library, chunks, close)


@contextmanager
def _errors_as_theirs(library: Library) -> Iterator[None]:
    """In the middle of a body there is no response left to tell it with; SDKs do not retry these."""
    try:
        yield
    except SendError as error:
        raise (library.ReadTimeout if error.timed_out else library.ReadError)(str(error)) from error
