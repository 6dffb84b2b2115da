"""How close to a provider's limits calls are made, whichever limit binds: given, or learnt from answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

from bench.habits import Counting, Habits, Headers, Resets, RetryAfter, ideal_s, paced
from bench.measuring import Figure
from bench.provider import Caller, own_state, provider
from evalve.gate.messages import Limits
from evalve.testing import run_in_virtual_time

CALLS = 1_200
WINDOW = 100
LATENCY_S = 0.2
RATES_PER_S = (1.0, 5.0, 1000 / 60, 40.0)
LEAST_IN_DEPTH = 5.0
"""Calls: a provider that holds fewer at once is no window, but a rate."""
BEGUN = 0.4
"""Of a window that ends for all at once: what is over when the first call comes."""
ROUNDED: tuple[Resets, ...] = ("whole", "date")
SEEDS = range(5)
LATENCIES_S = ((1.0, 1.0), (3.0, 3.0), (0.5, 10.0))
"""Of answers, as models take them: all the same, or some up to so long."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit that binds: what the simulator is told, how a person would configure it, what counts."""

    what: str
    flags: tuple[str, ...]
    per_minute: int
    setting: str
    counted: str
    """The simulator's count of what was used."""

    def flags_with_depth(self, depth_s: float) -> tuple[str, ...]:
        return (*self.flags, str(self.per_minute), "--depth-s", str(depth_s), "--latency-s", str(LATENCY_S))


BOUNDS = (
    Bound("requests", ("--requests-per-minute",), 2_400, "RPM", "admitted"),
    Bound("input tokens", ("--input-tokens-per-minute",), 240_000, "ITPM", "input_tokens"),
    Bound(
        "output tokens",
        ("--output-tokens", "100", "--output-tokens-per-minute"),
        240_000,
        "OTPM",
        "output_tokens",
    ),
)
MINUTE_DEEP = Bound("requests, a minute deep", ("--requests-per-minute",), 1_000, "RPM", "admitted")


def measure() -> list[Figure]:
    """One run for each limit and way to know it: each has an ideal that is known without measuring."""
    figures = []
    for bound, depth_s in (*((bound, 1.0) for bound in BOUNDS), (MINUTE_DEEP, 60.0)):
        for given in (True, False):
            figures += _paced(bound, depth_s, given=given)
    return [*figures, *habits_matrix()]


def habits_matrix() -> list[Figure]:
    """Every way to count and to tell, in virtual time: against the ideal, and how many were refused."""
    figures = []
    for per_s, counting, depth_s, headers, processes in product(
        RATES_PER_S, get_args(Counting), (0.25, 1.0, 10.0, 60.0), get_args(Headers), (1, 4)
    ):
        if per_s * depth_s < LEAST_IN_DEPTH:
            continue
        name = f"{per_s:g}/s, {counting} of {depth_s:g} s, headers {headers}, {processes} processes"
        for retry_after in get_args(RetryAfter):
            habits = Habits(per_s, depth_s, counting, headers, retry_after)
            figures += _held(f"{name}, retry-after {retry_after}", habits, processes)
            if counting == "fixed" and depth_s >= 1.0:
                begun = replace(habits, phase_s=BEGUN * depth_s)
                figures += _held(f"{name}, begun before, retry-after {retry_after}", begun, processes)
        if headers == "window" and counting == "fixed" and depth_s > 1.0:
            for resets in get_args(Resets):
                begun = Habits(per_s, depth_s, counting, headers, resets=resets, phase_s=BEGUN * depth_s)
                figures += _held(f"{name}, begun before, resets {resets}", begun, processes)
        if headers == "window" and depth_s <= 1.0:
            for resets in ROUNDED:
                habits = Habits(per_s, depth_s, counting, headers, resets=resets)
                figures += _held(f"{name}, resets {resets}", habits, processes)
        if headers != "absent":
            tokens = Habits(per_s * 500.0, depth_s, counting, headers, dimension="input_tokens", size=500.0)
            figures += _held(f"{name}, tokens", tokens, processes)
    for per_s, counting, depth_s, headers, processes in product(
        (1.0, 5.0, 40.0), get_args(Counting), (1.0, 10.0, 60.0), get_args(Headers), (1, 4)
    ):
        if per_s * depth_s < LEAST_IN_DEPTH:
            continue
        for latency_s, slowest_s in LATENCIES_S:
            habits = Habits(per_s, depth_s, counting, headers, latency_s=latency_s, slowest_s=slowest_s)
            name = f"{per_s:g}/s, {counting} of {depth_s:g} s, headers {headers}, {processes} processes"
            figures += _held(f"{name}, {latency_s:g} to {slowest_s:g} s each", habits, processes)
    unlimited: tuple[Headers, ...] = ("absent", "minute")
    for calls, headers, share, processes in product((200, 1000), unlimited, (0.02, 0.05, 0.1), (1, 4)):
        name = f"{calls} calls, {share:.0%} refused at random, headers {headers}, {processes} processes"
        ratio = slowed_by_chance(headers, share, calls=calls, processes=processes)
        figures.append(Figure(f"{name}: time, against retries alone", ratio, target=1.5))
    return figures


def slowed_by_chance(headers: Headers, share: float, *, calls: int, processes: int) -> float:
    """The time where that share is refused at random, against clients that only retry.

    A mean of several runs: short ones take as long as the last of their retries.
    """

    def took_s(seed: int, *, is_held: bool) -> float:
        habits = Habits(5000.0, headers=headers, random_share=share, is_limited=False, seed=seed)
        return run_in_virtual_time(paced(habits, Limits(), calls=calls, processes=processes, is_held=is_held))

    return sum(took_s(seed, is_held=True) for seed in SEEDS) / sum(
        took_s(seed, is_held=False) for seed in SEEDS
    )


def _held(name: str, habits: Habits, processes: int) -> list[Figure]:
    calls = int(habits.per_s / habits.size * (35 + habits.depth_s))
    window = 50 if processes == 1 else 40
    took_s = run_in_virtual_time(paced(habits, Limits(), calls=calls, processes=processes, window=window))
    most = max(0.01 * calls, 12.0 if processes == 1 else 60.0)
    ratio, target = (
        took_s / ideal_s(habits, calls, processes * window),
        1.20 if habits.headers == "absent" else 1.10,
    )
    return [
        Figure(f"{name}: time, against the ideal", ratio, target=target, note=f"{took_s:.1f} s"),
        Figure(f"{name}: refused", float(habits.refused), "calls", most, note=f"of {calls}"),
    ]


def _paced(bound: Bound, depth_s: float, *, given: bool) -> list[Figure]:
    with provider(*bound.flags_with_depth(depth_s)) as simulated, own_state() as environ:
        limits = {f"EVALVE_LIMITS_ANTHROPIC_{bound.setting}": str(bound.per_minute)} if given else {}
        caller = Caller(
            {"url": simulated.url, "calls": CALLS, "window": WINDOW},
            {**environ, **limits, "EVAL_USE_CACHE": "0"},
        )
        caller.go()
        told, seen = caller.ended(), simulated.stats()
    name = f"{bound.what}, {'given' if given else 'learnt'}"
    is_deep = depth_s > 1
    ideal_s = ideal(seen[bound.counted], bound.per_minute / 60.0, depth_s)
    figures = [
        Figure(
            f"{name}: time, against the ideal",
            seen["elapsed_s"] / ideal_s,
            target=None if is_deep else 1.05 if given else 1.10,
            note=f"{seen['elapsed_s']:.1f} s of {ideal_s:.1f} s",
        ),
        Figure(f"{name}: refused", share_refused(seen), "%", 0.0 if given or is_deep else 0.99),
        Figure(f"{name}: calls lost", len(told["failures"]) + CALLS - seen["completed"], "calls", 0.0),
    ]
    if is_deep:  # what is late is as much of the burst as the rate gives in that time
        unused = (seen["elapsed_s"] - ideal_s) / depth_s
        figures.append(Figure(f"{name}: of the burst not used", 100.0 * unused, "%", 5.0))
    return figures


def ideal(work: float, per_s: float, depth_s: float) -> float:
    """Seconds from the first request to the last answer: what a bucket holds at first is there at once."""
    return max(0.0, work / per_s - depth_s) + LATENCY_S


def share_refused(seen: dict[str, Any]) -> float:
    """Of all requests, in percent."""
    percent: float = 100.0 * seen["refused"] / seen["requests"]
    return percent
