"""From a function's signature, annotations and docstring to the definition that a model is told. Pure."""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from evalve.errors import DeclarationError

CONNECTION = "connection"
"""The parameter that is lent the database's connection, and that no model is told of."""

_PLAIN: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    time: {"type": "string", "format": "time"},
    UUID: {"type": "string", "format": "uuid"},
    Decimal: {"type": ["number", "string"]},
    Any: {},
    object: {},
    inspect.Parameter.empty: {},
}
_READ: Mapping[Any, Callable[[Any], Any]] = {
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
    Decimal: lambda value: Decimal(str(value)),
}
_UNIONS = (typing.Union, types.UnionType)
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^\s+(\w+)\s*(?:\([^)]*\))?:\s*(.+)$")


def definition_of(function: Callable[..., Any], *, name: str | None = None) -> dict[str, Any]:
    """`name`, `description` and `parameters` of a function; `DeclarationError` where it cannot be a tool."""
    who = f"tool {function.__name__!r}"
    hints = annotations_of(function)
    said, described = _docstring(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in _told(function, who):
        annotation = hints.get(parameter.name, parameter.annotation)
        schema = schema_of(annotation, f"{who}: the parameter {parameter.name!r}")
        if parameter.name in described:
            schema.setdefault("description", described[parameter.name])
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            default = parameter.default
            default = default.value if isinstance(default, enum.Enum) else default
            if default is None or isinstance(default, str | int | float | bool):
                schema["default"] = default  # with which an argument is the same as without it
        properties[parameter.name] = schema
    parameters: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        parameters["required"] = required
    told = {"description": said} if said else {}
    return {"name": name or function.__name__, **told, "parameters": parameters}


def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise DeclarationError(
            f"tool {function.__name__!r}: its annotations cannot be read: {error}; import what they name, or "
            "give the definition yourself: @tool(definition={…})"
        ) from error


def _told(function: Callable[..., Any], who: str) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise DeclarationError(
                f"{who} takes {parameter}: a model calls by name, so name each argument, or give the "
                "definition yourself: @tool(definition={…})"
            )
        if parameter.name != CONNECTION:
            yield parameter


def schema_of(annotation: Any, who: str) -> dict[str, Any]:
    """The JSON Schema of an annotation."""
    if annotation in _PLAIN if _is_hashable(annotation) else False:
        return dict(_PLAIN[annotation])
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        schema = schema_of(inside[0], who)
        words = next((one for one in inside[1:] if isinstance(one, str)), None)
        return schema if words is None else {**schema, "description": words}
    if origin is typing.Literal:
        return {"enum": list(inside)}
    if origin in _UNIONS:
        return _union([schema_of(one, who) for one in inside])
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"enum": [member.value for member in annotation]}
    if typing.is_typeddict(annotation):
        return _typed_dict(annotation, who)
    kind = origin or annotation
    if kind in (list, tuple, set, frozenset, Sequence):
        items = [one for one in inside if one is not Ellipsis]
        return {"type": "array", **({"items": schema_of(items[0], who)} if items else {})}
    if kind in (dict, Mapping):
        values = {"additionalProperties": schema_of(inside[1], who)} if len(inside) == 2 else {}
        return {"type": "object", **values}
    raise DeclarationError(
        f"{who} is annotated with {annotation!r}, for which there is no JSON Schema; annotate it with plain "
        "types, or give the definition yourself: @tool(definition={…})"
    )


def _typed_dict(annotation: Any, who: str) -> dict[str, Any]:
    hints = typing.get_type_hints(annotation, include_extras=True)
    return {
        "type": "object",
        "properties": {name: schema_of(one, who) for name, one in hints.items()},
        "required": sorted(annotation.__required_keys__),
        "additionalProperties": False,
    }


def _union(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Types side by side where that says all: providers read it better than `anyOf`."""
    if all(schema.keys() == {"type"} and isinstance(schema["type"], str) for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    if len(schemas) == 2 and {"type": "null"} in schemas:
        (other,) = [schema for schema in schemas if schema != {"type": "null"}]
        if other.keys() == {"enum"}:
            return {"enum": [*other["enum"], None]}
    return {"anyOf": schemas}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """What it says of the tool, and of parameters in a section `Args:`."""
    parts = _SECTION.split(text, maxsplit=1)
    described: dict[str, str] = {}
    for line in parts[1].splitlines() if len(parts) > 1 else ():
        if line.strip() and not line.startswith((" ", "\t")):
            break
        if match := _ENTRY.match(line):
            described[match[1]] = match[2].strip()
    return parts[0].strip(), described


def read_value(annotation: Any, value: Any) -> Any:
    """An argument as the function's annotation has it: a date from its text. `ValueError` if it is none."""
    if value is None:
        return None
    if typing.get_origin(annotation) is typing.Annotated:
        return read_value(typing.get_args(annotation)[0], value)
    if typing.get_origin(annotation) in _UNIONS:
        others = [one for one in typing.get_args(annotation) if one is not type(None)]
        return read_value(others[0], value) if len(others) == 1 else value
    if typing.get_origin(annotation) is list and isinstance(value, list):
        return [read_value(typing.get_args(annotation)[0], one) for one in value]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return annotation(value)
    read = _READ.get(annotation) if _is_hashable(annotation) else None
    try:
        return value if read is None else read(value)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"{value!r} is not a {annotation.__name__}") from error


def _is_hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True
