"""One tool call, out of the mapping or the object that a provider, a protocol or an agent makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NoReturn

from evalve.errors import ResultError
from evalve.jsontext import as_plain
from evalve.options import suggestion
from evalve.records import ToolCall

_ARGUMENTS = ("arguments", "args", "input", "parameters", "input_parameters", "tool_input")
_NAMES = ("name", "tool_name", "tool")
_IDS = ("call_id", "id", "tool_id", "tool_call_id", "toolUseId")
_OF_RESULTS = ("tool", "tool_result", "function_call_output", "ai", "human", "system", "init", "result")
_PLAIN = str | int | float | bool | None


def field(given: Any, name: str) -> Any:
    """A member of a mapping or an attribute of an object; `None` where there is none."""
    if isinstance(given, Mapping):
        return given.get(name)
    value = getattr(given, name, None)
    return None if callable(value) else value


def is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def has_name(given: Any) -> bool:
    name = field(given, "name")
    return isinstance(name, str) and bool(name)


def from_parts(
    name: Any, arguments: Any, id: Any, are_expected: bool = False, *, unparsed: bool = False
) -> ToolCall:
    """Arguments that come as text are parsed; no object is their own verdict. Left out, there are none."""
    identity = id if isinstance(id, str) else "" if id is None else str(id)
    if unparsed:
        return ToolCall(str(name), arguments, identity, unparsed=True)
    if arguments is None:
        return ToolCall(str(name), None if are_expected else {}, identity)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=refuse_constant) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return ToolCall(str(name), arguments, identity, unparsed=True)
    if isinstance(arguments, Mapping):
        convert = _undated if are_expected else _plain
        plain = {str(key): convert(value) for key, value in arguments.items()}
        return ToolCall(str(name), plain, identity)
    dump = getattr(arguments, "model_dump", None)
    if callable(dump):
        return ToolCall(str(name), as_plain(dump()), identity)
    return ToolCall(str(name), arguments, identity, unparsed=True)


def refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _plain(value: Any) -> Any:
    """As JSON would bring it: SDKs have mappings and lists of their own."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_list(value):
        return [_plain(item) for item in value]
    return as_plain(value)


def _undated(value: Any) -> Any:
    """An expected value as it is; dates, which YAML reads by itself, as the text that a model writes."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _undated(item) for key, item in value.items()}
    return [_undated(item) for item in value] if isinstance(value, list | tuple) else value


def plain_call(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """`{"name": …, "arguments": …, "id": …}`, whatever they are called."""
    if are_expected and isinstance(given, Mapping) and not has_arguments(given):
        _refuse_misspelt(given)
    yield from_parts(_first(given, _NAMES), _first(given, _ARGUMENTS), _first(given, _IDS), are_expected)


def _refuse_misspelt(given: Mapping[str, Any]) -> None:
    """Without arguments, any will do: what was meant as arguments must not be left out in silence."""
    for key, value in given.items():
        if key in (*_ARGUMENTS, *_NAMES, *_IDS):
            continue
        hint = suggestion(str(key), _ARGUMENTS)
        if hint or isinstance(value, Mapping):
            raise ResultError(
                f"the expected call of {_first(given, _NAMES)!r} has {key!r} and no 'arguments' (without"
                f" either, any arguments will do){hint}"
            )


def is_plain_call(given: Any) -> bool:
    """Messages and results have names as well: of who speaks, and of the tool that answers."""
    return (
        isinstance(_first(given, _NAMES), str)
        and field(given, "role") is None
        and field(given, "kind") in (None, "tool_call")
        and field(given, "part_kind") in (None, "tool-call")
        and field(given, "type") not in _OF_RESULTS
    )


def has_arguments(given: Any) -> bool:
    return _first(given, _ARGUMENTS) is not None


def _first(given: Any, names: Sequence[str]) -> Any:
    return next((found for name in names if (found := field(given, name)) is not None), None)


def free_text_call(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """A custom tool of OpenAI's, whose input is a text and is not meant to be JSON."""
    custom = field(given, "custom") or given
    arguments = {"input": field(custom, "input")}
    yield from_parts(field(custom, "name"), arguments, _first(given, _IDS), are_expected)


def mcp_request(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    parameters = field(given, "params")
    arguments, id = field(parameters, "arguments"), field(given, "id")
    yield from_parts(field(parameters, "name"), arguments, id, are_expected)


def codex_item(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """As the adapter of Codex names them in the trace."""
    kind = field(given, "type") or field(given, "item_type")
    id = field(given, "id")
    if kind == "command_execution":
        yield from_parts("shell", {"command": field(given, "command")}, id, are_expected)
    elif kind == "mcp_tool_call":
        yield from_parts(field(given, "tool"), field(given, "arguments"), id, are_expected)
    else:
        rest = {key: value for key, value in dict(given).items() if key not in ("id", "type", "item_type")}
        yield from_parts(kind, rest, id, are_expected)


def openai_call(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    function = field(given, "function")
    yield from_parts(field(function, "name"), field(function, "arguments"), field(given, "id"), are_expected)
