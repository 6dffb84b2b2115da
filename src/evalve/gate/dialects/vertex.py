"""Other makers' models on Vertex: Google's path, Anthropic's or Mistral's body, and errors of either."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote

from evalve.gate.dialects.answer_forms import begins, ends
from evalve.gate.dialects.answer_parts import ParsedOnce, kind_by_status, problem_told
from evalve.gate.dialects.anthropic import AnthropicDialect
from evalve.gate.dialects.google_errors import google_error
from evalve.gate.dialects.hosts import provider_at
from evalve.gate.dialects.openai import OpenAIDialect
from evalve.gate.dialects.request_parts import account_hash, address, json_object
from evalve.gate.messages import Call, Cost, Dialect, Dimension, Problem, Reply, Request, Stated, Usage

_PATH = re.compile(
    r"/publishers/(?P<maker>anthropic|mistralai)/models/(?P<model>[^/:]+):(?P<verb>rawPredict|streamRawPredict)$"
)
_COUNTS_TOKENS = "count-tokens"


class VertexDialect:
    """`…/publishers/MAKER/models/NAME:rawPredict` and `:streamRawPredict`."""

    name = "vertex"
    meaning_headers = AnthropicDialect.meaning_headers

    def __init__(self) -> None:
        self._anthropic = AnthropicDialect()
        self._openai = OpenAIDialect()
        self._parsed = ParsedOnce()

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        found = _PATH.search(path)
        body = json_object(request) if found is not None else None
        if found is None or body is None or found["model"] == _COUNTS_TOKENS:
            return None
        model = unquote(found["model"]).partition("@")[0]
        key_hash = account_hash(request, path)
        if found["maker"] == "anthropic":
            call = self._anthropic.call_in(body, host=host, model=model, key_hash=key_hash)
        else:
            call = self._openai.call_in(
                body, host=host, model=model, key_hash=key_hash, endpoint="chat/completions"
            )
        streams = call.streams or found["verb"] == "streamRawPredict"
        return replace(call, provider=provider_at(host), streams=streams, dialect=self.name)

    def booked(self, call: Call, *, input_tokens: float, output_tokens: float) -> Cost:
        return self._inner(call).booked(call, input_tokens=input_tokens, output_tokens=output_tokens)

    def charged(self, call: Call, usage: Usage) -> Cost:
        return self._inner(call).charged(call, usage)

    def usage(self, call: Call, body: bytes) -> Usage | None:
        return self._inner(call).usage(call, body)

    def stated(self, headers: Mapping[str, str]) -> dict[Dimension, Stated]:
        return self._anthropic.stated(headers)

    def begins(self, call: Call, data: bytes) -> bool:
        return begins(call, data)

    def ends(self, data: bytes) -> bool:
        return ends(data)

    def problem(self, reply: Reply, call: Call | None = None) -> Problem | None:
        """Errors are Google's, unless it passes on those of the maker."""
        inner = self._inner(call)
        parsed = self._parsed(reply.body)
        is_makers = isinstance(parsed, dict) and parsed.get("type") == "error"
        told = google_error(parsed)
        if 200 <= reply.status < 300 or is_makers or told is None:
            return inner.problem(reply, call)
        who = call.provider if call is not None else self.name
        return problem_told(who, reply, told, kind_by_status(reply.status))

    def _inner(self, call: Call | None) -> Dialect:
        return self._openai if call is not None and call.endpoint != "messages" else self._anthropic
