"""Conversations with tools that a script tells, in each wire format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from simulated import Client, Start

from evalve.errors import OptionError
from evalve.simulator import Answer, Behaviour, ToolCall, Turns, read_behaviour
from evalve.simulator.command import behaviour_from, command_line
from evalve.simulator.conversations import Tool, tool_rounds_of, tools_of
from evalve.simulator.scripts import read_script

READER = Turns(
    (
        Answer(tool_calls=(ToolCall("Read", {"file_path": "a.md"}), ToolCall("cat", {"path": "a.md"}))),
        Answer("Open {found}.", (ToolCall("Read", {"file_path": "{found}"}),), find=r"see (\S+)"),
        Answer("It is {found}.", find=r"revenue: (\d+)"),
    )
)
SCHEMA = {"type": "object", "properties": {}}


def anthropic(*results: str) -> tuple[str, dict[str, Any]]:
    messages: list[Any] = [{"role": "user", "content": "What is the revenue?"}]
    for place, result in enumerate(results):
        call = {"type": "tool_use", "id": f"t{place}", "name": "Read", "input": {}}
        answered = [{"type": "text", "text": result}]
        block = {"type": "tool_result", "tool_use_id": f"t{place}", "content": answered}
        note = {"type": "text", "text": "A note of the agent."}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [block, note]}]
    tools = [{"name": "Read", "input_schema": SCHEMA}]
    return "/v1/messages?beta=true", {"model": "m", "max_tokens": 99, "messages": messages, "tools": tools}


def chat(*results: str) -> tuple[str, dict[str, Any]]:
    messages: list[Any] = [{"role": "user", "content": "What is the revenue?"}]
    for place, result in enumerate(results):
        function = {"name": "Read", "arguments": "{}"}
        calls = [{"id": f"t{place}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"t{place}", "content": result})
    tools = [{"type": "function", "function": {"name": "Read", "parameters": SCHEMA}}]
    return "/v1/chat/completions", {"model": "m", "messages": messages, "tools": tools}


def responses(*results: str) -> tuple[str, dict[str, Any]]:
    items: list[Any] = [{"role": "user", "content": "What is the revenue?"}]
    for place, result in enumerate(results):
        items.append({"type": "function_call", "call_id": f"t{place}", "name": "Read", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"t{place}", "output": result})
    tools = [{"type": "function", "name": "Read", "parameters": SCHEMA}]
    return "/v1/responses", {"model": "m", "input": items, "tools": tools}


def gemini(*results: str) -> tuple[str, dict[str, Any]]:
    contents: list[Any] = [{"role": "user", "parts": [{"text": "What is the revenue?"}]}]
    for result in results:
        call = {"functionCall": {"name": "Read", "args": {}}}
        response = {"functionResponse": {"name": "Read", "response": {"output": result}}}
        contents += [{"role": "model", "parts": [call]}, {"role": "user", "parts": [response]}]
    tools = [{"functionDeclarations": [{"name": "Read", "parametersJsonSchema": SCHEMA}]}]
    return "/v1beta/models/m:generateContent", {"contents": contents, "tools": tools}


async def spoken(client: Client, path: str, body: Mapping[str, Any]) -> tuple[str, list[tuple[str, Any]]]:
    """Text and calls of an answer, whichever format it has."""
    answer = (await client.post(path, dict(body))).json
    if "content" in answer:
        calls = [(b["name"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"]
        return "".join(b.get("text", "") for b in answer["content"]), calls
    if "choices" in answer:
        message = answer["choices"][0]["message"]
        functions = [call["function"] for call in message.get("tool_calls", [])]
        return message["content"] or "", [(f["name"], json.loads(f["arguments"])) for f in functions]
    if "output" in answer:
        texts = [item["content"][0]["text"] for item in answer["output"] if item["type"] == "message"]
        called = [item for item in answer["output"] if item["type"] == "function_call"]
        return "".join(texts), [(item["name"], json.loads(item["arguments"])) for item in called]
    parts = answer["candidates"][0]["content"]["parts"]
    calls = [(p["functionCall"]["name"], p["functionCall"]["args"]) for p in parts if "functionCall" in p]
    return "".join(part.get("text", "") for part in parts), calls


@pytest.mark.parametrize("form", [anthropic, chat, responses, gemini])
async def test_a_model_acts_over_several_turns_and_answers_from_what_tools_said(
    start: Start, form: Any
) -> None:
    _, client = await start(Behaviour(answers=READER))

    answers = [
        await spoken(client, *form()),
        await spoken(client, *form("see b.md")),
        await spoken(client, *form("see b.md", "revenue: 4711")),
        await spoken(client, *form("see b.md", "revenue: 4711", "revenue: 5")),
    ]

    assert answers == [
        ("", [("Read", {"file_path": "a.md"})]),
        ("Open b.md.", [("Read", {"file_path": "b.md"})]),
        ("It is 4711.", []),
        ("It is 5.", []),
    ]


@pytest.mark.parametrize("form", [anthropic, chat, responses, gemini])
async def test_without_tools_the_answer_is_found_in_the_prompt(start: Start, form: Any) -> None:
    _, client = await start(Behaviour(answers=READER))
    path, body = form()
    del body["tools"]
    told = json.loads(json.dumps(body).replace("What is the revenue?", "The revenue: 42."))

    assert await spoken(client, path, body) == ("It is nothing.", [])
    assert await spoken(client, path, told) == ("It is 42.", [])


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (anthropic, (("one",), ("two",))),
        (chat, (("one",), ("two",))),
        (responses, (("one",), ("two",))),
        (gemini, (("one",), ("two",))),
    ],
)
def test_rounds_are_read_from_every_format(form: Any, expected: Any) -> None:
    _, body = form("one", "two")

    assert (tool_rounds_of(body), tools_of(body)) == (expected, (Tool("Read"),))


def test_results_of_calls_that_were_made_at_once_are_one_round() -> None:
    tool, call = {"role": "tool", "content": "x"}, {"role": "assistant", "tool_calls": []}
    output = {"type": "function_call_output", "output": "y"}

    assert tool_rounds_of({"messages": [call, tool, tool, call, tool]}) == (("x", "x"), ("x",))
    assert tool_rounds_of({"input": [output, output, {"type": "function_call"}, output]}) == (
        ("y", "y"),
        ("y",),
    )


@pytest.mark.parametrize(
    "body", [{}, {"tools": 3}, {"messages": "x"}, {"tools": [None, {}], "input": [None]}]
)
def test_what_is_no_conversation_has_no_rounds(body: dict[str, Any]) -> None:
    assert (tool_rounds_of(body), tools_of(body)) == ((), ())


async def test_a_script_may_differ_by_prompt(start: Start) -> None:
    look = Turns((Answer(tool_calls=(ToolCall("Read", {}),)), "done"))
    _, client = await start(Behaviour(answers={"revenue": look, "name": "Ada"}))

    _, body = anthropic()
    assert (await client.post("/v1/messages", body)).json["stop_reason"] == "tool_use"
    assert (await client.messages("Your name?")).json["content"][0]["text"] == "Ada"


async def test_a_question_for_json_beside_the_conversation_gets_what_conforms(start: Start) -> None:
    _, client = await start(Behaviour(answers=READER))
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}

    reply = await client.chat("A title for this?", response_format=wanted)

    assert list(json.loads(reply.json["choices"][0]["message"]["content"])) == ["title"]


async def test_a_group_that_found_nothing_gives_the_whole_match(start: Start) -> None:
    _, client = await start(Behaviour(answers=[Answer("{found}", find="rev(enue)?")]))

    assert (await client.messages("rev: 5")).json["content"][0]["text"] == "rev"


async def test_thoughts_are_told_where_they_are_asked_for(start: Start) -> None:
    _, client = await start(Behaviour(answers=[Answer("Yes.", reasoning="Hm, is it so?")]))
    path, body = gemini()

    silent = (await client.messages("a")).json
    thinking = (await client.messages("a", thinking={"type": "adaptive"})).json
    hidden = (await client.post(path, body)).json
    shown = (
        await client.post(path, {**body, "generationConfig": {"thinkingConfig": {"includeThoughts": True}}})
    ).json
    completion = (await client.chat("a")).json

    assert [block["type"] for block in silent["content"]] == ["text"]
    assert [block["type"] for block in thinking["content"]] == ["thinking", "text"]
    assert (silent["usage"]["output_tokens"], thinking["usage"]["output_tokens"]) == (1, 5)
    assert [part.get("thought") for part in hidden["candidates"][0]["content"]["parts"]] == [None]
    assert [part.get("thought") for part in shown["candidates"][0]["content"]["parts"]] == [True, None]
    assert shown["usageMetadata"]["thoughtsTokenCount"] == 4
    assert shown["usageMetadata"]["candidatesTokenCount"] == 1
    assert completion["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}


def test_a_script_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "reader.yaml"
    file.write_text(
        "turns:\n"
        "  - tool_calls: [{name: Read, arguments: {file_path: a.md}}]\n"
        "    reasoning: I must look.\n"
        '  - {text: "It is {found}.", find: "revenue: ([0-9]+)"}\n'
        "  - Enough.\n"
    )

    behaviour = behaviour_from(command_line().parse_args(["--answers", str(file)]))

    assert behaviour.answers == Turns(
        (
            Answer(tool_calls=(ToolCall("Read", {"file_path": "a.md"}),), reasoning="I must look."),
            Answer("It is {found}.", find="revenue: ([0-9]+)"),
            "Enough.",
        )
    )
    assert read_behaviour({"answers": {"x": {"turns": ["a"]}}}).answers == {"x": Turns(("a",))}


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"turns": []}, "turns must be a list of answers"),
        ({"turns": ["a"], "text": "b"}, "with nothing beside it"),
        ({"turns": [{"tool_call": []}]}, r"answers\.turns\[0\] is"),
        ({"x": {"turns": "a"}}, "turns must be a list of answers"),
        ({"turns": [{"find": "("}]}, "is not a pattern"),
        ({"turns": [{"find": 3}]}, r"turns\[0\]\.find is 3"),
    ],
)
def test_a_wrong_script_is_refused(answers: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_behaviour({"answers": answers})


@pytest.mark.parametrize("stream", [False, True])
async def test_arguments_that_are_no_json_go_out_as_they_are(start: Start, stream: bool) -> None:
    script = read_script([{"tool_calls": [{"name": "Read", "arguments": '{"path": "a.md'}]}])
    _, client = await start(Behaviour(answers=script))
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    functions = [{"type": "function", "function": {"name": "Read"}}]

    message = await client.messages("x", tools=tools, stream=stream)
    chat = await client.chat("x", tools=functions, stream=stream)

    if stream:
        pieces = [event["delta"].get("partial_json", "") for event in message.events if "delta" in event]
        assert "".join(pieces) == '{"path": "a.md'
        return
    assert message.json["content"][0]["input"] == '{"path": "a.md'
    assert chat.json["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"path": "a.md'
