"""OpenAI's Chat Completions as they go over the wire."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evalve.simulator.accounts import InputUsage
from evalve.simulator.answers import Output
from evalve.simulator.apis.wire import Events, Failure, FailureKind, encoded, pieces_of, told_to_wait
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
from evalve.simulator.scripts import ToolCall
from evalve.simulator.tokens import BYTES_PER_TOKEN, Part, content_parts, structure_part

_STOPS = {"end": "stop", "length": "length", "tool": "tool_calls"}
_FAILURES: dict[FailureKind, tuple[int, str, str | None, str]] = {
    "invalid": (400, "invalid_request_error", None, "The request is invalid."),
    "key": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "not_found": (404, "invalid_request_error", "unknown_url", "Unknown request URL."),
    "too_big": (413, "invalid_request_error", None, "The request is too large."),
    "error": (500, "server_error", None, "The server had an error while processing your request."),
    "overloaded": (503, "server_error", "server_is_overloaded", "The engine is currently overloaded."),
}
CREATED = 1_767_225_600  # equal requests give equal answers, so this instant does not move
_DIMENSIONS: tuple[Dimension, ...] = ("requests", "tokens")
_MEASURES = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}


class OpenAIApi:
    """POST /v1/chat/completions, whole and streamed."""

    request_id_header = "x-request-id"
    request_id_in_errors = False

    def key(self, headers: Mapping[str, str]) -> str:
        return headers.get("authorization", "").removeprefix("Bearer ") or headers.get("api-key", "")

    def read(self, body: Mapping[str, Any], digest: int) -> Ask:
        model = required_text(body, "model")
        max_tokens = optional_count(body, "max_completion_tokens") or optional_count(body, "max_tokens")
        stream = body.get("stream") is True
        format_ = mapping_at(body, "response_format")
        schema: Mapping[str, Any] | None = None
        if format_.get("type") == "json_schema":
            schema = mapping_at(format_, "json_schema", "schema")
        elif format_.get("type") == "json_object":
            schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
        return Ask(
            api="openai",
            model=model,
            parts=_parts(body),
            max_tokens=max_tokens,
            stream=stream,
            body=body,
            digest=digest,
            schema=schema,
            forced_tool=_forced_tool(body),
            choices=optional_count(body, "n") or 1,
            include_usage=stream and mapping_at(body, "stream_options").get("include_usage") is True,
        )

    def limit_headers(self, stated: Mapping[Dimension, Statement], *, epoch_s: float) -> dict[str, str]:
        headers: dict[str, str] = {}
        for dimension in _DIMENSIONS:
            said = stated.get(dimension)
            if said is not None:
                headers[f"x-ratelimit-limit-{dimension}"] = str(max(1, round(said.limit)))
                headers[f"x-ratelimit-remaining-{dimension}"] = str(int(said.remaining + 1e-6))
                headers[f"x-ratelimit-reset-{dimension}"] = go_duration(said.full_in_s)
        return headers

    def refusal(
        self, refusal: Refusal, ask: Ask, *, retry_after: RetryAfter | None, epoch_s: float
    ) -> Failure:
        kind, code = refusal.dimension or "requests", "rate_limit_exceeded"
        if refusal.kind == "spend":
            kind = code = "insufficient_quota"
            message = "You exceeded your current quota, please check your plan and billing details."
        elif refusal.kind == "concurrency":
            message = f"Too many concurrent requests for {ask.model}."
        elif refusal.kind == "ramp":
            code, message = "slow_down", "Your traffic grew too fast; please slow down."
        elif refusal.kind == "random":
            kind, message = "rate_limit_error", "Too many requests. Please slow down."
        else:
            message = _limit_message(refusal, ask.model, says_when=retry_after is None)
        failure = told_to_wait(
            _error(kind, code, message), refusal.wait_s, retry_after or "ms", epoch_s=epoch_s
        )
        if retry_after is None and failure.retry_in_s is not None:
            whole = {"retry-after": str(math.ceil(failure.retry_in_s)), **failure.headers}
            return replace(failure, headers=whole)
        return failure

    def failure(self, kind: FailureKind, message: str = "") -> Failure:
        status, name, code, usual = _FAILURES[kind]
        return Failure(status, _error(name, code, message or usual))

    def whole(self, ask: Ask, output: Output, usage: InputUsage, call_id: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": output.text or None, "refusal": None}
        if output.tool_calls:
            message["tool_calls"] = [
                _tool_call(call, call_id, place) for place, call in enumerate(output.tool_calls)
            ]
        choices = [
            {"index": index, "message": message, "logprobs": None, "finish_reason": _STOPS[output.stop]}
            for index in range(ask.choices)
        ]
        return {
            **_envelope(ask, call_id, "chat.completion"),
            "choices": choices,
            "usage": _usage(ask, output, usage),
        }

    def events(
        self, ask: Ask, output: Output, usage: InputUsage, call_id: str, *, chunk_tokens: int
    ) -> Events:
        envelope = _envelope(ask, call_id, "chat.completion.chunk")
        if ask.include_usage:
            envelope["usage"] = None

        def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
            choices = [
                {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
                for index in range(ask.choices)
            ]
            return b"".join(_event({**envelope, "choices": [choice]}) for choice in choices)

        closing = chunk({}, _STOPS[output.stop])
        if ask.include_usage:
            closing += _event({**envelope, "choices": [], "usage": _usage(ask, output, usage)})
        deltas = _deltas(output, call_id, chunk_tokens * BYTES_PER_TOKEN)
        return Events(
            opening=chunk({"role": "assistant", "content": "", "refusal": None}),
            pieces=[chunk(delta) for delta in deltas],
            closing=closing + b"data: [DONE]\n\n",
        )

    def error_event(self) -> bytes:
        return _event(_error("server_error", None, "The server had an error while processing your request."))


def go_duration(seconds: float) -> str:
    """A duration as Go writes it, to the millisecond: `12ms`, `1.5s`, `6m0s`, `1h0m30s`."""
    milliseconds = max(0, math.ceil(seconds * 1000 - 1e-6))
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _limit_message(refusal: Refusal, model: str, *, says_when: bool) -> str:
    start = "Request too large" if refusal.kind == "too_large" else "Rate limit reached"
    dimension = refusal.dimension or "requests"
    measure = _MEASURES[dimension]
    if refusal.window_s != 60.0:
        measure = f"{dimension} per {per_time(refusal.window_s)}"
    used = "" if refusal.kind == "too_large" else f" Used {refusal.used:.0f},"
    if refusal.wait_s is None:
        end = " The input or output tokens must be reduced in order to run successfully."
    else:
        end = f" Please try again in {go_duration(refusal.wait_s)}." if says_when else ""
    return (
        f"{start} for {model} in organization org-simulator on {measure}: "
        f"Limit {refusal.limit:.0f},{used} Requested {refusal.requested:.0f}.{end}"
    )


def _parts(body: Mapping[str, Any]) -> list[Part]:
    parts = [structure_part(tool) for tool in tool_definitions(body)]
    for message in required_messages(body):
        parts += content_parts(message.get("content"))
        parts += [structure_part(call) for call in message.get("tool_calls") or []]
    return parts


def _forced_tool(body: Mapping[str, Any]) -> ForcedTool | None:
    choice = body.get("tool_choice")
    named = mapping_at(choice, "function").get("name")
    if choice != "required" and named is None:
        return None
    for tool in tool_definitions(body):
        function = mapping_at(tool, "function")
        if named is None or function.get("name") == named:
            return ForcedTool(str(function.get("name")), mapping_at(function, "parameters"))
    raise BadRequest(f"tool_choice: there is no tool {named!r}")


def _envelope(ask: Ask, call_id: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{call_id}", "object": kind, "created": CREATED, "model": ask.model}


def _usage(ask: Ask, output: Output, usage: InputUsage) -> dict[str, Any]:
    completion = output.tokens * ask.choices
    return {
        "prompt_tokens": usage.fresh_tokens,
        "completion_tokens": completion,
        "total_tokens": usage.fresh_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": output.reasoning_tokens * ask.choices},
    }


def _deltas(output: Output, call_id: str, characters: int) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in pieces_of(output.text, characters)]
    for place, call in enumerate(output.tool_calls):
        whole = _tool_call(call, call_id, place)
        arguments = whole["function"]["arguments"]
        named = {**whole, "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [{"index": place, **named}]})
        for piece in pieces_of(arguments, characters):
            deltas.append({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
    return deltas


def _tool_call(call: ToolCall, call_id: str, place: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.text}
    return {"id": f"call_{call_id}_{place}", "type": "function", "function": function}


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + encoded(data) + b"\n\n"


def _error(kind: str, code: str | None, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
