"""OpenAI's Responses as they go over the wire: items instead of messages, and events by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalve.simulator.accounts import InputUsage
from evalve.simulator.answers import Output
from evalve.simulator.apis.openai import CREATED, OpenAIApi
from evalve.simulator.apis.responses_events import events_of, named_event
from evalve.simulator.apis.wire import Events
from evalve.simulator.asks import (
    Ask,
    BadRequest,
    ForcedTool,
    mapping_at,
    optional_count,
    required_text,
    tool_definitions,
)
from evalve.simulator.conversations import Tool, tools_of
from evalve.simulator.scripts import ToolCall
from evalve.simulator.tokens import Part, content_parts, structure_part

_MOST_STORED = 10_000


class ResponsesApi(OpenAIApi):
    """POST /v1/responses, whole and streamed. Remembers conversations, for `previous_response_id`."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[list[Any], dict[str, Any]]] = {}

    def read(self, body: Mapping[str, Any], digest: int) -> Ask:
        body = {**body, "input": [*self._before(body), *_items(body)]}
        format_ = mapping_at(body, "text", "format")
        schema: Mapping[str, Any] | None = None
        if format_.get("type") == "json_schema":
            schema = mapping_at(format_, "schema")
        elif format_.get("type") == "json_object":
            schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
        return Ask(
            api="openai",
            model=required_text(body, "model"),
            parts=_parts(body),
            max_tokens=optional_count(body, "max_output_tokens"),
            stream=body.get("stream") is True,
            body=body,
            digest=digest,
            schema=schema,
            forced_tool=_forced_tool(body),
        )

    def stored(self, identity: str) -> dict[str, Any] | None:
        """An earlier response, as GET /v1/responses/ID gives it."""
        return self._stored[identity][1] if identity in self._stored else None

    def _before(self, body: Mapping[str, Any]) -> list[Any]:
        previous = body.get("previous_response_id")
        if previous is None:
            return []
        if previous not in self._stored:
            raise BadRequest(f"Previous response with id {previous!r} not found.")
        return self._stored[previous][0]

    def whole(self, ask: Ask, output: Output, usage: InputUsage, call_id: str) -> dict[str, Any]:
        items = _output_items(output, call_id, {tool.name: tool for tool in reversed(tools_of(ask.body))})
        is_cut = output.stop == "length"
        response = {
            **_response(ask, call_id),
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": items,
            "usage": _usage(output, usage),
        }
        if ask.body.get("store") is not False:
            if len(self._stored) >= _MOST_STORED:
                self._stored.pop(next(iter(self._stored)))
            self._stored[response["id"]] = ([*ask.body["input"], *items], response)
        return response

    def events(
        self, ask: Ask, output: Output, usage: InputUsage, call_id: str, *, chunk_tokens: int
    ) -> Events:
        return events_of(_response(ask, call_id), self.whole(ask, output, usage, call_id), chunk_tokens)

    def read_for_count(self, body: Mapping[str, Any], digest: int) -> Ask:
        return self.read(body, digest)

    def count_body(self, ask: Ask) -> dict[str, Any]:
        return {"object": "response.input_tokens", "input_tokens": ask.input_tokens}

    def error_event(self) -> bytes:
        message = "The server had an error while processing your request."
        error = {"type": "error", "code": "server_error", "message": message, "param": None}
        return named_event({**error, "sequence_number": 1_000_000})


def _items(body: Mapping[str, Any]) -> list[Any]:
    asked = body.get("input")
    if isinstance(asked, str) and asked:
        return [{"type": "message", "role": "user", "content": asked}]
    if not isinstance(asked, list) or not asked:
        raise BadRequest("Missing required parameter: 'input'.")
    for place, item in enumerate(asked):
        if not isinstance(item, dict):
            raise BadRequest(f"Invalid type for 'input[{place}]': expected an object.")
    return asked


def _parts(body: Mapping[str, Any]) -> list[Part]:
    parts = [structure_part(tool) for tool in tool_definitions(body)]
    parts += content_parts(body.get("instructions"))
    for item in body["input"]:
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            parts += content_parts(item.get("output"))
        elif "content" in item and item.get("type", "message") == "message":
            parts += content_parts(item["content"])
        else:
            parts.append(structure_part(item))
    return parts


def _forced_tool(body: Mapping[str, Any]) -> ForcedTool | None:
    choice = body.get("tool_choice")
    named = mapping_at(body, "tool_choice").get("name")
    if choice != "required" and named is None:
        return None
    for tool in tool_definitions(body):
        if isinstance(tool, dict) and tool.get("type") == "function" and named in (None, tool.get("name")):
            return ForcedTool(str(tool.get("name")), mapping_at(tool, "parameters"))
    raise BadRequest(f"tool_choice: there is no tool {named!r}")


def _response(ask: Ask, call_id: str) -> dict[str, Any]:
    """A response that has said nothing yet; it repeats what was asked for."""
    body = ask.body
    return {
        "id": f"resp_{call_id}",
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": ask.max_tokens,
        "max_tool_calls": None,
        "metadata": body.get("metadata") or {},
        "model": ask.model,
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None, **mapping_at(body, "reasoning")},
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": body.get("temperature", 1.0),
        "text": {"format": {"type": "text"}, **mapping_at(body, "text")},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": 0,
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": None,
    }


def _output_items(output: Output, call_id: str, tools: Mapping[str, Tool]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    status = "incomplete" if output.stop == "length" else "completed"
    if output.reasoning:
        summary = [{"type": "summary_text", "text": output.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{call_id}", "summary": summary})
    if output.text or not output.tool_calls:
        content = {"type": "output_text", "text": output.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{call_id}",
                "status": status,
                "role": "assistant",
                "content": [content],
            }
        )
    for place, call in enumerate(output.tool_calls):
        items.append(_call_item(call, f"{call_id}_{place}", tools.get(call.name, Tool(call.name))))
    return items


def _call_item(call: ToolCall, identity: str, tool: Tool) -> dict[str, Any]:
    item: dict[str, Any] = {"call_id": f"call_{identity}", "name": call.name, "status": "completed"}
    if tool.namespace is not None:
        item["namespace"] = tool.namespace
    if tool.is_custom:
        given = call.arguments
        text = given if isinstance(given, str) else str(given.get("input", ""))
        return {"type": "custom_tool_call", "id": f"ctc_{identity}", **item, "input": text}
    return {
        "type": "function_call",
        "id": f"fc_{identity}",
        **item,
        "arguments": call.text,
    }


def _usage(output: Output, usage: InputUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.fresh_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": output.tokens,
        "output_tokens_details": {"reasoning_tokens": output.reasoning_tokens},
        "total_tokens": usage.fresh_tokens + output.tokens,
    }
