"""How close to a provider's limits the limiter goes, in virtual time, and what it takes for another user."""

from __future__ import annotations

import asyncio
import random

import pytest

from evalve.gate.limits.booking import ScopeState
from evalve.gate.messages import Limit, Limits
from evalve.testing import run_in_virtual_time
from pacing_world import Provider, paced

LATENCY_S = 0.1


@pytest.mark.parametrize("per_minute", [60, 75, 90, 120, 300, 600, 2400])
@pytest.mark.parametrize("depth_s", [1, 60])
@pytest.mark.parametrize("is_given", [True, False], ids=["given", "learnt"])
@pytest.mark.parametrize("states_at_once", [True, False], ids=["stated at the start", "stated at the end"])
def test_the_limit_is_used_up_nothing_is_refused_and_nobody_else_is_suspected(
    per_minute: int, depth_s: int, is_given: bool, states_at_once: bool
) -> None:
    provider = Provider(per_minute, depth_s, latency_s=LATENCY_S, states_at_once=states_at_once)
    limits = Limits({"requests": Limit(per_minute)}) if is_given else Limits()
    calls = max(60, per_minute * (depth_s + 40) // 60)

    state, ended_s = run_in_virtual_time(paced(provider, limits, calls=[1.0] * calls))

    ideal_s = calls / (per_minute / 60) - depth_s + LATENCY_S
    assert provider.refused == 0
    assert ended_s <= (1.05 if is_given else 1.10) * ideal_s
    assert state.buckets["requests"].others_per_s < 0.01 * per_minute / 60


@pytest.mark.parametrize("per_minute", [120, 300, 600, 2400])
@pytest.mark.parametrize("depth_s", [1, 60])
@pytest.mark.parametrize("states_at_once", [True, False], ids=["stated at the start", "stated at the end"])
def test_another_user_is_left_room_at_any_rate(per_minute: int, depth_s: int, states_at_once: bool) -> None:
    provider = Provider(per_minute, depth_s, states_at_once=states_at_once, others=0.3)
    calls = max(300, per_minute * (depth_s + 60) // 60)

    state, ended_s = run_in_virtual_time(
        paced(provider, Limits({"requests": Limit(per_minute)}), calls=[1.0] * calls)
    )

    left_for_us = per_minute / 60 * (depth_s + 0.7 * ended_s)
    assert provider.refused <= 0.01 * calls
    assert calls >= 0.9 * left_for_us
    assert state.buckets["requests"].others_per_s > 0.1 * per_minute / 60


@pytest.mark.parametrize("is_given", [True, False], ids=["given", "learnt"])
def test_requests_larger_than_the_bucket_come_when_it_is_certainly_full(is_given: bool) -> None:
    provider = Provider(60_000, 2, dimension="input_tokens")
    calls = [5000.0] * 4 + [100.0] * 150
    random.Random(1).shuffle(calls)
    limits = Limits({"input_tokens": Limit(60_000)}) if is_given else Limits()

    _, ended_s = run_in_virtual_time(paced(provider, limits, calls=calls, window=160))

    assert provider.refused == 0
    assert ended_s < 1.07 * (35_000 - 2000) / 1000


def test_a_limit_that_rises_is_used_without_a_burst_that_is_not_there() -> None:
    provider = Provider(600, 1)

    async def rising() -> tuple[ScopeState, float]:
        asyncio.get_running_loop().call_later(6.0, provider.change, 1800)
        return await paced(provider, Limits(), calls=[1.0] * 300, window=100)

    state, ended_s = run_in_virtual_time(rising())

    assert provider.refused == 0
    assert state.buckets["requests"].per_s == 30.0
    assert ended_s < 6.0 + 240 / 30 * 1.1
