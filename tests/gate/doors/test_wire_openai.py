"""OpenAI's Chat Completions: bodies as they are sent, answers as they are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.doors.answers import ToolCall
from evalve.gate.doors.asks import Ask
from evalve.gate.doors.wire_openai import OpenAIWire
from evalve.gate.messages import Usage

WIRE = OpenAIWire()
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def body(prompt: Any = "Hi", **asked: Any) -> dict[str, Any]:
    return WIRE.body("gpt-x", Ask(prompt, **asked))


def test_a_text_is_one_user_message_after_the_system_prompt() -> None:
    assert body("Hi", system="Be brief", max_tokens=5) == {
        "model": "gpt-x",
        "max_completion_tokens": 5,
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}],
    }


def test_compatible_servers_get_the_older_name_for_the_maximum() -> None:
    wire = OpenAIWire(max_tokens_name="max_tokens")

    assert wire.body("m", Ask("Hi", max_tokens=5))["max_tokens"] == 5


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"stop": "END"}, {"stop": ["END"]}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"tool_choice": "any"}, {"tool_choice": "required"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": "add"}, {"tool_choice": {"type": "function", "function": {"name": "add"}}}),
        ({"tool_choice": {"type": "x"}}, {"tool_choice": {"type": "x"}}),
        ({"streams": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"options": {"seed": 3, "max_completion_tokens": 9}}, {"seed": 3, "max_completion_tokens": 9}),
        (
            {"response_schema": {**SCHEMA, "title": "A number!"}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "A_number_",
                        "strict": True,
                        "schema": {**SCHEMA, "title": "A number!", "additionalProperties": False},
                    },
                }
            },
        ),
    ],
)
def test_what_is_asked_is_sent_in_openais_words(asked: dict[str, Any], sent: dict[str, Any]) -> None:
    assert body(**asked).items() >= sent.items()


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "add", "description": "Adds", "parameters": SCHEMA},
        {"name": "add", "description": "Adds", "input_schema": SCHEMA},
        {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": SCHEMA}},
    ],
)
def test_a_tool_may_be_written_in_any_shape(tool: dict[str, Any]) -> None:
    function = {"name": "add", "description": "Adds", "parameters": SCHEMA}

    assert body(tools=[tool])["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("block", "sent"),
    [
        ("text", {"type": "text", "text": "text"}),
        (
            {"type": "image", "data": b"\xff\xd8\xff"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/"}},
        ),
        (
            {"type": "image", "url": "https://h/i.png"},
            {"type": "image_url", "image_url": {"url": "https://h/i.png"}},
        ),
        (
            {"type": "image", "base64": "AAAA", "media_type": "image/webp"},
            {"type": "image_url", "image_url": {"url": "data:image/webp;base64,AAAA"}},
        ),
        ({"type": "input_audio", "input_audio": {}}, {"type": "input_audio", "input_audio": {}}),
    ],
)
def test_blocks_are_translated_or_go_unchanged(block: Any, sent: Any) -> None:
    assert body([{"role": "user", "content": [block]}])["messages"][0]["content"] == [sent]


def test_a_conversation_with_tools_is_sent_in_openais_shape() -> None:
    conversation = [
        {"role": "assistant", "content": "", "tool_calls": [ToolCall("add", {"n": 1}, "t1")]},
        {"role": "tool", "tool_call_id": "t1", "content": "no", "is_error": True},
    ]

    assert body(conversation)["messages"] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"n": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "no"},
    ]


COMPLETION = {
    "id": "c1",
    "object": "chat.completion",
    "model": "gpt-x-1",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Grüße",
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"n": 2}'}},
                    {"id": "t2", "type": "function", "function": {"name": "sub", "arguments": "{oops"}},
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}},
}


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "model": "gpt-x-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        "usage": None,
    }


CHUNKS = [
    chunk({"role": "assistant", "content": None}),
    chunk({"content": "Grü"}),
    chunk({"content": "ße"}),
    chunk({"tool_calls": [{"index": 0, "id": "t1", "function": {"name": "add", "arguments": ""}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"n"'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 2}"}}]}),
    chunk({"tool_calls": [{"index": 1, "id": "t2", "function": {"name": "sub", "arguments": "{oops"}}]}),
    chunk({}, "tool_calls"),
    {"id": "c1", "model": "gpt-x-1", "choices": [], "usage": COMPLETION["usage"]},
]


def test_arguments_of_a_tool_call_may_be_an_object() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": {"n": 2}}}
    completion = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "stop"}]}

    assert WIRE.answer(completion).tool_calls == [ToolCall("add", {"n": 2}, "t1")]


def test_an_answer_is_read() -> None:
    answer = WIRE.answer(json.loads(json.dumps(COMPLETION)))

    assert str(answer) == "Grüße"
    assert answer.tool_calls == [
        ToolCall("add", {"n": 2}, "t1"),
        ToolCall("sub", "{oops", "t2", unparsed=True),
    ]
    assert answer.usage == Usage(input_tokens=4, output_tokens=4, cache_read_tokens=6)
    assert (answer.stop_reason, answer.model) == ("tool_use", "gpt-x-1")
    assert body([answer.message])["messages"] == [answer.raw["choices"][0]["message"]]


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("its own", "its own"),
        (None, None),
    ],
)
def test_stop_reasons_have_one_vocabulary(finish_reason: str | None, stop_reason: str | None) -> None:
    choice = {"message": {"content": "x"}, "finish_reason": finish_reason}

    assert WIRE.answer({"choices": [choice]}).stop_reason == stop_reason


def test_a_refusal_is_the_text_and_the_reason() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I won't"}

    answer = WIRE.answer({"choices": [{"message": message, "finish_reason": "stop"}]})

    assert (answer.text, answer.stop_reason, answer.usage) == ("I won't", "refusal", None)


def test_a_stream_is_put_together_into_what_would_have_come_at_once() -> None:
    assembly = WIRE.assembly()

    texts = [assembly.add(event) for event in json.loads(json.dumps(CHUNKS))]

    assert "".join(texts) == "Grüße"
    assert assembly.whole() == COMPLETION


def test_a_stream_without_its_end_is_no_answer() -> None:
    assembly = WIRE.assembly()
    assembly.add(chunk({"content": "Grü"}))

    assert assembly.whole() is None
