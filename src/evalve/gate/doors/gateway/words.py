"""What the gateway says by itself: while a call waits, and where there is no answer to hand on. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from evalve.gate.messages import Call, Problem, ProblemKind, SendError, Withheld

_SSE = "text/event-stream"
_JSON = "application/json"
_SPEAKS_SSE = frozenset({"anthropic", "openai", "cohere", "vertex"})
_STATUS_OF_MISFIT: dict[ProblemKind, int] = {"permanent": 400, "spent": 402, "overload": 529}
_GOOGLE_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    503: "UNAVAILABLE",
}
_LONGEST_TOLD = 500
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
}


@dataclass(frozen=True, slots=True)
class Word:
    """What a client can be sent while its call waits, and reads over: it keeps time-outs from running."""

    text: bytes
    content_type: str
    is_stream: bool


def word_for(call: Call, url: str) -> Word | None:
    """A comment between events; for a whole answer the blanks that may precede JSON; else `None`."""
    if not call.streams:
        return None if call.dialect == "bedrock" else Word(b" ", _JSON, is_stream=False)
    if call.dialect in _SPEAKS_SSE:
        return Word(b": evalve holds this call back until its limits allow it\n\n", _SSE, is_stream=True)
    if call.dialect == "gemini":  # its clients read lines, and do not know comments
        return Word(b"\n", _SSE if "alt=sse" in url else _JSON, is_stream=True)
    return None


def error_body(status: int, message: str, *, is_google: bool) -> bytes:
    """In the form of Google, or one that has what Anthropic's and OpenAI's errors have."""
    told: dict[str, Any]
    if is_google:
        told = {
            "error": {"code": status, "message": message, "status": _GOOGLE_STATUS.get(status, "INTERNAL")}
        }
    else:
        error = {"type": _TYPES.get(status, "api_error"), "message": message, "param": None, "code": None}
        told = {"type": "error", "error": error}
    return json.dumps(told).encode()


def error_text(body: bytes) -> str:
    """What an error says, in whatever form; a long page is cut."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, list) and told:  # Google's, in a stream
        told = told[0]
    told = told.get("error", told) if isinstance(told, dict) else told
    said = told.get("message") if isinstance(told, dict) else told
    text = said if isinstance(said, str) else body.decode("utf-8", "replace")
    return " ".join(text[:_LONGEST_TOLD].split())


def error_event(body: bytes, call: Call, url: str) -> bytes:
    """An error for a client that has been told 200 already, in the middle of what it reads as a stream."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, list) and parsed:  # Google's, when no events were asked for
        parsed = parsed[0]
    if not isinstance(parsed, dict) or "error" not in parsed:
        told = body.decode("utf-8", "replace")
        parsed = json.loads(error_body(502, told, is_google=call.dialect == "gemini"))
    text = json.dumps(parsed)
    if call.dialect == "gemini":
        return f"data: {text}\n\n".encode() if "alt=sse" in url else f"[{text}]".encode()
    return f"event: error\ndata: {text}\n\n".encode()


def unanswered(error: SendError) -> tuple[int, str]:
    """Status and words where finally nothing came; what we withhold, no client should try again."""
    if isinstance(error, Withheld):
        return 403, f"evalve sent nothing: {error}"
    return 503, f"evalve got no answer and has given up: {error}"


def misfit(problem: Problem) -> tuple[int, str]:
    """The same in place of a 200 that is no answer."""
    status = _STATUS_OF_MISFIT.get(problem.kind, 502)
    return status, f"evalve got no answer and has given up: {problem.message}"
