"""By which rules arguments are compared: said once, or for each tool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, get_args

from evalve.errors import OptionError
from evalve.options import suggestion

_LOG = logging.getLogger(__name__)
Compare = Literal["exact", "subset", "values", "ignore"]
COMPARE: tuple[str, ...] = get_args(Compare)


@dataclass(frozen=True, slots=True)
class ArgumentRules:
    """How the arguments of calls are compared with those that are expected."""

    compare: Compare | Callable[[dict[str, Any], dict[str, Any]], bool] = "exact"
    """`exact`: these arguments and no others; `subset`: these, in objects too, and others beside them;
    `values`: each expected argument is a list of allowed values, with `""` for "may be omitted"; `ignore`:
    not at all; or a function of the called and the expected arguments."""
    ignore: tuple[str, ...] = ()
    """Globs of arguments that do not count, as in `request_id` or `filters.*.id`."""
    tolerance: float = 0.0
    """How far a number may be off."""
    relative: float = 0.0
    """The same as a share of the expected number."""
    coerce: bool = False
    """Whether `5`, `"5"` and `5.0`, and `true` and `"true"`, are the same."""
    loose_text: bool = False
    """Whether case, spaces and the signs `,./-_*^` in texts do not count."""
    unordered_lists: bool = False
    """Whether the items of a list may stand in any order."""
    defaults: bool = True
    """Whether an argument that has its default (of `tools=`) is the same as one that is left out."""
    per_tool: Mapping[str, ArgumentRules] = field(default_factory=dict)
    """Other rules for some tools, by their names or by globs of these."""

    def of(self, *names: str) -> ArgumentRules:
        """The rules of a tool that may have several names: as it is expected, as it is called."""
        for name in names:
            if name in self.per_tool:
                return self.per_tool[name]
        globs = (
            rules for glob, rules in self.per_tool.items() if any(fnmatchcase(one, glob) for one in names)
        )
        return next(globs, self)

    def unused(self, names: Collection[str]) -> list[str]:
        """Which of `per_tool` are about none of these tools."""
        return [glob for glob in self.per_tool if not any(fnmatchcase(name, glob) for name in names)]


_FIELDS = tuple(each.name for each in fields(ArgumentRules))
_SWITCHES = ("coerce", "loose_text", "unordered_lists", "defaults")
_NUMBERS = ("tolerance", "relative")


def as_rules(given: Any, *, base: ArgumentRules | None = None) -> ArgumentRules:
    """Rules from rules, a word, a function, or a mapping of the fields as YAML has it; else `OptionError`.

    `base` is what holds where a mapping says nothing.
    """
    if isinstance(given, ArgumentRules):
        given = {name: getattr(given, name) for name in _FIELDS}
    start = base or ArgumentRules()
    if isinstance(given, str) or callable(given):
        return replace(start, compare=_checked_compare(given), per_tool={})
    if not isinstance(given, Mapping):
        raise OptionError(
            f"arguments= is {', '.join(COMPARE)}, a function, or a mapping of rules, as in"
            f" {{'compare': 'subset', 'ignore': ['request_id']}}; got {given!r}"
        )
    for name in given:
        if name not in _FIELDS:
            raise OptionError(
                f"arguments=: there is no rule {name!r}{suggestion(str(name), _FIELDS)} (there is:"
                f" {', '.join(_FIELDS)})"
            )
    said = {name: _checked(name, value) for name, value in given.items() if name != "per_tool"}
    rules = replace(start, **said, per_tool={})
    tools = given.get("per_tool", {})
    if not isinstance(tools, Mapping):
        raise OptionError(f"arguments=: per_tool has rules by the name of a tool; got {tools!r}")
    return replace(rules, per_tool={str(name): as_rules(one, base=rules) for name, one in tools.items()})


def _checked(name: str, value: Any) -> Any:
    if name == "compare":
        return _checked_compare(value)
    if name == "ignore":
        globs = [value] if isinstance(value, str) else value
        if not isinstance(globs, list | tuple) or not all(isinstance(one, str) for one in globs):
            raise OptionError(f"arguments=: ignore has names or globs, as in ['request_id']; got {value!r}")
        return tuple(globs)
    if name in _SWITCHES and not isinstance(value, bool):
        raise OptionError(f"arguments=: {name} is true or false; got {value!r}")
    if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
        raise OptionError(f"arguments=: {name} is a number, 0 or more; got {value!r}")
    return value


def _checked_compare(value: Any) -> Any:
    if callable(value) or value in COMPARE:
        return value
    hint = suggestion(str(value), COMPARE) or f" (there is: {', '.join(COMPARE)}, or a function)"
    raise OptionError(f"arguments=: arguments cannot be compared by {value!r}{hint}")


def tell_unused(rules: ArgumentRules, names: Collection[str], tools: Collection[str] | None) -> None:
    """Say which rules are about a tool that there is not; without the tools, only what seems misspelt.

    `names` are those of the calls of one sample, of which the next may have others.
    """
    for name in rules.unused({*names, *(tools or ())}) if rules.per_tool else ():
        near = suggestion(
            name, [one for one in dict.fromkeys([*(tools or ()), *names]) if one not in rules.per_tool]
        )
        if near or tools is not None:
            _tell_once(name, near)


@lru_cache(maxsize=1000)
def _tell_once(name: str, near: str) -> None:
    """Every sample brings the same rules."""
    _LOG.warning("arguments=: per_tool has rules for %r, and there is no such tool%s", name, near)
