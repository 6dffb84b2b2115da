"""Runs evaluations side by side on one loop: each with its own window, none slowed by another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from evalve import wiring
from evalve.contracts import Progress, Runnable, Store
from evalve.errors import EvalveError
from evalve.experiments.ordering import Order, in_order
from evalve.gate.budget import SharedBudget
from evalve.runner.evaluation import Outcome
from evalve.runner.interruption import forwarding_interrupts
from evalve.runner.leaving import belongs_to_a_run
from evalve.show.live.progress import OnceTold

OK, FAILED, INTERRUPTED, USAGE, NOTHING = 0, 1, 2, 4, 5
"""As pytest has them."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One evaluation of an experiment, and where its records go."""

    runnable: Runnable
    store: Store
    storage: str | None = None
    """What `evalve show` must be told; `None` where it looks there by itself."""
    budget: SharedBudget | None = None
    """What all evaluations of the experiment may spend together."""
    prepare: Callable[[], object] = bool
    """What takes a while before it can run, in a thread."""

    @property
    def agent(self) -> str:
        """Whom it asks: a model or an agent, by the name that the file gives it."""
        return str(self.runnable.variant["model"])


class NotStarted(EvalveError):
    """The run was interrupted before the agent's turn came."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one."""

    planned: Planned
    outcome: Outcome | None
    error: Exception | None = None

    @property
    def is_left_out(self) -> bool:
        return isinstance(self.error, NotStarted)

    @property
    def was_stopped_by_person(self) -> bool:
        return self.outcome is not None and self.outcome.interrupted and not self.outcome.stop_reason


class Watcher(Protocol):
    """Told of each agent, beside the progress that all share."""

    def progress(self, planned: Planned, progress: Progress) -> Progress: ...
    def begun(self, planned: Sequence[Planned]) -> None: ...
    def ended(self, ended: Sequence[Ended]) -> None:
        """All evaluations of the agent have ended. On any thread."""


def run_all(
    planned: Sequence[Planned],
    *,
    progress: Progress,
    folder: Path,
    orders: Mapping[str, Order],
    watcher: Watcher | None = None,
) -> list[Ended]:
    """Each experiment in its order; one agent that breaks leaves the others alone."""
    progress = OnceTold(progress)
    with _locked(planned), forwarding_interrupts() as context:

        def give_up() -> None:
            progress.note(f"{wiring.CANNOT_END}; what was done is saved: run it again to go on")
            wiring.end_process(INTERRUPTED)

        async def run_one(one: Planned) -> Ended:
            try:
                outcome = await wiring.run_recording(
                    one.runnable,
                    store=one.store,
                    progress=progress if watcher is None else watcher.progress(one, progress),
                    folder=folder,
                    give_up=give_up,
                    budget=one.budget,
                )
            except Exception as error:  # the boundary of one evaluation
                return Ended(one, None, error)
            return Ended(one, outcome)

        together = _Together(planned, orders, run_one, watcher, progress.note)
        return context.run(wiring.wait_for, together.run)


class _Together:
    """The evaluations of several agents, and what became of them."""

    def __init__(
        self,
        planned: Sequence[Planned],
        orders: Mapping[str, Order],
        run_one: Callable[[Planned], Awaitable[Ended]],
        watcher: Watcher | None,
        tell: Callable[[str], None],
    ) -> None:
        self._tell = tell
        self._planned = planned
        self._orders = orders
        self._run_one = run_one
        self._watcher = watcher
        self._ended: list[Ended] = []

    async def run(self) -> list[Ended]:
        """In the order in which they were planned."""
        await asyncio.to_thread(lambda: [one.prepare() for one in self._planned])
        experiments = dict.fromkeys(one.runnable.spec.experiment for one in self._planned)
        await asyncio.gather(
            *(
                in_order(self._orders[name], partial(self._run_agent, name), partial(self._tell_phase, name))
                for name in experiments
            )
        )
        places = {id(one): place for place, one in enumerate(self._planned)}
        return sorted(self._ended, key=lambda ended: places[id(ended.planned)])

    def _tell_phase(self, experiment: str, text: str) -> None:
        if not self._is_stopped:
            self._tell(f"{experiment}: {text}")

    @property
    def _is_stopped(self) -> bool:
        return any(ended.was_stopped_by_person for ended in self._ended)

    async def _run_agent(self, experiment: str, agent: str) -> None:
        belongs_to_a_run()
        own = [
            one for one in self._planned if one.agent == agent and one.runnable.spec.experiment == experiment
        ]
        if self._is_stopped:
            ended = [Ended(one, None, NotStarted("not started: the run was interrupted")) for one in own]
        else:
            if self._watcher is not None:
                self._watcher.begun(own)
            ended = list(await asyncio.gather(*map(self._run_one, own)))
        self._ended += ended
        if self._watcher is not None:
            await asyncio.to_thread(self._watcher.ended, ended)


SIDE_BY_SIDE = "evaluations, each by itself"
"""The party of runs that share an experiment: each holds its own evaluations in it."""


@contextmanager
def _locked(planned: Sequence[Planned]) -> Iterator[None]:
    """Each evaluation once in each store, until all have ended; others may run in other processes."""
    holder = " ".join(["evalve", *sys.argv[1:]])
    with ExitStack() as stack:
        taken = set()
        for one in planned:
            spec = one.runnable.spec
            if (one.store.url, spec.experiment) not in taken:
                taken.add((one.store.url, spec.experiment))
                lock = one.store.lock(spec.experiment, holder=holder, party=SIDE_BY_SIDE)
                stack.callback(_release, lock)
            stack.callback(_release, one.store.lock(f"{spec.experiment}: {spec.name}", holder=holder))
        yield


def _release(lock: object) -> None:
    with suppress(EvalveError):
        lock.release()  # type: ignore[attr-defined]


def exit_code(ended: Sequence[Ended]) -> int:
    """Interrupted goes before failed, and failed before passed; nothing at all is pytest's 5."""
    outcomes = [one.outcome for one in ended if one.outcome is not None]
    if any(outcome.interrupted or outcome.stop_reason for outcome in outcomes):
        return INTERRUPTED
    if any(one.is_left_out for one in ended):
        return INTERRUPTED
    if len(outcomes) < len(ended) or any(outcome.problems for outcome in outcomes):
        return FAILED
    counted = sum(o.info.done + o.info.failed + o.info.skipped for o in outcomes)
    return OK if counted else NOTHING
