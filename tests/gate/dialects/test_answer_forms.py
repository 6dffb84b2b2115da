"""What has the form of an answer, and what is a whole 200 without one in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.finding import recognised
from evalve.gate.messages import Call, Dialect, Problem, Reply, Request

MESSAGES = "https://api.anthropic.com/v1/messages"
CHAT = "https://api.openai.com/v1/chat/completions"
COMPLETIONS = "https://api.openai.com/v1/completions"
RESPONSES = "https://api.openai.com/v1/responses"
EMBEDDINGS = "https://api.openai.com/v1/embeddings"
TEXT = {"type": "text", "text": "hi"}


def asked(url: str, *, stream: bool = False) -> tuple[Dialect, Call]:
    body = json.dumps({"model": "m", "stream": stream}).encode()
    understood = recognised(Request("POST", url, {"content-type": "application/json"}, body))
    assert understood is not None
    return understood


def problem(url: str, body: Any, *, stream: bool = False) -> Problem | None:
    dialect, call = asked(url, stream=stream)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.problem(Reply(200, {}, raw), call)


def sse(*events: Any) -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
    return "".join([f"data: {line}\n\n" for line in lines]).encode()


def choice(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}}]}


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (MESSAGES, {"type": "message", "content": [TEXT]}),
        (MESSAGES, {"content": []}),
        (MESSAGES, {"content": [{"type": "thinking", "thinking": "…"}, {"type": "new_kind"}]}),
        (MESSAGES, {"content": [{"type": "tool_use", "name": "add", "input": {}}]}),
        (CHAT, choice(content="hi")),
        (CHAT, choice(content="")),
        (CHAT, choice(content=None, refusal="no")),
        (CHAT, choice(content=[TEXT])),
        (CHAT, choice(content=None, tool_calls=[{"function": {"name": "add", "arguments": ""}}])),
        (CHAT, choice(content=None, tool_calls=[{"type": "custom", "custom": {}}])),
        (COMPLETIONS, {"choices": [{"text": ""}]}),
        (RESPONSES, {"output": []}),
        (EMBEDDINGS, {"data": [{"embedding": [0.5]}]}),
        (EMBEDDINGS, [[0.5]]),
    ],
)
def test_an_answer_is_taken_however_little_it_says(url: str, body: Any) -> None:
    assert problem(url, body) is None


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (MESSAGES, [1, 2]),
        (MESSAGES, None),
        (MESSAGES, {}),
        (MESSAGES, {"content": None}),
        (MESSAGES, {"content": "hi"}),
        (MESSAGES, {"content": [{}]}),
        (MESSAGES, {"content": [{"type": "text"}]}),
        (MESSAGES, {"content": [{"type": "tool_use"}]}),
        (MESSAGES, b"<html>Sign in</html>"),
        (MESSAGES, sse({"type": "message_start", "message": {}}, {"type": "message_stop"})),
        (CHAT, [1, 2]),
        (CHAT, "hi"),
        (CHAT, {}),
        (CHAT, {"choices": []}),
        (CHAT, {"choices": None}),
        (CHAT, {"choices": [{"text": "hi"}]}),
        (CHAT, choice(content=7)),
        (CHAT, choice(tool_calls=[{"function": {}}])),
        (CHAT, choice(tool_calls=7)),
        (CHAT, sse({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}, "[DONE]")),
        (COMPLETIONS, {"choices": [{}]}),
        (RESPONSES, {"output": None}),
        (EMBEDDINGS, b"<html>"),
    ],
)
def test_a_success_without_an_answer_in_it_is_told_from_a_fault_of_the_server(url: str, body: Any) -> None:
    found = problem(url, body)

    assert found is not None
    assert (found.kind, found.status) == ("no_answer", 200)


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (MESSAGES, sse({"type": "message_start", "message": {}}, {"type": "message_stop"})),
        (MESSAGES, {"content": [TEXT]}),
        (
            CHAT,
            sse(
                {"choices": [{"delta": {"content": "hi"}}]},
                {"choices": [{"delta": {}, "finish_reason": "stop"}]},
                {"choices": [], "usage": {}},
                "[DONE]",
            ),
        ),
        (RESPONSES, sse({"type": "response.completed", "response": {"output": []}})),
    ],
)
def test_a_streamed_answer_may_also_come_at_once(url: str, body: Any) -> None:
    assert problem(url, body, stream=True) is None


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (MESSAGES, sse({"type": "ping"}, {"type": "message_stop"})),
        (MESSAGES, {"content": None}),
        (CHAT, sse("[DONE]")),
        (CHAT, sse({"choices": []}, "[DONE]")),
        (RESPONSES, sse({"type": "response.completed"})),
    ],
)
def test_a_stream_with_nothing_but_an_end_is_no_answer(url: str, body: Any) -> None:
    found = problem(url, body, stream=True)

    assert found is not None
    assert found.kind == "no_answer"


@pytest.mark.parametrize(
    ("url", "prelude", "piece"),
    [
        (MESSAGES, {"type": "message_start", "message": {}}, {"type": "content_block_delta", "delta": {}}),
        (MESSAGES, {"type": "content_block_start"}, {"type": "message_delta", "delta": {}}),
        (MESSAGES, {"type": "ping"}, {"type": "of a later version"}),
        (MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}}, {"type": "content_block_stop"}),
        (CHAT, {"choices": [{"delta": {"role": "assistant"}}]}, {"choices": [{"delta": {"content": "a"}}]}),
        (CHAT, {"choices": []}, {"choices": [{"delta": {"tool_calls": [{}]}}]}),
        (CHAT, {"error": {"message": "no"}}, {"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        (CHAT, {"choices": [{"delta": {"content": ""}}]}, {"choices": [{"delta": {"reasoning": "a"}}]}),
        (COMPLETIONS, {"choices": [{"text": ""}]}, {"choices": [{"text": "a"}]}),
        (RESPONSES, {"type": "response.created"}, {"type": "response.output_text.delta", "delta": "a"}),
        (RESPONSES, {"type": "response.failed"}, {"type": "response.reasoning_summary_text.delta"}),
    ],
)
def test_a_stream_begins_with_its_first_piece(url: str, prelude: Any, piece: Any) -> None:
    dialect, call = asked(url, stream=True)

    begins = [dialect.begins(call, json.dumps(event).encode()) for event in (prelude, piece)]

    assert begins == [False, True]


@pytest.mark.parametrize(
    ("url", "data", "is_end"),
    [
        (MESSAGES, b'{"type": "message_stop"}', True),
        (MESSAGES, b'{"type": "error", "error": {"type": "overloaded_error"}}', True),
        (MESSAGES, b'{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}', False),
        (MESSAGES, b'{"type": "content_block_delta", "delta": {"text": "error: message_stop"}}', False),
        (CHAT, b"[DONE]", True),
        (CHAT, b'{"error": {"message": "no"}}', True),
        (CHAT, b'{"choices": [{"delta": {"content": "[DONE]"}}], "error": null}', False),
        (CHAT, b'{"choices": [], "error', False),
        (RESPONSES, b'{"type": "response.incomplete", "response": {}}', True),
        (RESPONSES, b'{"type": "response.output_text.done"}', False),
    ],
)
def test_a_stream_ends_with_its_last_event_or_an_error(url: str, data: bytes, is_end: bool) -> None:
    dialect, _ = asked(url, stream=True)

    assert dialect.ends(data) is is_end


def test_what_cannot_be_read_is_not_held_back() -> None:
    dialect, call = asked(CHAT, stream=True)

    assert [dialect.begins(call, data) for data in (b"{oops", b"7", b"[DONE]")] == [True, True, False]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_byte_that_is_no_text_does_not_spoil_an_answer(stream: bool) -> None:
    whole = b'{"choices": [{"message": {"content": "Gr\xfc\xdfe"}}]}'
    piece = b'{"choices": [{"delta": {"content": "Gr\xfc\xdfe"}, "finish_reason": "stop"}]}'
    pieces = b"data: " + piece + b"\n\ndata: [DONE]\n\n"

    assert problem(CHAT, pieces if stream else whole, stream=stream) is None


def test_it_is_told_what_came_instead_and_from_whom() -> None:
    found = problem("http://localhost:8000/v1/chat/completions", {"detail": "model is loading"})

    assert found is not None
    assert found.message == (
        "localhost:8000 answered 200, but what came does not have the form of a chat completion: "
        '{"detail": "model is loading"}'
    )
