"""What Gemini's requests, answers and errors mean, on Google's hosts and behind proxies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.gemini import GeminiDialect
from evalve.gate.messages import Call, Reply, Request, Usage

HOST = "https://generativelanguage.googleapis.com"
URL = f"{HOST}/v1beta/models/gemini-3-flash:generateContent"
STREAM = f"{HOST}/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"
BODY = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
WHOLE = {
    "candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 30, "candidatesTokenCount": 8, "totalTokenCount": 38},
}
PIECE = {"candidates": [{"content": {"parts": [{"text": "H"}], "role": "model"}}]}
BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}}

dialect = GeminiDialect()


def request(url: str = URL, headers: dict[str, str] | None = None, **body: Any) -> Request:
    return Request(
        "POST", url, headers or {"x-goog-api-key": "AIza-secret"}, json.dumps({**BODY, **body}).encode()
    )


def call_of(url: str = URL, **body: Any) -> Call:
    call = dialect.read(request(url, **body))
    assert call is not None
    return call


def sse(*events: Any) -> bytes:
    return "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events).encode()


def error_body(status: str, message: str = "no", **detail: Any) -> bytes:
    return json.dumps(
        {"error": {"code": 1, "message": message, "status": status, "details": [detail]}}
    ).encode()


def violation(quota: str) -> dict[str, Any]:
    return {"violations": [{"quotaId": quota, "quotaMetric": "generativelanguage.googleapis.com/x"}]}


# -- requests


def test_a_request_is_read_as_a_call() -> None:
    call = call_of(generationConfig={"maxOutputTokens": 200, "candidateCount": 2})

    assert (call.provider, call.host, call.model) == (
        "gemini",
        HOST.removeprefix("https://"),
        "gemini-3-flash",
    )
    assert (call.max_output_tokens, call.streams, call.dialect) == (400, False, "gemini")
    assert call.input_bytes == sum(
        [8, 4, 9, 8, 5]
    )  # role, user, parts, text, Hello, each name with its structure


@pytest.mark.parametrize(
    ("url", "provider", "model", "streams"),
    [
        (STREAM, "gemini", "gemini-3-flash", True),
        (f"{HOST}/v1beta/models/gemini-3-flash:streamGenerateContent", "gemini", "gemini-3-flash", True),
        (f"{HOST}/v1beta/models/text-embedding-5:embedContent", "gemini", "text-embedding-5", False),
        (f"{HOST}/v1beta/models/text-embedding-5:batchEmbedContents", "gemini", "text-embedding-5", False),
        (f"{HOST}/v1beta/tunedModels/mine:generateContent", "gemini", "mine", False),
        (
            "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1/publishers/google"
            "/models/gemini-3-pro:generateContent",
            "vertex",
            "gemini-3-pro",
            False,
        ),
        (
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google"
            "/models/text-embedding-005:predict",
            "vertex",
            "text-embedding-005",
            False,
        ),
        ("http://127.0.0.1:4000/gemini/v1beta/models/m:generateContent", "127.0.0.1:4000", "m", False),
    ],
)
def test_every_path_says_the_model_and_whether_it_streams(
    url: str, provider: str, model: str, streams: bool
) -> None:
    call = call_of(url)

    assert (call.provider, call.model, call.streams) == (provider, model, streams)


def test_a_key_in_the_address_is_known_only_by_its_hash() -> None:
    in_address = dialect.read(request(f"{URL}?key=AIza-secret", {"content-type": "application/json"}))

    assert in_address is not None
    assert in_address.key_hash == call_of().key_hash != "none"
    assert "AIza" not in repr(in_address)


def test_on_vertex_the_project_stays_while_tokens_change() -> None:
    url = "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google/models/m:generateContent"
    first, second, other = (
        dialect.read(request(each, {"authorization": f"Bearer ya29.{token}"}))
        for each, token in [(url, "a"), (url, "b"), (url.replace("/p/", "/q/"), "a")]
    )

    assert first is not None and second is not None and other is not None
    assert first.scope == second.scope != other.scope


@pytest.mark.parametrize(
    "url",
    [
        f"{HOST}/v1beta/models/gemini-3-flash:countTokens",
        f"{HOST}/v1beta/cachedContents",
        "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/7:predict",
    ],
)
def test_what_is_no_call_to_a_text_model_passes_untouched(url: str) -> None:
    assert dialect.read(request(url)) is None


# -- usage


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (json.dumps(WHOLE).encode(), Usage(30, 8)),
        (json.dumps([PIECE, WHOLE]).encode(), Usage(30, 8)),
        (sse({**PIECE, "usageMetadata": {"promptTokenCount": 30}}, WHOLE), Usage(30, 8)),
        (
            b'{"usageMetadata": {"promptTokenCount": "30", "cachedContentTokenCount": 20,'
            b' "candidatesTokenCount": 8, "thoughtsTokenCount": 100, "toolUsePromptTokenCount": 5}}',
            Usage(15, 108, 20),
        ),
        (b'{"predictions": [{"embeddings": {"values": [], "statistics": {"token_count": 7}}}]}', Usage(7)),
        (b'{"embedding": {"values": [0.1]}}', None),
        (b"{", None),
    ],
)
def test_usage_is_read_from_whole_bodies_events_and_arrays(body: bytes, usage: Usage | None) -> None:
    assert dialect.usage(call_of(), body) == usage


# -- answers


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (URL, json.dumps(WHOLE).encode()),
        (URL, json.dumps(BLOCKED).encode()),
        (STREAM, sse(PIECE, WHOLE)),
        (STREAM, sse(PIECE, WHOLE).replace(b"\r\n", b"\r")),
        (STREAM, json.dumps([PIECE, WHOLE], indent=2).encode()),
        (STREAM, json.dumps([BLOCKED]).encode()),
        (f"{HOST}/v1beta/models/m:embedContent", b'{"embedding": {"values": [0.1]}}'),
        (f"{HOST}/v1beta/models/m:batchEmbedContents", b'{"embeddings": [{"values": [0.1]}]}'),
    ],
)
def test_a_whole_answer_is_no_problem(url: str, body: bytes) -> None:
    assert dialect.problem(Reply(200, {}, body), call_of(url)) is None


@pytest.mark.parametrize(
    ("url", "body", "kind"),
    [
        (STREAM, sse(PIECE), "server"),
        (STREAM, json.dumps([PIECE]).encode(), "server"),
        (STREAM, json.dumps([PIECE, WHOLE]).encode()[:-20], "server"),
        (STREAM, sse(PIECE, {"error": {"status": "UNAVAILABLE", "message": "overloaded"}}), "overload"),
        (URL, b"<html>", "no_answer"),
        (URL, b"{}", "no_answer"),
        (URL, sse(PIECE, WHOLE), "no_answer"),
        (URL, sse(WHOLE), "no_answer"),
        (f"{HOST}/v1beta/models/m:embedContent", b"{}", "no_answer"),
    ],
)
def test_what_broke_off_or_has_another_form_is_no_answer(url: str, body: bytes, kind: str) -> None:
    problem = dialect.problem(Reply(200, {}, body), call_of(url))

    assert problem is not None
    assert problem.kind == kind


def test_a_stream_begins_with_its_first_piece_and_ends_with_its_reason() -> None:
    call = call_of(STREAM)
    before: dict[str, Any] = {"usageMetadata": {}}

    assert [dialect.begins(call, json.dumps(each).encode()) for each in (before, PIECE)] == [False, True]
    assert [dialect.ends(json.dumps(each).encode()) for each in (PIECE, WHOLE, BLOCKED)] == [
        False,
        True,
        True,
    ]


# -- errors


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, error_body("RESOURCE_EXHAUSTED"), "rate_limit"),
        (429, b"[" + error_body("RESOURCE_EXHAUSTED") + b"]", "rate_limit"),
        (429, error_body("RESOURCE_EXHAUSTED", **violation("GenerateRequestsPerDayPerProject")), "spent"),
        (429, error_body("RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."), "spent"),
        (503, error_body("UNAVAILABLE", "The model is overloaded."), "overload"),
        (500, error_body("INTERNAL"), "server"),
        (504, error_body("DEADLINE_EXCEEDED"), "server"),
        (400, error_body("INVALID_ARGUMENT"), "permanent"),
        (403, error_body("PERMISSION_DENIED"), "permanent"),
        (404, error_body("NOT_FOUND"), "permanent"),
        (502, b"<html>bad gateway</html>", "server"),
        (200, sse(json.loads(error_body("INVALID_ARGUMENT"))), "permanent"),
        (200, sse(json.loads(error_body("INTERNAL"))), "server"),
    ],
)
def test_an_error_has_a_kind(status: int, body: bytes, kind: str) -> None:
    problem = dialect.problem(Reply(status, {}, body), call_of())

    assert problem is not None
    assert problem.kind == kind


@pytest.mark.parametrize(
    ("quota", "dimension"),
    [
        ("GenerateRequestsPerMinutePerProjectPerModel", "requests"),
        ("GenerateContentInputTokensPerModelPerMinute", "input_tokens"),
        ("generate_content_paid_tier_token_count", "tokens"),
        ("SomethingElse", None),
    ],
)
def test_a_refusal_names_its_limit(quota: str, dimension: str | None) -> None:
    problem = dialect.problem(Reply(429, {}, error_body("RESOURCE_EXHAUSTED", **violation(quota))), call_of())

    assert problem is not None
    assert problem.dimension == dimension


@pytest.mark.parametrize(
    ("detail", "headers", "wait_s"),
    [
        ({"retryDelay": "24s"}, {}, 24.0),
        ({"retryDelay": "0.5s"}, {}, 0.5),
        ({"retryDelay": {"seconds": "3", "nanos": 500000000}}, {}, 3.5),
        ({"retryDelay": "24s"}, {"retry-after": "7"}, 7.0),
        ({}, {}, None),
    ],
)
def test_the_time_to_wait_stands_in_the_details(
    detail: dict[str, Any], headers: dict[str, str], wait_s: float | None
) -> None:
    problem = dialect.problem(Reply(429, headers, error_body("RESOURCE_EXHAUSTED", **detail)), call_of())

    assert problem is not None
    assert problem.retry_after_s == wait_s


def test_a_wrong_key_is_told_apart_from_a_wrong_request() -> None:
    wrong_key = Reply(400, {}, error_body("INVALID_ARGUMENT", reason="API_KEY_INVALID"))
    wrong_request = Reply(400, {}, error_body("INVALID_ARGUMENT", fieldViolations=[]))

    assert [dialect.problem(reply, call_of()).refuses_key for reply in (wrong_key, wrong_request)] == [  # type: ignore[union-attr]
        True,
        False,
    ]


def test_a_message_names_the_error_and_shows_no_key() -> None:
    body = error_body("INVALID_ARGUMENT", "API key not valid: AIzaSyA1234567890")

    problem = dialect.problem(Reply(400, {}, body), call_of())

    assert problem is not None
    assert problem.message == "gemini answered 400 INVALID_ARGUMENT: API key not valid: [redacted]"
