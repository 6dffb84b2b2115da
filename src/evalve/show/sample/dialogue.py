"""What a call asked and what it was answered, as people read it, from the texts of a trace.

The texts are foreign and may be cut: what cannot be read is shown as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from evalve.show.figures import text_of

Message = tuple[str, str]
"""Who says it, and what."""

_SPOKEN = ("system", "instructions", "messages", "input", "prompt")
_WHO = {"instructions": "system", "input": "user", "prompt": "user"}
_CUT = re.compile(r"… [\d,]+ more characters?$")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: what was said so far, and how it is to be answered."""

    messages: list[Message] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)


def asked(text: str) -> Asked:
    """The messages of a request in order, and everything else in it."""
    request = _parsed(text)
    if not isinstance(request, dict):
        return Asked([("request", text)] if text else [])
    messages = [message for key in _SPOKEN if key in request for message in _messages(key, request[key])]
    return Asked(messages, {key: value for key, value in request.items() if key not in _SPOKEN})


def answered(text: str) -> str:
    """What the model said, whether it came whole or in pieces; an error's message; else the text."""
    if _is_stream(text):
        return _assembled(text)
    answer = _parsed(text)
    if not isinstance(answer, dict):
        return text
    said = "\n".join(part for part in _said(answer) if part)
    return said or json.dumps(answer, ensure_ascii=False, indent=2)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _messages(key: str, said: Any) -> Iterator[Message]:
    if not isinstance(said, list) or key == "system":  # Anthropic's may be a list of texts
        yield _WHO.get(key, key), _content(said)
        return
    for message in said:
        if isinstance(message, dict) and ("role" in message or "content" in message):
            yield str(message.get("role", "?")), _message_content(message)
        else:
            yield _WHO.get(key, key), _content([message])


def _said(answer: dict[str, Any]) -> Iterator[str]:
    """Of Anthropic's messages, OpenAI's chat completions, completions and responses, and of errors."""
    error = answer.get("error")
    if error:
        message = error.get("message") if isinstance(error, dict) else None
        yield f"error: {text_of(message or error)}"
    if "content" in answer:
        yield _content(answer["content"])
    for choice in _dicts(answer.get("choices")):
        message = choice.get("message")
        yield _message_content(message) if isinstance(message, dict) else text_of(choice.get("text"))
    for item in _dicts(answer.get("output")):
        yield _content(item["content"]) if "content" in item else _part(item)


def _message_content(message: dict[str, Any]) -> str:
    calls = [_part(call) for call in _dicts(message.get("tool_calls"))]
    return "\n".join(part for part in (_content(message.get("content")), *calls) if part)


def _content(content: Any) -> str:
    if not isinstance(content, list):
        return text_of(content)
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    """One piece of a message: text as it is, the rest with what it is in brackets."""
    if not isinstance(part, dict):
        return text_of(part)
    kind = str(part.get("type", "part"))
    if isinstance(part.get("text"), str):
        return str(part["text"])
    function = part["function"] if isinstance(part.get("function"), dict) else part
    if "name" in function and ("input" in function or "arguments" in function):
        arguments = function["input"] if "input" in function else function["arguments"]
        return f"[{kind}] {function['name']} {text_of(arguments)}"
    for key in ("thinking", "content", "output"):
        if key in part:
            return f"[{kind}] {_content(part[key])}"
    return f"[{kind}]"


def _dicts(values: Any) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())


# -- streams


def _is_stream(text: str) -> bool:
    return text.startswith(("data:", "event:", ":"))


def _assembled(stream: str) -> str:
    """The pieces of server-sent events put together, and what was cut off behind them."""
    cut = _CUT.search(stream)
    whole = stream[: cut.start()] if cut else stream
    events = (_parsed(line[5:]) for line in whole.splitlines() if line.startswith("data:"))
    said = "".join(_piece(event) for event in events if isinstance(event, dict)).strip("\n")
    if not said:
        return stream
    return f"{said}{cut.group()} of the stream" if cut else said


def _piece(event: dict[str, Any]) -> str:
    """What one event adds to the text."""
    if isinstance(event.get("error"), dict):
        return f"\nerror: {text_of(event['error'].get('message'))}"
    for begun in (event.get("content_block"), event.get("item")):
        if isinstance(begun, dict) and "name" in begun and not str(event.get("type")).endswith(".done"):
            return f"\n[{begun.get('type', 'tool')}] {begun['name']} "
    delta = event.get("delta")
    if isinstance(delta, str) and str(event.get("type")).endswith(("text.delta", "arguments.delta")):
        return delta
    if isinstance(delta, dict):
        return "".join(text_of(delta[key]) for key in ("text", "partial_json", "thinking") if key in delta)
    return "".join(_choice_piece(choice) for choice in _dicts(event.get("choices")))


def _choice_piece(choice: dict[str, Any]) -> str:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return text_of(choice.get("text"))
    pieces = [text_of(delta.get("content"))]
    for call in _dicts(delta.get("tool_calls")):
        function = call["function"] if isinstance(call.get("function"), dict) else {}
        begun = f"\n[function] {function['name']} " if function.get("name") else ""
        pieces.append(begun + text_of(function.get("arguments")))
    return "".join(pieces)
