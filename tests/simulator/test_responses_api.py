"""OpenAI's Responses: over real HTTP with a clock that the test moves, and with the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from simulated import Client, FakeClock, Reply, Start

from evalve.simulator import Answer, Behaviour, Faults, Limits, Simulator, ToolCall, Turns

TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
WEATHER = Answer("Let me see.", (ToolCall("weather", {"city": "Bern"}),), reasoning="It wants the weather.")


async def ask(client: Client, asked: Any = "Hello", **body: Any) -> Reply:
    return await client.post("/v1/responses", {"model": "gpt-test", "input": asked, **body})


@asynccontextmanager
async def sdk(behaviour: Behaviour) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        Simulator(behaviour) as provider,
        openai.AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0) as client,
    ):
        yield client


async def test_an_answer_has_the_shape_of_a_response(start: Start) -> None:
    _, client = await start(Behaviour(answers={"France": "Paris"}))

    reply = (await ask(client, "What is the capital of France?", instructions="Be brief.")).json

    assert (reply["object"], reply["status"], reply["error"]) == ("response", "completed", None)
    assert reply["output"] == [
        {
            "type": "message",
            "id": reply["id"].replace("resp_", "msg_"),
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Paris", "annotations": [], "logprobs": []}],
        }
    ]
    assert reply["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }


async def test_the_events_of_a_stream_come_in_their_order(start: Start) -> None:
    _, client = await start(Behaviour(answers=[WEATHER], stream_chunk_tokens=100))

    reply = await ask(client, stream=True, tools=[TOOL])

    assert reply.event_names == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in reply.events] == list(range(19))
    assert reply.events[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 6}


async def test_an_answer_that_is_cut_is_incomplete(start: Start) -> None:
    _, client = await start(Behaviour(answers=["one two three four"]))

    whole = (await ask(client, max_output_tokens=2)).json
    streamed = await ask(client, max_output_tokens=2, stream=True)

    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert whole["output"][0]["content"][0]["text"] == "one two "
    assert streamed.event_names[-1] == "response.incomplete"


async def test_a_prompt_that_came_before_is_read_from_the_cache(start: Start) -> None:
    _, client = await start(Behaviour())
    prompt = "word " * 1000

    first = (await ask(client, prompt)).json["usage"]
    asked = [{"role": "user", "content": prompt}, {"role": "user", "content": "And now?"}]
    second = (await ask(client, asked)).json["usage"]
    chat = (await client.chat(prompt)).json["usage"]

    assert (first["input_tokens"], first["input_tokens_details"]) == (1250, {"cached_tokens": 0})
    assert (second["input_tokens"], second["input_tokens_details"]) == (1252, {"cached_tokens": 1152})
    assert chat["prompt_tokens_details"] == {"cached_tokens": 1152}


async def test_limits_are_those_of_the_account_whichever_format_is_used(
    start: Start, clock: FakeClock
) -> None:
    _, client = await start(Behaviour(limits=Limits(requests_per_minute=60, depth_s=1.0)))

    chat, refused = await client.chat(), await ask(client)
    clock.advance(1.0)
    served = await ask(client)

    assert (chat.status, refused.status, served.status) == (200, 429, 200)
    assert refused.json["error"]["code"] == "rate_limit_exceeded"
    assert served.headers["x-ratelimit-limit-requests"] == "60"


async def test_a_conversation_goes_on_from_a_response_that_was_stored(start: Start) -> None:
    _, client = await start(Behaviour(answers=lambda ask: f"{len(ask.prompt)}"))
    first = (await ask(client, "12345")).json

    second = (await ask(client, "678", previous_response_id=first["id"])).json
    third = (await ask(client, "9", previous_response_id=second["id"], store=False)).json
    lost = await ask(client, "0", previous_response_id=third["id"])

    texts = [response["output"][0]["content"][0]["text"] for response in (first, second, third)]
    assert texts == ["5", "11", "16"]
    assert (lost.status, lost.json["error"]["message"]) == (
        400,
        f"Previous response with id '{third['id']}' not found.",
    )
    assert await client.get(f"/v1/responses/{first['id']}") == first


@pytest.mark.parametrize("body", [{}, {"input": []}, {"input": [3]}, {"input": 5}])
async def test_a_request_without_input_is_invalid(start: Start, body: dict[str, Any]) -> None:
    _, client = await start(Behaviour())

    assert (await client.post("/v1/responses", {"model": "m", **body})).status == 400


async def test_a_websocket_is_refused_so_that_the_client_goes_on_over_http(start: Start) -> None:
    simulator, client = await start(Behaviour())

    status = await client.status("/v1/responses", upgrade="websocket", connection="upgrade")

    assert (status, simulator.stats.rejections) == (426, {})


async def test_the_sdk_reads_whole_answers_and_calls() -> None:
    async with sdk(Behaviour(answers=[WEATHER])) as client:
        response = await client.responses.create(model="gpt-test", input="Weather?", tools=[TOOL])

    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert (response.output_text, response.status) == ("Let me see.", "completed")
    call = response.output[2]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("weather", '{"city": "Bern"}')
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 6


async def test_the_sdk_puts_a_stream_together() -> None:
    async with sdk(Behaviour(answers=[WEATHER], stream_chunk_tokens=1)) as client:
        async with client.responses.stream(model="gpt-test", input="Weather?", tools=[TOOL]) as stream:
            texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()

    assert texts == ["Let ", "me s", "ee."]
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


async def test_the_sdk_parses_what_conforms_to_a_schema() -> None:
    class City(BaseModel):
        name: str
        people: int

    async with sdk(Behaviour()) as client:
        response = await client.responses.parse(model="gpt-test", input="A city", text_format=City)

    assert isinstance(response.output_parsed, City)


async def test_the_sdk_runs_a_conversation_with_a_tool() -> None:
    turns = Turns((WEATHER, Answer("It is {found}.", find=r"sky: (\w+)")))
    async with sdk(Behaviour(answers=turns)) as client:
        first = await client.responses.create(model="gpt-test", input="Weather?", tools=[TOOL])
        call = first.output[-1]
        assert call.type == "function_call"
        second = await client.responses.create(
            model="gpt-test",
            previous_response_id=first.id,
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sky: grey"}],
            tools=[TOOL],
        )

    assert second.output_text == "It is grey."


async def test_codex_offers_tools_that_take_text_in_a_namespace_beside_its_messages(start: Start) -> None:
    calls = (ToolCall("exec", {"input": "text(1)"}), ToolCall("sleep", {"s": 1}), ToolCall("gone", {}))
    _, client = await start(Behaviour(answers=Turns((Answer(tool_calls=calls), "It is {found}."))))
    tools = [
        {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
        {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "sleep"}]},
    ]
    items: list[Any] = [
        {"type": "additional_tools", "role": "developer", "tools": tools},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Run it."}]},
    ]

    whole = (await ask(client, items)).json["output"]
    streamed = await ask(client, items, stream=True)
    items += [*whole, {"type": "custom_tool_call_output", "call_id": whole[0]["call_id"], "output": "1"}]
    after = (await ask(client, items)).json["output"]

    assert [(item["type"], item["name"], item["namespace"]) for item in whole] == [
        ("custom_tool_call", "exec", "functions"),
        ("function_call", "sleep", "clock"),
    ]
    assert (whole[0]["input"], whole[1]["arguments"]) == ("text(1)", '{"s": 1}')
    assert [name for name in streamed.event_names if "delta" in name or "put.done" in name] == [
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.function_call_arguments.delta",
    ]
    assert [item["type"] for item in after] == ["message"]


async def test_the_sdk_reads_an_error_in_the_middle_of_a_stream() -> None:
    async with sdk(Behaviour(faults=Faults(schedule=("error_event",)))) as client:
        stream = await client.responses.create(model="gpt-test", input="Hello", stream=True)
        events = [event async for event in stream]

    assert events[-1].type == "error"
    assert "The server had an error" in events[-1].message


async def test_the_sdk_counts_tokens_and_lists_models() -> None:
    async with sdk(Behaviour(models={"gpt-own": Limits(), "gpt-*": Limits()})) as client:
        counted = await client.responses.input_tokens.count(model="gpt-test", input="Hello there")
        names = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("gpt-any")

    assert (counted.input_tokens, one.id) == (3, "gpt-any")
    assert names == ["gpt-own", "gpt-5", "gpt-5-mini", "gpt-5.2"]
