"""What Cohere's requests, answers and errors mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.cohere import CohereDialect
from evalve.gate.messages import Call, Reply, Request, Usage

HOST = "https://api.cohere.com"
BODY = {"model": "command-a-03-2025", "messages": [{"role": "user", "content": "Hello"}]}
USAGE = {"billed_units": {"input_tokens": 5}, "tokens": {"input_tokens": 30, "output_tokens": 8}}
ANSWER = {"finish_reason": "COMPLETE", "message": {"role": "assistant", "content": []}, "usage": USAGE}
START = {"type": "message-start", "delta": {"message": {"role": "assistant"}}}
DELTA = {"type": "content-delta", "delta": {"message": {"content": {"text": "Hi"}}}}
END = {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": USAGE}}
FAILED = {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "upstream"}}

dialect = CohereDialect()


def call_of(path: str = "/v2/chat", host: str = HOST, **body: Any) -> Call:
    asked = Request(
        "POST", host + path, {"authorization": "Bearer co-key"}, json.dumps({**BODY, **body}).encode()
    )
    call = dialect.read(asked)
    assert call is not None
    return call


def sse(*events: Any) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def test_a_request_is_read_as_a_call() -> None:
    call = call_of(max_tokens=200, stream=True)

    assert (call.provider, call.model, call.endpoint) == ("cohere", "command-a-03-2025", "chat")
    assert (call.max_output_tokens, call.streams) == (200, True)
    assert call_of("/v2/embed", texts=["abc"]).max_output_tokens == 0
    assert call_of("/v2/rerank").endpoint == "rerank"
    assert call_of(host="http://127.0.0.1:9").provider == "127.0.0.1:9"


def test_what_is_no_call_passes_untouched() -> None:
    assert dialect.read(Request("POST", f"{HOST}/v1/chat", {}, b'{"model": "m"}')) is None
    assert dialect.read(Request("POST", f"{HOST}/v2/chat", {}, b'{"messages": []}')) is None


@pytest.mark.parametrize(
    ("call", "body", "usage"),
    [
        (call_of(), json.dumps(ANSWER).encode(), Usage(30, 8)),
        (call_of(stream=True), sse(START, DELTA, END), Usage(30, 8)),
        (call_of(stream=True), sse(START, DELTA, END) + b"data: [DONE]\n\n", Usage(30, 8)),
        (
            call_of("/v2/embed"),
            b'{"embeddings": {"float": [[0.1]]}, "meta": {"billed_units": {"input_tokens": 3}}}',
            Usage(3),
        ),
        (call_of("/v2/rerank"), b'{"results": [], "meta": {"billed_units": {"search_units": 1}}}', None),
    ],
)
def test_a_whole_answer_is_no_problem_and_says_what_it_took(
    call: Call, body: bytes, usage: Usage | None
) -> None:
    assert dialect.problem(Reply(200, {}, body), call) is None
    assert dialect.usage(call, body) == usage


@pytest.mark.parametrize(
    ("call", "body", "kind"),
    [
        (call_of(), b"{}", "no_answer"),
        (call_of(), json.dumps({**ANSWER, "finish_reason": "ERROR"}).encode(), "server"),
        (call_of(stream=True), sse(START, DELTA), "server"),
        (call_of(stream=True), sse(START, DELTA, FAILED), "server"),
        (call_of("/v2/embed"), b"{}", "no_answer"),
    ],
)
def test_what_broke_off_or_has_another_form_is_no_answer(call: Call, body: bytes, kind: str) -> None:
    problem = dialect.problem(Reply(200, {}, body), call)

    assert problem is not None
    assert problem.kind == kind


def test_a_stream_begins_with_its_first_piece_and_ends_with_its_reason() -> None:
    data = [json.dumps(each).encode() for each in (START, DELTA, END)]

    assert [dialect.begins(call_of(), each) for each in data[:2]] == [False, True]
    assert [dialect.ends(each) for each in data] == [False, False, True]


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (429, "You are using a Trial key, which is limited to 20 API calls / minute.", "rate_limit"),
        (429, "You are using a Trial key, which is limited to 1000 API calls / month.", "spent"),
        (402, "Please add a payment method", "spent"),
        (400, "invalid request", "permanent"),
        (401, "invalid api token", "permanent"),
        (503, "busy", "overload"),
        (500, "internal server error", "server"),
    ],
)
def test_an_error_has_a_kind(status: int, message: str, kind: str) -> None:
    problem = dialect.problem(Reply(status, {}, json.dumps({"message": message}).encode()), call_of())

    assert problem is not None
    assert (problem.kind, problem.message) == (kind, f"cohere answered {status}: {message}")
