"""Cohere's second version: chat, embed and rerank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evalve.gate.dialects.answer_parts import Told, mapping_at
from evalve.gate.dialects.hosts import provider_at
from evalve.gate.dialects.pieces import PieceDialect
from evalve.gate.dialects.request_parts import (
    address,
    counted,
    input_bytes,
    json_object,
    key_hash,
    undated,
    whole_number,
)
from evalve.gate.messages import Call, ProblemKind, Request, Usage

_PATHS = ("/v2/chat", "/v2/embed", "/v2/rerank")
_COUNTED_AS_INPUT = (
    "messages",
    "documents",
    "tools",
    "response_format",
    "texts",
    "inputs",
    "images",
    "query",
)
_FAILED = frozenset({"ERROR", "TIMEOUT", "ERROR_TOXIC"})
"""Finish reasons of an answer that is none."""
_PRELUDES = ("message-start", "content-start", "debug")
_PER_MONTH = re.compile(r"/ ?month|per month|monthly", re.IGNORECASE)


class CohereDialect(PieceDialect):
    """`POST /v2/chat`, `/v2/embed` and `/v2/rerank`."""

    name = "cohere"
    form = "an answer of Cohere"

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        if not path.endswith(_PATHS):
            return None
        body = json_object(request)
        model = body.get("model") if body is not None else None
        if body is None or not isinstance(model, str) or not model:
            return None
        chats = path.endswith("/chat")
        return Call(
            provider=self.name if provider_at(host) == self.name else host,
            host=host,
            model=model,
            pool=undated(model),
            key_hash=key_hash(request.headers, request.url),
            input_bytes=sum([input_bytes(body[name]) for name in _COUNTED_AS_INPUT if name in body]),
            max_output_tokens=whole_number(body.get("max_tokens")) if chats else 0,
            streams=chats and bool(body.get("stream")),
            dialect=self.name,
            endpoint=path.rpartition("/v2/")[2],
        )

    def told(self, piece: Any, headers: Mapping[str, str]) -> Told | None:
        """A refusal is a bare `message`; an answer has a `message`, too, but as an object."""
        if not isinstance(piece, dict):
            return None
        error = mapping_at(piece, "delta").get("error") or piece.get("error")
        finish = piece.get("finish_reason") or mapping_at(piece, "delta").get("finish_reason")
        message = piece.get("message")
        if finish in _FAILED:
            return Told(str(finish), str(error or "the model did not finish its answer"), "server")
        text = message if isinstance(message, str) else error if isinstance(error, str) else ""
        if not text:
            return None
        kind: ProblemKind | None = "spent" if _PER_MONTH.search(text) else None
        return Told("", text, kind)

    def is_end(self, piece: Any) -> bool:
        return isinstance(piece, dict) and bool(
            piece.get("type") == "message-end" or piece.get("finish_reason")
        )

    def precedes(self, piece: Mapping[str, Any]) -> bool:
        return piece.get("type") in _PRELUDES

    def is_answer(self, call: Call, pieces: list[Any]) -> bool:
        piece = pieces[-1]
        if not isinstance(piece, dict):
            return False
        if call.endpoint == "chat":
            return bool(isinstance(piece.get("message"), dict) or len(pieces) > 1)
        return isinstance(piece.get("embeddings", piece.get("results")), dict | list)

    def usage_in(self, piece: Mapping[str, Any]) -> Usage | None:
        said = mapping_at(piece, "usage") or mapping_at(piece, "delta", "usage") or mapping_at(piece, "meta")
        tokens = mapping_at(said, "tokens") or mapping_at(said, "billed_units")
        fresh = counted(tokens.get("input_tokens"))
        if fresh is None:
            return None
        cached = min(counted(said.get("cached_tokens")) or 0, fresh)
        return Usage(fresh - cached, counted(tokens.get("output_tokens")) or 0, cached)
