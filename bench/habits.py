"""Providers with all kinds of habits, in virtual time: what they hold, what they say, and how they refuse."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from typing import Literal

from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState, Refusal
from evalve.gate.messages import Call, Dimension, Limits, Problem, Stated
from evalve.gate.retry import Wait, decide

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
Counting = Literal["bucket", "fixed", "sliding"]
Headers = Literal["minute", "bucket", "window", "absent"]
"""`minute`: limit and what remains of a minute's; `bucket`: the limit a minute, what is in the bucket;
`window`: the bucket's own depth as the limit, what is in it, and when it is full again."""
RetryAfter = Literal["whole", "exact", "absent", "date"]
Resets = Literal["exact", "whole", "date"]
"""How headers say when a limit is whole again: in fractions of a second, in whole ones, or as an instant
beside a `Date` that is cut to whole seconds."""
ROUNDING_S = 1e-6
TAIL = 1.2
"""Exponent of Pareto's law, where answers take longer now and then."""


@dataclass
class Habits:
    """How a provider counts and what it says."""

    per_s: float = 40.0
    depth_s: float = 1.0
    counting: Counting = "bucket"
    headers: Headers = "minute"
    retry_after: RetryAfter = "whole"
    random_share: float = 0.0
    is_limited: bool = True
    says_which: bool = False
    latency_s: float = 0.1
    slowest_s: float = 0.0
    """Where it is longer: many answers take little more than `latency_s`, some up to so long."""
    dimension: Dimension = "requests"
    size: float = 1.0
    seed: int = 7
    resets: Resets = "exact"
    phase_s: float = 0.0
    """How long ago its window began when the first call comes, where it ends for all at once."""
    seen: list[tuple[float, bool]] = field(default_factory=list, init=False)
    _level: float = field(default=-1.0, init=False)
    _at_s: float = field(default=0.0, init=False)
    _began_s: float = field(default=0.0, init=False)
    _recent: deque[tuple[float, float]] = field(default_factory=deque, init=False)
    _used: float = field(default=0.0, init=False)
    _minute: deque[tuple[float, float]] = field(default_factory=deque, init=False)
    _used_in_minute: float = field(default=0.0, init=False)
    _draws: random.Random = field(init=False)
    _latencies: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draws = random.Random(self.seed)
        self._latencies = random.Random(self.seed)
        self._began_s = -self.phase_s

    @property
    def depth(self) -> float:
        return max(self.per_s * self.depth_s, self.size)

    @property
    def refused(self) -> int:
        return sum(not is_served for _, is_served in self.seen)

    def _short_s(self, amount: float, now_s: float) -> float:
        """How long until so much is there; 0 where it is, and then it is taken."""
        if self.counting == "bucket":
            if self._level < 0:
                self._level = self.depth
            self._level = min(self.depth, self._level + (now_s - self._at_s) * self.per_s)
            self._at_s = now_s
            if self._level + 1e-9 < amount:
                return (amount - self._level) / self.per_s
            self._level = max(0.0, self._level - amount)
            return 0.0
        if self.counting == "fixed":
            if now_s >= self._began_s + self.depth_s:
                self._began_s = now_s - (now_s - self._began_s) % self.depth_s
                self._level = self.depth
            if self._level < 0:
                self._level = self.depth
            if self._level + 1e-9 < amount:
                return self._began_s + self.depth_s - now_s
            self._level = max(0.0, self._level - amount)
            return 0.0
        while self._recent and self._recent[0][0] <= now_s - self.depth_s:
            self._used -= self._recent.popleft()[1]
        if self._used + amount > self.depth + 1e-9:
            return self._recent[0][0] + self.depth_s - now_s
        self._recent.append((now_s, amount))
        self._used += amount
        self._level = self.depth - self._used
        return 0.0

    async def answer(self) -> tuple[dict[Dimension, Stated], float | None]:
        await asyncio.sleep(self._draws.uniform(0.001, 0.01))
        now_s = asyncio.get_running_loop().time()
        short_s = 0.0
        if self._draws.random() < self.random_share:
            short_s = 0.5
        elif self.is_limited:
            short_s = self._short_s(self.size, now_s)
        self.seen.append((now_s, short_s == 0.0))
        if short_s == 0.0:
            self._minute.append((now_s, self.size))
            self._used_in_minute += self.size
        stated = self._stated(now_s)
        if short_s > 0:
            await asyncio.sleep(0.005)
            return stated, self._told(short_s, now_s)
        await asyncio.sleep(self.takes_s())
        return stated, None

    def takes_s(self) -> float:
        """The next answer."""
        if self.slowest_s <= self.latency_s:
            return self.latency_s
        return min(self.latency_s * self._latencies.paretovariate(TAIL), self.slowest_s)

    def _told(self, short_s: float, now_s: float) -> float:
        match self.retry_after:
            case "whole":
                return math.ceil(short_s)
            case "date":
                return max(0.0, math.ceil(now_s + short_s) - math.floor(now_s))
            case "exact":
                return short_s
        return 0.0

    def _stated(self, now_s: float) -> dict[Dimension, Stated]:
        if self.headers == "absent":
            return {}
        if self.headers == "minute":
            while self._minute and self._minute[0][0] <= now_s - 60.0:
                self._used_in_minute -= self._minute.popleft()[1]
            left = 60 * self.per_s - self._used_in_minute
            return {self.dimension: Stated(60 * self.per_s, float(int(max(0.0, left))), 0.0, None)}
        left = float(int(max(0.0, self._level if self.is_limited else self.depth)))
        if self.headers == "bucket":
            return {self.dimension: Stated(60 * self.per_s, left, 0.0, None)}
        full_in_s = (self.depth - self._level) / self.per_s
        if self.counting == "fixed":
            full_in_s = self._began_s + self.depth_s - now_s
        if self.resets == "whole":
            full_in_s = float(math.ceil(full_in_s))
        elif self.resets == "date":
            full_in_s += now_s % 1.0
        return {self.dimension: Stated(self.depth, left, 0.0, full_in_s, is_dated=self.resets == "date")}


def ideal_s(habits: Habits, calls: int, slots: int) -> float:
    """When the last answer comes to who knows the limit and has so many calls under way at most."""
    provider = replace(habits, random_share=0.0)
    free_s = [0.0] * min(slots, calls)  # when each slot is free: a heap
    now_s = 0.0
    for _ in range(calls):
        now_s = max(now_s, free_s[0])
        while provider.is_limited and (short_s := provider._short_s(habits.size, now_s)) > 0:
            now_s += short_s + ROUNDING_S
        heapreplace(free_s, now_s + provider.takes_s())
    return max(free_s)


async def paced(
    habits: Habits,
    limits: Limits,
    *,
    calls: int,
    processes: int = 1,
    window: int = 50,
    is_held: bool = True,
    states: list[MemoryState] | None = None,
) -> float:
    """When the last answer came. Without `is_held` clients only retry."""
    loop = asyncio.get_running_loop()
    left = iter(range(calls))
    jitter = random.Random(5)
    began_s = loop.time()

    async def work(limiter: Limiter) -> None:
        for _ in left:
            tries = 0
            while (refused_s := await _tried(limiter, habits, is_held)) is not None:
                tries += 1
                decision = decide(Problem("rate_limit", "", 429, refused_s), tries, 0.0, jitter.random)
                assert isinstance(decision, Wait)
                await asyncio.sleep(decision.delay_s)

    first = states[0] if states else MemoryState(now_s=loop.time)
    all_states = [first, *(MemoryState(now_s=loop.time, beside=first) for _ in range(processes - 1))]
    async with asyncio.TaskGroup() as tasks:
        for state in all_states:
            limiter = Limiter(state, limits_for=lambda call: limits)
            for _ in range(window):
                tasks.create_task(work(limiter))
    return loop.time() - began_s


async def _tried(limiter: Limiter, habits: Habits, is_held: bool) -> float | None:
    if not is_held:
        return (await habits.answer())[1]
    permit = await limiter.admit(CALL, {"requests": 1.0, habits.dimension: habits.size})
    stated, refused_s = await habits.answer()
    if refused_s is None:
        await limiter.settle(permit, permit.cost, stated=stated)
        return None
    refusal = Refusal(habits.dimension if habits.says_which else None, refused_s or 1.0)
    await limiter.settle(permit, {"requests": 1.0}, stated=stated, refusal=refusal)
    return refused_s
