"""Arguments of calls against the JSON Schemas of their tools, with the path of what does not fit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from evalve.errors import OptionError
from evalve.evaluators.json_schemas import NotASchema, errors_of, validator_of
from evalve.evaluators.tools.comparing import shown
from evalve.evaluators.tools.definitions import ToolDefinition
from evalve.evaluators.tools.misses import Kind, Miss, value_text
from evalve.jsontext import as_plain, as_text, from_json, to_json
from evalve.options import suggestion
from evalve.records import ToolCall

_KINDS: Mapping[str, Kind] = {
    "required": "missing argument",
    "dependentRequired": "missing argument",
    "additionalProperties": "unexpected argument",
    "unevaluatedProperties": "unexpected argument",
    "type": "wrong type",
}
_TYPES_OF_OPENAPI = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
_MOST_PER_CALL = 10


def invalid_calls(
    calls: Sequence[ToolCall], tools: Sequence[ToolDefinition], provided: Collection[str] = ()
) -> list[tuple[ToolCall, list[Miss]]]:
    """The calls that do not fit, each with what is wrong; of `provided` tools nobody knows a schema."""
    for place, tool in enumerate(tools, 1):
        if not isinstance(tool.name, str) or not tool.name:
            raise OptionError(
                f"tools=: tool {place} has no name; valid_tool_schemas(tools) tells what is wrong"
            )
    by_name = {tool.name: tool for tool in tools}
    known = [call for call in calls if call.name in by_name or call.name not in provided]
    found = [(call, list(_misses(call, by_name))) for call in known]
    return [(call, misses) for call, misses in found if misses]


def _misses(call: ToolCall, tools: Mapping[Any, ToolDefinition]) -> Iterator[Miss]:
    tool = tools.get(call.name)
    if tool is None:
        hint = suggestion(call.name, [str(name) for name in tools])
        yield Miss("wrong tool", call.name, f"there is no tool {call.name!r}{hint}")
        return
    if call.unparsed or not isinstance(call.arguments, Mapping):
        said = as_text(call.arguments)[:200]
        yield Miss("bad JSON", call.name, f"{call.name}: the arguments are not a JSON object: {said}")
        return
    if tool.schema is None:
        return
    try:
        errors = list(errors_of(_validator(to_json(tool.schema)), as_plain(call.arguments)))
    except NotASchema as problem:
        raise OptionError(
            f"tools=: the schema of {call.name} is not a JSON Schema: {problem}; valid_tool_schemas(tools)"
            " tells all that is wrong with tools"
        ) from problem
    for error in errors[:_MOST_PER_CALL]:
        kind, names, why = _told(error)
        for name in names:
            path = shown((*error.absolute_path, *([name] if name else [])))
            yield Miss(kind, call.name, f"{call.name}: {path or 'the arguments'}: {why}", path)


def _told(error: Any) -> tuple[Kind, list[str], str]:
    """The kind, the members that it is about, and why."""
    kind = _KINDS.get(error.validator, "wrong value")
    if error.validator == "required":
        absent = [name for name in error.validator_value if name not in error.instance]
        # one error for each that is absent; the message names it
        named = [name for name in absent if error.message.startswith(repr(name))]
        return kind, named or absent[:1], "it is required"
    if error.validator == "additionalProperties" and isinstance(
        error.schema.get("properties"), Mapping | None
    ):
        known = error.schema.get("properties") or {}
        patterns = error.schema.get("patternProperties")
        if not patterns:
            unknown = [name for name in error.instance if name not in known]
            return (
                kind,
                unknown,
                f"there is no such argument{suggestion(unknown[0], known) if unknown else ''}",
            )
    if error.validator == "type":
        wanted = error.validator_value
        words = wanted if isinstance(wanted, str) else " or ".join(map(str, wanted))
        return kind, [""], f"{value_text(error.instance)} is not of type {words}"
    return kind, [""], str(error.message)[:200]


@lru_cache(maxsize=512)
def _validator(schema_json: str) -> Any:
    """Checking a schema takes a thousand times as long as using it, and each sample brings the same ones."""
    return validator_of(closed(standard_types(from_json(schema_json))), who="tool_schema_valid")


_PARTS = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_BY_NAME = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_VALUES = ("enum", "const", "default", "examples")


def closed(schema: Any, *, is_part: bool = False) -> Any:
    """The schema with objects that list their members, and say nothing of others, taking no others.

    Where an object is put together of parts, none of them knows all members, and all stay open.
    """
    if isinstance(schema, list):
        return [closed(item, is_part=is_part) for item in schema]
    if not isinstance(schema, dict):
        return schema
    composed = schema.keys() & {*_PARTS, "$ref", "unevaluatedProperties"}
    is_union = composed <= {"anyOf", "oneOf"} and len(composed) <= 1 and "properties" not in schema
    copy = {}
    for name, value in schema.items():
        if name in _VALUES:
            copy[name] = value
        elif name in _BY_NAME and isinstance(value, dict):
            copy[name] = {key: closed(one) for key, one in value.items()}
        else:
            copy[name] = closed(value, is_part=name in _PARTS and (is_part or not is_union))
    if "properties" in schema and not composed and not is_part:
        copy.setdefault("additionalProperties", False)
    return copy


def standard_types(schema: Any) -> Any:
    """Gemini writes types in capitals, as OpenAPI's protocol buffers do; JSON Schema does not."""
    if isinstance(schema, list):
        return [standard_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value.lower()
        if name == "type" and isinstance(value, str) and value in _TYPES_OF_OPENAPI
        else standard_types(value)
        for name, value in schema.items()
    }
