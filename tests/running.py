"""Runs evaluations as the wiring would, on a store in memory and in virtual time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from evalve.contracts import EvaluationSpec, Lender, RecordDraft, Runnable, Store, Strategy, Tally, Task
from evalve.declare.datasets import Dataset
from evalve.engines.choosing import engine_for
from evalve.options import Options, Threshold
from evalve.records import Record
from evalve.runner.evaluation import Outcome, run_evaluation
from evalve.testing import run_in_virtual_time


class Notes:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.tallies: list[Tally] = []
        self.notes: list[str] = []
        self.finished_tallies: list[Tally] = []

    def started(self, tally: Tally) -> None:
        self.tallies.append(tally)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, tally: Tally) -> None:
        self.finished_tallies.append(tally)


def runnable(
    function: Callable[..., Any],
    rows: Any,
    *,
    strategy: Strategy | None = None,
    retries: Any = None,
    require: Sequence[Threshold] = (),
    fingerprint: Mapping[str, str] | None = None,
    experiment: str = "exp",
    key: str = "eval_x.py::eval_x",
    lenders: Mapping[str, Lender] | None = None,
    lane: Callable[[Mapping[str, Any]], str] | None = None,
    **options: Any,
) -> Runnable:
    """The function over the rows, with the options as keyword arguments."""
    columns = tuple(name for name in inspect.signature(function).parameters if name not in (lenders or {}))
    dataset = Dataset(rows, columns, "eval_x.py:1")
    asked = Options(experiment=experiment, **options)
    return Runnable(
        spec=EvaluationSpec(experiment, key, "eval_x", columns, fingerprint or {}),
        function=function,
        call=function,
        is_async=inspect.iscoroutinefunction(function),
        rows=lambda: dataset.open(asked.samples),
        options=asked,
        strategy=strategy,
        retries=retries,
        require=tuple(require),
        lenders=lenders or {},
        lane=lane,
    )


async def running(evaluation: Runnable, store: Store, progress: Notes | None = None) -> Outcome:
    return await run_evaluation(evaluation, store=store, progress=progress or Notes(), engine_for=engine_for)


def run(evaluation: Runnable, store: Store, progress: Notes | None = None) -> Outcome:
    return run_in_virtual_time(running(evaluation, store, progress))


def records(store: Store, experiment: str = "exp") -> list[Record]:
    (info,) = store.evaluations(experiment)
    return list(store.records(info))


def statuses(store: Store, experiment: str = "exp") -> list[tuple[str, str]]:
    """Sample id and status of every record, in dataset order."""
    return [(record.sample_id, record.status) for record in records(store, experiment)]


def rows(*names: str) -> list[dict[str, str]]:
    """Rows with these ids."""
    return [{"id": name} for name in names]


class RateLimited:
    """A strategy as people write them: at most so many at once, and a pause between two starts."""

    def __init__(self, max_concurrency: int, interval_s: float = 0.0) -> None:
        self.max_concurrency = max_concurrency
        self.interval_s = interval_s

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        loop = asyncio.get_running_loop()
        last_s = float("-inf")
        pending: set[asyncio.Task[Any]] = set()
        async for task in tasks:
            pause_s = last_s + self.interval_s - loop.time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            if len(pending) >= self.max_concurrency:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    yield await ended
            pending.add(asyncio.ensure_future(task()))
            last_s = loop.time()
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                yield await ended


class CollectFirst:
    """A strategy that takes every task there is before it starts any, then runs them one by one."""

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        collected = [task async for task in tasks]
        for task in collected:
            yield await task()


class FailingStore:
    """A store whose writing breaks after some records; all else is the real one's."""

    def __init__(
        self, store: Store, *, after: int, raises_at_once: bool = False, error: Exception | None = None
    ) -> None:
        self._store = store
        self._left = after
        self._raises_at_once = raises_at_once
        self._error = error or OSError("the disk is full")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, draft: RecordDraft, sink: Any) -> None:
        if self._left > 0:
            self._left -= 1
            self._store.add(draft, sink)
        elif self._raises_at_once:
            raise OSError("the disk is gone")
        else:
            sink.committed([draft], self._error)


class DistantStore:
    """A store behind a network: whatever a run must wait for takes a second; all else is the real one's."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._distant(found) if inspect.iscoroutinefunction(found) else found

    def _distant(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def asked(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(1.0)
            return await ask(*args, **kwargs)

        return asked

    async def sample_ids(self, evaluation_id: int) -> AsyncIterator[list[str]]:
        await asyncio.sleep(1.0)
        async for some in self._store.sample_ids(evaluation_id):
            yield some

    async def scored(self, evaluation_id: int) -> AsyncIterator[Any]:
        await asyncio.sleep(1.0)
        async for some in self._store.scored(evaluation_id):
            yield some
