"""Tool calls from every provider's shape, of SDK objects and of plain JSON, and what is none."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message, TextBlock, ToolUseBlock, Usage
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from evalve.errors import ResultError
from evalve.evaluators.tools import tool_calls
from evalve.evaluators.tools.reading import expected_calls
from evalve.gate.doors.answers import Answer
from evalve.records import ToolCall

CATS = ToolCall("search", {"query": "cats"}, "c1")

ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "content": [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "c1", "name": "search", "input": {"query": "cats"}},
    ],
    "stop_reason": "tool_use",
}
CHAT = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "search", "arguments": '{"query": "cats"}'},
                    }
                ],
            },
        }
    ],
}
RESPONSES = {
    "id": "r",
    "object": "response",
    "output": [
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hm"}]},
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "c1",
            "name": "search",
            "arguments": '{"query": "cats"}',
        },
    ],
}
GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Well."},
                    {"functionCall": {"id": "c1", "name": "search", "args": {"query": "cats"}}},
                ],
            }
        }
    ]
}
MCP = {
    "jsonrpc": "2.0",
    "id": "c1",
    "method": "tools/call",
    "params": {"name": "search", "arguments": {"query": "cats"}},
}
CALL = {"function": {"name": "search", "arguments": {"query": "cats"}}, "id": "c1"}
OLLAMA = {"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": [CALL]}, "done": True}
BEDROCK = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"text": "Well."},
                {"toolUse": {"toolUseId": "c1", "name": "search", "input": {"query": "cats"}}},
            ],
        }
    },
    "stopReason": "tool_use",
}
LANGCHAIN = SimpleNamespace(
    type="ai", content="", tool_calls=[{"name": "search", "args": {"query": "cats"}, "id": "c1"}]
)
PYDANTIC_AI = SimpleNamespace(
    parts=[
        SimpleNamespace(
            part_kind="tool-call", tool_name="search", args='{"query": "cats"}', tool_call_id="c1"
        )
    ]
)


@pytest.mark.parametrize(
    "given",
    [
        ANTHROPIC,
        ANTHROPIC["content"],
        CHAT,
        CHAT["choices"][0]["message"],  # type: ignore[index]
        RESPONSES,
        RESPONSES["output"],
        GEMINI,
        GEMINI["candidates"][0]["content"],
        MCP,
        OLLAMA,
        BEDROCK,
        LANGCHAIN,
        PYDANTIC_AI,
        [CATS],
        CATS,
        [{"name": "search", "arguments": {"query": "cats"}, "id": "c1"}],
        [{"tool": "search", "tool_input": {"query": "cats"}, "id": "c1"}],
        Answer("", tool_calls=[CATS]),
        Message(
            id="m",
            type="message",
            role="assistant",
            model="x",
            content=[
                TextBlock(type="text", text="Let me look."),
                ToolUseBlock(type="tool_use", id="c1", name="search", input={"query": "cats"}),
            ],
            stop_reason="tool_use",
            usage=Usage(input_tokens=1, output_tokens=1),
        ),
        ChatCompletion.model_validate(CHAT),
        Response.model_construct(output=RESPONSES["output"]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_call_is_read_from_every_shape(given: Any) -> None:
    assert tool_calls(given) == [CATS]


@pytest.mark.parametrize("given", [ANTHROPIC, CHAT, RESPONSES, GEMINI, MCP])
def test_the_same_as_json_text(given: Any) -> None:
    assert tool_calls(json.dumps(given)) == [CATS]


def test_gemini_objects_with_snake_case_and_mappings_of_their_own() -> None:
    from types import MappingProxyType

    part = SimpleNamespace(
        text=None,
        function_call=SimpleNamespace(id=None, name="search", args=MappingProxyType({"ids": (1, 2)})),
    )
    response = SimpleNamespace(
        candidates=[SimpleNamespace(content=SimpleNamespace(parts=[part], role="model"))]
    )
    assert tool_calls(response) == [ToolCall("search", {"ids": [1, 2]})]


def test_a_conversation_gives_its_calls_in_order_and_no_result() -> None:
    messages = [
        {"role": "user", "name": "bob", "content": "Find cats"},
        {"role": "assistant", "content": ANTHROPIC["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "none"}]},
        {"role": "tool", "name": "search", "tool_call_id": "c1", "content": "none"},
        CHAT["choices"][0]["message"],  # type: ignore[index]
    ]
    assert tool_calls(messages) == [CATS, CATS]
    assert tool_calls({"messages": messages}) == [CATS, CATS]


def test_a_call_may_have_its_output_beside_it() -> None:
    call = {"name": "search", "input_parameters": {"query": "cats"}, "output": ["a", "b"], "id": "c1"}
    assert tool_calls([call]) == [CATS]


def test_a_custom_tool_of_openai_takes_text_that_is_not_meant_to_be_json() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "print(1)"}
    assert tool_calls([call]) == [ToolCall("run", {"input": "print(1)"}, "c1")]


@pytest.mark.parametrize("arguments", ['{"query": ', '{"query": NaN}', "[1]", "cats", "5"])
def test_arguments_that_are_no_json_object_are_marked(arguments: str) -> None:
    (call,) = tool_calls([{"name": "search", "arguments": arguments}])
    assert call.unparsed
    assert call.name == "search"


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert (
        tool_calls([{"name": "now"}, {"name": "now", "arguments": ""}, ToolCall("now")])
        == [ToolCall("now", {})] * 3
    )


@pytest.mark.parametrize(
    "text",
    [
        'Sure:\n```json\n{"name": "search", "arguments": {"query": "cats"}, "id": "c1"}\n```\nDone.',
        '<tool_call>\n{"name": "search", "arguments": {"query": "cats"}, "id": "c1"}\n</tool_call>',
        '[{"name": "search", "arguments": {"query": "cats"}, "id": "c1"}]',
    ],
)
def test_calls_in_the_text_of_a_model_without_tools(text: str) -> None:
    assert tool_calls(text) == [CATS]


@pytest.mark.parametrize(
    "text",
    [
        'Here: {"name": "search", "arguments": {"query": "cats"}} and {"name": "log", "arguments": {}}.',
        'Sure:\n[{"name": "search", "arguments": {"query": "cats"}},\n {"name": "log", "arguments": {}}]',
        '{"name": "search",\n "arguments": {"query": "cats"}}{"name": "log", "arguments": {}}',
    ],
)
def test_calls_between_words_and_behind_each_other(text: str) -> None:
    assert tool_calls(text) == [ToolCall("search", {"query": "cats"}), ToolCall("log", {})]


def test_a_broken_call_among_words_is_told_of_and_json_that_is_no_call_is_not() -> None:
    broken = '{"name": "log", "arguments": {"a": }}'
    assert tool_calls(f'The city {{"name": "Bern"}}: {{"name": "search", "arguments": {{}}}}\n{broken}') == [
        ToolCall("search", {}),
        ToolCall("log", broken, unparsed=True),
    ]


def test_a_prompt_that_gemini_blocks_calls_nothing() -> None:
    assert tool_calls({"promptFeedback": {"blockReason": "SAFETY"}}) == []
    assert tool_calls(SimpleNamespace(candidates=None, prompt_feedback=SimpleNamespace(block_reason=1))) == []


def test_a_text_without_json_calls_nothing() -> None:
    assert tool_calls("I cannot help with that.") == []
    assert tool_calls("[1] says otherwise, {as is known}.") == []
    assert tool_calls(Answer("I cannot help with that.")) == []
    assert tool_calls({"role": "assistant", "content": "No."}) == []


@pytest.mark.parametrize(
    "text", ['{"answer": 42}', '{"name": "Bern", "country": "CH"}', "[1, 2]", '["search"]', "42", "null"]
)
def test_an_answer_in_json_is_no_call(text: str) -> None:
    assert tool_calls(text) == []


def test_what_an_agent_says_in_its_transcript_is_not_what_it_calls() -> None:
    said = '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'
    lines = [
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": said}]}},
        CLAUDE_CODE[1],
    ]
    assert tool_calls("\n".join(map(json.dumps, lines))) == [CATS]


def test_one_broken_call_among_tags_is_told_of() -> None:
    good = '{"name": "search", "arguments": {"query": "cats"}, "id": "c1"}'
    broken, whole = tool_calls(
        f'<tool_call>\n{{"name": "a", "argum\n</tool_call>\n<tool_call>\n{good}\n</tool_call>'
    )
    assert (broken.name, broken.unparsed) == ("a", True)
    assert whole == CATS


def test_text_that_was_meant_to_be_a_call_and_is_broken_is_a_call_without_arguments() -> None:
    (call,) = tool_calls('{"name": "search", "arguments": {"query": "ca')
    assert (call.name, call.unparsed) == ("search", True)


CLAUDE_CODE = [
    {"type": "system", "subtype": "init", "model": "m", "tools": ["Bash"]},
    {"type": "assistant", "message": {"role": "assistant", "content": ANTHROPIC["content"]}},
    {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}},
    {"type": "result", "subtype": "success", "result": "done", "num_turns": 2},
]
CODEX = [
    {"type": "thread.started", "thread_id": "t"},
    {"type": "item.started", "item": {"id": "i1", "type": "command_execution", "command": "ls"}},
    {
        "type": "item.completed",
        "item": {"id": "i1", "type": "command_execution", "command": "ls", "aggregated_output": "a"},
    },
    {
        "type": "item.completed",
        "item": {
            "id": "c1",
            "type": "mcp_tool_call",
            "server": "web",
            "tool": "search",
            "arguments": {"query": "cats"},
        },
    },
    {"type": "item.completed", "item": {"id": "i3", "type": "agent_message", "text": "done"}},
    {"type": "turn.completed", "usage": {}},
]
GEMINI_CLI = [
    {"type": "init", "session_id": "s", "model": "m"},
    {"type": "message", "role": "user", "content": "hi"},
    {"type": "tool_use", "tool_name": "search", "tool_id": "c1", "parameters": {"query": "cats"}},
    {"type": "tool_result", "tool_id": "c1", "status": "success", "output": "x"},
    {"type": "result", "status": "success", "stats": {}},
]


@pytest.mark.parametrize(
    ("lines", "calls"),
    [
        (CLAUDE_CODE, [CATS]),
        (CODEX, [ToolCall("shell", {"command": "ls"}, "i1"), CATS]),
        (GEMINI_CLI, [CATS]),
    ],
    ids=["claude-code", "codex", "gemini-cli"],
)
def test_transcripts_of_cli_agents(lines: list[Any], calls: list[ToolCall], tmp_path: Path) -> None:
    text = "warning: something\n" + "\n".join(map(json.dumps, lines)) + "\n"
    assert tool_calls(text) == calls
    transcript = tmp_path / "output.jsonl"
    transcript.write_text(text)
    assert tool_calls(transcript) == calls
    assert tool_calls(lines) == calls


def test_events_of_a_trace() -> None:
    events = [
        {"kind": "turn", "role": "assistant", "content": "hm", "at": "x"},
        {"kind": "tool_call", "name": "search", "arguments": {"query": "cats"}, "result": "…"},
        {"kind": "file", "name": "out.txt", "hash": "0"},
    ]
    assert tool_calls(events) == [ToolCall("search", {"query": "cats"})]


@pytest.mark.parametrize("given", [5, None, {"foo": 1}, [{"foo": 1}], object(), [None]])
def test_what_cannot_hold_calls_is_refused_with_what_can(given: Any) -> None:
    with pytest.raises(ResultError, match="a list of ToolCall or of dicts with name and arguments"):
        tool_calls(given)


def test_expected_names_say_nothing_of_arguments() -> None:
    assert expected_calls("search") == [ToolCall("search")]
    assert expected_calls(["search", {"name": "fetch"}, ToolCall("now", {})]) == [
        ToolCall("search"),
        ToolCall("fetch"),
        ToolCall("now", {}),
    ]


def test_an_expected_text_that_is_no_json_is_a_mistake_and_not_no_call() -> None:
    assert expected_calls("[]") == expected_calls("") == []
    for given in ("search(query='cats')", ["search for cats"], '[{"name": "search"'):
        with pytest.raises(ResultError, match="neither the name of a tool nor JSON"):
            expected_calls(given)


def test_dates_that_yaml_has_read_are_the_texts_that_models_write() -> None:
    given = [{"name": "log", "arguments": {"day": date(2026, 11, 16), "days": [{"on": date(2026, 1, 2)}]}}]
    assert expected_calls(given) == [ToolCall("log", {"day": "2026-11-16", "days": [{"on": "2026-01-02"}]})]


def test_expected_none_is_a_mistake_and_no_call_an_empty_list() -> None:
    assert expected_calls([]) == []
    with pytest.raises(ResultError, match=r"\[\] where none is"):
        expected_calls(None)


@pytest.mark.parametrize("key", ["argumets", "params"])
def test_misspelt_arguments_of_an_expected_call_are_not_any_arguments(key: str) -> None:
    with pytest.raises(ResultError, match=f"the expected call of 'search' has '{key}' and no 'arguments'"):
        expected_calls([{"name": "search", key: {"query": "cats"}}])
    assert expected_calls([{"name": "search", "output": "three cats"}]) == [ToolCall("search")]


def test_a_stream_that_breaks_off_leaves_a_call_without_arguments() -> None:
    started = {"index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "search", "input": {}}}
    piece = {"index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"query": "ca'}}
    events = [{"type": "content_block_start", **started}, {"type": "content_block_delta", **piece}]
    assert tool_calls(events) == [ToolCall("search", '{"query": "ca', "t", unparsed=True)]
    assert tool_calls(events[:1]) == [ToolCall("search", {}, "t")]
