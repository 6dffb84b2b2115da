"""Requests as people write them for a batch, read into what is sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evalve import gating
from evalve.errors import OptionError
from evalve.gate.cache.key import content_key, numbered_key
from evalve.gate.dialects.finding import recognised
from evalve.gate.doors.model import Model
from evalve.gate.messages import Call, Dialect, Request

_HOW = (
    'write it as {"custom_id": …, "params": {…}} for Anthropic, {"custom_id": …, "method": "POST", "url": …,'
    ' "body": {…}} for OpenAI, or {"model": "anthropic/…", "prompt": …}'
)


@dataclass(frozen=True, slots=True)
class Line:
    """One request of a batch."""

    custom_id: str
    key: str
    """Its name in the cache."""
    request: Request
    call: Call
    dialect: Dialect


def lines_of(
    requests: Iterable[Mapping[str, Any]], *, api_key: str | None = None, base_url: str | None = None
) -> list[Line]:
    """All of them, for one provider; a mistake is an `OptionError` that names the request."""
    reader = _Reader(api_key, base_url)
    lines = [reader.line(number, request) for number, request in enumerate(requests)]
    if not lines:
        raise OptionError("there are no requests to submit")
    twice = [name for name, count in Counter(line.custom_id for line in lines).items() if count > 1]
    if twice:
        raise OptionError(f"two requests have the custom_id {twice[0]!r}; they must be unique")
    places = {(line.request.url, line.call.dialect) for line in lines}
    if len(places) > 1:
        where = ", ".join(sorted(url for url, _ in places))
        raise OptionError(f"the requests go to several places ({where}): submit each as a batch of its own")
    return lines


class _Reader:
    def __init__(self, api_key: str | None, base_url: str | None) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._models: dict[str, Model] = {}
        self._seen: Counter[str] = Counter()

    def line(self, number: int, plain: Mapping[str, Any]) -> Line:
        if not isinstance(plain, Mapping):
            raise OptionError(f"request {number} is a {type(plain).__name__}; {_HOW}")
        custom_id = str(plain.get("custom_id", number))
        request = self._request(custom_id, plain)
        understood = recognised(request)
        if understood is None:
            raise OptionError(f"request {custom_id!r} is no call to a model: does it name one? {_HOW}")
        dialect, call = understood
        content = content_key(request, meaning_headers=dialect.meaning_headers)
        request.forget_json()
        key = numbered_key(content, repeat=0, ordinal=self._seen[content])
        self._seen[content] += 1
        return Line(custom_id, key, request, gating.house().named(call), dialect)

    def _request(self, custom_id: str, plain: Mapping[str, Any]) -> Request:
        if isinstance(plain.get("params"), Mapping):
            return self._raw(f"anthropic/{plain['params'].get('model')}", plain["params"], custom_id)
        if isinstance(plain.get("body"), Mapping):
            request = self._raw(f"openai/{plain['body'].get('model')}", plain["body"], custom_id)
            end = str(plain.get("url", "/v1/chat/completions")).removeprefix("/v1")
            url = request.url.removesuffix("/chat/completions") + end
            return Request(request.method, url, request.headers, request.body)
        if isinstance(plain.get("model"), str) and "prompt" in plain:
            rest = {name: value for name, value in plain.items() if name not in ("custom_id", "model")}
            return self._model(plain["model"]).request_for(rest.pop("prompt"), **rest)
        raise OptionError(f"request {custom_id!r} cannot be read; {_HOW}")

    def _raw(self, name: str, body: Mapping[str, Any], custom_id: str) -> Request:
        if body.get("stream"):
            raise OptionError(f"request {custom_id!r} asks for a stream, which no batch gives: leave it out")
        try:
            written = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise OptionError(f"request {custom_id!r} cannot be written as JSON: {error}") from None
        like = self._model(name).request_for("")
        return Request(like.method, like.url, like.headers, written)

    def _model(self, name: str) -> Model:
        if name not in self._models:
            made = gating.model(name, api_key=self._api_key, base_url=self._base_url)
            if made.lacks_key:
                raise OptionError(f"{name} needs an API key: set the provider's variable, or give api_key=")
            self._models[name] = made
        return self._models[name]
