"""Reads what a program prints, in the formats that `answer:` names: last_line, whole, json, jsonl, regex."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from evalve.agents.spec import Event, Fault, Reader, Reading, Usage

MOST_CHARACTERS = 1_000_000
"""Of an answer that is a program's whole output."""
FORMATS = ("last_line", "whole", "json", "jsonl", "regex")
_MOST = 1e15
"""More tokens or USD than that are a mistake of the program, or no number at all."""
_BEGINS_LINE = re.compile(r"^\{", re.MULTILINE)
_MOST_TRIED = 50
_USAGE_NAMES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "requests")


class LastLine:
    """The answer is the last line with anything in it."""

    def __init__(self) -> None:
        self._last = ""

    def line(self, text: str) -> Iterable[Event]:
        if text.strip():
            self._last = text.strip()
        return ()

    def reading(self) -> Reading:
        return Reading(answer=self._last)


class Whole:
    """The answer is all that it prints."""

    def __init__(self, find: Callable[[str], Reading] = lambda text: Reading(answer=text.strip())) -> None:
        self._lines: list[str] = []
        self._characters = 0
        self._find = find

    def line(self, text: str) -> Iterable[Event]:
        self._characters += len(text) + 1
        self._lines.append(text)
        while self._characters > MOST_CHARACTERS and len(self._lines) > 1:
            self._characters -= len(self._lines.pop(0)) + 1
        return ()

    def reading(self) -> Reading:
        return self._find("\n".join(self._lines))


class Lines:
    """Each line is JSON: the answer is a field of the last line that has it."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._reading = Reading()

    def line(self, text: str) -> Iterable[Event]:
        value = json_object(text)
        if value is None:
            return ()
        found = _found(value, self._field)
        if found is not None:
            self._reading = reading_of(value, self._field)
        return _events(value)

    def reading(self) -> Reading:
        return self._reading


def reader_of(format: str, *, field: str = "answer", pattern: str = "") -> Callable[[], Reader]:
    """A maker of readers for a format; `field` may be a path such as `result.text`."""
    if format == "last_line":
        return LastLine
    if format == "whole":
        return Whole
    if format == "json":
        return lambda: Whole(lambda text: _from_json(text, field))
    if format == "jsonl":
        return lambda: Lines(field)
    compiled = re.compile(pattern, re.MULTILINE)
    return lambda: Whole(lambda text: _from_match(text, compiled))


def reading_of(value: Mapping[str, Any], field: str) -> Reading:
    """What a program's JSON says, beside its answer, under the names that evalve uses too."""
    answer, cost, turns = _found(value, field), value.get("cost_usd"), value.get("turns")
    usage = value.get("usage")
    error = value.get("error")
    return Reading(
        answer=answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False),
        turns=turns if isinstance(turns, int) and turns >= 0 else None,
        usage=usage_of(usage) if isinstance(usage, Mapping) else None,
        cost_usd=cost_of(cost),
        fault=Fault("agent", f"it reports an error: {error}") if error else None,
    )


def usage_of(said: Mapping[str, Any]) -> Usage:
    return Usage(**{name: count(said.get(name)) for name in _USAGE_NAMES})


def count(value: Any) -> int:
    """Of tokens; 0 for what cannot be a number of them."""
    return int(value) if _is_amount(value) else 0


def cost_of(value: Any) -> float | None:
    """In USD; `None` for what cannot be an amount: less than nothing would give a budget back."""
    return float(value) if _is_amount(value) else None


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


def json_object(text: str) -> dict[str, Any] | None:
    """The object of a line; `None` for anything else, since programs print what they like between."""
    text = text.strip()
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _from_json(text: str, field: str) -> Reading:
    """From the first brace, else from the first that begins a line and an object: warnings come before it."""
    first = text.find("{")
    if first < 0:
        return Reading(fault=Fault("agent", "its output has no JSON object in it"))
    reading = _object_at(text, first, field)
    for begin in islice(_BEGINS_LINE.finditer(text, first + 1), _MOST_TRIED):
        if reading.fault is None:
            break
        other = _object_at(text, begin.start(), field)
        reading = reading if other.fault is not None else other
    return reading


def _object_at(text: str, start: int, field: str) -> Reading:
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return Reading(fault=Fault("agent", f"its output is no JSON: {error}"))
    if _found(value, field) is None and not value.get("error"):
        return Reading(fault=Fault("agent", f"the JSON that it printed has no {field!r}"))
    return reading_of(value, field)


def _from_match(text: str, pattern: re.Pattern[str]) -> Reading:
    """The last match: its group, where it has one."""
    matches = list(pattern.finditer(text))
    if not matches:
        return Reading(fault=Fault("agent", f"nothing in its output matches {pattern.pattern!r}"))
    last = matches[-1]
    return Reading(answer=(last[1] if pattern.groups else last[0]) or "")


def _found(value: Mapping[str, Any], path: str) -> Any:
    found: Any = value
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _events(value: dict[str, Any]) -> Iterable[Event]:
    """A line that names its own kind is an event of the trace."""
    kind = value.get("kind") or value.get("type")
    if isinstance(kind, str) and kind:
        yield Event(kind, {key: each for key, each in value.items() if key not in ("kind", "type")})
