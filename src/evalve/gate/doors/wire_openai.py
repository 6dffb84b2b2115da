"""OpenAI's Chat Completions, as OpenAI and compatible servers speak them: from a question to our answer.

A `response_schema` becomes `response_format` of type `json_schema`, strict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from evalve.gate.dialects.openai import OpenAIDialect
from evalve.gate.dialects.request_parts import counted
from evalve.gate.doors.answers import Answer
from evalve.gate.doors.asks import Ask, as_tool_call, closed, neutral_image, tool_call_from_text, tool_parts
from evalve.gate.messages import Dialect, Usage
from evalve.records import ToolCall
from evalve.secrecy import Secret

_CHOICES = {"auto": "auto", "any": "required", "required": "required", "none": "none"}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


class OpenAIWire:
    """Speaks `POST …/chat/completions`."""

    dialect: Dialect = OpenAIDialect()

    def __init__(self, *, max_tokens_name: str = "max_completion_tokens") -> None:
        # OpenAI's reasoning models refuse `max_tokens`; some compatible servers know nothing else
        self._max_tokens_name = max_tokens_name

    def url(self, base_url: str) -> str:
        return base_url.rstrip("/") + "/chat/completions"

    def headers(self, api_key: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if api_key:
            headers["authorization"] = Secret("Bearer " + api_key)
        return headers

    def body(self, model: str, ask: Ask) -> dict[str, Any]:
        messages = [_message(message) for message in ask.messages()]
        if ask.system:
            messages.insert(0, {"role": "system", "content": ask.system})
        body: dict[str, Any] = {"model": model, "messages": messages}
        if ask.max_tokens is not None:
            body[self._max_tokens_name] = ask.max_tokens
        if ask.tools:
            body["tools"] = [_tool(tool) for tool in ask.tools]
        if ask.tool_choice is not None:
            body["tool_choice"] = _tool_choice(ask.tool_choice)
        if ask.temperature is not None:
            body["temperature"] = ask.temperature
        if ask.response_schema is not None:
            body["response_format"] = _response_format(ask.response_schema)
        if ask.stop:
            body["stop"] = ask.stops()
        if ask.streams:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        if ask.options:
            body.update(ask.options)
        return body

    def answer(self, raw: dict[str, Any]) -> Answer:
        """Raises `KeyError`, `TypeError` and the like for what is not a completion."""
        choice = raw["choices"][0]
        message = choice["message"]
        finish, refused = choice.get("finish_reason"), message.get("refusal")
        calls = [_called(call) for call in message.get("tool_calls") or () if "function" in call]
        return Answer(
            _text(message.get("content")) or refused or "",
            tool_calls=calls,
            usage=_usage(raw.get("usage")),
            stop_reason="refusal" if refused else _STOP_REASONS.get(finish, finish),
            model=raw.get("model") or "",
            message=message,
            raw=raw,
        )

    def assembly(self) -> OpenAIAssembly:
        return OpenAIAssembly()


class OpenAIAssembly:
    """Puts the chunks of a stream together into the completion that would have come at once."""

    def __init__(self) -> None:
        self._envelope: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish_reason: str | None = None

    def add(self, event: dict[str, Any]) -> str:
        """The text that the chunk adds to the first choice."""
        self._envelope.update({k: v for k, v in event.items() if k != "choices" and v is not None})
        added = ""
        for choice in event.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            added += self._extend(choice.get("delta") or {})
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return added

    def _extend(self, delta: Mapping[str, Any]) -> str:
        for name, value in delta.items():
            if name == "tool_calls":
                for call in value or ():
                    self._extend_call(call)
            elif isinstance(value, str) and name != "role":
                self._message[name] = (self._message.get(name) or "") + value
            elif value is not None:
                self._message[name] = value
        return delta.get("content") or delta.get("refusal") or ""

    def _extend_call(self, delta: Mapping[str, Any]) -> None:
        empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self._calls.setdefault(delta.get("index", len(self._calls)), empty)
        call["id"] = delta.get("id") or call["id"]
        function = delta.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def whole(self) -> dict[str, Any] | None:
        """The completion; `None` where the stream broke off."""
        if self._finish_reason is None:
            return None
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return {**self._envelope, "object": "chat.completion", "choices": [choice]}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    turn = {name: value for name, value in message.items() if name != "is_error"}
    content = message.get("content")
    if isinstance(content, Mapping):
        turn["content"] = [_block(content)]
    elif content is not None and not isinstance(content, str):
        turn["content"] = [_block(block) for block in content]
    if message.get("tool_calls"):
        turn["tool_calls"] = [_tool_call(given) for given in message["tool_calls"]]
        turn["content"] = turn.get("content") or None
    return turn


def _block(block: Any) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    image = neutral_image(block)
    return {"type": "image_url", "image_url": {"url": image.as_url}} if image is not None else block


def _tool_call(given: Any) -> Any:
    if isinstance(given, Mapping) and ("function" in given or given.get("type", "function") != "function"):
        return given
    call = as_tool_call(given)
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = tool_parts(tool) if "function" not in tool else None
    if parts is None:
        return tool
    schema = parts.pop("schema")
    return {"type": "function", "function": {**parts, "parameters": schema}}


def _tool_choice(choice: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    if not isinstance(choice, str):
        return choice
    return _CHOICES.get(choice) or {"type": "function", "function": {"name": choice}}


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    name = _NOT_IN_A_NAME.sub("_", str(schema.get("title") or "answer"))[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": closed(schema)}}


def _called(call: Mapping[str, Any]) -> ToolCall:
    function, id = call["function"], call.get("id") or ""
    arguments = function.get("arguments") or ""
    if isinstance(arguments, dict):  # as TGI and others give them, and not as its text
        return ToolCall(function["name"], arguments, id)
    return tool_call_from_text(function["name"], arguments, id)


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join([part.get("text") or "" for part in content])


def _usage(said: Any) -> Usage | None:
    """`None` where the server leaves it out."""
    read = counted(said.get("prompt_tokens")) if isinstance(said, dict) else None
    if read is None:
        return None
    cached = min(counted((said.get("prompt_tokens_details") or {}).get("cached_tokens")) or 0, read)
    return Usage(read - cached, counted(said.get("completion_tokens")) or 0, cached)
