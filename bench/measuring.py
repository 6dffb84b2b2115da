"""What a figure is, and the arithmetic behind figures: two sides in turn, and schedules without overhead."""

from __future__ import annotations

import heapq
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; `target` is the most that it may be, or with `at_least` the least."""

    what: str
    measured: float
    unit: str = "×"
    target: float | None = None
    """`None` where the figure is only told."""
    note: str = ""
    at_least: bool = False

    @property
    def is_missed(self) -> bool:
        if self.target is None:
            return False
        return not (self.measured >= self.target if self.at_least else self.measured <= self.target)


def alternating(sides: Mapping[str, Callable[[], float]], *, rounds: int) -> dict[str, list[float]]:
    """Measure every side once per round; who goes first changes with each round."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides)[:: 1 if number % 2 == 0 else -1]
        for name in order:
            measured[name].append(sides[name]())
    return measured


def in_order_s(durations_s: Iterable[float], window: int) -> float:
    """How long the work takes if every slot that falls free takes the next one at once."""
    free_at_s = [0.0] * window
    for duration_s in durations_s:
        heapq.heapreplace(free_at_s, free_at_s[0] + duration_s)
    return max(free_at_s)


def bound_s(durations_s: Sequence[float], window: int) -> float:
    """What no schedule can beat, whatever its order."""
    longest_s = max(durations_s)
    return max(longest_s, sum(durations_s) / window)


def timed_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def cpu_of(work: Callable[[], object]) -> float:
    """CPU seconds, user and system, of all threads of this process."""
    before_s = _cpu_s()
    work()
    return _cpu_s() - before_s


def peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
