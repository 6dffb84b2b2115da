"""`@batch`: a function that takes lists. Each row stays a sample of its own, and one call serves several.

A batch is what the strategy starts together. Its rows wait for each other, and the first of them makes the
call as soon as no row of the batch is still on its way.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from evalve.concurrency import Batch as Batches
from evalve.concurrency import Callback
from evalve.contracts import SAMPLE, Runnable, Surroundings, Task
from evalve.declare.foreach import Evaluation
from evalve.errors import ResultError
from evalve.runner.surroundings import WaitEnded

__all__ = ["BatchEvaluation"]


@dataclass(slots=True)
class BatchEvaluation(Evaluation):
    """An evaluation whose function is called once for several rows."""

    batch_size: int | None = None
    """`None`: all rows at once."""

    @classmethod
    def of(cls, evaluation: Evaluation, batch_size: int | None) -> BatchEvaluation:
        declared = {field.name: getattr(evaluation, field.name) for field in fields(evaluation)}
        return cls(**declared, batch_size=batch_size)

    @property
    def is_async(self) -> bool:
        """Its rows wait for each other, whatever the function is."""
        return True

    def bound(self, **said: Any) -> Runnable:
        runnable = Evaluation.bound(self, **said)
        gathered = _Gathered(runnable.call, self.name)
        return replace(
            runnable,
            call=gathered.row,
            strategy=_OneBatchAfterAnother(self.batch_size or sys.maxsize, gathered),
        )


class _OneBatchAfterAnother(Batches):
    """`Batch` that tells how many of the rows it started are still under way."""

    def __init__(self, batch_size: int, gathered: _Gathered) -> None:
        super().__init__(batch_size)
        self._gathered = gathered

    @property
    def max_concurrency(self) -> int | None:  # type: ignore[override]
        """Nobody has to count on more: of a batch, however large, one row works for all."""
        return None

    def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callback | None = None
    ) -> AsyncIterator[Any]:
        return super().execute(self._told_of(tasks), progress_callback)

    async def _told_of(self, tasks: AsyncIterator[Task]) -> AsyncIterator[Task]:
        async for task in tasks:
            yield self._gathered.expecting(task)


class _Gathered:
    """The rows of the batch that is being started, until the call that serves them."""

    def __init__(self, call: Callable[..., Any], name: str) -> None:
        self._call = call
        self._name = name
        self._under_way = 0
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[Any]]] = []

    def expecting(self, task: Task) -> Task:
        self._under_way += 1

        async def run() -> Any:
            try:
                return await task()
            finally:
                self._under_way -= 1
                self._call_if_all_wait()

        return run

    async def row(self, **columns: Any) -> Any:
        """What the function returned for this row."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((columns, answer))
        self._call_if_all_wait()
        served = await answer
        if isinstance(served, _Batch):
            return await self._served(served, answer)
        if served is _STOPPED and (sample := SAMPLE.get()) is not None:
            return await sample.held(asyncio.sleep(0), "batch")  # refused: the run stops, the row is not done
        return served

    def _call_if_all_wait(self) -> None:
        alive = [row for row in self._waiting if not row[1].done()]
        if alive and len(alive) >= self._under_way:
            self._waiting = []
            alive[0][1].set_result(_Batch(alive))  # its row makes the call, so the call is that sample's

    async def _served(self, batch: _Batch, own: asyncio.Future[Any]) -> Any:
        others = [answer for _, answer in batch.rows if answer is not own]
        _keep_slot()
        try:
            results = self._one_for_each(await self._answer(batch.columns()), len(batch.rows))
        except BaseException as error:
            for answer in others:
                if not answer.done():
                    _fail(answer, error)
            raise
        for answer, result in zip(others, results[1:], strict=True):
            if not answer.done():
                answer.set_result(result)
        return results[0]

    async def _answer(self, columns: Mapping[str, list[Any]]) -> Any:
        if inspect.iscoroutinefunction(inspect.unwrap(self._call)):
            return await self._call(**columns)
        answer = await asyncio.to_thread(self._call, **columns)
        return await answer if inspect.isawaitable(answer) else answer

    def _one_for_each(self, results: Any, count: int) -> list[Any]:
        if not isinstance(results, list):
            return [results] * count
        if len(results) != count:
            raise ResultError(
                f"{self._name} returned {len(results)} results for a batch of {count} rows;"
                " return one for each row, in their order"
            )
        return results


class _Batch:
    """Rows of one call."""

    def __init__(self, rows: list[tuple[Mapping[str, Any], asyncio.Future[Any]]]) -> None:
        self.rows = rows

    def columns(self) -> dict[str, list[Any]]:
        return {name: [columns[name] for columns, _ in self.rows] for name in self.rows[0][0]}


_STOPPED = object()
"""Instead of an answer: the call waited for something, and the run has been stopped."""


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, Exception):
        answer.set_exception(error)
    elif isinstance(error, WaitEnded):
        answer.set_result(_STOPPED)
    else:
        answer.set_exception(TimeoutError("the call that served this row with others was cancelled"))


def _keep_slot() -> None:
    """The other rows of the batch wait for the sample's call in their slots, so it must not queue for one."""
    sample = SAMPLE.get()
    if sample is not None and sample.surroundings is not None:
        sample.surroundings = cast(Surroundings, _SlotKept(sample.surroundings))


class _SlotKept:
    """What a sample may ask of its run, with waits that keep the slot."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.parked = surroundings.held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._surroundings, name)
