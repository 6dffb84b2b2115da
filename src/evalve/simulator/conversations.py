"""What a request's body tells of a conversation with tools, whichever wire format it came in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_OUTPUTS = ("function_call_output", "custom_tool_call_output")


class Tool(NamedTuple):
    """A tool that a request offers. A custom one takes text instead of arguments."""

    name: str
    is_custom: bool = False
    namespace: str | None = None


def tools_of(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The tools that the model may call; Codex also offers some beside its messages, and in namespaces."""
    lists = [body.get("tools")]
    lists += [
        message.get("tools") for message in _messages(body) if message.get("type") == "additional_tools"
    ]
    return tuple(tool for each in lists if isinstance(each, list) for inner in each for tool in _tools(inner))


def _tools(tool: Any, namespace: str | None = None) -> Iterator[Tool]:
    if not isinstance(tool, dict):
        return
    if tool.get("type") == "namespace":
        for inner in tool.get("tools") or []:
            yield from _tools(inner, str(tool.get("name")))
        return
    declared = tool.get("functionDeclarations") or [tool.get("function") or tool]
    for function in declared if isinstance(declared, list) else []:
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield Tool(function["name"], tool.get("type") == "custom", namespace)


def tool_rounds_of(body: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """What tools answered: for each time that the model called some, their results in order."""
    rounds: list[tuple[str, ...]] = []
    continues = False
    for message in _messages(body):
        results, joins = tuple(_results(message)), _is_one_result(message)
        if results and joins and continues:
            rounds[-1] += results
        elif results:
            rounds.append(results)
        continues = bool(results) and joins
    return tuple(rounds)


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages") or body.get("input") or body.get("contents")
    return [each for each in (messages if isinstance(messages, list) else []) if isinstance(each, dict)]


def _is_one_result(message: Mapping[str, Any]) -> bool:
    """OpenAI's formats have a message for each result, and those of one round follow each other."""
    return message.get("role") == "tool" or message.get("type") in _OUTPUTS


def _results(message: Mapping[str, Any]) -> Iterator[str]:
    if message.get("role") == "tool":
        yield _text(message.get("content"))
    elif message.get("type") in _OUTPUTS:
        yield _text(message.get("output"))
    for block in message.get("content") if isinstance(message.get("content"), list) else []:  # type: ignore[union-attr]
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield _text(block.get("content"))
    for part in message.get("parts") if isinstance(message.get("parts"), list) else []:  # type: ignore[union-attr]
        response = part.get("functionResponse") if isinstance(part, dict) else None
        if isinstance(response, dict):
            yield _text(response.get("response"))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            _text(block.get("text", block) if isinstance(block, dict) else block) for block in content
        )
    if isinstance(content, dict) and isinstance(content.get("output"), str):
        return str(content["output"])
    return json.dumps(content, ensure_ascii=False)
