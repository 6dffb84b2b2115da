"""OpenAI's wire format, limits and errors, over real HTTP with a clock that the test moves."""

from __future__ import annotations

import json

import openai
import pytest
from simulated import FakeClock, Start

from evalve.simulator import Answer, Behaviour, Limits, Ramp, Simulator, SpendCap, ToolCall
from evalve.simulator.apis.openai import go_duration


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0s"),
        (0.0115, "12ms"),
        (1.0, "1s"),
        (1.2, "1.2s"),
        (90.5, "1m30.5s"),
        (360.0, "6m0s"),
        (3630.0, "1h0m30s"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds: float, expected: str) -> None:
    assert go_duration(seconds) == expected


async def test_an_answer_has_the_shape_of_a_completion(start: Start) -> None:
    _, client = await start(Behaviour(answers={"France": "Paris"}))
    reply = await client.chat("What is the capital of France?")
    assert reply.headers["x-request-id"].startswith("req_")
    choice = reply.json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Paris", "stop")
    assert reply.json["usage"] == {
        "prompt_tokens": 8,
        "completion_tokens": 2,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


async def test_headers_state_limits_and_when_they_are_full_again(start: Start) -> None:
    _, client = await start(Behaviour(limits=Limits(requests_per_minute=60, tokens_per_minute=60_000)))
    reply = await client.chat(max_tokens=1500)
    stated = {name.removeprefix("x-ratelimit-"): value for name, value in reply.headers.items()}
    expected = {
        "limit-requests": "60",
        "remaining-requests": "59",
        "reset-requests": "1s",
        "limit-tokens": "60000",
        "remaining-tokens": "58500",
        "reset-tokens": "1.5s",
    }
    assert {name: stated.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("charging", "prompt", "max_tokens", "remaining"),
    [("max", "x" * 400, 30, "5900"), ("max", "x" * 400, 300, "5700"), ("sum", "x" * 400, 300, "5600")],
)
async def test_tokens_are_charged_by_the_maximum_when_the_request_comes(
    start: Start, charging: str, prompt: str, max_tokens: int, remaining: str
) -> None:
    limits = Limits(tokens_per_minute=6000)
    _, client = await start(Behaviour(limits=limits, openai_charging="sum" if charging == "sum" else "max"))
    reply = await client.chat(prompt, max_tokens=max_tokens)
    assert reply.headers["x-ratelimit-remaining-tokens"] == remaining


async def test_a_setting_corrects_the_charge_by_actual_usage(start: Start) -> None:
    limits = Limits(tokens_per_minute=6000)
    _, client = await start(Behaviour(limits=limits, openai_settles=True, answers=["x" * 40]))
    reply = await client.chat("x" * 400, max_tokens=3000)
    assert reply.headers["x-ratelimit-remaining-tokens"] == "5890"


async def test_a_refusal_names_the_limit_and_the_wait_to_the_millisecond(
    start: Start, clock: FakeClock
) -> None:
    simulator, client = await start(Behaviour(limits=Limits(tokens_per_minute=6000, depth_s=10.0)))
    assert (await client.chat("a", max_tokens=900)).status == 200
    refused = await client.chat("b", max_tokens=350)
    assert refused.status == 429
    assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("3", "2500")
    error = refused.json["error"]
    assert (error["type"], error["code"]) == ("tokens", "rate_limit_exceeded")
    assert "Limit 6000, Used 900, Requested 350. Please try again in 2.5s." in error["message"]
    clock.advance(2.5)
    assert (await client.chat("b", max_tokens=350)).status == 200
    assert simulator.stats.retry_after_ignored == 0


async def test_a_refused_request_counts_as_a_request(start: Start) -> None:
    _, client = await start(Behaviour(limits=Limits(requests_per_minute=3, tokens_per_minute=100)))
    replies = [await client.chat(f"{n}", max_tokens=80) for n in range(4)]
    assert [reply.status for reply in replies] == [200, 429, 429, 429]
    assert [reply.headers["x-ratelimit-remaining-requests"] for reply in replies] == ["2", "1", "0", "0"]


async def test_a_request_above_the_limit_never_succeeds(start: Start) -> None:
    _, client = await start(Behaviour(limits=Limits(tokens_per_minute=1000)))
    refused = await client.chat(max_tokens=1001)
    assert refused.status == 429
    assert refused.json["error"]["message"].startswith("Request too large")
    assert "retry-after" not in refused.headers


async def test_a_request_above_the_depth_is_served_when_the_bucket_is_full(start: Start) -> None:
    _, client = await start(Behaviour(limits=Limits(tokens_per_minute=1000, depth_s=6.0)))
    assert (await client.chat(max_tokens=900)).status == 200
    refused = await client.chat(max_tokens=1)
    assert (refused.status, refused.headers["retry-after"]) == (429, "49")


async def test_the_spend_cap_is_insufficient_quota(start: Start) -> None:
    _, client = await start(Behaviour(spend_cap=SpendCap(calls=0)))
    refused = await client.chat()
    assert refused.status == 429
    assert (refused.json["error"]["type"], refused.json["error"]["code"]) == ("insufficient_quota",) * 2
    assert "retry-after" not in refused.headers


async def test_growth_faster_than_the_ramp_is_told_to_slow_down(start: Start) -> None:
    _, client = await start(Behaviour(ramp=Ramp(floor_requests=1)))
    replies = [await client.chat(f"{n}") for n in range(2)]
    assert replies[1].json["error"]["code"] == "slow_down"
    assert replies[1].headers["retry-after"] == "10"


async def test_a_stream_ends_with_usage_and_done(start: Start) -> None:
    _, client = await start(Behaviour(answers=["four words are here"], stream_chunk_tokens=2))
    reply = await client.chat(stream=True, stream_options={"include_usage": True})
    *chunks, finish, usage, done = reply.events
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "four words are here"
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 7)
    assert done == "[DONE]"


async def test_a_stream_has_no_usage_unless_asked(start: Start) -> None:
    _, client = await start(Behaviour())
    reply = await client.chat(stream=True)
    assert [event for event in reply.events if "usage" in event] == []


async def test_tool_calls_come_whole_and_streamed(start: Start) -> None:
    _, client = await start(Behaviour(answers=[Answer(tool_calls=(ToolCall("weather", {"city": "Oslo"}),))]))
    whole = (await client.chat()).json["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    events = (await client.chat(stream=True)).events
    calls = [event["choices"][0]["delta"].get("tool_calls", [{}])[0] for event in events[:-1]]
    pieces = [call.get("function", {}).get("arguments", "") for call in calls]
    assert json.loads("".join(pieces)) == {"city": "Oslo"}


async def test_a_json_schema_is_answered_by_a_conforming_object(start: Start) -> None:
    schema = {
        "type": "object",
        "properties": {
            "label": {"enum": ["positive", "negative"]},
            "score": {"type": "integer", "minimum": 1},
        },
        "required": ["label", "score"],
    }
    _, client = await start(Behaviour())
    wanted = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}}
    answer = json.loads((await client.chat(response_format=wanted)).json["choices"][0]["message"]["content"])
    assert set(answer) == {"label", "score"}
    assert answer["label"] in ("positive", "negative")
    assert answer["score"] >= 1


async def test_a_wrong_key_is_answered_as_openai_does(start: Start) -> None:
    _, client = await start(Behaviour(keys=frozenset({"right"})))
    reply = await client.chat()
    assert (reply.status, reply.json["error"]["code"]) == (401, "invalid_api_key")


async def test_the_sdk_for_azure_finds_its_deployments() -> None:
    behaviour = Behaviour(answers=["Paris"], keys=frozenset({"k"}))
    async with (
        Simulator(behaviour) as provider,
        openai.AsyncAzureOpenAI(api_key="k", azure_endpoint=provider.url, api_version="2026-01-01") as client,
    ):
        completion = await client.chat.completions.create(
            model="my-deployment", messages=[{"role": "user", "content": "France?"}]
        )
        response = await client.responses.create(model="my-deployment", input="France?")

    assert (completion.choices[0].message.content, response.output_text) == ("Paris", "Paris")


@pytest.mark.parametrize("prefix", ["/openai/v1", "/api/v1", "/openai/deployments/mine"])
async def test_hosts_with_the_same_format_have_it_elsewhere(start: Start, prefix: str) -> None:
    _, client = await start(Behaviour())
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}

    assert (await client.post(f"{prefix}/chat/completions?api-version=1", body)).status == 200
