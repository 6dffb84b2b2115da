"""What a run costs: CPU time and memory, its own and its agents'."""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import metadata

from evalve.contracts import Tally


def cpu_s() -> float:
    """Of this process and of those that it started and that have ended, worker processes above all."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def peak_memory_bytes() -> int:
    """Of this process alone."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class CpuOfAgents:
    """How many cores the agents of a run keep busy, from one look to the next."""

    def __init__(self, tally: Tally, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._tally = tally
        self._now_s = now_s
        self._before_s, self._used_before_s = now_s(), 0.0

    def cores_used(self) -> float:
        ended = self._tally.agent_totals
        used_s = sum(agent.cpu_s for agent in list(self._tally.agents.values()))
        used_s += 0.0 if ended is None else ended.cpu_s
        elapsed_s, more_s = self._now_s() - self._before_s, used_s - self._used_before_s
        self._before_s, self._used_before_s = self._now_s(), used_s
        return max(0.0, more_s) / elapsed_s if elapsed_s > 0 else 0.0


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("evalve", "pytest"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass  # run from a source tree without an installation
    return found
