"""Values that conform to a schema, judged by a real validator."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest

from evalve.simulator.conforming import conforming

SCHEMAS: dict[str, dict[str, Any]] = {
    "enum": {"enum": ["a", "b"]},
    "const": {"const": 7},
    "nullable": {"type": ["string", "null"]},
    "bounds": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "integers above": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    "multiples": {"type": "integer", "minimum": 1, "multipleOf": 5},
    "below zero": {"type": "integer", "maximum": -3},
    "short text": {"type": "string", "maxLength": 3},
    "long text": {"type": "string", "minLength": 40},
    "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 3},
    "none": {"type": "array", "maxItems": 0},
    "alternatives": {"anyOf": [{"type": "object", "properties": {"x": {"type": "null"}}}, {"type": "null"}]},
    "merged": {"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"type": "object"}]},
    "reference": {
        "$defs": {"name": {"type": "string"}},
        "type": "object",
        "properties": {"name": {"$ref": "#/$defs/name"}},
        "required": ["name"],
        "additionalProperties": False,
    },
    "recursion": {
        "type": "object",
        "properties": {"child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["child"],
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", range(5))
def test_a_made_value_conforms(name: str, seed: int) -> None:
    jsonschema.validate(conforming(SCHEMAS[name], random.Random(seed)), SCHEMAS[name])


def test_the_same_seed_gives_the_same_value() -> None:
    schema = {"type": "array", "items": {"enum": list(range(100))}, "minItems": 20}
    assert conforming(schema, random.Random(1)) == conforming(schema, random.Random(1))
    assert conforming(schema, random.Random(1)) != conforming(schema, random.Random(2))
