"""What the real SDKs return for a call of a tool, whole and streamed, read as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from evalve.evaluators import ToolCall, tool_call_match
from evalve.evaluators.tools import tool_calls
from evalve.simulator import Answer, Behaviour, Simulator
from evalve.simulator import ToolCall as Scripted

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
ASK: Any = [{"role": "user", "content": "Weather in Bern and Rome?"}]
EXPECTED = [ToolCall("weather", {"city": "Rome"}), ToolCall("weather", {"city": "Bern"})]
CALLS = Answer("Let me see.", tool_calls=tuple(Scripted("weather", {"city": c}) for c in ("Bern", "Rome")))


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator(Behaviour(answers=[CALLS])).start_in_thread() as simulator:
        yield simulator


def of_anthropic(url: str) -> Any:
    tools: Any = [{"name": "weather", "input_schema": SCHEMA}]
    with anthropic.Anthropic(base_url=url, api_key="any") as client:
        return client.messages.create(model="claude-haiku-4-5", max_tokens=100, messages=ASK, tools=tools)


def of_anthropic_streamed(url: str) -> Any:
    tools: Any = [{"name": "weather", "input_schema": SCHEMA}]
    with (
        anthropic.Anthropic(base_url=url, api_key="any") as client,
        client.messages.stream(model="claude-haiku-4-5", max_tokens=100, messages=ASK, tools=tools) as stream,
    ):
        return stream.get_final_message()


def of_openai_chat(url: str) -> Any:
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        return client.chat.completions.create(model="gpt-5-mini", messages=ASK, tools=tools)


def of_openai_responses(url: str) -> Any:
    tools: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        return client.responses.create(model="gpt-5-mini", input="Weather?", tools=tools)


@pytest.mark.parametrize("ask", [of_anthropic, of_anthropic_streamed, of_openai_chat, of_openai_responses])
def test_a_response_of_an_sdk_is_read_as_it_is_and_as_its_json(provider: Simulator, ask: Any) -> None:
    response = ask(provider.url)

    assert tool_call_match(response, EXPECTED, mode="any_order").value is True
    assert all(call.id for call in tool_calls(response))
    plain = response.model_dump()
    assert tool_calls(plain) == tool_calls(json.dumps(plain)) == tool_calls(response)


def test_the_events_of_a_stream_are_put_together(provider: Simulator) -> None:
    with anthropic.Anthropic(base_url=provider.url, api_key="any") as client:
        claude = client.messages.create(
            model="claude-haiku-4-5",
            max_tokens=100,
            messages=ASK,
            tools=[{"name": "weather", "input_schema": SCHEMA}],
            stream=True,
        )
        of_claude: list[Any] = list(claude)
    with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="any") as other:
        gpt = other.chat.completions.create(
            model="gpt-5-mini",
            messages=ASK,
            tools=[{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
            stream=True,
        )
        of_gpt: list[Any] = list(gpt)
    for events in (of_claude, of_gpt):
        plain = [event.model_dump() for event in events]
        assert [(call.name, call.arguments) for call in tool_calls(events)] == [
            ("weather", {"city": "Bern"}),
            ("weather", {"city": "Rome"}),
        ]
        assert tool_calls(plain) == tool_calls(events) and all(call.id for call in tool_calls(plain))
