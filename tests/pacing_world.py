"""The limiter in virtual time against a provider that keeps the simulator's buckets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from evalve.gate.limits.booking import ScopeState
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState, Refusal
from evalve.gate.messages import Call, Dimension, Limits, Problem, Stated
from evalve.gate.retry import Wait, decide
from evalve.simulator.buckets import Bucket, Cost, take

CALL = Call(
    provider="anthropic",
    host="api.test",
    model="m",
    pool="m",
    key_hash="k",
    input_bytes=100,
    max_output_tokens=100,
    streams=False,
)


class Provider:
    """One bucket. Calls arrive some milliseconds late; refusals say in whole seconds when to come again."""

    def __init__(
        self,
        per_minute: float,
        depth_s: float,
        *,
        states: bool = True,
        states_at_once: bool = True,
        latency_s: float = 0.1,
        dimension: Dimension = "requests",
        others: float = 0.0,
    ) -> None:
        """`states_at_once`: headers tell what was left when the call came, and not when it was answered."""
        self.per_minute = per_minute
        self.dimension: Dimension = dimension
        self.seen: list[tuple[float, bool]] = []
        """When a call arrived, and whether it was served."""
        self._depth_s = depth_s
        self._states = states
        self._states_at_once = states_at_once
        self._latency_s = latency_s
        self._lateness = random.Random(1)
        self._bucket = Bucket(
            rate_per_s=per_minute / 60, depth=per_minute / 60 * depth_s, now_s=0.0, foreign_share=others
        )

    @property
    def refused(self) -> int:
        return sum(not is_served for _, is_served in self.seen)

    def change(self, per_minute: float) -> None:
        """Another limit from now on."""
        self.per_minute = per_minute
        self._bucket.resize(
            rate_per_s=per_minute / 60,
            depth=per_minute / 60 * self._depth_s,
            now_s=asyncio.get_running_loop().time(),
            foreign_share=self._bucket.foreign_share,
        )

    async def answer(self, amount: float) -> tuple[dict[Dimension, Stated], float | None]:
        """What its headers state, and after how long to come again where it is refused."""
        await asyncio.sleep(self._lateness.uniform(0.001, 0.01))
        now_s = asyncio.get_running_loop().time()
        short = take({"it": self._bucket}, {"it": Cost(amount, amount)}, now_s=now_s)
        self.seen.append((now_s, short is None))
        if short is not None:
            return self._stated(), int(short.wait_s) + 1.0
        stated = self._stated()
        await asyncio.sleep(self._latency_s)
        return stated if self._states_at_once else self._stated(), None

    def _stated(self) -> dict[Dimension, Stated]:
        if not self._states:
            return {}
        self._bucket.refresh(asyncio.get_running_loop().time())
        remaining = float(int(max(0.0, self._bucket.level) + 1e-6))
        return {self.dimension: Stated(per_minute=self.per_minute, remaining=remaining)}


async def paced(
    provider: Provider,
    limits: Limits,
    *,
    calls: Sequence[float] | None = None,
    until_s: float = 1e9,
    processes: int = 1,
    window: int = 50,
) -> tuple[ScopeState, float]:
    """The state that is left and the instant of the last answer.

    `calls` are what they take of the one dimension; without, there are always more until `until_s`.
    """
    loop = asyncio.get_running_loop()
    left = iter(calls) if calls is not None else iter(lambda: 1.0, None)
    jitter = random.Random(5)

    async def work(limiter: Limiter) -> None:
        for amount in left:
            tries = 0
            while (refused_s := await _tried(limiter, provider, amount)) is not None:
                tries += 1
                decision = decide(Problem("rate_limit", "", 429, refused_s), tries, 0.0, jitter.random)
                assert isinstance(decision, Wait)
                await asyncio.sleep(decision.delay_s)
                if loop.time() > until_s:
                    return
            if loop.time() > until_s:
                return

    first = MemoryState(now_s=loop.time)
    states = [first, *(MemoryState(now_s=loop.time, beside=first) for _ in range(processes - 1))]
    async with asyncio.TaskGroup() as tasks:
        for state in states:
            limiter = Limiter(state, limits_for=lambda call: limits)
            for _ in range(window):
                tasks.create_task(work(limiter))
    return await first.peek(CALL.scope), loop.time()


async def _tried(limiter: Limiter, provider: Provider, amount: float) -> float | None:
    permit = await limiter.admit(CALL, {provider.dimension: amount})
    stated, refused_s = await provider.answer(amount)
    if refused_s is None:
        await limiter.settle(permit, permit.cost, stated=stated)
        return None
    actual = permit.cost if provider.dimension == "requests" else {}
    refusal = Refusal(provider.dimension if stated else None, refused_s)
    await limiter.settle(permit, actual, stated=stated, refusal=refusal)
    return refused_s
