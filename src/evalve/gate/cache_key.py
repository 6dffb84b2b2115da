"""The name of a request in the cache: a hash of everything that decides what is answered. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qsl, urlsplit

from evalve.gate.messages import Request

SECRET_HEADERS = frozenset(
    {
        "api-key",
        "authorization",
        "cookie",
        "ocp-apim-subscription-key",
        "proxy-authorization",
        "set-cookie",
        "x-api-key",
        "x-goog-api-key",
    }
)
"""Who asks, or what lets them: never part of a key, never stored."""

_SECRET_PARAMETERS = frozenset({"access_token", "api-key", "api_key", "key"})  # Gemini's `?key=…`
_FORMAT = "evalve-1"  # changes with the definition below, so that old entries are missed and not mistaken

# NaN and numbers beyond a float are refused: such a body counts as bytes, or 1e400 would equal 1e500
_encode = json.JSONEncoder(
    ensure_ascii=True, sort_keys=True, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def cache_key(request: Request, *, meaning_headers: Iterable[str], repeat: int, ordinal: int) -> str:
    """SHA-256, in hex, of the whole request and its place among equal ones of the attempt."""
    content = content_key(request, meaning_headers=meaning_headers)
    return numbered_key(content, repeat=repeat, ordinal=ordinal)


def content_key(request: Request, *, meaning_headers: Iterable[str]) -> str:
    """The same for every equal request: what to count ordinals by."""
    headers = request.headers
    meaning = [
        (name, headers[name])
        for name in sorted(meaning_headers)
        if name in headers and name not in SECRET_HEADERS
    ]
    kind, body = _canonical(request)
    # unambiguous, whatever the strings, and the same in every Python
    head = ascii((_FORMAT, request.method.upper(), _place(request.url), meaning, kind))
    hashed = hashlib.sha256(head.encode())
    hashed.update(body)
    return hashed.hexdigest()


def numbered_key(content: str, *, repeat: int, ordinal: int) -> str:
    """The cache key from a content key that is at hand, so that a large body is hashed once."""
    return hashlib.sha256(f"{content}/{repeat}/{ordinal}".encode()).hexdigest()


@lru_cache(maxsize=256)
def _place(url: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Host with port, path, and the query without keys; neither user names nor fragments."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    return (
        parts.netloc.rpartition("@")[2].lower(),
        parts.path,
        tuple(pair for pair in query if pair[0].lower() not in _SECRET_PARAMETERS),
    )


def _canonical(request: Request) -> tuple[str, bytes]:
    """JSON with sorted keys; whatever is no JSON as it is."""
    try:
        return "json", _encode(request.json()).encode()
    except (ValueError, RecursionError):  # not JSON, not text, or deeper than Python reads
        return "bytes", request.body
