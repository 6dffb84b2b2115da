"""Gemini's `generateContent` as it goes over the wire: the model in the path, no limits in headers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from evalve.simulator.accounts import InputUsage
from evalve.simulator.answers import Output
from evalve.simulator.apis.wire import Events, Failure, FailureKind, encoded, pieces_of, told_to_wait
from evalve.simulator.asks import Ask, BadRequest, ForcedTool, mapping_at, optional_count, tool_definitions
from evalve.simulator.habits import RetryAfter, Statement
from evalve.simulator.limits import Dimension
from evalve.simulator.provider import Refusal
from evalve.simulator.tokens import ATTACHMENT_BYTES, BYTES_PER_TOKEN, Part, structure_part, text_bytes

_PATH = re.compile(
    r"(?:/v1(?:beta|alpha)?)?/models/(?P<model>[^/:]+):"
    r"(?P<verb>generateContent|streamGenerateContent|countTokens)"
)
_FAILURES: dict[FailureKind, tuple[int, str, str]] = {
    "invalid": (400, "INVALID_ARGUMENT", "The request is invalid."),
    "key": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "not_found": (404, "NOT_FOUND", "The model is not found."),
    "too_big": (413, "INVALID_ARGUMENT", "The request is too large."),
    "error": (500, "INTERNAL", "An internal error has occurred."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
}
_STOPS = {"end": "STOP", "length": "MAX_TOKENS", "tool": "STOP"}
_QUOTAS = {
    "requests": "GenerateRequestsPerMinutePerProjectPerModel",
    "input_tokens": "GenerateContentInputTokensPerModelPerMinute",
}
_TYPE = "type.googleapis.com/google.rpc."


def gemini_api(path: str, query: str) -> GeminiApi | None:
    """What answers at a path; `None` where it is none of Gemini's."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    asked = parse_qs(query)
    is_sse, key = asked.get("alt") == ["sse"], asked.get("key", [""])[0]
    return GeminiApi(unquote(found["model"]), verb=found["verb"], key=key, is_sse=is_sse)


class GeminiApi:
    """POST …/models/NAME:generateContent, :streamGenerateContent?alt=sse, :countTokens. One a request."""

    request_id_header = "x-request-id"
    request_id_in_errors = False

    def __init__(self, model: str, *, verb: str, key: str, is_sse: bool = True) -> None:
        self.counts = verb == "countTokens"
        self._model = model
        self._streams = verb == "streamGenerateContent"
        self._key = key
        self._is_sse = is_sse

    def key(self, headers: Mapping[str, str]) -> str:
        return headers.get("x-goog-api-key", "") or self._key

    def read(self, body: Mapping[str, Any], digest: int) -> Ask:
        settings = mapping_at(body, "generationConfig")
        schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
        return Ask(
            api="gemini",
            model=self._model,
            parts=_parts(body),
            max_tokens=optional_count(settings, "maxOutputTokens"),
            stream=self._streams,
            body=body,
            digest=digest,
            schema=_lowered(schema) if isinstance(schema, dict) else None,
            forced_tool=_forced_tool(body),
        )

    def read_for_count(self, body: Mapping[str, Any], digest: int) -> Ask:
        return self.read(mapping_at(body, "generateContentRequest") or body, digest)

    def count_body(self, ask: Ask) -> dict[str, Any]:
        details = [{"modality": "TEXT", "tokenCount": ask.input_tokens}]
        return {"totalTokens": ask.input_tokens, "promptTokensDetails": details}

    def limit_headers(self, stated: Mapping[Dimension, Statement], *, epoch_s: float) -> dict[str, str]:
        return {}

    def refusal(
        self, refusal: Refusal, ask: Ask, *, retry_after: RetryAfter | None, epoch_s: float
    ) -> Failure:
        if refusal.kind == "spend":
            return Failure(429, _error(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."))
        quota = _QUOTAS.get(refusal.dimension or "requests", _QUOTAS["input_tokens"])
        details: list[dict[str, Any]] = [
            {"@type": f"{_TYPE}QuotaFailure", "violations": [{"quotaId": quota}]},
        ]
        wait_s = refusal.wait_s if refusal.wait_s is not None and math.isfinite(refusal.wait_s) else None
        if wait_s is not None and retry_after is None:
            wait_s = math.ceil(wait_s * 1000) / 1000
            details.append({"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{wait_s:.3f}s"})
        message = f"You exceeded your current quota. Quota exceeded for: {quota}, model: {ask.model}."
        if refusal.kind == "random":
            message, details = "Resource exhausted. Please try again later.", details[1:]
        body = _error(429, "RESOURCE_EXHAUSTED", message, details)
        if retry_after is not None:
            return told_to_wait(body, wait_s, retry_after, epoch_s=epoch_s)
        return Failure(429, body, retry_in_s=wait_s)

    def failure(self, kind: FailureKind, message: str = "") -> Failure:
        status, name, usual = _FAILURES[kind]
        return Failure(status, _error(status, name, message or usual))

    def whole(self, ask: Ask, output: Output, usage: InputUsage, call_id: str) -> dict[str, Any]:
        thoughts = [_thought(output.reasoning)] if output.reasoning and _shows_thoughts(ask) else []
        texts = [{"text": output.text}] if output.text else []
        parts = [*thoughts, *texts, *_calls(output)]
        return _answer(ask, call_id, parts, output, usage)

    def events(
        self, ask: Ask, output: Output, usage: InputUsage, call_id: str, *, chunk_tokens: int
    ) -> Events:
        """The last piece says why it is the last. Without `alt=sse` the pieces are those of a JSON array."""
        characters = chunk_tokens * BYTES_PER_TOKEN
        thoughts = pieces_of(output.reasoning, characters) if _shows_thoughts(ask) else []
        parts = [_thought(piece) for piece in thoughts]
        parts += [{"text": piece} for piece in pieces_of(output.text, characters)]
        pieces = [_answer(ask, call_id, [part]) for part in parts]
        calls = _calls(output)
        closing = _answer(ask, call_id, calls or [{"text": ""}], output, usage)
        if self._is_sse:
            return Events(b"", [_event(piece) for piece in pieces], _event(closing))
        items = [encoded(piece) + b",\r\n" for piece in pieces]
        return Events(b"[", items, encoded(closing) + b"]", content_type="application/json; charset=UTF-8")

    def error_event(self) -> bytes:
        error = _error(503, "UNAVAILABLE", "The service is currently unavailable.")
        return _event(error) if self._is_sse else encoded(error) + b"]"


def _shows_thoughts(ask: Ask) -> bool:
    settings = mapping_at(ask.body, "generationConfig", "thinkingConfig")
    return settings.get("includeThoughts") is True


def _thought(text: str) -> dict[str, Any]:
    return {"text": text, "thought": True}


def _calls(output: Output) -> list[dict[str, Any]]:
    return [{"functionCall": {"name": call.name, "args": call.value}} for call in output.tool_calls]


def _answer(
    ask: Ask,
    call_id: str,
    parts: list[dict[str, Any]],
    output: Output | None = None,
    usage: InputUsage | None = None,
) -> dict[str, Any]:
    """With the output it is whole, or the last piece of a stream."""
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    answer: dict[str, Any] = {"candidates": [candidate], "modelVersion": ask.model, "responseId": call_id}
    if output is not None and usage is not None:
        candidate["finishReason"] = _STOPS[output.stop]
        counts = {
            "promptTokenCount": usage.fresh_tokens,
            "candidatesTokenCount": output.tokens - output.reasoning_tokens,
            "totalTokenCount": usage.fresh_tokens + output.tokens,
        }
        if output.reasoning:
            counts["thoughtsTokenCount"] = output.reasoning_tokens
        if usage.cached_tokens:
            counts["cachedContentTokenCount"] = usage.cached_tokens
        answer["usageMetadata"] = counts
    return answer


def _parts(body: Mapping[str, Any]) -> list[Part]:
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise BadRequest("contents is not specified")
    parts = [structure_part(tool) for tool in tool_definitions(body)]
    for content in [body.get("systemInstruction"), *contents]:
        said = content.get("parts") if isinstance(content, dict) else None
        parts += [_part(each) for each in (said if isinstance(said, list) else [])]
    return parts


def _part(part: Any) -> Part:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return Part(part["text"], text_bytes(part["text"]))
    if isinstance(part, dict) and ("inlineData" in part or "fileData" in part):
        return Part("[attachment]", ATTACHMENT_BYTES)
    return structure_part(part)


def _forced_tool(body: Mapping[str, Any]) -> ForcedTool | None:
    settings = mapping_at(body, "toolConfig", "functionCallingConfig")
    if settings.get("mode") != "ANY":
        return None
    allowed = settings.get("allowedFunctionNames") or []
    for tool in tool_definitions(body):
        declared = tool.get("functionDeclarations") if isinstance(tool, dict) else None
        for function in declared if isinstance(declared, list) else []:
            if not allowed or function.get("name") in allowed:
                schema = function.get("parameters") or function.get("parametersJsonSchema") or {}
                return ForcedTool(str(function.get("name")), _lowered(schema))
    raise BadRequest("toolConfig: there is no such function")


def _lowered(schema: Any) -> Any:
    """Google writes the names of types in capitals."""
    if isinstance(schema, list):
        return [_lowered(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value.lower() if name == "type" and isinstance(value, str) else _lowered(value)
        for name, value in schema.items()
    }


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + encoded(data) + b"\r\n\r\n"


def _error(
    status: int, name: str, message: str, details: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    error: dict[str, Any] = {"code": status, "message": message, "status": name}
    return {"error": {**error, "details": details} if details else error}
