"""How far a run is, and what the machine has left: who counts it, and who is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
)
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol


@dataclass(slots=True)
class Tally:
    """The live numbers of a running evaluation; the runner counts, whoever shows them reads."""

    experiment: str
    evaluation: str
    started_s: float
    """`time.monotonic()` at the start."""
    total: int | None = None
    """Attempts in all, those done before included; `None` while unknown."""
    skipped: int = 0
    """Done in an earlier run."""
    done: int = 0
    failed: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """How many of this run failed, by failure class."""
    skipped_now: int = 0
    """Samples of this run whose function called `pytest.skip`."""
    in_flight: int = 0
    peak_in_flight: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    """Why attempts wait now, by reason, as in `{"retry": 3}`."""
    stopping: bool = False
    limit: int | None = None
    """How many may be in flight, where the strategy says."""
    notes: list[str] = field(default_factory=list)
    """Things to tell the person once: a blocked loop, a take-over of a lock."""
    running: dict[int, RunningSample] = field(default_factory=dict)
    """Attempts that have begun and not ended, in that order."""
    decided: str = ""
    """What an adaptive strategy has decided last, and why: `20 → 14: 18% of calls were lost`."""
    own_failures: int = 0
    """Failures that say nothing about provider or machine: of classes code, answer and agent."""
    held_by: Callable[[], str] = lambda: ""
    """What holds calls back now, in words: `input tokens 98%: next in 0.4 s`."""
    spent: Callable[[], str] = lambda: ""
    """What calls came to so far, in words: `34 cached, 0.120 USD`."""
    agents: dict[int, RunningAgent] = field(default_factory=dict)
    """Those that are running now, in the order of their beginning."""
    agent_totals: AgentTotals | None = None
    """Of those that have ended; `None` before the first."""


@dataclass(slots=True)
class AgentTotals:
    """What the agents of a run came to together."""

    runs: int = 0
    ran_s: float = 0.0
    waited_s: float = 0.0
    """For their start, after they had been asked for."""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    """Of the largest of them, with all that it started."""
    output_bytes: int = 0
    survivors: int = 0
    """Processes that they left behind, and that were ended."""
    confinement: dict[str, int] = field(default_factory=dict)
    """How many ran behind which walls."""

    def add(self, other: AgentTotals) -> None:
        for name in ("runs", "ran_s", "waited_s", "cpu_s", "output_bytes", "survivors"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.peak_memory_bytes = max(self.peak_memory_bytes, other.peak_memory_bytes)
        for level, count in other.confinement.items():
            self.confinement[level] = self.confinement.get(level, 0) + count


@dataclass(slots=True)
class RunningAgent:
    """An agent's process as it was last seen."""

    agent: str
    sample_id: str
    started_s: float | None = None
    """`time.monotonic()` at its real start; `None` before."""
    cpu_s: float = 0.0
    memory_bytes: int = 0
    output_bytes: int = 0
    doing: str = ""
    """The kind of its last event."""


@dataclass(slots=True)
class RunningSample:
    """An attempt that has begun and not ended."""

    sample_id: str
    repeat: int
    started_s: float
    """`time.monotonic()` at its beginning."""
    waits_for: Callable[[], str]
    """In words; empty while it works."""


class Progress(Protocol):
    """Shows tallies while evaluations run."""

    def started(self, tally: Tally) -> None: ...
    def note(self, text: str) -> None: ...
    def finished(self, tally: Tally) -> None: ...


class CallCounts(NamedTuple):
    """Calls to providers since the beginning."""

    sent: int = 0
    lost: int = 0
    """To overload, server errors and time-outs."""
    refused: int = 0
    """By a provider's limits."""


NO_CALLS = CallCounts()


Level = Literal["clear", "tight", "over"]
"""How much room a machine has: `tight` is for nothing more, `over` for fewer."""


class HostPressure(NamedTuple):
    """Whether the machine has room, and what there is too little of."""

    level: Level
    reason: str = ""
    at_least: int = 1
    """So many samples at once are no cause for it."""


CLEAR = HostPressure("clear")


@dataclass(slots=True)
class Admitted:
    """A process that has been let start; whoever runs it notes what it took."""

    peak_bytes: int = 0
    """At its end."""
    memory_bytes: Callable[[], int] = lambda: 0
    """What it takes now."""


class Host(Protocol):
    """The machine that samples run on."""

    def pressure(self, processes: int, cores_used: float) -> HostPressure:
        """How much room there is now; `processes` are those that samples of the run have started.

        `cores_used` is how many cores these kept busy since the last time.
        """

    def admission(
        self, kind: str, wait: Callable[[Awaitable[Any], str], Awaitable[Any]]
    ) -> AbstractAsyncContextManager[Admitted]:
        """Entered when there is memory for another process of its kind; in the block, it runs."""

    def room_for_files(self, at_once: int) -> tuple[int, str] | None:
        """Let so many samples open files at once; where not all can, how many, and what to tell."""
