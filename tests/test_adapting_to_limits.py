"""`Adaptive` around samples whose calls pass the real limiter, in virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from evalve.concurrency import Adaptive
from evalve.contracts import SAMPLE, WAITS_FOR_LIMITS
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState
from evalve.gate.messages import Limit, Limits
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from pacing_world import CALL
from running import Notes, runnable, running


def agents_at_sixty_a_minute(
    agent_s: float, samples: int, initial: int
) -> tuple[list[dict[str, Any]], list[float]]:
    """Agents of three calls each that take so long if nothing holds them; decisions, and when each ended."""
    ended_s: list[float] = []
    strategy = Adaptive(initial, max_concurrency=200)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        limiter = Limiter(
            MemoryState(now_s=loop.time), limits_for=lambda call: Limits({"requests": Limit(60.0)})
        )
        draws = random.Random(7)

        async def agent(n: int) -> bool:
            sample = SAMPLE.get()
            assert sample is not None
            for _ in range(3):
                permit = await sample.held(limiter.admit(CALL, {"requests": 1.0}), WAITS_FOR_LIMITS)
                await asyncio.sleep(agent_s / 3 * draws.uniform(0.5, 1.5))
                await limiter.settle(permit, permit.cost)
            ended_s.append(loop.time())
            return True

        outcome = await running(
            runnable(agent, range(samples), strategy=strategy), open_store("memory://"), Notes()
        )
        assert outcome.info.done == samples, outcome.first_error

    run_in_virtual_time(run())
    return strategy.history, ended_s


def mean_limit(history: list[dict[str, Any]], from_s: float, to_s: float) -> float:
    """How many were allowed at once in that time, on average."""
    changes = [(decision["at_s"], decision["to"]) for decision in history]
    begun = [at_most for at_s, at_most in changes if at_s <= from_s][-1:]
    inside = [(from_s, at_most) for at_most in begun]
    inside += [(at_s, at_most) for at_s, at_most in changes if from_s < at_s < to_s]
    ends = [at_s for at_s, _ in inside[1:]] + [to_s]
    area = sum((end_s - at_s) * at_most for (at_s, at_most), end_s in zip(inside, ends, strict=True))
    return float(area / (to_s - inside[0][0]))


@pytest.mark.parametrize(
    ("agent_s", "initial", "allowed"),
    [(12.0, 5, 4), (15.0, 1, 5), (30.0, 2, 10), (30.0, 60, 10), (90.0, 5, 30)],
)
def test_agents_of_three_calls_settle_where_littles_law_says(
    agent_s: float, initial: int, allowed: int
) -> None:
    history, ended_s = agents_at_sixty_a_minute(agent_s, samples=900, initial=initial)

    from_s, to_s = ended_s[400], ended_s[800]
    assert abs(mean_limit(history, from_s, to_s) - allowed) <= 0.2 * allowed
    # of so few whose calls take from half to one and a half times as long, now and then all work at once
    assert 400 / (to_s - from_s) * 60 >= 0.88 * 20
    assert all(decision["side"] == "provider" for decision in history)


@pytest.mark.parametrize("slower", [3.0, 20.0])
def test_latency_alone_lowers_nothing(slower: float) -> None:
    """A provider that takes longer for each call, and refuses and loses none."""
    strategy = Adaptive(4, max_concurrency=16)
    at_once: list[tuple[int, int]] = []
    under_way = 0

    async def agent(n: int) -> bool:
        nonlocal under_way
        under_way += 1
        await asyncio.sleep(slower if n >= 400 else 1.0)
        at_once.append((n, under_way))
        under_way -= 1
        return True

    async def run() -> None:
        await running(runnable(agent, range(800), strategy=strategy), open_store("memory://"), Notes())

    run_in_virtual_time(run())
    assert [decision["to"] for decision in strategy.history] == [8, 16]
    assert max(count for n, count in at_once if n >= 750) == 16
