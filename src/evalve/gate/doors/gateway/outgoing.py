"""From what a client sent to what goes to the provider: no framing, no token, and the real key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, quote

from evalve.gate.doors.gateway.upstreams import Upstream
from evalve.secrecy import discreet_headers

SAMPLE_HEADER = "x-evalve-sample"
"""Which sample of this process a call belongs to; it goes no further than the gateway."""

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_KEY_PARAMETER = "key"
_OF_THE_CONNECTION = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        SAMPLE_HEADER,
    }
)
_DECODED = frozenset({"gzip", "deflate"})
"""The server has undone these in a request's body."""
_NOT_HANDED_BACK = frozenset({"alt-svc", "connection", "date", "keep-alive", "server", "transfer-encoding"})
"""Of an answer: the last is ours to say, and the first would lead the client past us."""


def keys_in(headers: Mapping[str, str], query: str) -> list[tuple[str, str]]:
    """The keys that a client sent, each with the header that it stood in; empty for one in the query."""
    found = [(name, _bare(headers[name])) for name in _KEY_HEADERS if headers.get(name)]
    return found + [("", value) for name, value in parse_qsl(query) if name == _KEY_PARAMETER]


def with_real_key(
    headers: Mapping[str, str],
    query: str,
    upstream: Upstream,
    *,
    is_token: Callable[[str], bool],
    keeps_own: bool,
) -> tuple[dict[str, str], str]:
    """Headers and query for the provider. A key of the client's own goes on only where `keeps_own`."""
    sent = keys_in(headers, query)
    passed = {name: value for name, value in headers.items() if name not in _OF_THE_CONNECTION}
    if passed.get("content-encoding") in _DECODED:
        del passed["content-encoding"]
    if keeps_own and any(not is_token(key) for _, key in sent):
        tokens = {name for name, key in sent if is_token(key)}
        return discreet_headers({name: each for name, each in passed.items() if name not in tokens}), query
    for name in _KEY_HEADERS:
        passed.pop(name, None)
    if upstream.api_key:
        place = upstream.key_header or next((name for name, _ in sent if name), "authorization")
        passed[place] = (
            "Bearer " + str(upstream.api_key) if place == "authorization" else str(upstream.api_key)
        )
    return discreet_headers(passed), _without_key(query)


def handed_back(headers: Mapping[str, str], status: int) -> dict[str, str]:
    """The headers of an answer; a final error tells clients that trying again has been seen to."""
    kept = {name: value for name, value in headers.items() if name not in _NOT_HANDED_BACK}
    if status >= 400:
        kept["x-should-retry"] = "false"
    return kept


def refuses_identity(accept_encoding: str) -> bool:
    """Whether a client insists on a compressed answer; nobody pays for compression on loopback otherwise."""
    said = {}
    for part in accept_encoding.lower().split(","):
        name, _, quality = part.partition(";")
        said[name.strip()] = quality.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return said.get("identity", said.get("*", False)) and not said.get("gzip", False)


def _bare(value: str) -> str:
    return value[7:].strip() if value[:7].lower() == "bearer " else value.strip()


def _without_key(query: str) -> str:
    if _KEY_PARAMETER not in query:
        return query
    kept = [
        (name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name != _KEY_PARAMETER
    ]
    return "&".join(f"{quote(name)}={quote(value)}" for name, value in kept)
