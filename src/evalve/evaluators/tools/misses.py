"""What is wrong with tool calls, each thing by its kind and in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from evalve.jsontext import as_plain
from evalve.records import MISS_COUNTS, ToolCall

Kind = Literal[
    "missing",
    "extra",
    "forbidden",
    "wrong tool",
    "wrong order",
    "missing argument",
    "unexpected argument",
    "wrong type",
    "wrong value",
    "bad JSON",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_SELECTION = frozenset[Kind]({"missing", "extra", "forbidden", "wrong tool"})
OF_ORDER = frozenset[Kind]({"wrong order"})
OF_ARGUMENTS = frozenset[Kind](
    {"missing argument", "unexpected argument", "wrong type", "wrong value", "bad JSON"}
)

MISSES = "misses"
"""Under this key the metadata of a score has its misses, or the first of them."""
_MOST_KEPT = 50
_MOST_IN_REASON = 5
_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Miss:
    """One thing that is not as it should be."""

    kind: Kind
    tool: str
    reason: str
    path: str = ""
    """Which argument, as in `filters[0].field`."""


def noted(misses: Sequence[Miss]) -> dict[str, Any]:
    """What a score's metadata says of its misses; nothing where there are none."""
    if not misses:
        return {}
    counts = Counter(miss.kind for miss in misses)
    more = len(misses) - _MOST_IN_REASON
    reasons = [f"{miss.kind}: {miss.reason}" for miss in misses[:_MOST_IN_REASON]]
    return {
        "reason": "; ".join([*reasons, *([f"and {more} more"] if more > 0 else [])]),
        MISSES: [_plain(miss) for miss in misses[:_MOST_KEPT]],
        MISS_COUNTS: {kind: counts[kind] for kind in KINDS if counts[kind]},
    }


def _plain(miss: Miss) -> dict[str, str]:
    plain = {"kind": miss.kind, "tool": miss.tool, "reason": miss.reason}
    return {**plain, "path": miss.path} if miss.path else plain


def of_kinds(misses: Iterable[Miss], kinds: frozenset[Kind]) -> list[Miss]:
    return [miss for miss in misses if miss.kind in kinds]


def call_text(call: ToolCall) -> str:
    """`search(query="cats", limit=5)`, shortened; `search(…)` where any arguments will do."""
    if isinstance(call.arguments, dict):
        inside = ", ".join(f"{name}={value_text(value)}" for name, value in call.arguments.items())
    else:
        inside = "…" if call.arguments is None else value_text(call.arguments)
    return f"{call.name}({_shortened(inside)})"


def value_text(value: Any) -> str:
    """A value as JSON, shortened; a matcher in its own words."""
    if hasattr(value, "in_words"):
        return str(value.in_words())
    return _shortened(legible_json(value))


def legible_json(value: Any) -> str:
    """JSON with the letters of all languages as they are, and with what no terminal could print escaped."""
    text = json.dumps(as_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode(errors="backslashreplace").decode()


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
