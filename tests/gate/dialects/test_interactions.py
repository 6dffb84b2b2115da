"""What Gemini's Interactions mean, whole and as events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.finding import recognised
from evalve.gate.dialects.interactions import InteractionsDialect
from evalve.gate.dialects.unknowns import unknown_input
from evalve.gate.messages import Call, Reply, Request, Usage

URL = "https://generativelanguage.googleapis.com/v1beta/interactions"
BODY = {"model": "gemini-3-flash", "input": "Capital of France?"}
COUNTS = {
    "total_input_tokens": 30,
    "total_cached_tokens": 10,
    "total_tool_use_tokens": 5,
    "total_output_tokens": 8,
    "total_thought_tokens": 4,
}
WHOLE = {
    "id": "i1",
    "status": "completed",
    "steps": [{"type": "model_output", "content": [{"type": "text", "text": "Paris"}]}],
    "usage": COUNTS,
}
CREATED = {"event_type": "interaction.created", "interaction": {"id": "i1", "status": "in_progress"}}
STARTED = {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}}
DELTA = {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Paris"}}
ENDED = {
    "event_type": "interaction.completed",
    "interaction": {"id": "i1", "status": "completed", "usage": COUNTS},
}

dialect = InteractionsDialect()


def request_with(url: str = URL, **body: Any) -> Request:
    return Request("POST", url, {"x-goog-api-key": "k"}, json.dumps({**BODY, **body}).encode())


def call_of(**body: Any) -> Call:
    call = dialect.read(request_with(**body))
    assert call is not None
    return call


def events(*values: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def reply(body: Any, status: int = 200) -> Reply:
    return Reply(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def test_a_question_to_a_model_is_a_call_under_geminis_limits() -> None:
    found = recognised(request_with(generation_config={"max_output_tokens": 64}))

    assert found is not None
    read, call = found
    assert (read.name, call.provider, call.model) == ("interactions", "gemini", "gemini-3-flash")
    assert (call.streams, call.max_output_tokens, call.input_bytes) == (False, 64, 18)
    assert call_of(stream=True).streams


@pytest.mark.parametrize(
    "request_",
    [
        request_with(background=True),
        request_with(model=None, agent="deep-research"),
        request_with(URL + "/i1/cancel"),
        request_with("https://crm.test/interactions"),
    ],
)
def test_what_runs_in_the_background_and_what_is_no_call_is_left_alone(request_: Request) -> None:
    assert recognised(request_) is None


def test_what_the_server_remembers_is_not_bounded_by_the_requests_text() -> None:
    assert unknown_input(request_with(previous_interaction_id="i1").body) == "context"


def test_an_answer_tells_its_tokens_with_thoughts_as_output() -> None:
    assert dialect.problem(reply(WHOLE), call_of()) is None
    assert dialect.usage(call_of(), reply(WHOLE).body) == Usage(25, 12, 10)


def test_a_stream_is_whole_with_its_last_event() -> None:
    call = call_of(stream=True)
    whole = events(CREATED, STARTED, DELTA, ENDED) + b"data: [DONE]\n\n"

    assert dialect.problem(reply(whole), call) is None
    assert dialect.usage(call, whole) == Usage(25, 12, 10)
    assert [dialect.begins(call, json.dumps(each).encode()) for each in (CREATED, STARTED, DELTA)] == [
        False,
        False,
        True,
    ]
    assert [dialect.ends(json.dumps(each).encode()) for each in (CREATED, DELTA, ENDED)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("body", "asked", "kind"),
    [
        (events(CREATED, DELTA), {"stream": True}, "server"),
        (events(CREATED, {"event_type": "error", "error": {"message": "no"}}), {"stream": True}, "server"),
        ({**WHOLE, "status": "failed"}, {}, "server"),
        ({**WHOLE, "status": "in_progress"}, {}, "no_answer"),
        ({"ok": True}, {}, "no_answer"),
    ],
)
def test_what_failed_or_is_not_done_is_not_an_answer(body: Any, asked: dict[str, Any], kind: str) -> None:
    problem = dialect.problem(reply(body), call_of(**asked))

    assert problem is not None
    assert problem.kind == kind


@pytest.mark.parametrize("status", ["requires_action", "incomplete", "requires_continuation"])
def test_a_tools_turn_and_an_answer_that_was_cut_off_are_answers(status: str) -> None:
    assert dialect.problem(reply({**WHOLE, "status": status}), call_of()) is None


def test_a_refusal_is_googles() -> None:
    refused = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "2s"}]}}

    problem = dialect.problem(reply(refused, 429), call_of())

    assert problem is not None
    assert (problem.kind, problem.retry_after_s) == ("rate_limit", 2.0)
