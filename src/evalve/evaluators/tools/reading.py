"""Tool calls out of whatever holds them: answers, responses of SDKs, messages, transcripts, JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from evalve.errors import ResultError
from evalve.jsontext import as_plain, as_text
from evalve.records import ToolCall

ACCEPTED = (
    "an Answer, a response of an SDK, a list of ToolCall or of dicts with name and arguments, or JSON text"
    " of these"
)
_NAME = re.compile(r"[\w.:/*?-]{1,200}")
_FENCE = re.compile(r"```(?:json|tool_call|tool_code)?\s*\n(.*?)```", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_NAMED = re.compile(r'"(?:name|tool|tool_name)"\s*:\s*"([^"]+)"')
_ARGUMENTS = ("arguments", "args", "input", "parameters", "input_parameters")
_NAMES = ("name", "tool_name")
_IDS = ("call_id", "id", "tool_id", "tool_call_id")
_OF_RESULTS = ("tool", "tool_result", "function_call_output", "ai", "human", "system", "init", "result")
_PLAIN = str | int | float | bool | None


def tool_calls(given: Any) -> list[ToolCall]:
    """The calls in it, in order; `ResultError` where it is nothing that may hold any."""
    if given is None:
        raise ResultError(f"there are no tool calls in None: pass {ACCEPTED}; [] where no tool was called")
    return list(_in_any(given, nested=False))


def expected_calls(given: Any) -> list[ToolCall]:
    """What is expected, in the same forms; a mere name says nothing of the arguments."""
    if given is None:
        raise ResultError(
            "expected= is None: pass a list of the calls that are right, or [] where none is"
            " (a column of the dataset that is empty?)"
        )
    if isinstance(given, str) and _NAME.fullmatch(given.strip()):
        return [ToolCall(given.strip())]
    return list(_in_any(given, nested=False, are_expected=True))


# -- any value ---------------------------------------------------------------------------------------


def _in_any(given: Any, *, nested: bool, are_expected: bool = False) -> Iterator[ToolCall]:
    if isinstance(given, ToolCall):
        yield _from_parts(given.name, given.arguments, given.id, are_expected, unparsed=given.unparsed)
    elif isinstance(given, str | bytes | bytearray):
        text = given if isinstance(given, str) else bytes(given).decode("utf-8", "replace")
        if nested and _NAME.fullmatch(text.strip()):
            yield _from_parts(text.strip(), None, "", are_expected)
        else:
            yield from _in_text(text, are_expected)
    elif isinstance(given, Path):
        yield from _in_text(given.read_text(encoding="utf-8", errors="replace"), are_expected)
    elif isinstance(given, Sequence):
        for one in given:
            yield from _in_any(one, nested=True, are_expected=are_expected)
    elif given is None or isinstance(given, bool | int | float):
        _refuse(given)
    else:
        yield from _in_object(given, are_expected)


def _in_object(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """A mapping, or an object of an SDK, read by its attributes."""
    for holds, read in _SHAPES:
        if holds(given):
            yield from read(given, are_expected)
            return
    if _is_without_calls(given):
        return
    _refuse(given)


def _refuse(given: Any) -> NoReturn:
    shown = as_text(given)
    raise ResultError(
        f"{shown if len(shown) <= 200 else shown[:199] + '…'} ({type(given).__name__}) cannot be read as tool"
        f" calls: pass {ACCEPTED}"
    )


def _field(given: Any, name: str) -> Any:
    """A member of a mapping or an attribute of an object; `None` where there is none."""
    if isinstance(given, Mapping):
        return given.get(name)
    value = getattr(given, name, None)
    return None if callable(value) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _has_name(given: Any) -> bool:
    name = _field(given, "name")
    return isinstance(name, str) and bool(name)


# -- one call ----------------------------------------------------------------------------------------


def _from_parts(
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
            arguments = json.loads(arguments, parse_constant=_refuse_constant) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return ToolCall(str(name), arguments, identity, unparsed=True)
    if isinstance(arguments, Mapping):
        plain = {str(key): value if are_expected else _plain(value) for key, value in arguments.items()}
        return ToolCall(str(name), plain, identity)
    dump = getattr(arguments, "model_dump", None)
    if callable(dump):
        return ToolCall(str(name), as_plain(dump()), identity)
    return ToolCall(str(name), arguments, identity, unparsed=True)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _plain(value: Any) -> Any:
    """As JSON would bring it: SDKs have mappings and lists of their own."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if _is_list(value):
        return [_plain(item) for item in value]
    return as_plain(value)


def _call(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """`{"name": …, "arguments": …, "id": …}`, whatever they are called."""
    yield _from_parts(_first(given, _NAMES), _first(given, _ARGUMENTS), _first(given, _IDS), are_expected)


def _is_call(given: Any) -> bool:
    """Messages and results have names as well: of who speaks, and of the tool that answers."""
    return (
        isinstance(_first(given, _NAMES), str)
        and _field(given, "role") is None
        and _field(given, "kind") in (None, "tool_call")
        and _field(given, "part_kind") in (None, "tool-call")
        and _field(given, "type") not in _OF_RESULTS
    )


def _first(given: Any, names: Sequence[str]) -> Any:
    return next((found for name in names if (found := _field(given, name)) is not None), None)


def _free_text_call(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """A custom tool of OpenAI's, whose input is a text and is not meant to be JSON."""
    custom = _field(given, "custom") or given
    arguments = {"input": _field(custom, "input")}
    yield _from_parts(_field(custom, "name"), arguments, _first(given, _IDS), are_expected)


def _mcp_request(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    parameters = _field(given, "params")
    arguments, id = _field(parameters, "arguments"), _field(given, "id")
    yield _from_parts(_field(parameters, "name"), arguments, id, are_expected)


def _codex_item(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """As the adapter of Codex names them in the trace."""
    kind = _field(given, "type") or _field(given, "item_type")
    id = _field(given, "id")
    if kind == "command_execution":
        yield _from_parts("shell", {"command": _field(given, "command")}, id, are_expected)
    elif kind == "mcp_tool_call":
        yield _from_parts(_field(given, "tool"), _field(given, "arguments"), id, are_expected)
    else:
        rest = {key: value for key, value in dict(given).items() if key not in ("id", "type", "item_type")}
        yield _from_parts(kind, rest, id, are_expected)


def _openai_call(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    function = _field(given, "function")
    yield _from_parts(
        _field(function, "name"), _field(function, "arguments"), _field(given, "id"), are_expected
    )


# -- what holds calls --------------------------------------------------------------------------------


def _inside(*names: str) -> Any:
    """Reads what stands under a path of names; of choices and candidates, which are alternatives, the
    first."""

    def read(given: Any, are_expected: bool) -> Iterator[ToolCall]:
        for name in names:
            given = _field(given, name)
            if name in ("choices", "candidates"):
                given = given[0] if given else None
            if given is None:
                return
        yield from _in_any(given, nested=True, are_expected=are_expected)

    return read


def _message_content(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """Of blocks, those that are calls; a text in a message is what the model says, not what it calls."""
    for block in _field(given, "content"):
        if not isinstance(block, str):
            yield from _in_object(block, are_expected)


def _kind_is(*kinds: str) -> Any:
    return lambda given: _field(given, "type") in kinds


_CODEX = ("command_execution", "mcp_tool_call", "file_change", "web_search")
_SHAPES: Sequence[tuple[Any, Any]] = (
    # whole responses
    (lambda given: _is_list(_field(given, "choices")), _inside("choices", "message")),
    (lambda given: _is_list(_field(given, "candidates")), _inside("candidates", "content")),
    (lambda given: _is_list(_field(given, "output")), _inside("output")),
    (lambda given: _is_list(_field(given, "messages")), _inside("messages")),
    # messages
    (
        lambda given: _is_list(_field(given, "tool_calls")) and bool(_field(given, "tool_calls")),
        _inside("tool_calls"),
    ),
    (lambda given: _field(given, "method") == "tools/call", _mcp_request),
    (
        lambda given: _field(given, "type") == "assistant" and _field(given, "message") is not None,
        _inside("message"),
    ),
    (lambda given: _field(given, "type") == "item.completed", _inside("item")),
    (lambda given: _is_list(_field(given, "content")), _message_content),
    (lambda given: _is_list(_field(given, "parts")), _inside("parts")),
    # calls
    (_kind_is("custom_tool_call", "custom"), _free_text_call),
    (lambda given: (_field(given, "type") or _field(given, "item_type")) in _CODEX, _codex_item),
    (lambda given: _has_name(_field(given, "functionCall")), _inside("functionCall")),
    (lambda given: _has_name(_field(given, "function_call")), _inside("function_call")),
    (
        lambda given: _has_name(_field(given, "function")),
        _openai_call,
    ),
    (_is_call, _call),
)


def _is_without_calls(given: Any) -> bool:
    """A message, a block, an event or an answer that calls nothing."""
    known = ("role", "type", "kind", "text", "tool_calls", "stop_reason", "jsonrpc")
    return any(_field(given, name) is not None for name in known)


# -- text --------------------------------------------------------------------------------------------


def _in_text(text: str, are_expected: bool) -> Iterator[ToolCall]:
    """JSON by itself, in fences or tags, or line by line; a text without JSON calls nothing."""
    stripped = text.strip()
    for pattern in (_TAGGED, _FENCE):
        if parts := pattern.findall(stripped):
            for part in parts:
                yield from _in_json(part, are_expected)
            return
    if not stripped.startswith(("{", "[")):
        yield from _in_lines(stripped, are_expected)
        return
    yield from _in_json(stripped, are_expected)


def _in_json(text: str, are_expected: bool) -> Iterator[ToolCall]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        lines = list(_in_lines(text, are_expected))
        yield from lines or [_unreadable(text)]
        return
    if isinstance(value, dict | list):
        yield from _in_any(value, nested=True, are_expected=are_expected)


def _in_lines(text: str, are_expected: bool) -> Iterator[ToolCall]:
    """A transcript: a JSON object on each line, and whatever a program prints between them."""
    for line in text.splitlines():
        if not line.lstrip().startswith("{"):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and (
            _is_without_calls(value) or any(holds(value) for holds, _ in _SHAPES)
        ):
            yield from _in_object(value, are_expected)


def _unreadable(text: str) -> ToolCall:
    """What was meant to be a call and is not JSON, by the name that it mentions."""
    named = _NAMED.search(text)
    return ToolCall(named[1] if named else "?", text, unparsed=True)
