"""Agents side by side at their providers' limits, in virtual time: fair at one, free of each other at two."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState
from evalve.gate.messages import Call, Limit, Limits
from evalve.testing import run_in_virtual_time
from pacing_world import CALL

OTHER = replace(CALL, provider="openai", host="other.test")
LIMITS = Limits({"requests": Limit(600.0, 10.0)})


async def served(*agents: tuple[str, Call, int], terminals: int = 1, for_s: float = 60.0) -> dict[str, int]:
    """How many calls of each agent were let out: its name, whom it calls, how many samples it has at once."""
    loop = asyncio.get_running_loop()
    first = MemoryState(now_s=loop.time)
    states = [first, *(MemoryState(now_s=loop.time, beside=first) for _ in range(terminals - 1))]
    limiters = [Limiter(state, limits_for=lambda call: LIMITS) for state in states]
    counts = {name: 0 for name, _, _ in agents}

    async def sample(limiter: Limiter, name: str, call: Call) -> None:
        while loop.time() < for_s:
            permit = await limiter.admit(call, {"requests": 1}, group=name)
            await asyncio.sleep(0.5)
            await limiter.settle(permit, permit.cost, stated={})
            counts[name] += loop.time() < for_s

    async with asyncio.TaskGroup() as tasks:
        for place, (name, call, window) in enumerate(agents):
            for _ in range(window):
                tasks.create_task(sample(limiters[place % terminals], name, call))
    return counts


def test_a_wide_window_takes_nothing_from_a_narrow_one_at_the_same_key() -> None:
    counts = run_in_virtual_time(served(("wide", CALL, 60), ("narrow", CALL, 12)))

    assert 560 <= sum(counts.values()) <= 610  # the limit is used up
    assert abs(counts["wide"] - counts["narrow"]) <= 0.1 * sum(counts.values())


def test_agents_of_two_providers_do_not_slow_each_other() -> None:
    together = run_in_virtual_time(served(("here", CALL, 60), ("there", OTHER, 60)))
    alone = run_in_virtual_time(served(("there", OTHER, 60)))

    assert together["there"] == alone["there"]


def test_two_terminals_share_the_limit_of_one_key() -> None:
    counts = run_in_virtual_time(served(("first", CALL, 20), ("second", CALL, 20), terminals=2))

    assert 560 <= sum(counts.values()) <= 610
    assert abs(counts["first"] - counts["second"]) <= 0.2 * sum(counts.values())
