"""Which turns the simulated agents get wrong, and how: drawn from a hash, so that it is known beforehand.

An agent errs in a turn with the probability that RATES states, in one of the KINDS that the turn allows, each
with the same probability. A teacher notices REPAIRED of its student's errors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

RATES = {"claude-sonnet-4-5-20250929": 0.04, "gpt-4.1": 0.07, "gpt-4.1-mini": 0.15}
REPAIRED = 0.5
KINDS = ("wrong_tool", "wrong_argument", "missing_call", "wrong_reply")

Turn = Mapping[str, Any]
Call = tuple[str, dict[str, Any]]

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_UNNEEDED = ("search_companies", "search_clients", "pipeline_summary")
"""What is called instead of the right tool; they take no arguments and change nothing."""
_OTHERS = {
    **{"prospect": "inactive", "active": "inactive", "churned": "inactive"},
    **{"qualification": "proposal", "proposal": "negotiation", "negotiation": "proposal"},
    **{"draft": "cancelled", "sent": "cancelled", "approved": "rejected", "rejected": "cancelled"},
    **{"agreement": "invoice", "invoice": "agreement", "specification": "other"},
    **{"DE": "AT", "FR": "BE", "JP": "KR", "US": "CA"},
}
"""Another value where only some are possible."""


def slip(model: str, conversation_id: str, turn: Turn) -> str | None:
    """The kind of error that the model makes in a turn; mostly none."""
    drawn = _drawn("slip", model, conversation_id, turn)
    rate = RATES[model]
    if drawn >= rate:
        return None
    kinds = kinds_of(turn)
    return kinds[int(drawn / rate * len(kinds))]


def is_noticed(teacher: str, conversation_id: str, turn: Turn) -> bool:
    """Whether a teacher notices an error in this turn."""
    return _drawn("teacher", teacher, conversation_id, turn) < REPAIRED


def kinds_of(turn: Turn) -> list[str]:
    """The errors that are possible in a turn."""
    calls = expected_calls(turn)
    is_possible = {
        "wrong_tool": bool(calls) or "expected_calls" in turn,
        "wrong_argument": bool(calls),
        "missing_call": bool(calls),
        "wrong_reply": "expected_response" in turn,
    }
    return [kind for kind in KINDS if is_possible[kind]]


def expected_calls(turn: Turn) -> list[Call]:
    if "expected_calls" in turn:
        return [(call["name"], call["arguments"]) for call in turn["expected_calls"]]
    return [(turn["expected_tool"], turn["expected_args"])] if "expected_tool" in turn else []


def calls_of(turn: Turn, kind: str | None) -> list[Call]:
    """What is called in a turn by whoever errs in this way; references are not resolved yet."""
    calls = expected_calls(turn)
    if kind == "wrong_tool":
        names = {name for name, _ in calls}
        return [(next(name for name in _UNNEEDED if name not in names), {}), *calls[1:]]
    if kind == "wrong_argument":
        name, arguments = calls[0]
        return [(name, _with_one_wrong(arguments)), *calls[1:]]
    return calls[:-1] if kind == "missing_call" else calls


def reply_of(turn: Turn, kind: str | None) -> str:
    if kind == "wrong_reply":
        return "I could not find that out."
    if "expected_response" in turn:
        text: str = turn["expected_response"]["text"]
        return text
    return "That is settled." if turn.get("expect_success", True) else "That was refused."


def _with_one_wrong(arguments: dict[str, Any]) -> dict[str, Any]:
    """The first argument that is not an id, if there is one."""
    plain = [name for name in arguments if not name.endswith(("_id", "_ids"))]
    name = next(iter(plain or arguments))
    return {**arguments, name: _another(arguments[name])}


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value[:-1], _another(value[-1])]
    if value in _OTHERS:
        return _OTHERS[value]
    if _DAY.fullmatch(value):
        return f"{int(value[:4]) + 1}{value[4:]}"
    return f"x{value}" if "@" in value else f"{value}0"


def _drawn(what: str, who: str, conversation_id: str, turn: Turn) -> float:
    """From 0 to 1, the same for the same words."""
    words = f"{what}/{who}/{conversation_id}/{turn['turn_id']}"
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=7).digest(), "big") / 2**56
