"""Compares the arguments of a call with those that are expected, by rules that a person may change. Pure."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from evalve.errors import ResultError
from evalve.evaluators.tools.alignment import best_assignment
from evalve.evaluators.tools.matchers import Anything, Matching, Near, OneOf, as_matcher, compiled
from evalve.evaluators.tools.misses import Kind, Miss, value_text
from evalve.evaluators.tools.rules import ArgumentRules
from evalve.jsontext import as_text, to_json

Path = tuple[str | int, ...]

_LOOSE = str.maketrans({**dict.fromkeys(" ,./-_*^"), "'": '"'})
"""What does not count where texts are compared loosely."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


_ITEM = re.compile(r"\[(\d+|\*)\]")
_SINGLE = (str, int, float, bool)

Found = tuple[Kind, Path, Callable[[], str]]
"""Kind, path, and the reason: told only where it is asked for, since most calls are compared with many."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of one call's arguments."""

    tool: str
    right: int
    total: int
    found: list[Found] = field(default_factory=list)

    @property
    def share(self) -> float:
        """How many of the arguments are right; without any, all are."""
        return self.right / self.total if self.total else 1.0

    def misses(self) -> Iterator[Miss]:
        for kind, path, reason in self.found:
            yield Miss(kind, self.tool, f"{self.tool}: {reason()}", shown(path))


def compare_arguments(
    tool: str, called: Mapping[str, Any], expected: Mapping[str, Any], rules: ArgumentRules
) -> Compared:
    """`rules` are those of the tool. An argument is right where nothing in it is wrong."""
    if callable(rules.compare):
        return _by_function(tool, called, expected, rules.compare)
    comparison = _Comparison(rules)
    right = total = 0
    wrong: list[Found] = []
    for name in dict.fromkeys([*expected, *called]):
        found = comparison.item(called, expected, name, ())
        if found is None:
            continue
        total += 1
        right += not found
        wrong += found
    return Compared(tool, right, total, wrong)


def _by_function(
    tool: str, called: Mapping[str, Any], expected: Mapping[str, Any], function: Callable[..., Any]
) -> Compared:
    verdict = function(dict(called), dict(expected))
    if not isinstance(verdict, bool):
        raise ResultError(
            f"the function that compares the arguments of {tool} returned {as_text(verdict)[:200]};"
            " return True or False"
        )
    if verdict:
        return Compared(tool, 1, 1)
    reason = f"the arguments {value_text(called)} are refused by {_name_of(function)}"
    return Compared(tool, 0, 1, [("wrong value", (), lambda: reason)])


class _Comparison:
    """Goes through both sides together."""

    def __init__(self, rules: ArgumentRules) -> None:
        self._rules = rules
        self._takes_more = rules.compare == "subset"
        # `filters[0].id`, as misses show it, is a class of characters to a glob
        self._globs = [*rules.ignore, *(_ITEM.sub(r".\1", glob) for glob in rules.ignore if "[" in glob)]

    def item(
        self, called: Mapping[str, Any], expected: Mapping[str, Any], name: str, above: Path
    ) -> list[Found] | None:
        """What is wrong with one member of an object; `None` where it does not count."""
        path = (*above, name)
        if self._is_ignored(path):
            return None
        if name not in expected:
            if self._takes_more:
                return None
            given = called[name]
            return [("unexpected argument", path, lambda: f"{shown(path)}={value_text(given)}")]
        wanted = as_matcher(expected[name])
        if name not in called:
            if isinstance(wanted, OneOf) and wanted.may_be_omitted:
                return None
            return [("missing argument", path, lambda: f"{shown(path)}, expected {_words(wanted)}")]
        return list(self.value(called[name], wanted, path))

    def value(self, called: Any, expected: Any, path: Path) -> Iterator[Found]:
        if self._is_ignored(path):
            return
        if type(called) is type(expected) in _SINGLE and called == expected:
            return  # by any rules; of three hundred calls with three hundred, this halves the time
        expected = as_matcher(expected)
        if isinstance(expected, Mapping) and isinstance(called, Mapping):
            for name in dict.fromkeys([*expected, *called]):
                yield from self.item(called, expected, name, path) or ()
        elif isinstance(expected, list | tuple) and isinstance(called, list | tuple):
            yield from self._items(called, expected, path)
        elif isinstance(expected, OneOf):
            yield from self._one_of(called, expected, path)
        elif not self._fits(called, expected):
            yield self._miss(called, expected, path)

    def _items(self, called: Sequence[Any], expected: Sequence[Any], path: Path) -> Iterator[Found]:
        if len(called) != len(expected):
            counts = f"{len(called)} items, expected {len(expected)}"
            yield "wrong value", path, lambda: f"{shown(path)} has {counts}: {value_text(list(called))}"
        elif self._rules.unordered_lists:
            weights = [
                [1 if not any(self.value(one, wanted, (*path, place))) else None for one in called]
                for place, wanted in enumerate(expected)
            ]
            if len(best_assignment(weights)) < len(expected):
                yield "wrong value", path, partial(_unlike, called, expected, path)
        else:
            for place, (one, wanted) in enumerate(zip(called, expected, strict=True)):
                yield from self.value(one, wanted, (*path, place))

    def _one_of(self, called: Any, expected: OneOf, path: Path) -> Iterator[Found]:
        if any(not any(self.value(called, one, path)) for one in expected.values):
            return
        if len(expected.values) == 1:  # says more than that it is none of one
            yield from self.value(called, expected.values[0], path)
            return
        types = {_type_wanted(as_matcher(one)) for one in expected.values}
        kind: Kind = "wrong value" if _type(called) in types or None in types else "wrong type"
        yield kind, path, partial(_unlike, called, expected, path)

    def _fits(self, called: Any, expected: Any) -> bool:
        if isinstance(expected, Anything):
            return True
        if isinstance(expected, Near):
            called = _as_number(called) if self._rules.coerce else called
            return _is_number(called) and _is_near(
                called, expected.value, expected.tolerance, expected.relative
            )
        if isinstance(expected, Matching | re.Pattern):
            pattern = expected if isinstance(expected, re.Pattern) else compiled(expected.pattern)
            return isinstance(called, str) and pattern.search(called) is not None
        if callable(expected):
            return _accepts(expected, called)
        return self._equals(called, expected)

    def _equals(self, called: Any, expected: Any) -> bool:
        if _type(called) != _type(expected):
            return self._rules.coerce and self._are_coerced_equal(called, expected)
        if _is_number(expected):
            return _is_near(called, expected, self._rules.tolerance, self._rules.relative)
        if isinstance(expected, str) and self._rules.loose_text:
            return loose(called) == loose(expected)
        return bool(called == expected)

    def _are_coerced_equal(self, called: Any, expected: Any) -> bool:
        first, second = _as_number(called), _as_number(expected)
        if first is None or second is None:
            return False
        if _is_truth(called) or _is_truth(expected):
            return first == second
        return _is_near(first, second, self._rules.tolerance, self._rules.relative)

    def _miss(self, called: Any, expected: Any, path: Path) -> Found:
        wanted, given = _type_wanted(expected), _type(called)
        if wanted is None or wanted == given:
            return "wrong value", path, partial(_unlike, called, expected, path)
        types = f" ({given} instead of {wanted})"
        return "wrong type", path, lambda: _unlike(called, expected, path) + types

    def _is_ignored(self, path: Path) -> bool:
        if not self._rules.ignore:
            return False
        dotted = ".".join(map(str, path))
        return any(fnmatchcase(dotted, glob) for glob in self._globs)


def _accepts(check: Callable[[Any], Any], called: Any) -> bool:
    try:
        return bool(check(called))
    except Exception:  # the person's check was made for other values than the model gave
        return False


def shown(path: Path) -> str:
    """`filters[0].field`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def loose(text: str) -> str:
    """The text without case, spaces and the punctuation that models vary."""
    return _composed(text).casefold().translate(_LOOSE)


def _unlike(called: Any, expected: Any, path: Path) -> str:
    if isinstance(called, str) and isinstance(expected, str) and _composed(called) == _composed(expected):
        told = f"{shown(path)} is {to_json(called)}, expected {to_json(expected)}"
        return f"{told}: it looks the same, but its accents are written otherwise"
    return f"{shown(path)} is {value_text(called)}, expected {_words(expected)}"


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _words(expected: Any) -> str:
    if isinstance(expected, re.Pattern):
        return f"a text that matches {expected.pattern!r}"
    if callable(expected):
        return f"what {_name_of(expected)} accepts"
    return value_text(expected)


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _type(value: Any) -> str:
    """As JSON tells types apart: true is no number, and 5 and 5.0 are the same one."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "list"
    return "object" if isinstance(value, Mapping) else type(value).__name__


def _type_wanted(expected: Any) -> str | None:
    """`None` where several will do."""
    if isinstance(expected, Near):
        return "number"
    if isinstance(expected, Matching | re.Pattern):
        return "text"
    if isinstance(expected, OneOf):
        types = {_type_wanted(as_matcher(one)) for one in expected.values}
        return types.pop() if len(types) == 1 else None
    return None if callable(expected) or isinstance(expected, Anything) else _type(expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_near(called: Any, expected: Any, tolerance: float, relative: float) -> bool:
    if called == expected:
        return True
    if not (tolerance or relative):
        return False
    try:
        distance = abs(called - expected)
        # what decimal fractions lose when they are written in binary: 0.1 + 0.2
        return bool(distance <= max(tolerance, relative * abs(expected)) * (1 + 1e-12))
    except OverflowError:  # a whole number that no float can hold
        return False


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ("true", "false"))


def _as_number(value: Any) -> int | float | None:
    """`"5"` as 5, true and `"true"` as 1; `None` for what is no number in any spelling."""
    if isinstance(value, bool | int | float):
        return int(value) if isinstance(value, bool) else value
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _is_truth(text):
        return int(text.lower() == "true")
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    if "." not in text and "e" not in text.lower() and len(text) < 4000:
        return int(text)
    return number if math.isfinite(number) else None
