"""Runs evaluations side by side on one loop: each with its own window, none slowed by another."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from evalve import wiring
from evalve.contracts import Progress, Runnable, Store
from evalve.errors import EvalveError
from evalve.gate.budget import SharedBudget
from evalve.runner.evaluation import Outcome
from evalve.runner.interruption import forwarding_interrupts

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


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one."""

    planned: Planned
    outcome: Outcome | None
    error: Exception | None = None


def run_all(planned: Sequence[Planned], *, progress: Progress, folder: Path) -> list[Ended]:
    """All of them at once; one that breaks leaves the others alone."""
    progress = OnceTold(progress)
    with _locked(planned), forwarding_interrupts() as context:

        def give_up() -> None:
            progress.note(f"{wiring.CANNOT_END}; what was done is saved: run it again to go on")
            os._exit(INTERRUPTED)

        async def run_one(one: Planned) -> Ended:
            try:
                outcome = await wiring.run_recording(
                    one.runnable,
                    store=one.store,
                    progress=progress,
                    folder=folder,
                    give_up=give_up,
                    budget=one.budget,
                )
            except Exception as error:  # the boundary of one evaluation
                return Ended(one, None, error)
            return Ended(one, outcome)

        async def run_together() -> list[Ended]:
            await asyncio.to_thread(lambda: [one.prepare() for one in planned])
            return list(await asyncio.gather(*map(run_one, planned)))

        return context.run(wiring.wait_for, run_together)


class OnceTold:
    """Progress for several: what all of them say, as when Ctrl-C stops them, is shown once."""

    def __init__(self, progress: Progress) -> None:
        self.started = progress.started
        self.finished = progress.finished
        self._note = progress.note
        self._told: set[str] = set()

    def note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._note(text)


@contextmanager
def _locked(planned: Sequence[Planned]) -> Iterator[None]:
    """Each experiment once in each store, until all have ended."""
    with ExitStack() as stack:
        taken = set()
        for one in planned:
            place = (one.store.url, one.runnable.spec.experiment)
            if place not in taken:
                taken.add(place)
                lock = one.store.lock(place[1], holder=" ".join(["evalve", *sys.argv[1:]]))
                stack.callback(_release, lock)
        yield


def _release(lock: object) -> None:
    with suppress(EvalveError):
        lock.release()  # type: ignore[attr-defined]


def exit_code(ended: Sequence[Ended]) -> int:
    """Interrupted goes before failed, and failed before passed; nothing at all is pytest's 5."""
    outcomes = [one.outcome for one in ended if one.outcome is not None]
    if any(outcome.interrupted or outcome.stop_reason for outcome in outcomes):
        return INTERRUPTED
    if len(outcomes) < len(ended) or any(outcome.problems for outcome in outcomes):
        return FAILED
    counted = sum(o.info.done + o.info.failed + o.info.skipped for o in outcomes)
    return OK if counted else NOTHING
