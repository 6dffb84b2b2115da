"""Whether a run has an answer: what holds for every agent, from several signs at once.

No single sign is enough. Programs print an error as their answer and end as if all was well, or end with an
error although they have answered.
"""

from __future__ import annotations

import re
import signal

from evalve.agents.spec import AgentSpec, Ending, Fault, Reading
from evalve.records import FailureClass

_LATE = {
    "startup": "said nothing within {limit} of its start (startup_s)",
    "silence": "said nothing for {limit} (silence_s)",
    "total": "ran for {limit} without an end (timeout_s)",
}
_OF_PROVIDER = re.compile(
    r"\b(?:API Error|rate.?limit|overloaded|too many requests|quota|insufficient_quota|credit balance|"
    r"usage limit|service unavailable|internal server error|bad gateway|"
    r"(?:status|HTTP|error|code)\D{0,12}(?:429|5\d\d))\b",
    re.IGNORECASE,
)
_OF_LOGIN = re.compile(r"\b(?:invalid (?:api|x-api)[ -]key|run /login|not logged in)\b", re.IGNORECASE)
_STATUS = re.compile(r"\b(?:status|code|HTTP|API Error)[\"':=\s]{1,4}([45]\d\d)\b", re.IGNORECASE)
_IS_ERROR = re.compile(
    r"""\W*(?:API\ Error\b
    | (?:[\w.]+\.)?(?:RateLimit|API(?:Status|Connection|Timeout)?|InternalServer|Overloaded|ServiceUnavailable
        |Authentication|PermissionDenied|BadRequest|NotFound)Error:
    | (?:(?:fatal|stream|request|unexpected|\[?API\]?)\s)?error:?\s(?:(?:code|status|HTTP):?\s?)*[45]\d\d\b
    | "error":\s*\{ | "type":\s*"error")""",
    re.IGNORECASE | re.VERBOSE,
)
"""How clients of models report that a call failed, where their program prints that and ends well."""
_OF_LIMITS = (402, 408, 409, 425, 429)
_TRACEBACK = "Traceback (most recent call last):"
_SHOWN_CHARACTERS = 600


def fault_of(
    spec: AgentSpec, reading: Reading, ending: Ending, stderr: str, *, limits_s: dict[str, float | None]
) -> Fault | None:
    """Why there is nothing to score; `None` where there is an answer."""
    name = spec.name
    if ending.by in _LATE:
        said = _LATE[ending.by].format(limit=f"{limits_s.get(ending.by) or 0:g} s")
        return Fault("timeout", f"{name} {said}{_last_words(stderr)}")
    if ending.by == "memory":
        return Fault("agent", f"{name} took more memory than memory_limit_mb allows, and was killed")
    if ending.by == "asked":
        return Fault("infrastructure", f"{name} was ended from outside{_last_words(stderr)}")
    if ending.exit_code == -signal.SIGKILL:
        return Fault(
            "infrastructure",
            f"{name} was killed by SIGKILL, not by evalve; a system out of memory does that, and a lower "
            "concurrency needs less of it",
        )
    if reading.fault is not None:
        return Fault(reading.fault.failure_class, f"{name}: {reading.fault.message}")
    if (own := spec.verdict(reading, ending, stderr)) is not None:
        return Fault(own.failure_class, f"{name}: {own.message}{_last_words(stderr)}")
    if ending.exit_code != 0:
        return Fault(
            _whose(stderr or reading.answer),
            f"{name} {_ended(ending.exit_code)}{_last_words(stderr or reading.answer)}",
        )
    if not reading.has_ended:
        return Fault("agent", f"{name} ended without its last event{_last_words(stderr)}")
    if not reading.answer.strip():
        return Fault("agent", f"{name} gave an empty answer{_last_words(stderr)}")
    if _IS_ERROR.match(reading.answer):
        whose = of_error(reading.answer)
        return Fault(
            "provider" if whose == "agent" else whose,
            f"{name} gave an error of its API as the answer{_last_words(reading.answer)}",
        )
    return None


def with_last_call(fault: Fault, refused: tuple[int, str] | None) -> Fault:
    """The fault of an agent whose last call was refused: programs seldom say why, the gateway knows."""
    if refused is None:
        return fault
    status, message = refused
    whose = of_status(status) if fault.failure_class == "agent" else fault.failure_class
    if message in fault.message:
        return Fault(whose, fault.message)
    return Fault(whose, f"{fault.message}; its last call was refused with {status}: {message}")


def of_error(text: str) -> FailureClass:
    """Whose an error is that an agent reports of itself: by the HTTP status in it, else by its words."""
    status = _STATUS.search(text)
    if status is not None:
        return of_status(int(status[1]))
    if _OF_LOGIN.search(text):
        return "code"
    return "provider" if _OF_PROVIDER.search(text) else "agent"


def of_status(status: int) -> FailureClass:
    """Of an agent's own call: a wrong request or key is the configuration's, whatever the sample."""
    is_refused = 400 <= status < 500 and status not in _OF_LIMITS
    return "code" if is_refused else "provider"


def _whose(text: str) -> FailureClass:
    return "provider" if _OF_PROVIDER.search(text) else "agent"


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "did not start"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def _last_words(text: str) -> str:
    text = text.strip()
    if not text:
        return ""
    if _TRACEBACK in text:  # of which the end says what happened; all of it is in the sample's files
        lines = text.rpartition(_TRACEBACK)[2].splitlines()[1:]
        first = next((n for n, line in enumerate(lines) if line[:1] not in ("", " ", "\t")), 0)
        text = "\n".join(lines[first:]).strip() or text
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"…{text[-_SHOWN_CHARACTERS:]}"
    return f": {shown}"
