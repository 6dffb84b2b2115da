"""The JSON Schema of `evalve.yaml`, for editors and for checks: made from the declaration of the keys."""

from __future__ import annotations

import json
from typing import Any

from evalve.experiments.file.keys import (
    AGENT_MODEL,
    API_MODEL,
    DATASET,
    EXPERIMENT,
    NAMES,
    PAIR_MODEL,
    SANDBOXES,
    TEXT,
    Table,
    option_keys,
    option_schema,
)

FILE = "evalve.schema.json"
"""Beside this module: what `evalve validate --schema` prints."""


def schema() -> dict[str, Any]:
    options = {key: _described(option_schema(one), one.help) for key, one in option_keys().items()}
    experiment = {
        key: _or_nothing(one)
        for key, one in {**options, **_properties(EXPERIMENT)}.items()
        if key != "extends"
    } | {"extends": _properties(EXPERIMENT)["extends"]}
    model = {
        "anyOf": [
            TEXT.schema,
            _entry(API_MODEL, ["model", "extends"]),
            _entry(AGENT_MODEL, ["agent", "extends"]),
            _entry(PAIR_MODEL, ["student", "extends"]),
        ]
    }
    dataset = {"anyOf": [TEXT.schema, _entry(DATASET, ["path", "huggingface"])]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "evalve.yaml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "options": _described(_mapping(options), "for every experiment"),
            "models": _described(_by_name(model), "models and agents by name"),
            "datasets": _described(_by_name(dataset), "datasets by name"),
            "experiments": _described(
                _by_name({"anyOf": [_mapping(experiment), {"type": "null"}]}), "experiments by name"
            ),
            "sandboxes": _described(
                _mapping({name: _required(table) for name, table in SANDBOXES.items()}),
                "what samples are lent, by name",
            ),
            "limits": {"type": ["object", "null"], "description": "what providers allow"},
            "prices": {"type": ["object", "null"], "description": "USD per million tokens, by model"},
            "extends": _described(dict(NAMES.schema), "files whose entries hold where this one says nothing"),
        },
    }


def schema_text() -> str:
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


def _properties(table: Table) -> dict[str, Any]:
    return {name: _described(key.kind.schema, key.help) for name, key in table.by_name.items()}


def _entry(table: Table, one_of: list[str]) -> dict[str, Any]:
    return {**_mapping(_properties(table)), "anyOf": [{"required": [key]} for key in one_of]}


def _required(table: Table) -> dict[str, Any]:
    return {**_mapping(_properties(table)), "required": list(table.required)}


def _mapping(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _or_nothing(schema: dict[str, Any]) -> dict[str, Any]:
    """A key without a value takes away what an experiment takes over."""
    own = dict(schema)
    return _described({"anyOf": [own, {"type": "null"}]}, own.pop("description"))


def _by_name(entry: Any) -> dict[str, Any]:
    return {"type": ["object", "null"], "additionalProperties": entry}


def _described(schema: Any, words: str) -> dict[str, Any]:
    return {**schema, "description": words.replace("%%", "%")}
