"""Faults, as a client meets them."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp
import pytest
from simulated import FakeClock, Start

from evalve.errors import OptionError
from evalve.simulator import Behaviour, Faults, Latency, Limits
from evalve.simulator.draws import Draw

STATUSES = [200, 500, 529, 200]


async def test_a_schedule_is_kept_in_order_of_admission(start: Start) -> None:
    simulator, client = await start(Behaviour(faults=Faults(schedule=(None, "error", "overloaded"))))
    replies = [await client.messages(f"{n}") for n in range(4)]
    assert [reply.status for reply in replies] == STATUSES
    assert replies[1].json["error"]["type"] == "api_error"
    assert replies[2].json["error"]["type"] == "overloaded_error"
    assert simulator.stats.faults == {"error": 1, "overloaded": 1}
    assert simulator.stats.completed == 2


async def test_openai_is_overloaded_with_503(start: Start) -> None:
    _, client = await start(Behaviour(faults=Faults(schedule=("overloaded",))))
    reply = await client.chat()
    assert (reply.status, reply.json["error"]["code"]) == (503, "server_is_overloaded")


async def test_a_server_error_uses_up_a_request_and_no_tokens(start: Start) -> None:
    limits = Limits(requests_per_minute=60, input_tokens_per_minute=60_000)
    _, client = await start(Behaviour(limits=limits, faults=Faults(schedule=("error",))))
    headers = (await client.messages("x" * 40_000)).headers
    assert headers["anthropic-ratelimit-requests-remaining"] == "59"
    assert headers["anthropic-ratelimit-input-tokens-remaining"] == "60000"


async def test_a_reset_connection_gives_no_answer(start: Start) -> None:
    simulator, client = await start(Behaviour(faults=Faults(schedule=("reset",))))
    with pytest.raises((aiohttp.ClientConnectionError, ConnectionResetError)):
        await client.messages()
    assert (await client.messages()).status == 200
    assert (simulator.stats.admitted, simulator.stats.completed) == (2, 1)


async def test_a_truncated_body_ends_before_its_length(start: Start) -> None:
    simulator, client = await start(Behaviour(faults=Faults(schedule=("truncated",))))
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.messages()
    assert (simulator.stats.faults, simulator.stats.completed) == ({"truncated": 1}, 0)


async def test_a_stream_that_is_cut_never_ends_properly(start: Start) -> None:
    simulator, client = await start(Behaviour(answers=["x" * 400], faults=Faults(schedule=("cut_stream",))))
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.messages(stream=True)
    assert simulator.stats.output_tokens == 50


async def test_an_error_event_comes_in_the_middle_of_a_stream(start: Start) -> None:
    faults = Faults(schedule=("error_event", "error_event"))
    _, client = await start(Behaviour(answers=["x" * 400], faults=faults))
    reply = await client.messages(stream=True)
    assert (reply.status, reply.event_names[0], reply.event_names[-1]) == (200, "message_start", "error")
    assert reply.events[-1]["error"]["type"] == "overloaded_error"
    events = (await client.chat(stream=True)).events
    assert "error" in events[-1]


async def test_a_slow_stream_has_gaps(start: Start, clock: FakeClock) -> None:
    faults = Faults(schedule=("slow_stream",), slow_stream_s=20.0)
    _, client = await start(Behaviour(answers=["x" * 64], faults=faults, stream_chunk_tokens=8))
    reading = asyncio.create_task(client.messages(stream=True))
    for _ in range(2):
        await clock.until_sleeping(1)
        assert not reading.done()
        clock.advance(20.0)
    assert (await reading).event_names[-1] == "message_stop"


async def test_a_hung_call_holds_its_place_until_the_client_leaves(start: Start, clock: FakeClock) -> None:
    faults = Faults(schedule=("hang",))
    simulator, client = await start(Behaviour(limits=Limits(concurrency=1), faults=faults))
    hung = asyncio.create_task(client.messages())
    await clock.until_sleeping(1)
    assert (await client.messages("b")).status == 429
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung
    async with asyncio.timeout(60):
        while (await client.messages("c")).status != 200:
            pass
    assert simulator.stats.abandoned == 1


async def test_a_client_that_leaves_pays_for_what_was_produced(start: Start, clock: FakeClock) -> None:
    behaviour = Behaviour(answers=["x" * 400], latency=Latency(per_output_token_s=0.1))
    simulator, client = await start(behaviour)
    call = asyncio.create_task(client.messages())
    await clock.until_sleeping(1)
    clock.advance(5.0)
    call.cancel()
    async with asyncio.timeout(60):
        while not (await client.get("/_simulator/stats"))["abandoned"]:
            pass
    assert (simulator.stats.output_tokens, simulator.stats.completed) == (50, 0)


def test_probabilities_are_kept_and_a_retry_is_drawn_anew() -> None:
    faults = Faults(probabilities={"error": 0.1, "reset": 0.2, "slow_stream": 0.1})
    drawn = Counter(
        faults.fault_of(ordinal=n, stream=False, draw=Draw(seed=1, content=n, seen_before=0))
        for n in range(5000)
    )
    assert drawn["error"] == pytest.approx(500, abs=100)
    assert drawn["reset"] == pytest.approx(1000, abs=130)
    assert set(drawn) == {None, "error", "reset"}
    again = {faults.fault_of(ordinal=0, stream=True, draw=Draw(1, 7, seen)) for seen in range(50)}
    assert None in again and len(again) > 1


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"probabilities": {"eror": 0.1}}, "did you mean 'error'"),
        ({"probabilities": {"error": 1.5}}, "from 0 to 1"),
        ({"probabilities": {"error": 0.6, "reset": 0.6}}, "the sum of"),
        ({"schedule": ("nothing",)}, "there is no fault 'nothing'"),
    ],
)
def test_wrong_settings_are_refused_with_their_name(faults: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Faults(**faults)  # type: ignore[arg-type]
