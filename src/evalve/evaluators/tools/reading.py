"""Tool calls out of whatever holds them: answers, responses of SDKs, messages, transcripts, JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from evalve.errors import ResultError
from evalve.evaluators.tools.one_call import (
    codex_item,
    field,
    free_text_call,
    from_parts,
    has_arguments,
    has_name,
    is_list,
    is_plain_call,
    mcp_request,
    openai_call,
    plain_call,
    refuse_constant,
)
from evalve.evaluators.tools.streams import whole_calls
from evalve.jsontext import as_text
from evalve.records import ToolCall

ACCEPTED = (
    "an Answer, a response of an SDK, a list of ToolCall or of dicts with name and arguments, or JSON text"
    " of these"
)
_NAME = re.compile(r"[\w.:/*?-]{1,200}")
_FENCE = re.compile(r"```(?:json|tool_call|tool_code)?\s*\n(.*?)```", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_NAMED = re.compile(r'"(?:name|tool|tool_name)"\s*:\s*"([^"]+)"')
_BEGINS = re.compile(r'\{\s*"|\[\s*\{\s*"')
_BEGINS_CALL = re.compile(r'[\[{\s]*"(?:name|tool|tool_name)"\s*:\s*"([^"]+)"')
_DECODER = json.JSONDecoder(parse_constant=refuse_constant)


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
        yield from_parts(given.name, given.arguments, given.id, are_expected, unparsed=given.unparsed)
    elif isinstance(given, str | bytes | bytearray):
        text = given if isinstance(given, str) else bytes(given).decode("utf-8", "replace")
        if nested and _NAME.fullmatch(text.strip()):
            yield from_parts(text.strip(), None, "", are_expected)
        else:
            yield from _in_text(text, are_expected)
    elif isinstance(given, Path):
        yield from _in_text(given.read_text(encoding="utf-8", errors="replace"), are_expected)
    elif isinstance(given, Sequence):
        for one in whole_calls(given):
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


# -- what holds calls --------------------------------------------------------------------------------


def _inside(*names: str) -> Any:
    """Reads what stands under a path of names; of choices and candidates, which are alternatives, the
    first."""

    def read(given: Any, are_expected: bool) -> Iterator[ToolCall]:
        for name in names:
            given = field(given, name)
            if name in ("choices", "candidates"):
                given = given[0] if given else None
            if given is None:
                return
        yield from _in_any(given, nested=True, are_expected=are_expected)

    return read


def _message_content(given: Any, are_expected: bool) -> Iterator[ToolCall]:
    """Of blocks, those that are calls; a text in a message is what the model says, not what it calls."""
    for block in field(given, "content"):
        if not isinstance(block, str):
            yield from _in_object(block, are_expected)


def _kind_is(*kinds: str) -> Any:
    return lambda given: field(given, "type") in kinds


_CODEX = ("command_execution", "mcp_tool_call", "file_change", "web_search")
_SHAPES: Sequence[tuple[Any, Any]] = (
    # a call with its arguments, whatever it has beside them: an `output`, for one
    (_kind_is("custom_tool_call", "custom"), free_text_call),
    (lambda given: is_plain_call(given) and has_arguments(given), plain_call),
    # whole responses
    (lambda given: is_list(field(given, "choices")), _inside("choices", "message")),
    (lambda given: is_list(field(given, "candidates")), _inside("candidates", "content")),
    (lambda given: is_list(field(given, "output")), _inside("output")),
    (lambda given: is_list(field(given, "messages")), _inside("messages")),
    (lambda given: field(field(given, "output"), "message") is not None, _inside("output", "message")),
    # messages
    (
        lambda given: is_list(field(given, "tool_calls")) and bool(field(given, "tool_calls")),
        _inside("tool_calls"),
    ),
    (lambda given: field(field(given, "message"), "role") is not None, _inside("message")),
    (lambda given: field(given, "method") == "tools/call", mcp_request),
    (lambda given: field(given, "type") == "item.completed", _inside("item")),
    (lambda given: is_list(field(given, "content")), _message_content),
    (lambda given: is_list(field(given, "parts")), _inside("parts")),
    # calls
    (lambda given: (field(given, "type") or field(given, "item_type")) in _CODEX, codex_item),
    (lambda given: has_name(field(given, "functionCall")), _inside("functionCall")),
    (lambda given: has_name(field(given, "toolUse")), _inside("toolUse")),
    (lambda given: has_name(field(given, "function_call")), _inside("function_call")),
    (lambda given: has_name(field(given, "function")), openai_call),
    (is_plain_call, plain_call),
)


def _is_without_calls(given: Any) -> bool:
    """A message, a block, an event or an answer that calls nothing."""
    known = ("role", "type", "kind", "text", "tool_calls", "stop_reason", "jsonrpc")
    refused = ("promptFeedback", "prompt_feedback")  # Gemini has no candidates for a prompt that it blocks
    return any(field(given, name) is not None for name in (*known, *refused))


# -- text --------------------------------------------------------------------------------------------


def _in_text(text: str, are_expected: bool) -> Iterator[ToolCall]:
    """JSON by itself, in fences or tags, or line by line; a text without JSON calls nothing."""
    stripped = text.strip()
    if are_expected and stripped and not _is_json(stripped):
        raise ResultError(
            f"what is expected is neither the name of a tool nor JSON: {stripped[:200]!r}; write"
            ' [{"name": "search", "arguments": {…}}], or [] where no tool is to be called'
        )
    if _is_transcript(stripped):
        yield from _in_lines(stripped)
        return
    for pattern in (_TAGGED, _FENCE):
        if not are_expected and (parts := pattern.findall(stripped)):
            for part in parts:
                yield from _in_json(part, are_expected)
            return
    yield from _in_json(stripped, are_expected)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _in_json(text: str, are_expected: bool) -> Iterator[ToolCall]:
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        found = _in_prose(text)
        yield from _unreadable(text) if found is None else found
        return
    if are_expected:
        yield from _in_any(value, nested=True, are_expected=True)
        return
    for one in value if isinstance(value, list) else [value]:
        if _holds_calls(one):
            yield from _in_object(one, are_expected)


def _is_transcript(text: str) -> bool:
    """Whether its first JSON line is an event; in what agents say, anything may stand."""
    first = next((line for line in text.splitlines() if line.startswith("{")), "")
    try:
        event = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and not {"type", "kind"}.isdisjoint(event) and "\n" in text


def _in_lines(text: str) -> Iterator[ToolCall]:
    """A JSON object on each line, and whatever a program prints between them."""
    for line in text.splitlines():
        if not line.lstrip().startswith("{"):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _holds_calls(value):
            yield from _in_object(value, are_expected=False)


def _holds_calls(value: Any) -> bool:
    """Whether JSON in a text has to do with calls. An answer may be JSON as well, and have a `name` in it."""
    if not isinstance(value, dict):
        return False
    if is_plain_call(value) and not has_arguments(value):
        return value.keys() <= {"name", "id", "type"}
    return any(holds(value) for holds, _ in _SHAPES)


def _in_prose(text: str) -> list[ToolCall] | None:
    """Calls between words, or one behind another; `None` where nothing in it can be read."""
    calls, end = list[ToolCall](), -1
    for begins in _BEGINS.finditer(text):
        start = begins.start()
        if start < end:
            continue  # inside what was read already
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            if named := _BEGINS_CALL.match(text, start):
                end = named.end()
                calls.append(ToolCall(named[1], text[start:].partition("\n\n")[0], unparsed=True))
            continue
        is_alone = not (text[:start].rpartition("\n")[2] + text[end:].partition("\n")[0]).strip()
        for one in value if isinstance(value, list) else [value]:
            if _holds_calls(one) and (is_alone or not is_plain_call(one) or has_arguments(one)):
                calls += _in_object(one, are_expected=False)
    return calls if end >= 0 else None


def _unreadable(text: str) -> Iterator[ToolCall]:
    """What was meant to be a call and is not JSON, by the name that it mentions; `[1]` is no attempt."""
    named = _NAMED.search(text)
    if named or text.lstrip("[ \n").startswith('{"'):
        yield ToolCall(named[1] if named else "?", text, unparsed=True)
