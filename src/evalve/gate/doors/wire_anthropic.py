"""Anthropic's Messages: from a question to a body, from an answer or its events to ours.

A `response_schema` becomes `output_config.format`, Anthropic's documented structured output, rather than a
forced tool: the answer stays text, and tools remain usable beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalve.gate.dialects.anthropic import AnthropicDialect, usage_of_claude
from evalve.gate.doors.answers import Answer, ToolCall
from evalve.gate.doors.asks import Ask, as_tool_call, closed, neutral_image, tool_call_from_text, tool_parts
from evalve.gate.messages import Dialect, Usage
from evalve.secrecy import Secret

VERSION = "2023-06-01"
"""Not the newer 2026-10-21, which refuses `temperature`, `top_p` and `top_k`."""

_CHOICES = {"auto": "auto", "any": "any", "required": "any", "none": "none"}


class AnthropicWire:
    """Speaks `POST /v1/messages`."""

    dialect: Dialect = AnthropicDialect()

    def url(self, base_url: str) -> str:
        return base_url.rstrip("/").removesuffix("/v1") + "/v1/messages"

    def headers(self, api_key: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json", "anthropic-version": VERSION}
        if api_key:
            headers["x-api-key"] = Secret(api_key)
        return headers

    def body(self, model: str, ask: Ask) -> dict[str, Any]:
        system, messages = _turns(ask)
        body: dict[str, Any] = {"model": model, "messages": messages}
        if ask.max_tokens is not None:
            body["max_tokens"] = ask.max_tokens
        if system:
            body["system"] = system
        if ask.tools:
            body["tools"] = [_tool(tool) for tool in ask.tools]
        if ask.tool_choice is not None:
            body["tool_choice"] = _tool_choice(ask.tool_choice)
        if ask.temperature is not None:
            body["temperature"] = ask.temperature
        if ask.response_schema is not None:
            schema = closed(ask.response_schema)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if ask.stop:
            body["stop_sequences"] = ask.stops()
        if ask.streams:
            body["stream"] = True
        if ask.options:
            body.update(ask.options)
        return body

    def answer(self, raw: dict[str, Any]) -> Answer:
        """Raises `KeyError`, `TypeError` and the like for what is not a message."""
        texts: list[str] = []
        calls: list[ToolCall] = []
        for block in raw["content"]:
            kind = block["type"]
            if kind == "text":
                texts.append(block["text"])
            elif kind == "tool_use":
                given = block["input"]
                calls.append(
                    ToolCall(block["name"], given, block.get("id") or "", unparsed=isinstance(given, str))
                )
        return Answer(
            "".join(texts),
            tool_calls=calls,
            usage=_usage(raw.get("usage")),
            stop_reason=raw.get("stop_reason"),
            model=raw.get("model", ""),
            message={"role": "assistant", "content": raw["content"]},
            raw=raw,
        )

    def assembly(self) -> AnthropicAssembly:
        return AnthropicAssembly()


class AnthropicAssembly:
    """Puts the events of a stream together into the message that would have come at once."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: list[dict[str, Any]] = []
        self._inputs: dict[int, list[str]] = {}
        self._ended = False

    def add(self, event: dict[str, Any]) -> str:
        """The text that the event adds."""
        match event.get("type"):
            case "content_block_delta":
                return self._extend(event["index"], event["delta"])
            case "content_block_start":
                self._blocks.append(dict(event["content_block"]))
            case "message_start":
                self._message = dict(event["message"])
            case "message_delta":
                self._message.update(event["delta"])
                said = {name: value for name, value in event.get("usage", {}).items() if value is not None}
                self._message["usage"] = {**(self._message.get("usage") or {}), **said}
            case "message_stop":
                self._ended = True
        return ""

    def _extend(self, index: int, delta: Mapping[str, Any]) -> str:
        block = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                block["text"] += delta["text"]
                return str(delta["text"])
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        return ""

    def whole(self) -> dict[str, Any] | None:
        """The message; `None` where the stream broke off."""
        if not self._ended:
            return None
        for index, pieces in self._inputs.items():
            self._blocks[index]["input"] = tool_call_from_text("", "".join(pieces), "").arguments
        return {**self._message, "content": self._blocks}


def _turns(ask: Ask) -> tuple[Any, list[dict[str, Any]]]:
    """The system prompt, which Anthropic wants apart, and the other messages."""
    systems: list[Any] = [ask.system] if ask.system else []
    turns: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for message in ask.messages():
        role = message["role"]
        if role == "tool":
            # the results of one turn's calls belong into one message
            if results is None:
                results = []
                turns.append({"role": "user", "content": results})
            results.append(_tool_result(message))
            continue
        results = None
        if role in ("system", "developer"):
            systems.append(_content(message.get("content", "")))
        elif message.get("tool_calls"):
            turns.append({"role": role, "content": [*_blocks(message.get("content")), *_tool_uses(message)]})
        else:
            turns.append({**message, "content": _content(message.get("content", ""))})
    if len(systems) < 2:
        return (systems[0] if systems else None), turns
    return [block for system in systems for block in _blocks(system)], turns


def _content(content: Any) -> Any:
    return content if isinstance(content, str) else _blocks(content)


def _blocks(content: Any) -> list[Any]:
    if not content:
        return []
    items = [content] if isinstance(content, str | Mapping) else content
    return [_block(item) for item in items]


def _block(block: Any) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    image = neutral_image(block)
    if image is None:
        return block
    if image.url:
        source = {"type": "url", "url": image.url}
    else:
        source = {"type": "base64", "media_type": image.media_type, "data": image.base64}
    return {"type": "image", "source": source}


def _tool_result(message: Mapping[str, Any]) -> dict[str, Any]:
    result = {
        "type": "tool_result",
        "tool_use_id": message.get("tool_call_id", ""),
        "content": _content(message.get("content", "")),
    }
    if message.get("is_error"):
        result["is_error"] = True
    return result


def _tool_uses(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = [as_tool_call(given) for given in message["tool_calls"]]
    return [
        # an object is required, also where the model's own arguments were none
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": call.arguments if not call.unparsed else {"unparsed": call.arguments},
        }
        for call in calls
    ]


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if "input_schema" in tool:
        return tool
    parts = tool_parts(tool)
    if parts is None:
        return tool
    return {**{k: v for k, v in parts.items() if k != "schema"}, "input_schema": parts["schema"]}


def _tool_choice(choice: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(choice, str):
        return choice
    known = _CHOICES.get(choice)
    return {"type": known} if known else {"type": "tool", "name": choice}


def _usage(said: Any) -> Usage | None:
    return usage_of_claude(said) if isinstance(said, dict) else None
