"""The conversation in a request to a model: in Anthropic's format, in OpenAI's, or written out as a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = tuple[str, Any]
"""`user` with a text, `call` with id, name and arguments, or `result` with the call's id and what it says."""
_CALL = re.compile(r"(\w+)\((?=\{)")


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
    """What else stood in the name of the user, as a teacher's words do."""


def turns_of(events: Iterable[Event], utterances: Sequence[str]) -> list[Turn]:
    """The turns so far, of the conversation that has these utterances."""
    turns: list[Turn] = []
    calls: dict[str, Call] = {}
    for kind, value in events:
        if kind == "user" and len(turns) < len(utterances) and value == utterances[len(turns)]:
            turns.append(Turn(value))
        elif not turns:
            continue
        elif kind == "user":
            turns[-1].others.append(value)
        elif kind == "call":
            calls[value[0]] = Call(value[1], value[2])
            turns[-1].calls.append(calls[value[0]])
        elif value[0] in calls:
            calls[value[0]].result = _value(value[1])
    return turns


def events_of(messages: Sequence[Mapping[str, Any]]) -> Iterator[Event]:
    """What the messages of a request tell, whoever's format they have."""
    for message in messages:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        if message["role"] == "tool":
            yield "result", (message["tool_call_id"], _text(blocks))
            continue
        for block in blocks:
            if block["type"] == "text" and message["role"] == "user":
                yield "user", block["text"]
            elif block["type"] == "tool_use":
                yield "call", (block["id"], block["name"], block["input"])
            elif block["type"] == "tool_result":
                yield "result", (block["tool_use_id"], _text(block["content"]))
        for call in message.get("tool_calls") or ():
            if isinstance(call, Mapping):
                function = call["function"]
                yield "call", (call["id"], function["name"], json.loads(function["arguments"]))
            else:  # as evalve hands it to an agent in Python
                yield "call", (call.id, call.name, call.arguments)


def events_in(transcript: str) -> Iterator[Event]:
    """What a conversation tells that is written out, a line for everything: as a teacher sees it."""
    made = answered = 0
    for line in transcript.splitlines():
        who, _, said = line.partition(": ")
        if line.startswith("assistant calls "):
            for name, arguments in calls_in(line):
                made += 1
                yield "call", (str(made), name, arguments)
        elif who == "tool":
            answered += 1
            yield "result", (str(answered), said)
        elif who == "user":
            yield "user", said


def calls_in(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls that are written out: `create_note({"body": "…"}), …`."""
    found = _CALL.search(text)
    while found is not None:
        arguments, end = json.JSONDecoder().raw_decode(text, found.end())
        yield found[1], arguments
        found = _CALL.search(text, end)


def _text(content: str | Sequence[Mapping[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _value(text: str) -> Any:
    """What a tool returned; `None` where it only said that something is wrong."""
    try:
        return json.loads(text)
    except ValueError:
        return None
