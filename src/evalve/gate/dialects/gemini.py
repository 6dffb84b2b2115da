"""Gemini's `generateContent` and embeddings, on Google's two hosts and any proxy that has their paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from evalve.gate.dialects.answer_parts import Told, mapping_at
from evalve.gate.dialects.google_errors import google_error
from evalve.gate.dialects.hosts import provider_at
from evalve.gate.dialects.pieces import PieceDialect
from evalve.gate.dialects.request_parts import (
    account_hash,
    address,
    counted,
    input_bytes,
    json_object,
    whole_number,
)
from evalve.gate.messages import Call, Request, Usage

_PATH = re.compile(
    r"/(?:models|tunedModels|endpoints)/(?P<model>[^/:]+)"
    r":(?P<verb>generateContent|streamGenerateContent|embedContent|batchEmbedContents|predict)$"
)
_COUNTED_AS_INPUT = (
    "contents",
    "systemInstruction",
    "system_instruction",
    "tools",
    "content",
    "requests",
    "instances",
)
_GENERATES = ("generateContent", "streamGenerateContent")


class GeminiDialect(PieceDialect):
    """`…/models/NAME:generateContent` and its like, whole, as events and as one long array."""

    name = "gemini"
    form = "a Gemini answer"

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        found = _PATH.search(path)
        body = json_object(request) if found is not None else None
        if found is None or body is None:
            return None
        model, verb = unquote(found["model"]), found["verb"]
        if verb == "predict" and "embedding" not in model:
            return None  # Imagen, or anybody's own model
        return Call(
            provider=provider_at(host),
            host=host,
            model=model,
            pool=model,
            key_hash=account_hash(request, path),
            input_bytes=sum([input_bytes(body[name]) for name in _COUNTED_AS_INPUT if name in body]),
            max_output_tokens=_max_output_tokens(body) if verb in _GENERATES else 0,
            streams=verb == "streamGenerateContent",
            dialect=self.name,
            endpoint=verb,
        )

    def told(self, piece: Any, headers: Mapping[str, str]) -> Told | None:
        return google_error(piece)

    def is_end(self, piece: Any) -> bool:
        if mapping_at(piece, "promptFeedback").get("blockReason"):
            return True
        return any(candidate.get("finishReason") for candidate in _candidates(piece))

    def precedes(self, piece: Mapping[str, Any]) -> bool:
        return not any(candidate.get("content") for candidate in _candidates(piece)) and not self.is_end(
            piece
        )

    def is_answer(self, call: Call, pieces: list[Any]) -> bool:
        """A prompt that was blocked has no candidates, and is answered with the reason."""
        piece = pieces[-1]
        if call.endpoint in _GENERATES:
            return any(_candidates(each) or mapping_at(each, "promptFeedback") for each in pieces)
        name = {"embedContent": "embedding", "batchEmbedContents": "embeddings"}.get(
            call.endpoint, "predictions"
        )
        return isinstance(piece, dict) and isinstance(piece.get(name), dict | list)

    def usage_in(self, piece: Mapping[str, Any]) -> Usage | None:
        """Thoughts are paid for as output; what a cached content had in it is read from a cache."""
        said = mapping_at(piece, "usageMetadata")
        prompt = counted(said.get("promptTokenCount"))
        if prompt is None:
            return _usage_of_embeddings(piece)
        tools = counted(said.get("toolUsePromptTokenCount")) or 0
        cached = min(counted(said.get("cachedContentTokenCount")) or 0, prompt)
        output = [counted(said.get(name)) or 0 for name in ("candidatesTokenCount", "thoughtsTokenCount")]
        return Usage(prompt + tools - cached, sum(output), cached)


def _max_output_tokens(body: Mapping[str, Any]) -> int | None:
    """The names may be written either way."""
    settings = mapping_at(body, "generationConfig") or mapping_at(body, "generation_config")
    most = whole_number(settings.get("maxOutputTokens", settings.get("max_output_tokens")))
    times = whole_number(settings.get("candidateCount", settings.get("candidate_count"))) or 1
    return None if most is None else most * times


def _candidates(piece: Any) -> list[Mapping[str, Any]]:
    candidates = piece.get("candidates") if isinstance(piece, dict) else None
    return [each for each in candidates if isinstance(each, dict)] if isinstance(candidates, list) else []


def _usage_of_embeddings(piece: Mapping[str, Any]) -> Usage | None:
    predictions = piece.get("predictions")
    counts = [
        counted(mapping_at(each, "embeddings", "statistics").get("token_count"))
        for each in (predictions if isinstance(predictions, list) else [])
    ]
    known = [each for each in counts if each is not None]
    return Usage(sum(known)) if known else None
