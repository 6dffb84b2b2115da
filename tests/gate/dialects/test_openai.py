"""What OpenAI's requests, answers, headers and errors mean, and those of compatible servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.openai import OpenAIDialect
from evalve.gate.messages import Call, Reply, Request, Stated, Usage

URL = "https://api.openai.com/v1/chat/completions"
BODY = {"model": "gpt-4o-2024-08-06", "messages": [{"role": "user", "content": "Hello"}]}
CALL = Call("openai", "api.openai.com", "gpt-4o", "gpt-4o", "none", 100, 500, False)

dialect = OpenAIDialect()


def request(url: str = URL, **body: Any) -> Request:
    return Request("POST", url, {"authorization": "Bearer sk-test"}, json.dumps({**BODY, **body}).encode())


def sse(*events: Any) -> bytes:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def error_body(message: str = "no", type_: str | None = None, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": type_, "param": None, "code": code}}).encode()


CHUNK = {"choices": [{"delta": {"content": '[DONE] "usage"'}}], "usage": None}
USAGE = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 8}}
LAST = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
RESPONSE = {"status": "completed", "error": None, "usage": {"input_tokens": 30, "output_tokens": 8}}


# -- requests


def test_a_chat_completion_is_read_as_a_call() -> None:
    call = dialect.read(request(max_tokens=200, stream=True))

    assert call is not None
    assert (call.provider, call.host) == ("openai", "api.openai.com")
    assert (call.model, call.pool) == ("gpt-4o-2024-08-06", "gpt-4o")
    assert (call.max_output_tokens, call.streams) == (200, True)
    assert call.input_bytes == len("role") + 4 + len("user") + len("content") + 4 + len("Hello")


@pytest.mark.parametrize(
    ("url", "body", "input_bytes", "max_output_tokens"),
    [
        ("https://api.openai.com/v1/responses", {"input": "abc", "instructions": "de"}, 5, None),
        ("https://api.openai.com/v1/responses", {"input": "abc", "max_output_tokens": 9}, 3, 9),
        ("https://api.openai.com/v1/embeddings", {"input": ["abc", "de"]}, 5, 0),
        ("https://api.openai.com/v1/embeddings", {"input": [[1, 2], [3]]}, 12, 0),
        ("http://localhost:8000/v1/completions", {"prompt": "abcd", "max_tokens": 3}, 4, 3),
        ("http://localhost:8000/v1/completions", {"prompt": ["ab", "cd"], "max_tokens": 3, "n": 2}, 4, 12),
        ("http://localhost:8000/v1/completions", {"prompt": [1, 2], "max_tokens": 3}, 8, 3),
        ("http://localhost:8000/v1/chat/completions", {"max_completion_tokens": 10, "n": 3}, 0, 30),
    ],
)
def test_every_text_endpoint_is_recognised(
    url: str, body: dict[str, Any], input_bytes: int, max_output_tokens: int | None
) -> None:
    asked = Request("POST", url, {}, json.dumps({"model": "m", **body}).encode())

    call = dialect.read(asked)

    assert call is not None
    assert (call.input_bytes, call.max_output_tokens) == (input_bytes, max_output_tokens)


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("openrouter.ai", "openrouter.ai"),
        ("notapi.openai.com", "notapi.openai.com"),
    ],
)
def test_a_compatible_server_is_its_own_provider(host: str, provider: str) -> None:
    call = dialect.read(request(f"https://{host}/v1/chat/completions"))

    assert call is not None
    assert call.provider == provider


def test_azure_names_the_model_in_its_path() -> None:
    url = "https://me.openai.azure.com/openai/deployments/my-gpt/chat/completions?api-version=1"

    call = dialect.read(Request("POST", url, {"api-key": "secret"}, b'{"messages": []}'))

    assert call is not None
    assert call.model == "my-gpt"
    assert call.key_hash != "none"


@pytest.mark.parametrize(
    "asked",
    [
        request("https://api.openai.com/v1/files"),
        request("https://api.openai.com/v1/batches"),
        request("https://api.openai.com/v1/responses/resp_1/cancel"),
        request("https://api.openai.com/v1/responses", background=True),
        request("https://api.x.ai/v1/chat/completions", deferred=True),
        Request("POST", URL, {}, b'{"model": null}'),
        Request("POST", "https://forms.test/f/1/responses", {}, b'{"input": "somebody else"}'),
        Request("GET", URL, {}, b""),
        Request("POST", URL, {"content-type": "multipart/form-data"}, b"{}"),
    ],
)
def test_what_is_no_call_to_a_text_model_passes_untouched(asked: Request) -> None:
    assert dialect.read(asked) is None


def test_on_googles_compatible_address_the_project_stays_while_tokens_change() -> None:
    url = "https://eu-aiplatform.googleapis.com/v1/projects/p/locations/eu/endpoints/openapi/chat/completions"
    body = b'{"model": "google/gemini-3-flash", "messages": []}'
    first, second, other = (
        dialect.read(Request("POST", each, {"authorization": f"Bearer ya29.{token}"}, body))
        for each, token in [(url, "a"), (url, "b"), (url.replace("/p/", "/q/"), "a")]
    )

    assert first is not None and second is not None and other is not None
    assert first.scope == second.scope != other.scope


# -- costs


def test_max_tokens_is_reserved_at_the_start() -> None:
    booked = dialect.booked(CALL, input_tokens=100.0, output_tokens=40.0)

    assert (booked["requests"], booked["tokens"]) == (1.0, 600.0)
    assert (booked["input_tokens"], booked["output_tokens"]) == (100.0, 40.0)


def test_without_max_tokens_the_expected_output_is_reserved() -> None:
    call = Call("openai", "h", "m", "m", "none", 100, None, False)

    assert dialect.booked(call, input_tokens=100.0, output_tokens=40.0)["tokens"] == 140.0


def test_cached_input_counts_like_any_other() -> None:
    charged = dialect.charged(CALL, Usage(input_tokens=60, output_tokens=10, cache_read_tokens=40))

    assert (charged["tokens"], charged["input_tokens"], charged["output_tokens"]) == (110, 100, 10)


# -- usage


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (json.dumps(USAGE).encode(), Usage(30, 8)),
        (json.dumps(RESPONSE).encode(), Usage(30, 8)),
        (b'{"usage": {"prompt_tokens": "30", "completion_tokens": "8"}}', Usage(30, 8)),
        (b'{"usage": {"prompt_tokens": 30.0, "completion_tokens": "many"}}', Usage(30, 0)),
        (
            b'{"usage": {"prompt_tokens": 30, "completion_tokens": 8, '
            b'"prompt_tokens_details": {"cached_tokens": 20}}}',
            Usage(10, 8, 20),
        ),
        (
            b'{"usage": {"input_tokens": 30, "output_tokens": 8, '
            b'"input_tokens_details": {"cached_tokens": 5}}}',
            Usage(25, 8, 5),
        ),
        (b'{"usage": {"prompt_tokens": 7, "total_tokens": 7}}', Usage(7, 0)),
        (sse(CHUNK, CHUNK, USAGE, "[DONE]"), Usage(30, 8)),
        (sse(USAGE, CHUNK, "[DONE]"), Usage(30, 8)),
        (sse({"type": "response.completed", "response": RESPONSE}), Usage(30, 8)),
        (sse({"type": "response.completed", "response": RESPONSE}, "[DONE]"), Usage(30, 8)),
        (
            sse(CHUNK, {**LAST, "x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}}),
            Usage(3, 2),
        ),
        (sse({"type": "response.incomplete", "response": RESPONSE}), Usage(30, 8)),
        (sse(CHUNK, "[DONE]"), None),
        (sse(CHUNK, LAST, USAGE), Usage(30, 8)),
        (sse(CHUNK, {**LAST, "usage": USAGE["usage"]}), Usage(30, 8)),
        (sse(CHUNK, USAGE), None),
        (sse({"type": "response.created", "response": RESPONSE}), None),
        (b'{"choices": []}', None),
        (b'{"usage": {"prompt_tokens": 3', None),
        (b"", None),
    ],
)
def test_usage_is_read_from_whole_bodies_and_from_streams(body: bytes, usage: Usage | None) -> None:
    assert dialect.usage(CALL, body) == usage


# -- headers


def test_limits_are_stated_with_the_time_to_full() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "29000",
        "x-ratelimit-reset-tokens": "2s",
    }

    assert dialect.stated(headers) == {
        "requests": Stated(500.0, 499.0, 0.0, 0.12),
        "tokens": Stated(30_000.0, 29_000.0, 0.0, 2.0),
    }


def test_limits_may_say_that_they_are_for_a_minute() -> None:
    headers = {
        "x-ratelimit-limit-req-minute": "60",
        "x-ratelimit-remaining-req-minute": "59",
        "x-ratelimit-limit-tokens-minute": "500000",
        "x-ratelimit-remaining-tokens-minute": "499000",
    }

    assert dialect.stated(headers) == {"requests": Stated(60, 59), "tokens": Stated(500_000, 499_000)}


def test_of_a_limit_that_is_stated_twice_the_lower_holds() -> None:
    headers = {"x-ratelimit-limit-requests": "600, 300", "x-ratelimit-remaining-requests": "7, 7"}

    assert dialect.stated(headers) == {"requests": Stated(300, 7)}


def test_the_tighter_of_organisation_and_project_holds() -> None:
    headers = {
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "29000",
        "x-ratelimit-limit-project-tokens": "10000",
        "x-ratelimit-remaining-project-tokens": "9000",
    }

    assert dialect.stated(headers) == {"tokens": Stated(10_000.0, 9_000.0)}


@pytest.mark.parametrize(
    ("limit", "remaining", "reset"), [("10000", "9999", "8.64s"), ("200", "150", "6h0m0s")]
)
def test_a_limit_per_day_is_not_taken_for_one_per_minute(limit: str, remaining: str, reset: str) -> None:
    headers = {
        "x-ratelimit-limit-requests": limit,
        "x-ratelimit-remaining-requests": remaining,
        "x-ratelimit-reset-requests": reset,
    }

    assert dialect.stated(headers) == {}


def test_a_window_that_resets_as_a_whole_is_still_per_minute() -> None:
    headers = {
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-remaining-requests": "999",
        "x-ratelimit-reset-requests": "1m0s",
    }

    assert dialect.stated(headers)["requests"].per_minute == 1000.0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"},
        {"x-ratelimit-limit-requests": "", "x-ratelimit-reset-requests": "0"},
    ],
)
def test_headers_without_a_usable_limit_state_nothing(headers: dict[str, str]) -> None:
    assert dialect.stated(headers) == {}


# -- problems

EMPTY = {"message": {"role": "assistant", "content": ""}}
TOO_LONG = {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}
GIVEN_UP = {"choices": [{"delta": {}, "finish_reason": "error"}]}
GOOGLES = json.dumps(
    [
        {
            "error": {
                "code": 429,
                "message": "Quota exceeded",
                "status": "RESOURCE_EXHAUSTED",
                "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}],
            }
        }
    ]
).encode()
REACHED = "Rate limit reached for gpt-4o in organization org-1 on "


@pytest.mark.parametrize(
    ("status", "body", "refuses_key"),
    [
        (401, error_body(), True),
        (403, error_body(code="invalid_api_key"), True),
        (400, b'[{"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}]', True),
        (403, error_body(code="model_not_found"), False),
        (400, error_body(code="context_length_exceeded"), False),
    ],
)
def test_a_wrong_key_is_told_apart_from_a_wrong_request(status: int, body: bytes, refuses_key: bool) -> None:
    problem = dialect.problem(Reply(status, {}, body), CALL)

    assert problem is not None
    assert problem.refuses_key is refuses_key


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, error_body(code="rate_limit_exceeded"), "rate_limit"),
        (429, error_body(code="slow_down"), "rate_limit"),
        (429, b"", "rate_limit"),
        (429, error_body(type_="insufficient_quota", code="insufficient_quota"), "spent"),
        (429, error_body(type_="insufficient_quota", code="credit_balance_exhausted"), "spent"),
        (429, error_body(code="organization_spend_limit_exceeded"), "spent"),
        (429, error_body(code="project_spend_limit_exceeded"), "spent"),
        (429, error_body(code="organization_usage_limit_exceeded"), "spent"),
        (429, error_body(code="billing_hard_limit_reached"), "spent"),
        (402, b"", "spent"),
        (
            429,
            error_body("Request too large: TPM: Limit 30,000, Requested 45000.", code="rate_limit_exceeded"),
            "permanent",
        ),
        (
            429,
            error_body(
                REACHED + "tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
                code="rate_limit_exceeded",
            ),
            "rate_limit",
        ),
        (400, error_body(type_="invalid_request_error"), "permanent"),
        (401, error_body(code="invalid_api_key"), "permanent"),
        (403, b"", "permanent"),
        (404, error_body(code="model_not_found"), "permanent"),
        (413, b"", "permanent"),
        (422, b"", "permanent"),
        (402, error_body(type_="server_error"), "spent"),
        (422, error_body(type_="server_error"), "permanent"),
        (409, error_body(type_="server_error"), "server"),
        (400, error_body(code="server_is_overloaded"), "overload"),
        (408, b"", "server"),
        (409, b"", "server"),
        (500, error_body(type_="server_error"), "server"),
        (502, b"<html>", "server"),
        (503, error_body(code="server_is_overloaded"), "overload"),
        (503, b"", "overload"),
        (504, b"", "server"),
        (200, b'{"choices": [{"mess', "server"),
        (200, b"", "server"),
        (200, sse(CHUNK, USAGE), "server"),
        (200, sse(CHUNK), "server"),
        (200, sse(LAST, CHUNK), "server"),
        (200, sse(CHUNK, LAST) + b'data: {"choices": [], "us', "server"),
        (200, sse(CHUNK, LAST, {"error": {"message": "broke"}}), "server"),
        (200, sse({"choices": 7}), "server"),
        (200, sse(CHUNK, {"error": {"message": "broke", "type": "server_error"}}), "server"),
        (200, sse(CHUNK, {"error": {"message": "broke"}}, "[DONE]"), "server"),
        (200, sse({"type": "error", "code": "rate_limit_exceeded", "message": "x"}), "rate_limit"),
        (
            200,
            sse({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}),
            "server",
        ),
        (200, sse({"type": "response.failed", "response": {"error": TOO_LONG}}), "permanent"),
        (200, json.dumps({"status": "failed", "output": [], "error": TOO_LONG}).encode(), "permanent"),
        (200, b'{"error": {"message": "bad", "type": "invalid_request_error"}}', "permanent"),
        (200, sse({"type": "response.output_text.delta", "delta": "x"}), "server"),
        (200, b'{"error": {"code": 429, "message": "upstream"}}', "rate_limit"),
        (200, b'{"error": {"code": 400, "message": "upstream"}}', "permanent"),
        (500, b'{"error": "cuda out of memory"}', "server"),
        (501, b"", "permanent"),
        (505, b"", "permanent"),
        (200, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "unreadable"),
        (200, sse(CHUNK, "[DONE]"), "server"),
        (200, sse(CHUNK, USAGE, "[DONE]"), "server"),
        (200, sse(CHUNK, GIVEN_UP, "[DONE]"), "server"),
        (200, sse(CHUNK, GIVEN_UP, USAGE), "server"),
        (200, json.dumps({"choices": [{**EMPTY, "finish_reason": "abort"}]}).encode(), "server"),
        (200, json.dumps({"choices": [{**EMPTY, "finish_reason": "error"}]}).encode(), "server"),
        (
            200,
            json.dumps({"choices": [{**EMPTY, "error": {"code": 502, "message": "upstream"}}]}).encode(),
            "server",
        ),
        (
            200,
            json.dumps({"choices": [{**EMPTY, "error": {"code": 429, "message": "upstream"}}]}).encode(),
            "rate_limit",
        ),
        (200, json.dumps({"choices": [{**EMPTY, "error": {"code": 400}}]}).encode(), "permanent"),
        (200, b'{"output": [], "status": "queued"}', "no_answer"),
        (200, b'{"output": [], "status": "in_progress"}', "no_answer"),
        (200, b'{"output": [], "status": "cancelled"}', "no_answer"),
        (200, b'{"output": [], "status": "failed", "error": null}', "no_answer"),
        (
            200,
            sse({"type": "response.failed", "response": {"output": [], "status": "failed", "error": None}}),
            "no_answer",
        ),
        (400, b'{"__type": "com.amazon#ThrottlingException", "message": "slower"}', "rate_limit"),
        (403, error_body(type_="ThrottlingException"), "rate_limit"),
        (429, GOOGLES, "rate_limit"),
    ],
)
def test_a_problem_has_a_kind(status: int, body: bytes, kind: str) -> None:
    problem = dialect.problem(Reply(status, {}, body))

    assert problem is not None
    assert problem.kind == kind


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(USAGE).encode(),
        json.dumps(RESPONSE).encode(),
        sse(CHUNK, LAST, USAGE, "[DONE]"),
        sse(LAST, CHUNK, "[DONE]"),
        sse(CHUNK, LAST).replace(b"\n", b"\r"),
        sse(CHUNK, LAST),
        sse(CHUNK, LAST).rstrip(),
        sse(CHUNK, LAST, USAGE),
        sse({"type": "response.completed", "response": RESPONSE}),
        sse({"type": "response.incomplete", "response": RESPONSE}),
    ],
)
def test_a_whole_answer_is_no_problem(body: bytes) -> None:
    assert dialect.problem(Reply(200, {}, body)) is None


@pytest.mark.parametrize(
    ("message", "type_", "code", "headers", "dimension"),
    [
        ("x", "tokens", "rate_limit_exceeded", {}, "tokens"),
        ("x", "requests", "rate_limit_exceeded", {}, "requests"),
        ("grew too fast", None, "slow_down", {}, "ramp"),
        (REACHED + "tokens per min (TPM): Limit 9, Used 9, Requested 1.", None, None, {}, "tokens"),
        (REACHED + "requests per min (RPM): Limit 3, Used 3, Requested 1.", None, None, {}, "requests"),
        ("Too many concurrent requests", None, None, {}, "concurrency"),
        ("Too many concurrent requests", "requests", "rate_limit_exceeded", {}, "concurrency"),
        ("no", None, None, {"x-ratelimit-remaining-tokens": "0"}, "tokens"),
        ("no", None, None, {}, None),
    ],
)
def test_a_refusal_names_its_limit_where_the_answer_says(
    message: str, type_: str | None, code: str | None, headers: dict[str, str], dimension: str | None
) -> None:
    problem = dialect.problem(Reply(429, headers, error_body(message, type_, code)))

    assert problem is not None
    assert problem.dimension == dimension


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry-after": "20"}, "Please try again in 1s.", 20.0),
        ({"retry-after-ms": "300", "retry-after": "1"}, "", 0.3),
        ({}, "Please try again in 1.2s. Visit", 1.2),
        ({}, "Please try again in 7m12s.", 432.0),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "no", None),
    ],
)
def test_the_time_to_wait_comes_from_headers_or_else_from_the_text(
    headers: dict[str, str], message: str, seconds: float | None
) -> None:
    problem = dialect.problem(Reply(429, headers, error_body(message)))

    assert problem is not None
    assert problem.retry_after_s == (pytest.approx(seconds) if seconds is not None else None)


def test_google_says_how_long_to_wait_in_the_details_of_an_error() -> None:
    problem = dialect.problem(Reply(429, {}, GOOGLES))

    assert problem is not None
    assert (problem.kind, problem.retry_after_s) == ("rate_limit", 7.5)


def test_amazon_names_a_refusal_in_a_header() -> None:
    headers = {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/"}

    problem = dialect.problem(Reply(400, headers, b'{"message": "Too many requests"}'))

    assert problem is not None
    assert problem.kind == "rate_limit"


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_told_with_where_it_points(status: int) -> None:
    headers = {"location": "https://me:pass@eu.api.openai.com/v1/chat/completions?key=abc"}

    problem = dialect.problem(Reply(status, headers, b""))

    assert problem is not None
    assert problem.message.startswith(
        f"openai answered {status} (it has moved to https://***@eu.api.openai.com/v1/chat/completions?***: "
        "use that address)"
    )


@pytest.mark.parametrize(
    ("asked", "model", "endpoint"),
    [
        (Request("POST", URL, {}, b'{"messages": []}'), "default", "chat/completions"),
        (Request("POST", "http://a/v1/completions", {}, b'{"prompt": "x"}'), "default", "completions"),
        (Request("POST", "http://a/v1/responses", {}, b'{"prompt": {"id": "p1"}}'), "default", "responses"),
        (
            Request("POST", "https://api.mistral.ai/v1/agents/completions", {}, b'{"agent_id": "ag:1"}'),
            "ag:1",
            "chat/completions",
        ),
        (
            Request("POST", "https://api.mistral.ai/v1/fim/completions", {}, b'{"model": "codestral"}'),
            "codestral",
            "chat/completions",
        ),
    ],
)
def test_a_call_need_not_name_a_model_in_the_usual_way(asked: Request, model: str, endpoint: str) -> None:
    call = dialect.read(asked)

    assert call is not None
    assert (call.model, call.endpoint) == (model, endpoint)


def test_a_stream_that_nobody_asked_for_is_no_answer() -> None:
    call = dialect.read(request("https://api.openai.com/v1/embeddings"))

    problem = dialect.problem(Reply(200, {}, sse(CHUNK, LAST)), call)

    assert problem is not None
    assert problem.kind == "no_answer"


def test_a_code_that_only_repeats_the_status_is_not_told_twice() -> None:
    body = b'{"error": {"code": 500, "type": "server_error", "message": "image input is not supported"}}'

    problem = dialect.problem(Reply(500, {}, body))

    assert problem is not None
    assert problem.message == "openai answered 500 server_error: image input is not supported"


def test_a_message_shows_no_key() -> None:
    body = error_body("Incorrect API key provided: sk-proj-abc***********xyz.", code="invalid_api_key")

    problem = dialect.problem(Reply(401, {}, body))

    assert problem is not None
    assert problem.message == "openai answered 401 invalid_api_key: Incorrect API key provided: [redacted]"
