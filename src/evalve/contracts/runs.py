"""Runs as rooms see them: what is run, where, and how many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evalve.contracts.samples import Lender, SampleContext
from evalve.contracts.stores import EvaluationSpec
from evalve.contracts.telling import CallCounts, HostPressure
from evalve.options import Options, Threshold
from evalve.records import Sample

INSUFFICIENT = "insufficient: "
"""How the reason begins for which an evaluation does not pass because there is too little to say."""

Task = Callable[[], Awaitable[Any]]
"""A turn on a slot: a strategy awaits it once. It never raises."""


class Strategy(Protocol):
    """Decides how many tasks are in flight. What it yields is what the tasks returned."""

    def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]: ...


class RunSignals(Protocol):
    """What a strategy may know about its run beside its turns, and whom it tells what it decides."""

    def held_back(self) -> int:
        """How many samples wait now for a provider's limits."""

    def calls(self) -> CallCounts: ...

    def own_failures(self) -> int:
        """Samples so far whose failure says nothing about provider or machine."""

    def pressure(self) -> HostPressure: ...

    def decided(self, decision: Mapping[str, Any]) -> None:
        """An entry of the strategy's `history`."""


class CallsView(Protocol):
    """What the gate tells about the calls of one run."""

    account: Any
    """What the samples of the run carry (`SampleContext.account`), so that the gate knows whose a call is."""

    def totals(self) -> dict[str, float]:
        """Counts so far, by the names of `CallLog`; empty while no call was made."""

    def held_by(self) -> str:
        """What holds calls back now, in words."""

    def spent(self) -> str:
        """What calls came to so far, in words."""

    def note_spending(self, note: Callable[[float], None]) -> None:
        """Have it told, before each call goes, what the calls so far may have cost: where later runs of the
        experiment have the same budget."""

    def may_have_cost_usd(self) -> float | None:
        """The most that all calls so far can have cost; `None` where no later run has the same budget."""

    def quiet(self) -> str:
        """No sample of the run works now, and none can begin: all wait for a batch.

        Why the run shall stop here, where it is only to gather its calls; else empty.
        """

    async def utilisation(self) -> list[dict[str, Any]]:
        """For each limit that was used since the run began: its share over time."""


class Rows(Protocol):
    """A dataset as the runner reads it: samples with ids, a few at a time."""

    def size(self) -> int | None: ...
    async def next(self, at_most: int) -> list[Sample]: ...
    async def close(self) -> None: ...
    def fingerprint(self) -> str: ...
    def is_whole(self) -> bool:
        """Whether it has been read to its end, not only as far as was asked for."""

    def lacking(self, ids: Sequence[str]) -> list[str]:
        """Those of the ids that none of the samples read so far has."""


class Engine(Protocol):
    """Where the function of an evaluation runs: on this loop, in a thread, in another process."""

    lends_slots: bool
    """Whether a sample that only waits leaves room for another one to run."""
    may_block_loop: bool
    """Whether the function runs on the event loop's thread as a coroutine, and may block it by mistake."""
    leaves_behind: str
    """What remains of a call that nobody waits for any more, in words; empty where nothing does."""

    async def start(self) -> None:
        """Be ready for calls; raises where there will be none, before anything has run."""

    def call(self, values: dict[str, Any], context: SampleContext) -> Awaitable[Any]:
        """What the function returned for these columns and loans; raises what it raised.

        What its calls and its trace came to is in `context` afterwards, wherever it ran.
        """

    def occupies_loop(self) -> bool:
        """Whether a sync function keeps the loop's own thread busy right now."""

    def close(self) -> None:
        """The run is over."""


EngineFor = Callable[["Runnable", Strategy], Engine]
"""Chooses the engine of a run."""

TRACEBACK_ELSEWHERE = "__evalve_traceback__"
"""Attribute of an error that was raised in another process: the text of its traceback there."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """An evaluation with everything bound: what the runner needs to run it once."""

    spec: EvaluationSpec
    function: Callable[..., Any]
    """What the person wrote."""
    call: Callable[..., Any]
    """The same with fixtures bound: it takes the columns as keyword arguments."""
    is_async: bool
    rows: Callable[[], Rows]
    """Opens the dataset; called once per run."""
    options: Options
    strategy: Strategy | None = None
    retries: Any = None
    require: tuple[Threshold, ...] = ()
    lenders: Mapping[str, Lender] = field(default_factory=dict)
    """Arguments of which each attempt is lent something; `call` does not have them bound."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The other arguments that `call` has bound, by name."""
    leading: tuple[Any, ...] = ()
    """What `call` has bound by position: `self` of a method."""
    variant: Mapping[str, str] = field(default_factory=dict)
    """The parameters that tell it from the other variants of its function, in words."""
    path: str | None = None
    """The file that declares the function, or `None` at an interactive prompt."""
    runs_again: frozenset[tuple[str, int]] = frozenset()
    """Samples, each with its repeat, that are run although an earlier run has done them."""
    scores_answers: bool = False
    """Whether `call` scores an answer that `SampleContext.answer` has, without what the lenders lend."""
    lane: Callable[[Mapping[str, Any]], str] | None = None
    """Tells a row's lane: attempts of one lane run one after another, in dataset order, lanes beside each
    other."""
