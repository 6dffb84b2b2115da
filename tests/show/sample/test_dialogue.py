"""Requests and answers of a trace, as people read them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.show.sample.dialogue import Asked, answered, asked


def asked_json(**request: Any) -> Asked:
    return asked(json.dumps(request))


def answered_json(**answer: Any) -> str:
    return answered(json.dumps(answer))


def stream(*events: Any) -> str:
    """Server-sent events with this data."""
    return "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events)


def test_messages_come_first_and_parameters_after() -> None:
    request = asked_json(
        model="claude-x",
        max_tokens=10,
        messages=[{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}],
        system="Be brief.",
    )

    assert request.messages == [("system", "Be brief."), ("user", "2 + 2?"), ("assistant", "4")]
    assert request.parameters == {"model": "claude-x", "max_tokens": 10}


@pytest.mark.parametrize(
    ("request_body", "messages"),
    [
        ({"system": [{"type": "text", "text": "Be brief."}]}, [("system", "Be brief.")]),
        ({"instructions": "Be brief.", "input": "2 + 2?"}, [("system", "Be brief."), ("user", "2 + 2?")]),
        ({"input": [{"role": "user", "content": "2 + 2?"}]}, [("user", "2 + 2?")]),
        ({"input": ["first", "second"]}, [("user", "first"), ("user", "second")]),
        ({"prompt": "2 + 2 ="}, [("user", "2 + 2 =")]),
    ],
    ids=["system in parts", "responses", "responses in parts", "embeddings", "completions"],
)
def test_every_kind_of_request_says_what_was_asked(
    request_body: dict[str, Any], messages: list[tuple[str, str]]
) -> None:
    assert asked_json(**request_body).messages == messages


def test_parts_of_a_message_that_are_no_text_are_named() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"data": "aGVsbG8="}},
        {"type": "tool_use", "name": "search", "input": {"q": "x"}},
        {"type": "tool_result", "content": [{"type": "text", "text": "found"}]},
    ]

    ((_, text),) = asked_json(messages=[{"role": "user", "content": content}]).messages

    assert text.split("\n") == ["look", "[image]", '[tool_use] search {"q": "x"}', "[tool_result] found"]


@pytest.mark.parametrize("text", ['{"messages": [{"ro… 12,345 more characters', "[1, 2]", "not json"])
def test_a_request_that_cannot_be_read_is_shown_as_it_is(text: str) -> None:
    assert asked(text) == Asked([("request", text)])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"content": [{"type": "text", "text": "four"}]}, "four"),
        ({"choices": [{"message": {"role": "assistant", "content": "four"}}]}, "four"),
        ({"choices": [{"text": "four"}]}, "four"),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "four"}]}]}, "four"),
        ({"error": {"type": "overloaded_error", "message": "busy"}}, "error: busy"),
        ({"error": "busy"}, "error: busy"),
    ],
    ids=["messages", "chat", "completions", "responses", "an error", "an error's text"],
)
def test_every_kind_of_answer_says_what_the_model_said(answer: dict[str, Any], said: str) -> None:
    assert answered_json(**answer) == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {
                "choices": [
                    {
                        "message": {
                            "content": None,
                            "tool_calls": [
                                {"type": "function", "function": {"name": "search", "arguments": '{"q":1}'}}
                            ],
                        }
                    }
                ]
            },
            '[function] search {"q":1}',
        ),
        (
            {"output": [{"type": "function_call", "name": "search", "arguments": '{"q":1}'}]},
            '[function_call] search {"q":1}',
        ),
    ],
    ids=["chat", "responses"],
)
def test_a_call_of_a_tool_is_shown_with_its_arguments(answer: dict[str, Any], said: str) -> None:
    assert answered_json(**answer) == said


def test_an_answer_of_another_form_is_shown_as_json() -> None:
    assert answered_json(data=[1]) == '{\n  "data": [\n    1\n  ]\n}'
    assert answered("<html>") == "<html>"


def test_anthropics_stream_is_put_together() -> None:
    text = stream(
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Let me "}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "look."}},
        {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "search", "input": {}}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"q":'}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )

    assert answered(text) == 'Let me look.\n[tool_use] search {"q":1}'


def test_openais_streams_are_put_together() -> None:
    chat = stream(
        {"choices": [{"delta": {"role": "assistant", "content": "fo"}}]},
        {"choices": [{"delta": {"content": "ur"}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"name": "search", "arguments": "{"}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "}"}}]}}]},
    )
    responses = stream(
        {"type": "response.created", "response": {}},
        {"type": "response.output_text.delta", "delta": "fo"},
        {"type": "response.output_text.delta", "delta": "ur"},
        {"type": "response.output_text.done", "text": "four"},
    )

    assert answered(chat + "data: [DONE]\n\n") == "four\n[function] search {}"
    assert answered(responses) == "four"


def test_a_stream_that_was_cut_says_so_behind_its_text() -> None:
    text = stream({"choices": [{"delta": {"content": "four"}}]}) + 'data: {"choi… 1,234 more characters'

    assert answered(text) == "four… 1,234 more characters of the stream"


def test_an_error_within_a_stream_is_shown() -> None:
    text = stream(
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Let me"}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
    )

    assert answered(text) == "Let me\nerror: busy"
