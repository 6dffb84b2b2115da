"""What coding agents send, as their SDKs send it: thinking, tools, caches, token counts, model lists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from simulated import Start

from evalve.simulator import Answer, Behaviour, Limits, Simulator, ToolCall, Turns

READ: Any = {
    "name": "Read",
    "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
}
SYSTEM: Any = [
    {"type": "text", "text": "You are an agent."},
    {"type": "text", "text": "Rules. " * 50, "cache_control": {"type": "ephemeral"}},
]
SCRIPT = Turns(
    (
        Answer("I look.", (ToolCall("Read", {"file_path": "context.md"}),), reasoning="It is in the file."),
        Answer("It was {found}.", find=r"revenue (\d+)"),
    )
)
Provider = tuple[Simulator, anthropic.AsyncAnthropic]


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    behaviour = Behaviour(answers=SCRIPT, models={"claude-own": Limits()}, stream_chunk_tokens=1)
    async with (
        Simulator(behaviour) as simulator,
        anthropic.AsyncAnthropic(api_key="k", base_url=simulator.url, max_retries=0) as client,
    ):
        yield simulator, client


async def test_an_agent_thinks_reads_and_answers_over_streams(provider: Provider) -> None:
    _, client = provider
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "What was the revenue?"}]}]
    asked: dict[str, Any] = {
        "model": "claude-sonnet-5",
        "max_tokens": 32_000,
        "system": SYSTEM,
        "tools": [READ],
        "thinking": {"type": "adaptive"},
        "betas": ["interleaved-thinking-2025-05-14"],
    }

    async with client.beta.messages.stream(messages=messages, **asked) as stream:
        first = await stream.get_final_message()
    call = first.content[-1]
    assert call.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "1\trevenue 4711"}
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    async with client.beta.messages.stream(messages=messages, **asked) as stream:
        second = await stream.get_final_message()

    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    thought = first.content[0]
    assert thought.type == "thinking"
    assert (thought.thinking, bool(thought.signature)) == ("It is in the file.", True)
    assert (first.stop_reason, call.name, call.input) == ("tool_use", "Read", {"file_path": "context.md"})
    assert second.content[-1].type == "text"
    assert (second.stop_reason, second.content[-1].text) == ("end_turn", "It was 4711.")
    assert first.usage.cache_creation_input_tokens == second.usage.cache_read_input_tokens
    assert first.usage.cache_creation_input_tokens


async def test_an_agent_counts_tokens_and_lists_models(provider: Provider) -> None:
    simulator, client = provider

    counted = await client.beta.messages.count_tokens(
        model="m", system=SYSTEM, tools=[READ], messages=[{"role": "user", "content": "Hello"}]
    )
    names = [model.id async for model in client.models.list()]

    assert counted.input_tokens > 90
    assert names == ["claude-own", "claude-haiku-4-5", "claude-sonnet-5", "claude-opus-5"]
    assert (simulator.stats.token_counts, simulator.stats.requests) == (1, 0)


async def test_a_question_whether_anybody_is_there_is_no_mistake(start: Start) -> None:
    simulator, client = await start(Behaviour())

    assert await client.status("/", method="HEAD") == 200
    assert await client.status("/") == 404
    assert simulator.stats.rejections == {"not_found": 1}


async def test_lists_want_a_valid_key_too(start: Start) -> None:
    _, client = await start(Behaviour(keys=frozenset({"k"})))

    listed = await client.get("/v1/models", authorization="Bearer k")

    assert [await client.status("/v1/models"), await client.status("/v1beta/models")] == [401, 400]
    assert await client.status("/v1beta/models?key=k") == 200
    assert listed["object"] == "list"
