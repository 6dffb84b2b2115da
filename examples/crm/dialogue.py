"""A request to a model as the conversation that it carries, in Anthropic's format or in OpenAI's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Body = Mapping[str, Any]


@dataclass
class Call:
    """A tool call, with what came of it."""

    name: str
    arguments: dict[str, Any]
    result: Any = None


@dataclass
class Turn:
    """What somebody said, and what happened until the next one."""

    utterance: str
    calls: list[Call] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """What else a user's message said, as a reviewer's words do."""


def read(body: Body, utterances: Sequence[str]) -> list[Turn]:
    """The turns so far, of the conversation that has these utterances."""
    turns: list[Turn] = []
    calls: dict[str, Call] = {}
    for kind, value in _events(body):
        if kind == "user" and len(turns) < len(utterances) and value == utterances[len(turns)]:
            turns.append(Turn(value))
        elif not turns:
            continue
        elif kind == "user":
            turns[-1].others.append(value)
        elif kind == "call":
            calls[value[0]] = Call(value[1], value[2])
            turns[-1].calls.append(calls[value[0]])
        elif kind == "result" and value[0] in calls:
            calls[value[0]].result = value[1]
    return turns


def texts(body: Body) -> list[str]:
    """What users' messages say."""
    return [value for kind, value in _events(body) if kind == "user"]


def _events(body: Body) -> Iterator[tuple[str, Any]]:
    for message in body.get("messages", ()):
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        if message["role"] == "tool":
            yield "result", (message["tool_call_id"], _value(_text(blocks)))
            continue
        for block in blocks:
            if block["type"] == "text" and message["role"] == "user":
                yield "user", block["text"]
            elif block["type"] == "tool_use":
                yield "call", (block["id"], block["name"], block["input"])
            elif block["type"] == "tool_result":
                inner = block["content"]
                yield (
                    "result",
                    (block["tool_use_id"], _value(inner if isinstance(inner, str) else _text(inner))),
                )
        for call in message.get("tool_calls") or ():
            if isinstance(call, Mapping):
                function = call["function"]
                yield "call", (call["id"], function["name"], json.loads(function["arguments"]))
            else:  # as evalve hands it to an agent in Python
                yield "call", (call.id, call.name, call.arguments)


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "".join(block.get("text", "") for block in blocks)


def _value(text: str) -> Any:
    """What a tool returned; `None` where it only said that something is wrong."""
    try:
        return json.loads(text)
    except ValueError:
        return None
