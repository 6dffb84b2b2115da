"""What may stand in place of an expected value: several values, a tolerance, a pattern, a check.

Each is also written as JSON, for datasets and YAML: `{"$one_of": ["cat", "cats"], "$optional": true}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalve.errors import OptionError
from evalve.evaluators.tools.misses import value_text


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any of several values, each of which may be a matcher itself."""

    values: tuple[Any, ...]
    may_be_omitted: bool = False

    def in_words(self) -> str:
        return f"one of {', '.join(value_text(one) for one in self.values)}"


@dataclass(frozen=True, slots=True)
class Near:
    """A number within an absolute or a relative distance, whichever is larger."""

    value: float
    tolerance: float = 0.0
    relative: float = 0.0

    def in_words(self) -> str:
        return f"{self.value} ± {max(self.tolerance, abs(self.relative * self.value)):g}"


@dataclass(frozen=True, slots=True)
class Matching:
    """A text in which the regular expression is found; anchor it with ^ and $ for all of it."""

    pattern: str

    def in_words(self) -> str:
        return f"a text that matches {self.pattern!r}"


@dataclass(frozen=True, slots=True)
class Anything:
    """Whatever it is, it must be there."""

    def in_words(self) -> str:
        return "anything"


def one_of(*values: Any, optional: bool = False) -> OneOf:
    """Any of these values; with `optional=True` the argument may also be left out."""
    if not values:
        raise OptionError("one_of() needs at least one value, as in one_of('cat', 'cats')")
    return OneOf(values, optional)


def optional(value: Any) -> OneOf:
    """This value, or no argument at all."""
    return OneOf((value,), may_be_omitted=True)


def near(value: float, tolerance: float = 0.0, relative: float = 0.0) -> Near:
    """A number that is at most `tolerance`, or `relative` times the value, away from this one."""
    for name, number in (("value", value), ("tolerance", tolerance), ("relative", relative)):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise OptionError(f"near(): {name} needs a number; got {number!r}")
    if tolerance < 0 or relative < 0:
        raise OptionError(f"near(): tolerance and relative are 0 or more; got {min(tolerance, relative)}")
    return Near(value, tolerance, relative)


def regex(pattern: str | re.Pattern[str]) -> Matching | re.Pattern[str]:
    """A text in which the regular expression is found."""
    if isinstance(pattern, re.Pattern):
        return pattern
    compiled(pattern)
    return Matching(pattern)


def anything() -> Anything:
    """Whatever value: only that the argument is there counts."""
    return Anything()


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise OptionError(f"{pattern!r} is not a regular expression: {error}") from error


_WRITTEN: dict[frozenset[str], Callable[[Mapping[str, Any]], Any]] = {
    frozenset({"$one_of"}): lambda given: one_of(*_listed(given)),
    frozenset({"$one_of", "$optional"}): lambda given: one_of(
        *_listed(given), optional=bool(given["$optional"])
    ),
    frozenset({"$optional"}): lambda given: optional(given["$optional"]),
    frozenset({"$near"}): lambda given: near(given["$near"]),
    frozenset({"$near", "$tolerance"}): lambda given: near(given["$near"], given["$tolerance"]),
    frozenset({"$near", "$relative"}): lambda given: near(given["$near"], relative=given["$relative"]),
    frozenset({"$near", "$tolerance", "$relative"}): lambda given: near(
        given["$near"], given["$tolerance"], given["$relative"]
    ),
    frozenset({"$regex"}): lambda given: regex(given["$regex"]),
    frozenset({"$any"}): lambda given: anything(),
}


def _listed(given: Mapping[str, Any]) -> list[Any]:
    values = given["$one_of"]
    if not isinstance(values, list | tuple):
        raise OptionError(f"$one_of needs a list of values; got {values!r}")
    return list(values)


def as_matcher(value: Any) -> Any:
    """The matcher that a mapping writes down; any other value as it is.

    Only these keys and nothing beside them: `{"$gt": 5}` may be an argument of somebody's database.
    """
    if isinstance(value, Mapping) and value and all(str(key).startswith("$") for key in value):
        make = _WRITTEN.get(frozenset(map(str, value)))
        return make(value) if make is not None else value
    return value


def with_value_lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Expected arguments that are each a list of allowed values; an empty text among them: may be omitted."""
    found = {}
    for name, values in arguments.items():
        if not isinstance(values, list | tuple) or not values:
            raise OptionError(
                f"compare='values' takes a list of allowed values for each argument; {name} is {values!r}"
            )
        allowed = tuple(_value_lists_inside(value) for value in values)
        found[name] = OneOf(allowed, may_be_omitted="" in values)
    return found


def _value_lists_inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return with_value_lists(value)
    if isinstance(value, list | tuple):
        return [_value_lists_inside(item) if isinstance(item, Mapping) else item for item in value]
    return value
