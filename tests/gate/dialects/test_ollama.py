"""What Ollama's own API means; its streams are one JSON object a line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.ollama import OllamaDialect
from evalve.gate.events import ServerEvents
from evalve.gate.messages import Call, Reply, Request, Usage

HOST = "http://127.0.0.1:11434"
BODY = {"model": "llama3.2", "messages": [{"role": "user", "content": "Hello"}]}
PIECE = {"model": "llama3.2", "message": {"role": "assistant", "content": "Hi"}, "done": False}
LAST = {
    "model": "llama3.2",
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 30,
    "eval_count": 8,
}
GENERATED = {"response": "Hi", "done": True, "prompt_eval_count": 30, "eval_count": 8}

dialect = OllamaDialect()


def call_of(path: str = "/api/chat", **body: Any) -> Call:
    call = dialect.read(Request("POST", HOST + path, {}, json.dumps({**BODY, **body}).encode()))
    assert call is not None
    return call


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_a_request_is_read_as_a_call_that_streams_unless_it_says_otherwise() -> None:
    call = call_of(options={"num_predict": 200})

    assert (call.provider, call.model, call.endpoint) == ("127.0.0.1:11434", "llama3.2", "chat")
    assert (call.max_output_tokens, call.streams) == (200, True)
    assert call_of(stream=False).streams is False
    assert call_of(options={"num_predict": -1}).max_output_tokens is None
    assert call_of("/api/generate", prompt="x").endpoint == "generate"
    assert (
        call_of("/api/embed", input=["x"]).streams,
        call_of("/api/embed", input=["x"]).max_output_tokens,
    ) == (
        False,
        0,
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/pull", b'{"model": "m"}'),
        ("/api/chat", b'{"model": "m", "question": "somebody else\'s"}'),
        ("/api/chat", b'{"messages": []}'),
    ],
)
def test_what_is_no_call_passes_untouched(path: str, body: bytes) -> None:
    assert dialect.read(Request("POST", HOST + path, {}, body)) is None


@pytest.mark.parametrize(
    ("call", "body", "usage"),
    [
        (call_of(), lines(PIECE, PIECE, LAST), Usage(30, 8)),
        (call_of(), lines(PIECE, LAST).rstrip(), Usage(30, 8)),
        (call_of(stream=False), lines(LAST), Usage(30, 8)),
        (call_of(stream=False), json.dumps(LAST, indent=2).encode(), Usage(30, 8)),
        (
            call_of("/api/generate", prompt="x"),
            lines({"response": "H", "done": False}, GENERATED),
            Usage(30, 8),
        ),
        (
            call_of("/api/embed", input=["x"]),
            lines({"embeddings": [[0.1]], "prompt_eval_count": 3}),
            Usage(3),
        ),
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
        (call_of(), lines(PIECE, PIECE), "server"),
        (call_of(), lines(PIECE, LAST)[:-9], "server"),
        (call_of(), lines(PIECE, {"error": "an error was encountered while running the model"}), "server"),
        (call_of(stream=False), lines(PIECE), "no_answer"),
        (call_of(stream=False), lines(PIECE, LAST), "no_answer"),
        (call_of(stream=False), b"{}", "no_answer"),
        (call_of("/api/embed", input=["x"]), b"{}", "no_answer"),
    ],
)
def test_what_broke_off_or_has_another_form_is_no_answer(call: Call, body: bytes, kind: str) -> None:
    problem = dialect.problem(Reply(200, {}, body), call)

    assert problem is not None
    assert problem.kind == kind


def test_a_stream_begins_with_its_first_piece_and_ends_with_its_reason() -> None:
    events = ServerEvents()
    empty = {**PIECE, "message": {"role": "assistant", "content": ""}}
    body = lines(empty, PIECE, LAST)
    data = [event for at in range(0, len(body), 7) for event in events.feed(body[at : at + 7])]

    assert [dialect.begins(call_of(), each) for each in data[:2]] == [False, True]
    assert [dialect.ends(each) for each in data] == [False, False, True]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (404, "model 'm' not found", "permanent"),
        (503, "server busy, please try again. maximum pending requests exceeded", "overload"),
        (500, "model runner has unexpectedly stopped", "server"),
        (429, "too many requests", "rate_limit"),
    ],
)
def test_an_error_has_a_kind(status: int, error: str, kind: str) -> None:
    problem = dialect.problem(Reply(status, {}, json.dumps({"error": error}).encode()), call_of())

    assert problem is not None
    assert (problem.kind, problem.message) == (kind, f"127.0.0.1:11434 answered {status}: {error}")
