"""A JSON value that conforms to a JSON schema, the same one for the same seed."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

_DEEPEST = 12
_FORMATS = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
}


def conforming(schema: Mapping[str, Any], chance: random.Random) -> Any:
    """Covers what structured output allows: types, enum, const, anyOf, allOf, local $ref and bounds.

    Not covered: `pattern`, `not`, `if`, and properties that exclude each other.
    """
    return _value(schema, root=schema, chance=chance, depth=0)


def _value(schema: Any, *, root: Mapping[str, Any], chance: random.Random, depth: int) -> Any:
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return chance.choice(schema["enum"])
    for alternatives in ("anyOf", "oneOf"):
        if schema.get(alternatives):
            options = schema[alternatives]
            # deep down the last alternative, by custom null, ends a recursion
            option = options[-1] if depth >= _DEEPEST else options[0]
            return _value(option, root=root, chance=chance, depth=depth + 1)
    kind = _kind_of(schema)
    if kind == "object":
        return _object(schema, root=root, chance=chance, depth=depth)
    if kind == "array":
        return _array(schema, root=root, chance=chance, depth=depth)
    return _scalar(kind, schema, chance)


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with its $ref followed and its allOf merged."""
    found = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(_DEEPEST):
        reference = found.pop("$ref", None)
        if not isinstance(reference, str):
            break
        target: Any = root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else []:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
        found = {**(target if isinstance(target, Mapping) else {}), **found}
    for part in found.pop("allOf", []):
        other = _resolved(part, root)
        properties = {**found.get("properties", {}), **other.get("properties", {})}
        required = [*found.get("required", []), *other.get("required", [])]
        found = {**found, **other}
        if properties:
            found |= {"properties": properties, "required": required}
    return found


def _kind_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _object(
    schema: Mapping[str, Any], *, root: Mapping[str, Any], chance: random.Random, depth: int
) -> dict[str, Any]:
    required = set(schema.get("required", []))
    return {
        name: _value(inner, root=root, chance=chance, depth=depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or depth < _DEEPEST
    }


def _array(
    schema: Mapping[str, Any], *, root: Mapping[str, Any], chance: random.Random, depth: int
) -> list[Any]:
    fewest = int(schema.get("minItems", 0))
    wanted = fewest if depth >= _DEEPEST else max(fewest, min(1, int(schema.get("maxItems", 1))))
    items = [
        _value(inner, root=root, chance=chance, depth=depth + 1) for inner in schema.get("prefixItems", [])
    ]
    while len(items) < wanted:
        items.append(_value(schema.get("items", {}), root=root, chance=chance, depth=depth + 1))
    return items


def _scalar(kind: str, schema: Mapping[str, Any], chance: random.Random) -> Any:
    if kind == "null":
        return None
    if kind == "boolean":
        return chance.random() < 0.5
    if kind in ("integer", "number"):
        return _number(kind, schema, chance)
    text = _FORMATS.get(str(schema.get("format")), f"text {chance.randrange(16**4):04x}")
    text = text.ljust(int(schema.get("minLength", 0)), ".")
    return text[: int(schema["maxLength"])] if "maxLength" in schema else text


def _number(kind: str, schema: Mapping[str, Any], chance: random.Random) -> int | float:
    step = schema.get("multipleOf") or (1 if kind == "integer" else None)
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 0 if high is None or high > 0 else high - 10
    if high is None:
        high = low + 10
    if step is None:
        return round(float(low + (high - low) * (0.25 + 0.5 * chance.random())), 6)
    first = math.ceil(low / step) + ("exclusiveMinimum" in schema and low % step == 0)
    last = math.floor(high / step) - ("exclusiveMaximum" in schema and high % step == 0)
    number = chance.randint(first, max(first, last)) * step
    return int(number) if kind == "integer" else float(number)
