"""Anthropic's Messages as they go over the wire."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from evalve.simulator.accounts import InputUsage
from evalve.simulator.answers import Output
from evalve.simulator.apis.wire import (
    Events,
    Failure,
    FailureKind,
    encoded,
    pieces_of,
    rfc3339,
    rfc3339_exact,
    told_to_wait,
)
from evalve.simulator.asks import (
    Ask,
    BadRequest,
    ForcedTool,
    mapping_at,
    optional_count,
    required_messages,
    required_text,
    tool_definitions,
)
from evalve.simulator.habits import RetryAfter, Statement, per_time
from evalve.simulator.limits import Dimension
from evalve.simulator.provider import Refusal
from evalve.simulator.tokens import BYTES_PER_TOKEN, Part, content_parts, structure_part

_STOPS = {"end": "end_turn", "length": "max_tokens", "tool": "tool_use"}
_FAILURES: dict[FailureKind, tuple[int, str, str]] = {
    "invalid": (400, "invalid_request_error", "The request is invalid."),
    "key": (401, "authentication_error", "invalid x-api-key"),
    "not_found": (404, "not_found_error", "Not found"),
    "too_big": (413, "request_too_large", "Request exceeds the maximum size"),
    "error": (500, "api_error", "Internal server error"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
}
_UNITS = {
    "requests": "requests",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "tokens": "tokens",
    "count_tokens": "token counting requests",
}


class AnthropicApi:
    """POST /v1/messages, whole and streamed, and what it shares with /v1/messages/count_tokens."""

    request_id_header = "request-id"
    request_id_in_errors = True

    def key(self, headers: Mapping[str, str]) -> str:
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")

    def read(self, body: Mapping[str, Any], digest: int) -> Ask:
        max_tokens = optional_count(body, "max_tokens")
        if max_tokens is None:
            raise BadRequest("max_tokens: Field required")
        return self._ask(body, digest, max_tokens=max_tokens)

    def read_for_count(self, body: Mapping[str, Any], digest: int) -> Ask:
        return self._ask(body, digest, max_tokens=None)

    def _ask(self, body: Mapping[str, Any], digest: int, *, max_tokens: int | None) -> Ask:
        model = required_text(body, "model")
        schema = mapping_at(body, "output_config", "format", "schema") or mapping_at(
            body, "output_format", "schema"
        )
        return Ask(
            api="anthropic",
            model=model,
            parts=_parts(body),
            max_tokens=max_tokens,
            stream=body.get("stream") is True,
            body=body,
            digest=digest,
            schema=schema or None,
            forced_tool=_forced_tool(body),
            thinks=mapping_at(body, "thinking").get("type") in ("enabled", "adaptive"),
        )

    def count_body(self, ask: Ask) -> dict[str, Any]:
        return {"input_tokens": ask.input_tokens}

    def limit_headers(self, stated: Mapping[Dimension, Statement], *, epoch_s: float) -> dict[str, str]:
        headers: dict[str, str] = {}
        tokens: list[Statement] = []
        dimensions: tuple[Dimension, ...] = ("requests", "input_tokens", "output_tokens", "tokens")
        for dimension in dimensions:
            said = stated.get(dimension)
            if said is None:
                continue
            if dimension == "tokens":
                tokens = [said]  # a workspace's limit is shown rather than the sum of the others
            elif dimension == "requests":
                headers |= _three("requests", [said], epoch_s, rounded_to=1)
            else:
                headers |= _three(dimension.replace("_", "-"), [said], epoch_s, rounded_to=1000)
                tokens.append(said)
        if tokens:
            headers |= _three("tokens", tokens, epoch_s, rounded_to=1000)
        return headers

    def refusal(
        self, refusal: Refusal, ask: Ask, *, retry_after: RetryAfter | None, epoch_s: float
    ) -> Failure:
        code: str | None = None
        if refusal.kind == "spend":
            code = "enforced_spend_limit_reached"
            message = "Your organization has reached its monthly spend limit."
        elif refusal.kind == "concurrency":
            message = "Number of concurrent connections has exceeded your rate limit. Please try again later."
        elif refusal.kind == "ramp":
            code = "ramp_limit_exceeded"
            message = "Your usage grew too fast. Retry after the time in the retry-after header."
        elif refusal.kind == "random":
            message = "Too many requests. Please try again later."
        else:
            unit = _UNITS[refusal.dimension or "requests"]
            message = (
                "This request would exceed your organization's rate limit of "
                f"{refusal.limit:,.0f} {unit} per {per_time(refusal.window_s)} "
                f"(org: simulator, model: {ask.model})."
            )
        body = _error("rate_limit_error", message, code)
        return told_to_wait(body, refusal.wait_s, retry_after or "whole", epoch_s=epoch_s)

    def failure(self, kind: FailureKind, message: str = "") -> Failure:
        status, name, usual = _FAILURES[kind]
        return Failure(status, _error(name, message or usual))

    def whole(self, ask: Ask, output: Output, usage: InputUsage, call_id: str) -> dict[str, Any]:
        return {
            **_envelope(ask, usage, call_id, output_tokens=output.tokens),
            "content": _blocks(output, call_id),
            "stop_reason": _STOPS[output.stop],
        }

    def events(
        self, ask: Ask, output: Output, usage: InputUsage, call_id: str, *, chunk_tokens: int
    ) -> Events:
        start = {"type": "message_start", "message": _envelope(ask, usage, call_id, output_tokens=1)}
        pieces: list[bytes] = []
        for index, block in enumerate(_blocks(output, call_id)):
            pieces += _block_events(index, block, chunk_tokens * BYTES_PER_TOKEN)
        final = {
            "type": "message_delta",
            "delta": {"stop_reason": _STOPS[output.stop], "stop_sequence": None},
            "usage": _usage(usage, output.tokens),
        }
        closing = _event(final) + _event({"type": "message_stop"})
        return Events(_event(start) + _event({"type": "ping"}), pieces, closing)

    def error_event(self) -> bytes:
        return _event(_error("overloaded_error", "Overloaded"))


def _parts(body: Mapping[str, Any]) -> list[Part]:
    """In the order of Anthropic's prompt cache: tools, system, messages."""
    parts = [structure_part(tool) for tool in tool_definitions(body)]
    if "system" in body:
        parts += content_parts(body["system"])
    for message in required_messages(body):
        parts += content_parts(message.get("content"))
    return parts


def _forced_tool(body: Mapping[str, Any]) -> ForcedTool | None:
    choice = mapping_at(body, "tool_choice")
    if choice.get("type") not in ("tool", "any"):
        return None
    for tool in tool_definitions(body):
        if isinstance(tool, dict) and (choice["type"] == "any" or tool.get("name") == choice.get("name")):
            return ForcedTool(str(tool.get("name")), mapping_at(tool, "input_schema"))
    raise BadRequest(f"tool_choice: there is no tool {choice.get('name')!r}")


def _three(name: str, stated: list[Statement], epoch_s: float, *, rounded_to: int) -> dict[str, str]:
    """Limit, what remains, and when all is replenished; rounded where the scale is the minute's."""
    left = sum(said.remaining for said in stated)
    full_s = epoch_s + max(said.full_in_s for said in stated)
    is_coarse = stated[0].scale_s >= 60.0
    remaining = int(left + 1e-6)
    if is_coarse and rounded_to > 1:
        remaining = round(left / rounded_to) * rounded_to
    prefix = f"anthropic-ratelimit-{name}"
    return {
        f"{prefix}-limit": str(max(1, round(sum(said.limit for said in stated)))),
        f"{prefix}-remaining": str(remaining),
        f"{prefix}-reset": rfc3339(math.ceil(full_s)) if is_coarse else rfc3339_exact(full_s),
    }


def _envelope(ask: Ask, usage: InputUsage, call_id: str, *, output_tokens: int) -> dict[str, Any]:
    return {
        "id": f"msg_{call_id}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage, output_tokens),
    }


def _usage(usage: InputUsage, output_tokens: int) -> dict[str, Any]:
    minutes = usage.written_tokens - usage.hour_tokens
    return {
        "input_tokens": usage.fresh_tokens,
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.read_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": minutes,
            "ephemeral_1h_input_tokens": usage.hour_tokens,
        },
        "output_tokens": output_tokens,
    }


def _blocks(output: Output, call_id: str) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if output.reasoning:
        blocks.append({"type": "thinking", "thinking": output.reasoning, "signature": f"sig_{call_id}"})
    if output.text or not output.tool_calls:
        blocks.append({"type": "text", "text": output.text})
    for place, call in enumerate(output.tool_calls):
        identity = f"toolu_{call_id}_{place}"
        blocks.append({"type": "tool_use", "id": identity, "name": call.name, "input": call.value})
    return blocks


def _block_events(index: int, block: Mapping[str, Any], characters: int) -> list[bytes]:
    if block["type"] == "text":
        empty = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces_of(block["text"], characters)]
    elif block["type"] == "thinking":
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        pieces = pieces_of(block["thinking"], characters)
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    else:
        empty = {**block, "input": {}}
        given = block["input"]
        text = given if isinstance(given, str) else json.dumps(given)
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in pieces_of(text, characters)
        ]
    events = [
        _event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas
    ] or [b""]
    events[0] = _event({"type": "content_block_start", "index": index, "content_block": empty}) + events[0]
    events[-1] += _event({"type": "content_block_stop", "index": index})
    return events


def _event(data: Mapping[str, Any]) -> bytes:
    return b"event: " + str(data["type"]).encode() + b"\ndata: " + encoded(data) + b"\n\n"


def _error(kind: str, message: str, code: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"type": kind, "message": message}
    if code is not None:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error}
