"""Anthropic's Messages: bodies as they are sent, answers as they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.gate.doors.answers import ToolCall
from evalve.gate.doors.asks import Ask
from evalve.gate.doors.wire_anthropic import AnthropicWire
from evalve.gate.messages import Usage

WIRE = AnthropicWire()
PNG = b"\x89PNG\r\n\x1a\n"
PNG_BLOCK = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def body(prompt: Any = "Hi", **asked: Any) -> dict[str, Any]:
    return WIRE.body("claude-x", Ask(prompt, **asked))


def test_a_text_is_one_user_message() -> None:
    assert body("Hi", max_tokens=5) == {
        "model": "claude-x",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"system": "Be brief"}, {"system": "Be brief"}),
        ({"tool_choice": "auto"}, {"tool_choice": {"type": "auto"}}),
        ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ({"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
        ({"tool_choice": "add"}, {"tool_choice": {"type": "tool", "name": "add"}}),
        ({"tool_choice": {"type": "any", "x": 1}}, {"tool_choice": {"type": "any", "x": 1}}),
        ({"streams": True}, {"stream": True}),
        ({"options": {"top_k": 3, "thinking": {"type": "enabled"}}}, {"top_k": 3}),
        (
            {"response_schema": SCHEMA},
            {
                "output_config": {
                    "format": {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}}
                }
            },
        ),
    ],
)
def test_what_is_asked_is_sent_in_anthropics_words(asked: dict[str, Any], sent: dict[str, Any]) -> None:
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
    assert body(tools=[tool])["tools"] == [{"name": "add", "description": "Adds", "input_schema": SCHEMA}]


def test_a_tool_of_the_provider_goes_unchanged() -> None:
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}

    assert body(tools=[tool])["tools"] == [tool]


@pytest.mark.parametrize(
    ("block", "sent"),
    [
        ("text", {"type": "text", "text": "text"}),
        ({"type": "image", "data": PNG}, PNG_BLOCK),
        ({"type": "image", "base64": "iVBORw0KGgo="}, PNG_BLOCK),
        ({"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="}, PNG_BLOCK),
        (
            {"type": "image", "url": "https://h/i.png"},
            {"type": "image", "source": {"type": "url", "url": "https://h/i.png"}},
        ),
        (PNG_BLOCK, PNG_BLOCK),
        ({"type": "document", "source": {"type": "text"}}, {"type": "document", "source": {"type": "text"}}),
    ],
)
def test_blocks_are_translated_or_go_unchanged(block: Any, sent: Any) -> None:
    assert body([{"role": "user", "content": [block]}])["messages"][0]["content"] == [sent]


def test_an_image_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "dot"
    path.write_bytes(PNG)

    sent = body([{"role": "user", "content": [{"type": "image", "path": path}]}])

    assert sent["messages"][0]["content"] == [PNG_BLOCK]


@pytest.mark.parametrize(
    "block", [{"type": "image", "data": b"what?"}, {"type": "image", "path": "/there/is/none.png"}]
)
def test_an_image_that_is_none_is_told(block: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="image"):
        body([{"role": "user", "content": [block]}])


def test_a_conversation_with_tools_becomes_blocks_and_its_results_one_message() -> None:
    conversation = [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "1+1 and 2+2?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                ToolCall("add", {"n": 1}, "t1"),
                {"id": "t2", "name": "add", "arguments": {"n": 2}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "2"},
        {"role": "tool", "tool_call_id": "t2", "content": "no", "is_error": True},
        {"role": "user", "content": "So?"},
    ]

    sent = body(conversation)

    assert sent["system"] == "You add."
    assert sent["messages"] == [
        {"role": "user", "content": "1+1 and 2+2?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "add", "input": {"n": 1}},
                {"type": "tool_use", "id": "t2", "name": "add", "input": {"n": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "2"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
            ],
        },
        {"role": "user", "content": "So?"},
    ]


def test_two_system_prompts_become_two_blocks() -> None:
    sent = body([{"role": "system", "content": "b"}, {"role": "user", "content": "x"}], system="a")

    assert sent["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize("prompt", [b"bytes", 7, ["text"], [{"content": "no role"}]])
def test_what_is_no_prompt_is_told(prompt: Any) -> None:
    with pytest.raises(OptionError, match=r"prompt is|must have a role"):
        body(prompt)


def test_temperature_is_possible_because_the_version_is_the_old_one() -> None:
    assert WIRE.headers("k")["anthropic-version"] == "2023-06-01"


def test_the_address_may_or_may_not_end_in_v1() -> None:
    assert WIRE.url("http://h") == WIRE.url("http://h/v1") == "http://h/v1/messages"


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x-1",
    "content": [
        {"type": "thinking", "thinking": "Hm, two.", "signature": "s=="},
        {"type": "text", "text": "Grüße: "},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"n": 2}},
        {"type": "text", "text": "done"},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 7,
        "output_tokens": 9,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 1,
    },
}
EVENTS = [
    {
        "type": "message_start",
        "message": {
            **MESSAGE,
            "content": [],
            "stop_reason": None,
            "usage": {
                "input_tokens": 7,
                "output_tokens": 1,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 1,
            },
        },
    },
    {"type": "ping"},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm, "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "two."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s=="}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Grü"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "ße: "}},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "t1", "name": "add", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '{"n"'},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": ": 2}"},
    },
    {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "done"}},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9, "input_tokens": None},
    },
    {"type": "message_stop"},
]


def test_an_answer_is_read() -> None:
    answer = WIRE.answer(json.loads(json.dumps(MESSAGE)))

    assert str(answer) == answer.text == "Grüße: done"
    assert answer.tool_calls == [ToolCall("add", {"n": 2}, "t1")]
    assert answer.usage == Usage(7, 9, 3, 1)
    assert (answer.stop_reason, answer.model) == ("tool_use", "claude-x-1")
    assert answer.raw == MESSAGE


def test_an_answer_goes_back_with_its_thinking() -> None:
    answer = WIRE.answer(json.loads(json.dumps(MESSAGE)))

    assert body([answer.message])["messages"] == [{"role": "assistant", "content": MESSAGE["content"]}]


def test_a_stream_is_put_together_into_what_would_have_come_at_once() -> None:
    assembly = WIRE.assembly()

    texts = [assembly.add(event) for event in json.loads(json.dumps(EVENTS))]

    assert "".join(texts) == "Grüße: done"
    assert assembly.whole() == MESSAGE


def test_a_stream_without_its_end_is_no_answer() -> None:
    assembly = WIRE.assembly()

    for event in json.loads(json.dumps(EVENTS[:-1])):
        assembly.add(event)

    assert assembly.whole() is None


def test_streamed_arguments_that_are_not_json_are_kept_as_text_and_flagged() -> None:
    assembly = WIRE.assembly()
    for event in json.loads(json.dumps([*EVENTS[:12], *EVENTS[15:]])):
        assembly.add(event)

    whole = assembly.whole()

    assert whole is not None
    assert WIRE.answer(whole).tool_calls == [ToolCall("add", '{"n"', "t1", unparsed=True)]
