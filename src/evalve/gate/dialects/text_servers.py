"""What servers of one's own speak beside OpenAI's format: llama.cpp's `/completion`, TGI's `/generate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalve.gate.dialects.answer_parts import Refusal, Told, mapping_at
from evalve.gate.dialects.openai import UNNAMED
from evalve.gate.dialects.pieces import PieceDialect
from evalve.gate.dialects.request_parts import (
    address,
    counted,
    input_bytes,
    json_object,
    key_hash,
    whole_number,
)
from evalve.gate.messages import Call, Request, Usage

_ASKS = {"/completion": "prompt", "/generate": "inputs", "/generate_stream": "inputs"}
"""What each path must have in its body, as text: of several prompts at once the answer has another form."""


class TextServerDialect(PieceDialect):
    """`POST /completion` with a `prompt`; `POST /generate` and `/generate_stream` with `inputs`."""

    name = "text-server"
    form = "an answer of llama.cpp or TGI"

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        asks = next((each for each in _ASKS if path.endswith(each)), None)
        body = json_object(request) if asks is not None else None
        if asks is None or body is None or not isinstance(body.get(_ASKS[asks]), str):
            return None
        model = body.get("model")
        return Call(
            provider=host,
            host=host,
            model=model if isinstance(model, str) and model else UNNAMED,
            pool=UNNAMED,
            key_hash=key_hash(request.headers, request.url),
            input_bytes=input_bytes(body[_ASKS[asks]]),
            max_output_tokens=_max_output_tokens(body),
            streams=asks == "/generate_stream" or (asks == "/completion" and bool(body.get("stream"))),
            dialect=self.name,
            endpoint=asks.removeprefix("/"),
        )

    def told(self, piece: Any, headers: Mapping[str, str]) -> Told | None:
        """TGI says a text, and why beside it; llama.cpp an object."""
        error = piece.get("error") if isinstance(piece, dict) else None
        if not error:
            return None
        if isinstance(error, dict):
            return Told(str(error.get("type") or ""), str(error.get("message") or ""))
        why = str(piece.get("error_type") or "")
        refusal: Refusal | None = "concurrency" if why == "overloaded" else None  # it has so many places
        return Told(why, str(error), refusal=refusal)

    def is_end(self, piece: Any) -> bool:
        return isinstance(piece, dict) and (
            piece.get("stop") is True or isinstance(piece.get("generated_text"), str)
        )

    def precedes(self, piece: Mapping[str, Any]) -> bool:
        """llama.cpp may first tell how far it has read the prompt."""
        is_piece = piece.get("content") or mapping_at(piece, "token")
        return not is_piece and not self.is_end(piece)

    def is_answer(self, call: Call, pieces: list[Any]) -> bool:
        """Any JSON: people give servers that they wrote themselves such paths, too."""
        return isinstance(pieces[-1], dict)

    def usage_in(self, piece: Mapping[str, Any]) -> Usage | None:
        """TGI tells what it has read only where details were asked for, and not in all versions."""
        read, written = counted(piece.get("tokens_evaluated")), counted(piece.get("tokens_predicted"))
        details = mapping_at(piece, "details")
        if details:
            prefill = details.get("prefill")
            of_prompt = len(prefill) if isinstance(prefill, list) and prefill else None
            read = counted(details.get("input_length")) or of_prompt
            written = counted(details.get("generated_tokens"))
        return None if read is None or written is None else Usage(read, written)


def _max_output_tokens(body: Mapping[str, Any]) -> int | None:
    """llama.cpp's -1 is no limit."""
    most = body.get("n_predict", mapping_at(body, "parameters").get("max_new_tokens"))
    return whole_number(most)
