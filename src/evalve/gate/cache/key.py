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
        "x-amz-security-token",
        "x-api-key",
        "x-goog-api-key",
    }
)
"""Who asks, or what lets them: never part of a key, never stored."""

_NAMES_A_BACKEND = frozenset({"x-portkey-virtual-key"})
"""Sounds like a secret, and says which provider a gateway is to ask."""

_IGNORED = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "expect",
        "forwarded",
        "host",
        "http-referer",
        "idempotency-key",
        "keep-alive",
        "origin",
        "pragma",
        "priority",
        "referer",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-title",
        "b3",
        "baggage",
        "sentry-trace",
        "traceparent",
        "tracestate",
        "uber-trace-id",
        "x-cloud-trace-context",
        "x-amzn-trace-id",
        "x-amz-content-sha256",
        "x-amz-date",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "x-goog-api-client",
        "x-goog-user-project",
        "x-client-name",
        "x-client-version",
        "x-should-retry",
        "helicone-cache-enabled",
        "helicone-user-id",
        "x-portkey-metadata",
        "x-portkey-cache-force-refresh",
    }
)
"""How a request travels, what it is written with, and what is said of it to those who watch."""

_IGNORED_BEGINNINGS = (
    "x-stainless-",
    "x-b3-",
    "x-datadog-",
    "x-fern-",
    "x-forwarded-",
    "x-ms-client-",
    "helicone-property-",
    "helicone-session-",
    "sec-",
)
_IGNORED_WORDS = frozenset(
    {
        "auth",
        "authorization",
        "apikey",
        "cookie",
        "credential",
        "credentials",
        "jwt",
        "key",
        "password",
        "secret",
        "signature",
        "token",
        "attempt",
        "correlation",
        "idempotency",
        "nonce",
        "retry",
        "session",
        "span",
        "telemetry",
        "timeout",
        "timestamp",
        "trace",
        "traceid",
    }
)
"""Words of which one in a header's name says that it is a credential, or differs with every request."""
_REQUEST_IDS = ("request-id", "requestid", "invocation-id", "message-id", "user-id")

_SECRET_PARAMETERS = frozenset(
    {"access_token", "api-key", "api_key", "key", "subscription-key", "token"}
)  # Gemini's `?key=…`
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
    """The same for every equal request: what to count ordinals by.

    Every header counts that may change what is answered: those of the dialect, and all others but
    credentials, transport and telemetry.
    """
    always = frozenset(meaning_headers)
    # `str`: a value that may be a key does not show itself, and would look like any other
    meaning = [
        (str(name), str(value))
        for name, value in sorted(request.headers.items())
        if name not in SECRET_HEADERS and (name in always or may_change_the_answer(name))
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


@lru_cache(maxsize=1024)
def may_change_the_answer(name: str) -> bool:
    """Whether a header that no dialect knows may: a gateway's backend, an organisation, a beta."""
    if name in _NAMES_A_BACKEND:
        return True
    if name in _IGNORED or name.startswith(_IGNORED_BEGINNINGS) or name.endswith(_REQUEST_IDS):
        return False
    return _IGNORED_WORDS.isdisjoint(name.replace("_", "-").split("-"))


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
