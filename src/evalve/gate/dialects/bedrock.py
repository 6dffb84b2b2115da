"""Amazon Bedrock's `converse` and `invoke`, whole and streamed, for clients that speak HTTP themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from evalve.gate.dialects.answer_forms import is_message
from evalve.gate.dialects.answer_parts import THROTTLED, Refusal, Told, amazon_name, mapping_at
from evalve.gate.dialects.anthropic import KIND_BY_TYPE, AnthropicDialect, usage_of_claude
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
from evalve.gate.messages import Call, Cost, ProblemKind, Request, Usage

_PATH = re.compile(
    r"/model/(?P<model>[^/]+)/(?P<verb>converse|converse-stream|invoke|invoke-with-response-stream)$"
)
_SETTINGS = frozenset(
    {"inferenceConfig", "textGenerationConfig", "anthropic_version", "additionalModelRequestFields"}
)
"""Parts of a body that are not read by the model."""
_MAX_OUTPUT = (
    "maxTokens",
    "max_tokens",
    "max_tokens_to_sample",
    "max_gen_len",
    "maxTokenCount",
    "max_new_tokens",
)
_KIND_BY_NAME: dict[str, ProblemKind] = {
    **{name.lower(): kind for name, kind in THROTTLED.items()},
    "serviceunavailableexception": "overload",
    "modelnotreadyexception": "overload",
    "internalserverexception": "server",
    "internalfailure": "server",
    "modelerrorexception": "overload",
    "modelstreamerrorexception": "overload",
    "modeltimeoutexception": "server",
    "servicequotaexceededexception": "spent",
}
_PER_DAY = re.compile(r"per day", re.IGNORECASE)
_CLAUDE = "messages"


class BedrockDialect(PieceDialect):
    """`…/model/NAME/converse` and `/invoke`, with `-stream` and `-with-response-stream`.

    What `invoke` takes and gives differs by maker: Claude's is read like Anthropic's own, of others any JSON
    is an answer.
    """

    name = "bedrock"
    meaning_headers = frozenset({"x-amzn-bedrock-guardrailidentifier", "x-amzn-bedrock-guardrailversion"})
    form = "an answer of Bedrock"

    def __init__(self) -> None:
        super().__init__()
        self._anthropic = AnthropicDialect()

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        found = _PATH.search(path)
        body = json_object(request) if found is not None else None
        if found is None or body is None:
            return None
        model, verb = unquote(found["model"]), found["verb"]
        invokes_claude = verb.startswith("invoke") and "anthropic_version" in body
        return Call(
            provider=self.name if provider_at(host) == self.name else host,
            host=host,
            model=model,
            pool=model,
            key_hash=key_hash(request.headers, request.url),
            input_bytes=sum([input_bytes(value) for name, value in body.items() if name not in _SETTINGS]),
            max_output_tokens=0 if "embed" in model else _max_output_tokens(body),
            streams=verb.endswith("-stream"),
            dialect=self.name,
            endpoint=_CLAUDE if invokes_claude else verb.removesuffix("-stream").partition("-")[0],
        )

    def charged(self, call: Call, usage: Usage) -> Cost:
        """As Anthropic: what is read from a cache does not count."""
        return self._anthropic.charged(call, usage)

    def told(self, piece: Any, headers: Mapping[str, str]) -> Told | None:
        error = mapping_at(piece, "error")
        name = str(error.get("type") or "") or amazon_name(headers, piece)
        if not name:
            return None
        error = error or mapping_at(piece)
        text = str(error.get("message") or error.get("Message") or "")
        kind = _KIND_BY_NAME.get(name.lower()) or KIND_BY_TYPE.get(name)
        if kind == "rate_limit" and _PER_DAY.search(text):
            kind = "spent"
        return Told(name, text, kind, refusal=_refusal(text))

    def is_end(self, piece: Any) -> bool:
        return isinstance(piece, dict) and bool(
            "messageStop" in piece
            or "stopReason" in piece
            or piece.get("type") == "message_stop"
            or piece.get("stop_reason")
            or "amazon-bedrock-invocationMetrics" in piece
        )

    def precedes(self, piece: Mapping[str, Any]) -> bool:
        return bool(piece.keys() & {"messageStart", "contentBlockStart", "initial-response"}) or piece.get(
            "type"
        ) in ("message_start", "content_block_start", "ping")

    def is_answer(self, call: Call, pieces: list[Any]) -> bool:
        if call.streams and len(pieces) > 1:
            return True  # it has its end
        if call.endpoint == _CLAUDE:
            return is_message(pieces[0])
        if call.endpoint == "converse":
            return bool(mapping_at(pieces[0], "output", "message"))
        return isinstance(pieces[0], dict)

    def usage(self, call: Call, body: bytes) -> Usage | None:
        """Of a stream of Claude's, the counts that Bedrock adds to its last event hold over all others."""
        said = super().usage(call, body)
        if said is None and call.endpoint == _CLAUDE:
            pieces = [piece for piece in self._pieces(body) or [] if isinstance(piece, dict)]
            return _usage_of_claude(pieces)
        return said

    def usage_in(self, piece: Mapping[str, Any]) -> Usage | None:
        said = mapping_at(piece, "metadata", "usage") or mapping_at(piece, "usage")
        metrics = mapping_at(piece, "amazon-bedrock-invocationMetrics")
        if metrics:
            return _usage(
                metrics,
                "inputTokenCount",
                "outputTokenCount",
                "cacheReadInputTokenCount",
                "cacheWriteInputTokenCount",
            )
        if "inputTokens" in said:
            return _usage(
                said, "inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"
            )
        if "prompt_tokens" in said:
            return _usage(said, "prompt_tokens", "completion_tokens", "", "")
        if "input_tokens" in said and piece.get("type") == "message":
            return _usage_of_claude([piece])
        return None


def _usage(said: Mapping[str, Any], *names: str) -> Usage | None:
    fresh, output, read, written = (counted(said.get(name)) for name in names)
    return None if fresh is None else Usage(fresh, output or 0, read or 0, written or 0)


def _usage_of_claude(pieces: Sequence[Mapping[str, Any]]) -> Usage | None:
    """The first event has the input, the last the final counts."""
    said: dict[str, Any] = {}
    for piece in pieces:
        for place in (mapping_at(piece, "message", "usage"), mapping_at(piece, "usage")):
            said.update({name: value for name, value in place.items() if value is not None})
    return None if counted(said.get("input_tokens")) is None else usage_of_claude(said)


def _max_output_tokens(body: Mapping[str, Any]) -> int | None:
    for place in (mapping_at(body, "inferenceConfig"), mapping_at(body, "textGenerationConfig"), body):
        for name in _MAX_OUTPUT:
            most = whole_number(place.get(name))
            if most is not None:
                return most
    return None


def _refusal(text: str) -> Refusal | None:
    lower = text.lower()
    if "too many tokens" in lower:
        return "tokens"
    if "concurren" in lower:
        return "concurrency"
    return "requests" if "too many requests" in lower else None
