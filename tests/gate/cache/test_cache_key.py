"""Cache keys: what makes two requests the same, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from evalve.gate.cache.key import cache_key, content_key, numbered_key
from evalve.gate.messages import Request
from evalve.secrecy import discreet_headers

MEANING = frozenset({"anthropic-version", "anthropic-beta"})
REQUEST = Request(
    "POST",
    "https://api.example.com/v1/messages?beta=true",
    {"x-api-key": "secret-1", "anthropic-version": "2023-06-01", "user-agent": "a"},
    b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}',
)


def key_of(request: Request, *, repeat: int = 0, ordinal: int = 0) -> str:
    return cache_key(request, meaning_headers=MEANING, repeat=repeat, ordinal=ordinal)


def with_headers(**headers: str) -> Request:
    changed: Mapping[str, str] = {name.replace("_", "-"): value for name, value in headers.items()}
    return replace(REQUEST, headers={**REQUEST.headers, **changed})


@pytest.mark.parametrize(
    "same",
    [
        replace(REQUEST, body=b'{"messages":[{"content":"\\u0068i","role":"user"}],"model":"m"}'),
        replace(REQUEST, method="post"),
        replace(REQUEST, url="https://API.example.com/v1/messages?beta=true"),
        replace(REQUEST, url="https://me:pass@api.example.com/v1/messages?beta=true#top"),
        replace(REQUEST, url="https://api.example.com/v1/messages?beta=true&key=AIza123"),
        replace(REQUEST, url="https://api.example.com/v1/messages?beta=true&token=1&access_token=2"),
        with_headers(x_api_key="secret-2", user_agent="b", authorization="Bearer x"),
    ],
    ids=[
        "order and escapes",
        "method",
        "host",
        "user and fragment",
        "key in query",
        "tokens in query",
        "other headers",
    ],
)
def test_what_does_not_change_the_answer_does_not_change_the_key(same: Request) -> None:
    assert key_of(same) == key_of(REQUEST)


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, body=REQUEST.body.replace(b"hi", b"ho")),
        replace(REQUEST, body=REQUEST.body + b"}"),
        replace(REQUEST, method="PUT"),
        replace(REQUEST, url="https://api.example.org/v1/messages?beta=true"),
        replace(REQUEST, url="https://api.example.com:8443/v1/messages?beta=true"),
        replace(REQUEST, url="https://api.example.com/v1/complete?beta=true"),
        replace(REQUEST, url="https://api.example.com/v1/messages?beta=false"),
        with_headers(anthropic_version="2024-01-01"),
        with_headers(anthropic_beta="tools"),
    ],
    ids=["body", "not JSON", "method", "host", "port", "path", "query", "version", "beta"],
)
def test_what_may_change_the_answer_changes_the_key(other: Request) -> None:
    assert key_of(other) != key_of(REQUEST)


@pytest.mark.parametrize(
    "name",
    [
        "x-portkey-provider",
        "x-portkey-config",
        "x-portkey-virtual-key",
        "helicone-target-url",
        "helicone-model-override",
        "openai-organization",
        "openai-project",
        "openai-beta",
        "x-litellm-tags",
        "cf-aig-custom-provider",
        "x-vertex-ai-llm-request-type",
        "x-my-backend",
    ],
)
def test_a_header_that_a_caller_sets_changes_the_key(name: str) -> None:
    """As the doors hand it over: a value that may be a key does not show itself."""
    one, other = (
        replace(REQUEST, headers=discreet_headers({**REQUEST.headers, name: value})) for value in ("a", "b")
    )

    assert len({key_of(REQUEST), key_of(one), key_of(other)}) == 3


@pytest.mark.parametrize(
    "name",
    [
        "x-portkey-api-key",
        "x-portkey-trace-id",
        "x-portkey-metadata",
        "helicone-auth",
        "helicone-request-id",
        "helicone-session-id",
        "helicone-property-run",
        "cf-aig-authorization",
        "x-goog-api-key",
        "x-amz-security-token",
        "x-amz-date",
        "x-amz-content-sha256",
        "x-stainless-retry-count",
        "x-stainless-lang",
        "user-agent",
        "idempotency-key",
        "x-idempotency-key",
        "traceparent",
        "baggage",
        "x-request-id",
        "x-client-request-id",
        "x-ms-client-request-id",
        "x-correlation-id",
        "x-session-id",
        "x-request-timeout",
        "accept",
        "http-referer",
    ],
)
def test_credentials_transport_and_telemetry_do_not_change_the_key(name: str) -> None:
    assert key_of(with_headers(**{name: "a"})) == key_of(with_headers(**{name: "b"})) == key_of(REQUEST)


def test_repeats_and_ordinals_have_keys_of_their_own() -> None:
    keys = {key_of(REQUEST, repeat=repeat, ordinal=ordinal) for repeat in range(12) for ordinal in range(12)}

    assert len(keys) == 144


def test_the_key_can_be_made_from_the_content_key() -> None:
    content = content_key(REQUEST, meaning_headers=MEANING)

    assert numbered_key(content, repeat=2, ordinal=3) == key_of(REQUEST, repeat=2, ordinal=3)


def test_a_key_is_the_same_in_every_process_and_release() -> None:
    assert key_of(REQUEST) == "fd5ebd38e599610c9fb79219afb0053a7229b4163b51ec3f38511874f682376a"


def test_a_secret_header_is_left_out_even_where_a_dialect_names_it() -> None:
    one = cache_key(REQUEST, meaning_headers={"x-api-key"}, repeat=0, ordinal=0)
    other = cache_key(with_headers(x_api_key="secret-2"), meaning_headers={"x-api-key"}, repeat=0, ordinal=0)

    assert one == other


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\x00\xfe", b"[" * 100_000, b'{"n": 1e400}', b'{"n": NaN}', b'"\\ud800"', b"1" * 5000],
    ids=["empty", "binary", "deep", "huge float", "nan", "surrogate", "huge integer"],
)
def test_any_body_has_a_key(body: bytes) -> None:
    assert len(key_of(replace(REQUEST, body=body))) == 64


def test_numbers_that_python_cannot_tell_apart_are_told_apart() -> None:
    assert key_of(replace(REQUEST, body=b'{"n": 1e400}')) != key_of(replace(REQUEST, body=b'{"n": 1e500}'))


def test_text_that_is_the_canonical_form_of_json_is_not_mistaken_for_other_bytes() -> None:
    assert key_of(replace(REQUEST, body=b'{"a": NaN}')) != key_of(replace(REQUEST, body=b'{"a":"NaN"}'))
