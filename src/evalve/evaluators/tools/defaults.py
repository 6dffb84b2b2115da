"""Arguments without the defaults of the schema: giving one and leaving it out are the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalve.evaluators.tools.comparing import compare_arguments
from evalve.evaluators.tools.rules import ArgumentRules


def without_defaults(
    called: Mapping[str, Any], expected: Mapping[str, Any], schema: Any, rules: ArgumentRules
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both sides without what one of them leaves out and the other gives as its default, inside objects too.

    An expected value that is left out may be any that the default fulfils: `near(10)`, for one.
    """
    made, wanted = dict(called), dict(expected)
    for name, one in _properties(schema).items():
        if name in made and name in wanted:
            if isinstance(made[name], Mapping) and isinstance(wanted[name], Mapping):
                made[name], wanted[name] = without_defaults(made[name], wanted[name], one, rules)
        elif isinstance(one, Mapping) and "default" in one:
            if name in made and _fits(made[name], one["default"], ArgumentRules()):
                del made[name]
            elif name in wanted and _fits(one["default"], wanted[name], rules):
                del wanted[name]
    return made, wanted


def _fits(given: Any, wanted: Any, rules: ArgumentRules) -> bool:
    return not compare_arguments("", {"": given}, {"": wanted}, rules).found


def _properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}
