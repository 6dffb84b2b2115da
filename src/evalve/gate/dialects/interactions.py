"""Gemini's Interactions: its second way to ask, in which the server may remember what was said before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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

_PATH = re.compile(r"/v\d\w*/(?:projects/[^/]+/locations/[^/]+/)?interactions$")
_COUNTED_AS_INPUT = ("input", "system_instruction", "tools", "response_format")
_FAILED = frozenset({"failed", "cancelled"})
_NOT_DONE = frozenset({"in_progress", "queued"})
_PRELUDES = ("interaction.created", "interaction.status_update", "step.start")


class InteractionsDialect(PieceDialect):
    """`POST …/interactions` to a model. What runs in the background, and agents, pass untouched."""

    name = "interactions"
    form = "an interaction"

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        body = json_object(request) if _PATH.search(path) is not None else None
        model = body.get("model") if body is not None else None
        if body is None or not isinstance(model, str) or not model or body.get("background") is True:
            return None
        return Call(
            provider=provider_at(host),
            host=host,
            model=model,
            pool=model,
            key_hash=account_hash(request, path),
            input_bytes=sum([input_bytes(body[name]) for name in _COUNTED_AS_INPUT if name in body]),
            max_output_tokens=whole_number(mapping_at(body, "generation_config").get("max_output_tokens")),
            streams=body.get("stream") is True,
            dialect=self.name,
            endpoint=self.name,
        )

    def told(self, piece: Any, headers: Mapping[str, str]) -> Told | None:
        told = google_error(piece)
        if told is None and (status := _status(piece)) in _FAILED:
            return Told(str(status), f"the interaction has the status {status!r}", "server")
        return told

    def is_end(self, piece: Any) -> bool:
        """A whole answer is not an event."""
        return isinstance(piece, dict) and piece.get("event_type", "interaction.completed") == (
            "interaction.completed"
        )

    def precedes(self, piece: Mapping[str, Any]) -> bool:
        return piece.get("event_type") in _PRELUDES

    def is_answer(self, call: Call, pieces: list[Any]) -> bool:
        """Where it waits for the result of a tool, or was cut off, that is what came of the call."""
        ended = next((piece for piece in pieces if self.is_end(piece)), None)
        status = _status(ended)
        return isinstance(status, str) and status not in _NOT_DONE

    def usage_in(self, piece: Mapping[str, Any]) -> Usage | None:
        """Thoughts are paid for as output."""
        said = mapping_at(piece, "interaction", "usage") or mapping_at(piece, "usage")
        prompt = counted(said.get("total_input_tokens"))
        if prompt is None:
            return None
        tools = counted(said.get("total_tool_use_tokens")) or 0
        cached = min(counted(said.get("total_cached_tokens")) or 0, prompt)
        output = [counted(said.get(name)) or 0 for name in ("total_output_tokens", "total_thought_tokens")]
        return Usage(prompt + tools - cached, sum(output), cached)


def _status(piece: Any) -> Any:
    """Of an interaction, whole or in an event; an update on the way may have one, too."""
    return (mapping_at(piece, "interaction") or mapping_at(piece)).get("status")
