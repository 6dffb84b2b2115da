"""Anthropic's wire format, limits and errors, over real HTTP with a clock that the test moves."""

from __future__ import annotations

import asyncio
import json

from simulated import FakeClock, Start

from evalve.simulator import Answer, Behaviour, Latency, Limits, OutputLength, Ramp, SpendCap, ToolCall


async def test_an_answer_has_the_shape_of_a_message(start: Start) -> None:
    _, client = await start(Behaviour(answers=["Paris"]))
    reply = await client.messages("What is the capital of France?")
    assert reply.status == 200
    assert reply.headers["request-id"].startswith("req_")
    assert reply.json["content"] == [{"type": "text", "text": "Paris"}]
    assert reply.json["stop_reason"] == "end_turn"
    assert reply.json["usage"] == {
        "input_tokens": 8,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 2,
    }


async def test_equal_requests_get_equal_answers_and_others_do_not(start: Start) -> None:
    _, client = await start(Behaviour(output=OutputLength("lognormal", tokens=20)))
    first, again, other = [await client.messages(prompt) for prompt in ("a", "a", "b")]
    assert first.json["content"] == again.json["content"]
    assert first.json["content"] != other.json["content"]


async def test_headers_state_limit_remaining_and_full_replenishment(start: Start) -> None:
    limits = Limits(requests_per_minute=60, input_tokens_per_minute=60_000, output_tokens_per_minute=6_000)
    _, client = await start(Behaviour(limits=limits, answers=[Answer("x", output_tokens=600)]))
    reply = await client.messages("x" * 8000)
    stated = {name.removeprefix("anthropic-ratelimit-"): value for name, value in reply.headers.items()}
    expected = {
        "requests-limit": "60",
        "requests-remaining": "59",
        "requests-reset": "2026-11-15T12:00:01Z",
        "input-tokens-limit": "60000",
        "input-tokens-remaining": "58000",
        "input-tokens-reset": "2026-11-15T12:00:02Z",
        "output-tokens-limit": "6000",
        "output-tokens-remaining": "6000",
        "output-tokens-reset": "2026-11-15T12:00:01Z",
        "tokens-limit": "66000",
        "tokens-remaining": "64000",
        "tokens-reset": "2026-11-15T12:00:02Z",
    }
    assert {name: stated.get(name) for name in expected} == expected
    assert reply.json["usage"]["output_tokens"] == 100


async def test_a_refusal_says_how_long_to_wait_and_waiting_so_long_suffices(
    start: Start, clock: FakeClock
) -> None:
    simulator, client = await start(Behaviour(limits=Limits(requests_per_minute=24, depth_s=2.5)))
    assert (await client.messages()).status == 200
    refused = await client.messages()
    assert refused.status == 429
    assert refused.headers["retry-after"] == "3"
    assert refused.json["error"]["type"] == "rate_limit_error"
    assert "24 requests per minute" in refused.json["error"]["message"]
    assert refused.json["request_id"] == refused.headers["request-id"]
    clock.advance(2.4)
    assert (await client.messages()).status == 429
    assert simulator.stats.retry_after_ignored == 1
    clock.advance(3.0)
    assert (await client.messages()).status == 200
    assert simulator.stats.retry_after_ignored == 1
    assert simulator.stats.refused_dimensions == {"requests": 2}


async def test_a_refused_request_uses_up_nothing(start: Start, clock: FakeClock) -> None:
    limits = Limits(requests_per_minute=60, input_tokens_per_minute=6000, depth_s=1.0)
    _, client = await start(Behaviour(limits=limits))
    assert (await client.messages("x" * 400)).status == 200
    for _ in range(5):
        assert (await client.messages("x" * 400)).status == 429
    clock.advance(1.0)
    assert (await client.messages("x" * 400)).status == 200


async def test_output_is_charged_while_it_is_produced_and_not_by_max_tokens(
    start: Start, clock: FakeClock
) -> None:
    behaviour = Behaviour(
        limits=Limits(output_tokens_per_minute=600, depth_s=10.0),
        latency=Latency(per_output_token_s=0.01),
        output=OutputLength("fixed", tokens=200),
    )
    simulator, client = await start(behaviour)
    first = asyncio.create_task(client.messages("first", max_tokens=4000))
    await clock.until_sleeping(1)
    clock.advance(1.0)
    second = asyncio.create_task(client.messages("second", max_tokens=4000))
    await clock.until_sleeping(2)
    clock.advance(0.5)
    refused = await client.messages("third", max_tokens=4000)
    assert (refused.status, refused.headers["retry-after"]) == (429, "29")
    clock.advance(1.5)
    assert [(await first).status, (await second).status] == [200, 200]
    assert simulator.stats.refused_dimensions == {"output_tokens": 1}


async def test_by_the_old_rule_max_tokens_is_reserved(start: Start) -> None:
    limits = Limits(output_tokens_per_minute=6000)
    _, client = await start(Behaviour(limits=limits, output_charging="max_tokens"))
    assert (await client.messages(max_tokens=5000)).status == 200
    assert (await client.messages("more", max_tokens=5994)).status == 200
    assert (await client.messages("again", max_tokens=5989)).status == 429


async def test_a_concurrency_limit_refuses_without_a_time(start: Start, clock: FakeClock) -> None:
    behaviour = Behaviour(limits=Limits(concurrency=2), latency=Latency(median_s=5.0))
    simulator, client = await start(behaviour)
    held = [asyncio.create_task(client.messages(f"{n}")) for n in range(2)]
    await clock.until_sleeping(2)
    refused = await client.messages("third")
    assert refused.status == 429
    assert "concurrent connections" in refused.json["error"]["message"]
    assert "retry-after" not in refused.headers
    clock.advance(5.0)
    assert [(await one).status for one in held] == [200, 200]
    assert simulator.stats.peak_concurrency == 2
    assert simulator.stats.refusals == {"concurrency": 1}


async def test_growth_faster_than_the_ramp_is_refused_until_the_next_interval(
    start: Start, clock: FakeClock
) -> None:
    _, client = await start(Behaviour(ramp=Ramp(factor=2.0, interval_s=10.0, floor_requests=2)))
    assert [(await client.messages(f"{n}")).status for n in range(3)] == [200, 200, 429]
    clock.advance(4.5)
    refused = await client.messages()
    assert refused.json["error"]["details"] == {"error_code": "ramp_limit_exceeded"}
    assert refused.headers["retry-after"] == "6"
    clock.advance(6.0)
    assert [(await client.messages(f"{n}")).status for n in range(5)] == [200, 200, 200, 200, 429]


async def test_the_spend_cap_refuses_for_good_and_gives_no_time(start: Start, clock: FakeClock) -> None:
    _, client = await start(Behaviour(spend_cap=SpendCap(calls=1)))
    assert (await client.messages()).status == 200
    clock.advance(3600.0)
    refused = await client.messages()
    assert refused.status == 429
    assert refused.json["error"]["details"] == {"error_code": "enforced_spend_limit_reached"}
    assert "retry-after" not in refused.headers


async def test_dollars_count_towards_the_spend_cap(start: Start) -> None:
    cap = SpendCap(usd=0.003, input_usd_per_million=0.0, output_usd_per_million=15.0)
    _, client = await start(Behaviour(spend_cap=cap, output=OutputLength("fixed", tokens=100)))
    assert [(await client.messages(f"{n}")).status for n in range(3)] == [200, 200, 429]


async def test_another_user_of_the_key_leaves_less(start: Start, clock: FakeClock) -> None:
    limits = Limits(requests_per_minute=60, depth_s=1.0)
    _, client = await start(Behaviour(limits=limits, other_traffic=0.5))
    assert (await client.messages()).status == 200
    clock.advance(1.5)
    assert (await client.messages("b")).status == 429
    clock.advance(0.5)
    assert (await client.messages("c")).status == 200


async def test_a_wrong_clock_shifts_date_and_reset_alike(start: Start) -> None:
    _, client = await start(Behaviour(limits=Limits(requests_per_minute=60), clock_skew_s=-3600.0))
    reply = await client.messages()
    assert reply.headers["date"] == "Sun, 15 Nov 2026 11:00:00 GMT"
    assert reply.headers["anthropic-ratelimit-requests-reset"] == "2026-11-15T11:00:01Z"


async def test_cached_input_is_written_then_read_and_reading_is_free(start: Start) -> None:
    limits = Limits(input_tokens_per_minute=60_000, depth_s=0.2)
    _, client = await start(Behaviour(limits=limits))
    system = [{"type": "text", "text": "x" * 600, "cache_control": {"type": "ephemeral"}}]
    usages = [(await client.messages(f"{n} it", system=system)).json["usage"] for n in range(3)]
    assert [(u["cache_creation_input_tokens"], u["cache_read_input_tokens"]) for u in usages] == [
        (150, 0),
        (0, 150),
        (0, 150),
    ]
    assert [u["input_tokens"] for u in usages] == [1, 1, 1]
    assert (await client.messages("other", system="y" * 600)).status == 429


async def test_a_block_may_be_kept_for_an_hour(start: Start, clock: FakeClock) -> None:
    _, client = await start(Behaviour())
    hour = {"type": "text", "text": "x" * 400, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    minutes = {"type": "text", "text": "y" * 200, "cache_control": {"type": "ephemeral"}}
    usages = [(await client.messages("a", system=[hour, minutes])).json["usage"]]
    clock.advance(3000.0)
    usages.append((await client.messages("a", system=[hour, minutes])).json["usage"])
    assert [usage["cache_creation"] for usage in usages] == [
        {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 100},
        {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 0},
    ]
    assert [usage["cache_read_input_tokens"] for usage in usages] == [0, 100]


async def test_a_prompt_leaves_the_cache_when_its_time_is_over(start: Start, clock: FakeClock) -> None:
    _, client = await start(Behaviour())
    prompt = [{"type": "text", "text": "x" * 400, "cache_control": {"type": "ephemeral"}}]
    await client.messages(prompt)
    clock.advance(299.0)
    assert (await client.messages(prompt)).json["usage"]["cache_read_input_tokens"] == 100
    clock.advance(301.0)
    assert (await client.messages(prompt)).json["usage"]["cache_read_input_tokens"] == 0


async def test_models_of_one_pattern_share_a_pool_and_keys_do_not(start: Start) -> None:
    limits = Limits(requests_per_minute=1)
    _, client = await start(Behaviour(models={"claude-opus-4*": limits}))
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    statuses = [
        (await client.post("/v1/messages", {**body, "model": model}, x_api_key=key)).status
        for model, key in [
            ("claude-opus-4-5", "a"),
            ("claude-opus-4-6", "a"),
            ("claude-opus-4-6", "b"),
            ("claude-haiku", "a"),
        ]
    ]
    assert statuses == [200, 429, 200, 200]


async def test_a_stream_has_its_events_in_order_and_usage_at_both_ends(start: Start) -> None:
    _, client = await start(Behaviour(answers=["four words are here"], stream_chunk_tokens=2))
    reply = await client.messages(stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.event_names == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    deltas = [event["delta"]["text"] for event in reply.events if event["type"] == "content_block_delta"]
    assert "".join(deltas) == "four words are here"
    assert reply.events[0]["message"]["usage"]["input_tokens"] == 2
    assert reply.events[-2]["usage"]["output_tokens"] == 5
    assert reply.events[-2]["delta"]["stop_reason"] == "end_turn"


async def test_a_stream_takes_its_time_token_by_token(start: Start, clock: FakeClock) -> None:
    behaviour = Behaviour(
        answers=["x" * 64],
        latency=Latency(median_s=1.0, per_output_token_s=0.5, first_token_s=1.0),
        stream_chunk_tokens=8,
    )
    _, client = await start(behaviour)
    reading = asyncio.create_task(client.messages(stream=True))
    for wait_s in (1.0, 4.0, 4.0):
        await clock.until_sleeping(1)
        assert not reading.done()
        clock.advance(wait_s)
    assert (await reading).event_names[-1] == "message_stop"


async def test_scripted_tool_calls_become_tool_use_blocks(start: Start) -> None:
    answer = Answer("Let me look.", (ToolCall("weather", {"city": "Oslo"}),))
    _, client = await start(Behaviour(answers=lambda ask: answer if "weather" in ask.prompt else None))
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    whole = await client.messages("the weather?", tools=tools)
    assert [block["type"] for block in whole.json["content"]] == ["text", "tool_use"]
    assert whole.json["content"][1]["input"] == {"city": "Oslo"}
    assert whole.json["stop_reason"] == "tool_use"
    streamed = await client.messages("the weather?", tools=tools, stream=True)
    partial = [event["delta"].get("partial_json", "") for event in streamed.events if "delta" in event]
    assert json.loads("".join(partial)) == {"city": "Oslo"}


async def test_a_forced_tool_is_called_with_conforming_input(start: Start) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 3}}}
    tool = {"name": "count", "input_schema": schema}
    _, client = await start(Behaviour())
    reply = await client.messages(tools=[tool], tool_choice={"type": "tool", "name": "count"})
    assert reply.json["content"][0]["input"] == {"n": 3}


async def test_an_answer_is_cut_at_max_tokens(start: Start) -> None:
    _, client = await start(Behaviour(answers={"Hello": "x" * 100}))
    reply = await client.messages(max_tokens=5)
    assert reply.json["content"][0]["text"] == "x" * 20
    assert (reply.json["stop_reason"], reply.json["usage"]["output_tokens"]) == ("max_tokens", 5)


async def test_count_tokens_counts_four_bytes_a_token_and_has_its_own_limit(start: Start) -> None:
    limits = Limits(requests_per_minute=1, count_tokens_per_minute=2)
    simulator, client = await start(Behaviour(limits=limits))
    body = {"model": "claude-test", "system": "äöü", "messages": [{"role": "user", "content": "abc"}]}
    replies = [await client.post("/v1/messages/count_tokens", body) for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 429]
    assert replies[0].json == {"input_tokens": 3}
    assert (await client.messages()).status == 200
    assert (simulator.stats.requests, simulator.stats.token_counts) == (1, 3)


async def test_bad_requests_keys_and_paths_are_answered_as_anthropic_does(start: Start) -> None:
    simulator, client = await start(Behaviour(keys=frozenset({"right"})))
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    replies = [
        await client.post("/v1/messages", body, x_api_key="wrong"),
        await client.post("/v1/messages", {**body, "max_tokens": None}, x_api_key="right"),
        await client.post("/v1/messages", b"{", x_api_key="right"),
        await client.post("/v1/messages/nothing", body, x_api_key="right"),
        await client.post("/v1/messages", body, authorization="Bearer right"),
    ]
    assert [reply.status for reply in replies] == [401, 400, 400, 404, 200]
    assert [reply.json["error"]["type"] for reply in replies[:4]] == [
        "authentication_error",
        "invalid_request_error",
        "invalid_request_error",
        "not_found_error",
    ]
    assert simulator.stats.rejections == {"key": 1, "invalid": 2, "not_found": 1}
