"""Calls that no dialect reads: they pass as they are, and a person is told so, once for each host."""

from __future__ import annotations

import logging
import threading
from urllib.parse import urlsplit

from evalve.gate.dialects.request_parts import address, json_object
from evalve.gate.messages import Request

_LOG = logging.getLogger(__name__)
_NO_CALLS = (
    "/count_tokens",
    ":countTokens",
    "/count-tokens",
    "/count-tokens:rawPredict",
    "/tokenize",
    "/detokenize",
    "/batches",
    "/files",
    "/cancel",
    "/api/show",
    "/api/pull",
    "/api/copy",
    "/api/create",
    "/graphql",
)
"""Ends of paths under which no model is asked."""
_LOADS_A_MODEL = frozenset({"model", "keep_alive", "stream"})
"""All that Ollama is told with to get a model ready, or to let it go."""
_LONGEST_SEGMENT = 20
"""A longer part of a path may be a key, as in the addresses of web hooks."""


def may_ask_a_model(request: Request) -> bool:
    """Whether it is worth a word that nobody limits, keeps and counts it; tools are called by JSON-RPC."""
    if address(request.url)[1].endswith(_NO_CALLS):
        return False
    body = json_object(request)
    if body is None:
        return True
    return "jsonrpc" not in body and not body.keys() <= _LOADS_A_MODEL


class Ungated:
    """Who has been told of. Any thread may tell."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._changing = threading.Lock()

    def tell(self, url: str) -> None:
        """One warning for a host, whatever else is called there."""
        host, _ = address(url)
        with self._changing:
            if host in self._hosts:
                return
            self._hosts.add(host)
        scheme = urlsplit(url).scheme
        told = (
            f"calls to {host}{_shown(urlsplit(url).path)} pass without limits, cache and metering, because"
            " evalve does not know their format; if a model answers there, use its OpenAI-compatible"
            f' address, or hold the calls back with evalve.limiter("openai-compatible/NAME@{scheme}://{host}");'
            " if none does, give that code a client of its own"
        )
        _LOG.warning("%s", told)  # one kind for each host, where warnings are gathered by kind


def _shown(path: str) -> str:
    return "/".join([part if len(part) <= _LONGEST_SEGMENT else "…" for part in path.split("/")])
