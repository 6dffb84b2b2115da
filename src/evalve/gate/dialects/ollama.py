"""Ollama's own API: chat, generate and embeddings. What it streams is one JSON object a line."""

from __future__ import annotations

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
    whole_number,
)
from evalve.gate.messages import Call, ProblemKind, Request, Usage

_ASKS = {
    "/api/chat": "messages",
    "/api/generate": "prompt",
    "/api/embed": "input",
    "/api/embeddings": "prompt",
}
"""What each path must have in its body: others have such paths, too."""
_COUNTED_AS_INPUT = ("messages", "prompt", "suffix", "system", "tools", "input", "format", "images")


class OllamaDialect(PieceDialect):
    """`POST /api/chat`, `/api/generate`, `/api/embed`; streamed unless the request says otherwise."""

    name = "ollama"
    form = "an answer of Ollama"

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        asks = next((each for each in _ASKS if path.endswith(each)), None)
        body = json_object(request) if asks is not None else None
        model = body.get("model") if body is not None else None
        if asks is None or body is None or not isinstance(model, str) or _ASKS[asks] not in body:
            return None
        embeds = asks.startswith("/api/embed")
        return Call(
            provider=self.name if provider_at(host) == self.name else host,
            host=host,
            model=model,
            pool=model,
            key_hash=key_hash(request.headers, request.url),
            input_bytes=sum([input_bytes(body[name]) for name in _COUNTED_AS_INPUT if name in body]),
            max_output_tokens=0 if embeds else whole_number(mapping_at(body, "options").get("num_predict")),
            streams=not embeds and body.get("stream") is not False,
            dialect=self.name,
            endpoint=asks.removeprefix("/api/"),
        )

    def told(self, piece: Any, headers: Mapping[str, str]) -> Told | None:
        error = piece.get("error") if isinstance(piece, dict) else None
        if not error:
            return None
        text = str(error)
        kind: ProblemKind | None = "overload" if "server busy" in text else None
        return Told("", text, kind)

    def is_end(self, piece: Any) -> bool:
        return isinstance(piece, dict) and piece.get("done") is True

    def precedes(self, piece: Mapping[str, Any]) -> bool:
        message = mapping_at(piece, "message")
        said = any(value for name, value in message.items() if name != "role")
        return not (said or piece.get("response") or piece.get("thinking") or piece.get("done"))

    def is_answer(self, call: Call, pieces: list[Any]) -> bool:
        piece = pieces[-1]
        if not isinstance(piece, dict):
            return False
        if call.endpoint.startswith("embed"):
            return isinstance(piece.get("embeddings", piece.get("embedding")), list)
        has_text = (
            isinstance(piece.get("response"), str)
            if call.endpoint == "generate"
            else bool(mapping_at(piece, "message"))
        )
        return has_text and self.is_end(piece)

    def usage_in(self, piece: Mapping[str, Any]) -> Usage | None:
        """A prompt that it still has in memory is left out of the counts by older versions."""
        if not (piece.get("done") or "embeddings" in piece):
            return None
        read, written = counted(piece.get("prompt_eval_count")), counted(piece.get("eval_count"))
        return None if read is None and written is None else Usage(read or 0, written or 0)
