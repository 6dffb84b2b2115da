"""What Anthropic's requests, answers, headers and errors mean."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest

from evalve.gate.dialects.anthropic import AnthropicDialect
from evalve.gate.messages import Call, Reply, Request, Stated, Usage

URL = "https://api.anthropic.com/v1/messages"
DATE = "Sun, 15 Nov 2026 12:00:00 GMT"
BODY = {"model": "claude-opus-4-8", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}]}
KEY = {"x-api-key": "sk-ant-test", "content-type": "application/json"}
CALL = Call("anthropic", "api.anthropic.com", "claude-opus-4-8", "pool", "none", 100, 500, False)
MESSAGE = {"type": "message", "usage": {"input_tokens": 10, "output_tokens": 5}}

dialect = AnthropicDialect()


def request(url: str = URL, method: str = "POST", headers: dict[str, str] = KEY, **body: Any) -> Request:
    return Request(method, url, headers, json.dumps({**BODY, **body}).encode())


def sse(*events: dict[str, Any], newline: str = "\n") -> bytes:
    lines = [
        f"event: {event['type']}{newline}data: {json.dumps(event)}{newline}{newline}" for event in events
    ]
    return "".join(lines).encode()


START = {
    "type": "message_start",
    "message": {"usage": {"input_tokens": 25, "cache_read_input_tokens": 7, "output_tokens": 1}},
}
TEXT = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 'message_stop "usage"'}}
DELTA = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}
STOP = {"type": "message_stop"}


def error_body(type_: str, message: str = "no", code: str | None = None) -> bytes:
    error: dict[str, Any] = {"type": type_, "message": message}
    if code is not None:
        error["details"] = {"error_code": code}
    return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()


# -- requests


def test_a_message_is_read_as_a_call() -> None:
    call = dialect.read(request(system="Be kind", stream=True))

    assert call is not None
    assert (call.provider, call.host, call.model) == ("anthropic", "api.anthropic.com", "claude-opus-4-8")
    assert (call.max_output_tokens, call.streams) == (500, True)
    assert len(call.key_hash) == 12
    assert call.input_bytes == len("Be kind") + len("role") + 4 + len("user") + len("content") + 4 + len(
        "Hello"
    )


@pytest.mark.parametrize(
    "asked",
    [
        request("https://api.anthropic.com/v1/messages/batches"),
        request("https://api.anthropic.com/v1/messages/count_tokens"),
        request("https://api.anthropic.com/v1/models"),
        request(method="GET"),
        request(headers={"content-type": "multipart/form-data; boundary=x"}),
        request(headers={"content-encoding": "gzip"}),
        request(model=None),
        request(model=""),
        Request("POST", URL, KEY, b"{not json"),
        Request("POST", URL, KEY, b"[1, 2]"),
        Request("POST", URL, KEY, b""),
    ],
)
def test_what_is_no_message_passes_untouched(asked: Request) -> None:
    assert dialect.read(asked) is None


def test_a_compatible_server_is_its_own_provider() -> None:
    call = dialect.read(request("http://127.0.0.1:8080/anthropic/v1/messages?beta=true"))

    assert call is not None
    assert (call.provider, call.host) == ("127.0.0.1:8080", "127.0.0.1:8080")


@pytest.mark.parametrize(
    ("model", "pool"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4.5-4.8"),
        ("claude-opus-4-8", "claude-opus-4.5-4.8"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4.5-4.6"),
        ("claude-sonnet-4-6", "claude-sonnet-4.5-4.6"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-opus-4-1", "claude-opus-4-1"),
    ],
)
def test_models_that_share_a_limit_share_a_pool(model: str, pool: str) -> None:
    call = dialect.read(request(model=model))

    assert call is not None
    assert call.pool == pool


def test_fast_mode_has_limits_of_its_own() -> None:
    call = dialect.read(request(speed="fast"))

    assert call is not None
    assert call.pool == "claude-opus-4.5-4.8+fast"


def test_an_image_does_not_count_by_its_base64() -> None:
    block = {"type": "image", "source": {"type": "base64", "data": "A" * 5_000_000}}
    call = dialect.read(request(messages=[{"role": "user", "content": [block]}]))

    assert call is not None
    assert call.input_bytes < 5_000


# -- costs


def test_the_expected_output_is_booked_and_not_max_tokens() -> None:
    assert dialect.booked(CALL, input_tokens=300.0, output_tokens=80.0) == {
        "requests": 1.0,
        "input_tokens": 300.0,
        "output_tokens": 80.0,
        "tokens": 380.0,
    }


def test_reading_the_cache_is_free_of_input_limits_and_writing_it_is_not() -> None:
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=1000, cache_write_tokens=200)

    charged = dialect.charged(CALL, usage)

    assert (charged["requests"], charged["input_tokens"], charged["output_tokens"]) == (1.0, 210, 5)


# -- usage


def test_usage_stands_in_a_whole_message() -> None:
    body = json.dumps(
        {
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 2,
            }
        }
    ).encode()

    assert dialect.usage(CALL, body) == Usage(10, 5, 3, 2)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_usage_of_a_stream_is_its_start_and_its_last_delta(newline: str) -> None:
    body = sse(START, {"type": "ping"}, TEXT, DELTA, STOP, newline=newline)

    assert dialect.usage(CALL, body) == Usage(input_tokens=25, output_tokens=15, cache_read_tokens=7)


def test_the_last_delta_may_correct_the_input() -> None:
    final = {**DELTA, "usage": {"output_tokens": 15, "input_tokens": 30, "cache_read_input_tokens": None}}

    usage = dialect.usage(CALL, sse(START, final, {"type": "ping"}, STOP))

    assert usage == Usage(input_tokens=30, output_tokens=15, cache_read_tokens=7)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"usage": {"input_tokens": 1',
        b'{"usage": null}',
        b'{"content": []}',
        sse(START, TEXT, DELTA),
        sse(START, TEXT, DELTA, STOP)[:-12],
        sse(STOP),
    ],
)
def test_a_body_without_usage_or_end_has_none(body: bytes) -> None:
    assert dialect.usage(CALL, body) is None


def test_nonsense_counts_are_zero() -> None:
    assert dialect.usage(CALL, b'{"usage": {"input_tokens": null, "output_tokens": -4}}') == Usage()


# -- headers


def test_each_limit_is_stated_with_its_rounding_and_the_time_to_full() -> None:
    headers = {
        "date": DATE,
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-11-15T12:00:01Z",
        "anthropic-ratelimit-input-tokens-limit": "30000",
        "anthropic-ratelimit-input-tokens-remaining": "28000",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-15T12:00:04Z",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "8000",
        "anthropic-ratelimit-tokens-limit": "38000",
        "anthropic-ratelimit-tokens-remaining": "36000",
    }

    assert dialect.stated(headers) == {
        "requests": Stated(50.0, 49.0, 0.0, 1.0, is_dated=True),
        "input_tokens": Stated(30_000.0, 28_000.0, 500.0, 4.0, is_dated=True),
        "output_tokens": Stated(8_000.0, 8_000.0, 500.0, None),
    }


def test_a_limit_on_the_sum_is_stated_where_it_stands_alone() -> None:
    headers = {"anthropic-ratelimit-tokens-limit": "40000", "anthropic-ratelimit-tokens-remaining": "39000"}

    assert dialect.stated(headers) == {"tokens": Stated(40_000.0, 39_000.0, 500.0)}


@pytest.mark.parametrize(
    ("total", "is_stated"), [("30000", False), ("8000", False), ("38000", False), ("20000", True)]
)
def test_a_workspaces_limit_on_all_tokens_is_told_from_an_echo_of_the_others(
    total: str, is_stated: bool
) -> None:
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "30000",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-tokens-limit": total,
    }

    assert ("tokens" in dialect.stated(headers)) is is_stated


def test_fast_mode_states_its_own_tokens() -> None:
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "30000",
        "anthropic-fast-input-tokens-limit": "9000",
        "anthropic-fast-output-tokens-limit": "2000",
    }

    stated = dialect.stated(headers)

    assert stated["input_tokens"].per_minute == 9000.0
    assert stated["output_tokens"].per_minute == 2000.0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"anthropic-ratelimit-requests-limit": "many"},
        {"anthropic-ratelimit-requests-limit": "-1", "anthropic-ratelimit-requests-remaining": "-1"},
        {"anthropic-ratelimit-requests-limit": "0"},
        {"anthropic-ratelimit-unified-5h-reset": "1763208020"},
        {"anthropic-priority-input-tokens-limit": "10000"},
    ],
)
def test_headers_without_a_usable_limit_state_nothing(headers: dict[str, str]) -> None:
    assert dialect.stated(headers) == {}


# -- problems


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, error_body("rate_limit_error"), "rate_limit"),
        (429, b"", "rate_limit"),
        (429, error_body("rate_limit_error", code="enforced_spend_limit_reached"), "spent"),
        (402, error_body("billing_error"), "spent"),
        (400, error_body("invalid_request_error", "max_tokens: required"), "permanent"),
        (
            400,
            error_body("invalid_request_error", "You have reached your specified API usage limits."),
            "spent",
        ),
        (
            400,
            error_body(
                "invalid_request_error", "Your credit balance is too low to access the Anthropic API."
            ),
            "spent",
        ),
        (401, error_body("authentication_error"), "permanent"),
        (403, error_body("permission_error"), "permanent"),
        (404, error_body("not_found_error"), "permanent"),
        (413, error_body("request_too_large"), "permanent"),
        (422, b"", "permanent"),
        (402, error_body("api_error"), "spent"),
        (418, error_body("api_error"), "permanent"),
        (422, error_body("api_error"), "permanent"),
        (400, error_body("timeout_error"), "permanent"),
        (400, error_body("overloaded_error"), "overload"),
        (408, error_body("api_error"), "server"),
        (409, error_body("api_error"), "server"),
        (425, error_body("api_error"), "server"),
        (429, error_body("api_error"), "rate_limit"),
        (301, b"", "permanent"),
        (408, b"", "server"),
        (409, b"", "server"),
        (500, error_body("api_error"), "server"),
        (502, b"<html>Bad gateway</html>", "server"),
        (503, b"", "overload"),
        (504, error_body("timeout_error"), "server"),
        (529, error_body("overloaded_error"), "overload"),
        (500, error_body("overloaded_error"), "overload"),
        (200, b"", "server"),
        (200, json.dumps(MESSAGE).encode()[:-1], "server"),
        (200, sse(START, TEXT), "server"),
        (200, sse(START, TEXT, DELTA, STOP)[:-10], "server"),
        (200, sse(START, {"type": "error", "error": {"type": "overloaded_error"}}), "overload"),
        (200, sse(START, {"type": "error", "error": {"type": "api_error"}}), "server"),
        (200, sse(START, {"type": "error", "error": {"type": "rate_limit_error"}}), "rate_limit"),
        (200, sse(START, {"type": "error", "error": {"type": "invalid_request_error"}}), "permanent"),
        (200, error_body("overloaded_error"), "overload"),
        (200, error_body("authentication_error"), "permanent"),
    ],
)
def test_a_problem_has_a_kind(status: int, body: bytes, kind: str) -> None:
    problem = dialect.problem(Reply(status, {}, body))

    assert problem is not None
    assert (problem.kind, problem.status) == (kind, status)


def test_a_stream_may_end_with_openais_last_event() -> None:
    body = sse(START, TEXT, DELTA, STOP) + b"data: [DONE]\n\n"

    assert dialect.problem(Reply(200, {}, body)) is None
    assert dialect.usage(CALL, body) == Usage(input_tokens=25, output_tokens=15, cache_read_tokens=7)


@pytest.mark.parametrize("body", [json.dumps(MESSAGE).encode(), sse(START, TEXT, DELTA, STOP)])
def test_a_whole_answer_is_no_problem(body: bytes) -> None:
    assert dialect.problem(Reply(200, {}, body)) is None


ZERO_INPUT = {
    "anthropic-ratelimit-requests-remaining": "40",
    "anthropic-ratelimit-input-tokens-remaining": "0",
    "anthropic-ratelimit-output-tokens-remaining": "5000",
}


@pytest.mark.parametrize(
    ("message", "code", "headers", "dimension"),
    [
        ("slow", "ramp_limit_exceeded", {}, "ramp"),
        ("Number of concurrent connections has exceeded your rate limit", None, {}, "concurrency"),
        (
            "would exceed your organization's rate limit of 30,000 input tokens per minute",
            None,
            {},
            "input_tokens",
        ),
        ("rate limit of 8,000 output tokens per minute", None, ZERO_INPUT, "output_tokens"),
        ("rate limit of 50 requests per minute", None, {}, "requests"),
        ("rate limit of 40,000 tokens per minute", None, {}, "tokens"),
        ("Number of requests has exceeded your per-minute rate limit", None, {}, "requests"),
        ("rate limited", None, ZERO_INPUT, "input_tokens"),
        ("rate limited", None, {**ZERO_INPUT, "anthropic-ratelimit-requests-remaining": "0"}, None),
        ("rate limited", None, {}, None),
    ],
)
def test_a_refusal_names_its_limit_where_the_answer_says(
    message: str, code: str | None, headers: dict[str, str], dimension: str | None
) -> None:
    problem = dialect.problem(Reply(429, headers, error_body("rate_limit_error", message, code)))

    assert problem is not None
    assert problem.dimension == dimension


def test_the_time_to_wait_comes_along_with_a_refusal_or_an_overload() -> None:
    refused = dialect.problem(Reply(429, {"retry-after": "12"}, error_body("rate_limit_error")))
    overloaded = dialect.problem(Reply(529, {"retry-after": "3"}, error_body("overloaded_error")))

    assert refused is not None
    assert overloaded is not None
    assert (refused.retry_after_s, overloaded.retry_after_s) == (12.0, 3.0)


def test_a_server_that_forbids_a_retry_is_obeyed_unless_it_only_refused() -> None:
    final = dialect.problem(Reply(503, {"x-should-retry": "false"}, b""))
    refused = dialect.problem(Reply(429, {"x-should-retry": "false"}, b""))

    assert final is not None
    assert refused is not None
    assert (final.kind, refused.kind) == ("permanent", "rate_limit")


@pytest.mark.parametrize(
    "secret",
    ["sk-ant-api03-abcDEF123_-x", "sk-proj-abcdef", "Bearer abc.def.ghi", "AIzaSyA1234567890abcdef"],
)
def test_a_message_shows_no_key(secret: str) -> None:
    body = error_body("authentication_error", f"invalid key {secret} given")

    problem = dialect.problem(Reply(401, {}, body))

    assert problem is not None
    assert problem.message == "anthropic answered 401 authentication_error: invalid key [redacted] given"


def test_a_long_page_of_a_proxy_is_cut() -> None:
    problem = dialect.problem(Reply(502, {}, b"<html>\n  " + b"x" * 100_000))

    assert problem is not None
    assert len(problem.message) < 600
    assert "\n" not in problem.message


def test_a_body_is_parsed_once_for_both_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    own, loads = AnthropicDialect(), Mock(wraps=json.loads)
    monkeypatch.setattr(json, "loads", loads)
    body = json.dumps(MESSAGE).encode()

    problem, usage = own.problem(Reply(200, {}, body)), own.usage(CALL, body)

    assert (problem, usage) == (None, Usage(10, 5))
    assert loads.call_count == 1


def test_what_is_written_to_the_prompt_cache_for_an_hour_is_told_apart() -> None:
    said = {
        "input_tokens": 5,
        "output_tokens": 3,
        "cache_creation_input_tokens": 900,
        "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 600},
    }
    call = dialect.read(request())
    assert call is not None

    usage = dialect.usage(call, json.dumps({"type": "message", "content": [], "usage": said}).encode())

    assert usage == Usage(5, 3, cache_write_tokens=900, long_cache_write_tokens=600)
