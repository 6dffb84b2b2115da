"""Which wire format answers at which path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from evalve.simulator.apis.anthropic import AnthropicApi
from evalve.simulator.apis.catalogue import models_at
from evalve.simulator.apis.gemini import GeminiApi, gemini_api
from evalve.simulator.apis.openai import OpenAIApi
from evalve.simulator.apis.responses import ResponsesApi
from evalve.simulator.apis.wire import Api, CountingApi

_RESPONSES = "/v1/responses"
_ELSEWHERE = re.compile(r"/openai/deployments/[^/]+/|/(?:openai|api)/v1/|/openai/(?=responses)")
"""Where Azure, Groq and OpenRouter have what OpenAI has below /v1/."""


def usual_path(path: str) -> str:
    """Where OpenAI has what hosts with its formats have elsewhere."""
    found = _ELSEWHERE.match(path)
    return path if found is None else f"/v1/{path[found.end() :]}"


class Routes:
    """All wire formats. It remembers the conversations of those that have a memory."""

    def __init__(self) -> None:
        self._anthropic = AnthropicApi()
        self._responses = ResponsesApi()
        self._apis: dict[str, Api] = {
            "/v1/messages": self._anthropic,
            "/v1/chat/completions": OpenAIApi(),
            _RESPONSES: self._responses,
        }

    def answering(self, path: str, query: str) -> Api | None:
        """What answers a POST for an answer of the model."""
        found = self._apis.get(usual_path(path)) or gemini_api(path, query)
        return None if isinstance(found, GeminiApi) and found.counts else found

    def counting(self, path: str, query: str) -> CountingApi | None:
        """What answers a POST for the size of a prompt."""
        if path == "/v1/messages/count_tokens":
            return self._anthropic
        if usual_path(path) == f"{_RESPONSES}/input_tokens":
            return self._responses
        found = gemini_api(path, query)
        return found if found is not None and found.counts else None

    def stored(self, path: str, headers: Mapping[str, str], pools: Iterable[str]) -> dict[str, Any] | None:
        """What a GET finds: models, or an earlier response."""
        path = usual_path(path)
        if path.startswith(f"{_RESPONSES}/"):
            return self._responses.stored(path.removeprefix(f"{_RESPONSES}/"))
        return models_at(path, headers, pools)

    def nearest(self, path: str, query: str, headers: Mapping[str, str]) -> Api:
        """In whose words a path is refused that nobody answers at."""
        if path.startswith("/v1/messages") or "anthropic-version" in headers:
            return self._anthropic
        if path.startswith("/v1beta/") or "x-goog-api-key" in headers:
            return GeminiApi("", verb="", key=parse_qs(query).get("key", [""])[0])
        return self._apis["/v1/chat/completions"]
