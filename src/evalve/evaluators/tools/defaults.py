"""Arguments without the defaults of the schema: giving one and leaving it out are the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalve.evaluators.tools.comparing import compare_arguments
from evalve.evaluators.tools.definitions import referred_to
from evalve.evaluators.tools.rules import ArgumentRules


def without_defaults(
    called: Mapping[str, Any], expected: Mapping[str, Any], schema: Any, rules: ArgumentRules
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both sides without what one of them leaves out and the other gives as its default, inside objects too.

    An expected value that is left out may be any that the default fulfils: `near(10)`, for one.
    """
    return _of_objects(called, expected, schema, _Schemas(schema, rules))


class _Schemas:
    """A tool's schema, in which parts refer to each other, and the rules by which values are compared."""

    def __init__(self, whole: Any, rules: ArgumentRules) -> None:
        self._whole = whole
        self.rules = rules

    def properties(self, schema: Any) -> dict[str, Any]:
        """The members of an object, and of what it is put together of: models in classes write it so."""
        found: dict[str, Any] = {}
        for part in self._parts(schema):
            properties = part.get("properties")
            found.update(properties if isinstance(properties, Mapping) else {})
        return found

    def items(self, schema: Any) -> Any:
        return next((part["items"] for part in self._parts(schema) if "items" in part), None)

    def _parts(self, schema: Any, depth: int = 0) -> list[Mapping[str, Any]]:
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return []
        inside = [one for key in ("allOf", "anyOf", "oneOf") for one in schema.get(key) or ()]
        if isinstance(schema.get("$ref"), str):
            inside.append(referred_to(self._whole, schema["$ref"]))
        return [schema, *(part for one in inside for part in self._parts(one, depth + 1))]


_DEEPEST = 8


def _of_objects(
    called: Mapping[str, Any], expected: Mapping[str, Any], schema: Any, schemas: _Schemas
) -> tuple[dict[str, Any], dict[str, Any]]:
    made, wanted = dict(called), dict(expected)
    for name, one in schemas.properties(schema).items():
        if name in made and name in wanted:
            made[name], wanted[name] = _of_values(made[name], wanted[name], one, schemas)
        elif isinstance(one, Mapping) and "default" in one:
            default = one["default"]  # which may leave out what has a default itself
            if name in made and _fits(*_of_values(made[name], default, one, schemas), ArgumentRules()):
                del made[name]
            elif name in wanted and _fits(*_of_values(default, wanted[name], one, schemas), schemas.rules):
                del wanted[name]
    return made, wanted


def _of_values(called: Any, expected: Any, schema: Any, schemas: _Schemas) -> tuple[Any, Any]:
    if isinstance(called, Mapping) and isinstance(expected, Mapping):
        return _of_objects(called, expected, schema, schemas)
    if not _is_list(called) or not _is_list(expected) or len(called) != len(expected):
        return called, expected
    items = schemas.items(schema)
    pairs = [_of_values(*both, items, schemas) for both in zip(called, expected, strict=True)]
    return [made for made, _ in pairs], [wanted for _, wanted in pairs]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _fits(given: Any, wanted: Any, rules: ArgumentRules) -> bool:
    return not compare_arguments("", {"": given}, {"": wanted}, rules).found
