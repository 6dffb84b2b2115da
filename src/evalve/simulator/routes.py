"""Which wire format answers at which path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalve.simulator.anthropic_api import AnthropicApi
from evalve.simulator.catalogue import models_at
from evalve.simulator.gemini_api import GeminiApi, gemini_api
from evalve.simulator.openai_api import OpenAIApi
from evalve.simulator.responses_api import ResponsesApi
from evalve.simulator.wire import Api, CountingApi

_RESPONSES = "/v1/responses"


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
        found = self._apis.get(path) or gemini_api(path, query)
        return None if isinstance(found, GeminiApi) and found.counts else found

    def counting(self, path: str, query: str) -> CountingApi | None:
        """What answers a POST for the size of a prompt."""
        if path == "/v1/messages/count_tokens":
            return self._anthropic
        if path == f"{_RESPONSES}/input_tokens":
            return self._responses
        found = gemini_api(path, query)
        return found if found is not None and found.counts else None

    def stored(self, path: str, headers: Mapping[str, str], pools: Iterable[str]) -> dict[str, Any] | None:
        """What a GET finds: models, or an earlier response."""
        if path.startswith(f"{_RESPONSES}/"):
            return self._responses.stored(path.removeprefix(f"{_RESPONSES}/"))
        return models_at(path, headers, pools)

    def nearest(self, path: str, headers: Mapping[str, str]) -> Api:
        """In whose words a path is refused that nobody answers at."""
        if path.startswith("/v1/messages") or "anthropic-version" in headers:
            return self._anthropic
        if path.startswith("/v1beta/") or "x-goog-api-key" in headers:
            return GeminiApi("", verb="", key="")
        return self._apis["/v1/chat/completions"]
