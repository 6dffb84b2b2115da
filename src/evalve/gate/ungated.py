"""Calls that nobody limits, keeps and counts pass as they are, and a person is told, once for each host."""

from __future__ import annotations

import logging
import re
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
    "/input_tokens",
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
_CALLS = re.compile(
    r"/chat/completions$|/v1/(?:messages|responses|completions|embeddings)$|/v2/(?:chat|embed|rerank)$"
    r"|/api/(?:chat|generate|embed)$|/model/[^/]+/(?:converse|invoke)[a-z-]*$"
    r"|:(?:streamG|g)enerateContent$|:(?:embedContent|batchEmbedContents|rawPredict|streamRawPredict)$"
)
"""Ends of paths under which, whatever the host, models are asked."""
_TAKE_FILES = ("/audio/transcriptions", "/audio/translations", "/images/edits", "/speech-to-text")
"""Ends of paths under which a model is given a file, in a form."""
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


def asks_a_model(method: str, url: str) -> bool:
    """Whether a request is one that the gate could read, as far as its address tells."""
    return method.upper() == "POST" and _CALLS.search(address(url)[1]) is not None


def gives_a_file_to_a_model(url: str, content_type: str) -> bool:
    """Of a POST that is not JSON: most forms are uploads, which ask nobody; bare images and sounds ask."""
    path = address(url)[1]
    is_bare = content_type.startswith(("audio/", "image/")) and not path.endswith(_NO_CALLS)
    return is_bare or path.endswith(_TAKE_FILES)


class Ungated:
    """Who has been told of. Any thread may tell."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._changing = threading.Lock()

    def tell(self, url: str, *, is_past_gateway: bool = False) -> None:
        """One warning for a host, whatever else is called there."""
        host, _ = address(url)
        with self._changing:
            if host in self._hosts:
                return
            self._hosts.add(host)
        scheme, path = urlsplit(url).scheme, urlsplit(url).path
        # warnings of all processes are gathered by their template: it has the host in it, and not the path
        host = host.replace("%", "%%")
        limiter = f'evalve.limiter("openai-compatible/NAME@{scheme}://{host}")'
        if is_past_gateway:
            told = (
                f"calls to {host}%s do not go over the gateway, because their client does not take its"
                " address from the environment: they pass without cache and metering, and without limits;"
                " give the client evalve's HTTP client (docs/sdks.md) or, if it takes none, hold the calls"
                f" back with {limiter}"
            )
        else:
            told = (
                f"calls to {host}%s pass without limits, cache and metering, because evalve does not"
                " know their format; if a model answers there, use its OpenAI-compatible address, or hold"
                f" the calls back with {limiter}; if none does, give that code a client of its own"
            )
        _LOG.warning(told, _shown(path))


def _shown(path: str) -> str:
    return "/".join([part if len(part) <= _LONGEST_SEGMENT else "…" for part in path.split("/")])
