"""Errors as Google words them, also where the rest of an answer is another's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evalve.gate.dialects.answer_parts import Refusal, Told
from evalve.gate.dialects.headers import go_duration_s
from evalve.gate.dialects.request_parts import counted
from evalve.gate.messages import ProblemKind

_KIND_BY_STATUS: dict[str, ProblemKind] = {
    "RESOURCE_EXHAUSTED": "rate_limit",
    "UNAVAILABLE": "overload",
    "INTERNAL": "server",
    "UNKNOWN": "server",
    "ABORTED": "server",
    "DEADLINE_EXCEEDED": "server",
}
_PER_DAY = re.compile(r"per_?day", re.IGNORECASE)
_SPENT = re.compile(r"credits? (?:are|is) depleted|check your plan and billing.*limit: 0\b", re.DOTALL)


def google_error(parsed: Any) -> Told | None:
    """`{"error": {…}}`, or a list with it; some proxies leave everything but a text."""
    if isinstance(parsed, list):
        parsed = parsed[0] if parsed else None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, str):
        return Told("", error)
    if not isinstance(error, dict):
        return None
    status, text = str(error.get("status") or ""), str(error.get("message") or "")
    kind = _KIND_BY_STATUS.get(status)
    violated = " ".join(_violated(error))
    if kind == "rate_limit" and (_PER_DAY.search(violated) or _SPENT.search(text)):
        kind = "spent"  # it says to come back in seconds, and means tomorrow
    return Told(status, text, kind, retry_delay_s(error), _refusal(violated), refuses_key(error))


def retry_delay_s(error: Mapping[str, Any]) -> float | None:
    """How long Google asks to wait, in the error's details."""
    for detail in _details(error):
        delay = detail.get("retryDelay")
        if isinstance(delay, str):
            return go_duration_s(delay)
        if isinstance(delay, dict):  # as other clients of the same format write it
            return float(counted(delay.get("seconds")) or 0) + (counted(delay.get("nanos")) or 0) / 1e9
    return None


def refuses_key(error: Mapping[str, Any]) -> bool:
    """Google answers a wrong key with 400, as a wrong request."""
    return any(detail.get("reason") == "API_KEY_INVALID" for detail in _details(error))


def _details(error: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = error.get("details")
    return [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []


def _violated(error: Mapping[str, Any]) -> list[str]:
    """The names of the quotas that refused."""
    violations = [
        violation
        for detail in _details(error)
        if isinstance(detail.get("violations"), list)
        for violation in detail["violations"]
        if isinstance(violation, dict)
    ]
    return [f"{each.get('quotaId') or ''} {each.get('quotaMetric') or ''}" for each in violations]


def _refusal(violated: str) -> Refusal | None:
    lower = violated.lower()
    if "input_token" in lower or "inputtoken" in lower:
        return "input_tokens"
    if "token" in lower:
        return "tokens"
    return "requests" if "request" in lower else None
