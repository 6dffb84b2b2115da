"""A sync function in worker processes, beside each other: for functions that compute."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections import deque
from typing import Any

from evalve.contracts import Runnable, SampleContext
from evalve.engines.child import Child
from evalve.engines.crossing import (
    Answer,
    Opening,
    Work,
    loaded,
    packed_arguments,
    restored_error,
)
from evalve.engines.finding import names_here, place_of, place_of_main
from evalve.errors import CrossingError, InfrastructureError, ResultError

WAITS_FOR_WORKER = "worker"
"""Why a sample waits (`Tally.waiting`) for which no process is free."""


class ProcessEngine:
    """Up to `workers` processes, each started when it is first needed and used for the rest of the run.

    One that dies is replaced when somebody needs it.
    """

    lends_slots = False  # a sample that waits keeps its process, so that another one would have none
    may_block_loop = False
    leaves_behind = ""

    def __init__(self, evaluation: Runnable, workers: int) -> None:
        """Refuses a function that no worker can find, and arguments that cannot cross."""
        self._most = workers
        self._opening = opening_for(evaluation)
        self._name_here = names_here(self._opening.main)
        self._numbers = itertools.count()
        self._workers: set[Child] = set()
        self._dying: set[Child] = set()
        """Killed, and perhaps not yet gone."""
        self._idle: list[Child] = []
        self._starting: dict[asyncio.Task[None], Child] = {}
        self._wanted: deque[asyncio.Future[Child]] = deque()

    async def start(self) -> None:
        """Start one process, to see that it can import the function and read the arguments."""
        worker = self._born()
        try:
            await worker.open(self._opening)
        except BaseException:
            self._bury(worker)
            raise
        self._free(worker)

    async def call(self, values: dict[str, Any], context: SampleContext) -> Any:
        work = self._work(values, context)
        worker = await self._worker(context)
        try:
            answer = await worker.run(work, context)
        except BaseException:  # it died, or nobody waits for it any more
            self._bury(worker)
            self._hire()
            raise
        self._free(worker)
        return self._value_of(answer, context)

    def occupies_loop(self) -> bool:
        return False

    def close(self) -> None:
        for task in self._starting:
            task.cancel()
        for worker in self._workers - set(self._idle):
            worker.kill()
        for worker in self._idle:
            worker.let_go()
        for worker in self._workers | self._dying:
            worker.wait()
        self._workers.clear()
        self._idle.clear()

    # -- what crosses

    def _work(self, values: dict[str, Any], context: SampleContext) -> Work:
        what = f"{context.evaluation}, sample {context.sample_id!r}"
        return Work(
            number=next(self._numbers),
            experiment=context.experiment,
            evaluation=context.evaluation,
            sample_id=context.sample_id,
            repeat=context.repeat,
            try_number=context.try_number,
            ordinals=context.calls.ordinals,
            leaves_trace=context.trace is not None,
            values=packed_arguments(values, what),
        )

    def _value_of(self, answer: Answer, context: SampleContext) -> Any:
        context.calls.ordinals.update(answer.calls.ordinals)
        if context.trace is not None:
            context.trace.leave_out(answer.events_left_out)
        if answer.error is not None:
            error = restored_error(answer.error, self._name_here)
            if isinstance(error, StopIteration):
                raise RuntimeError(f"the evaluation raised StopIteration: {error}") from error
            raise error
        assert answer.value is not None
        try:
            return loaded(answer.value, self._name_here)
        except Exception as error:  # unpickling runs whatever the value's class says
            raise ResultError(
                f"what {context.evaluation} returned cannot be read outside of its worker process: {error}"
            ) from error

    # -- who works

    async def _worker(self, context: SampleContext) -> Child:
        """One that is free. Waiting for it is no work: the deadline stands still meanwhile."""
        if self._idle:
            return self._idle.pop()
        wanted: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._wanted.append(wanted)
        self._hire()
        try:
            return await context.held(wanted, WAITS_FOR_WORKER)
        except BaseException:
            if wanted in self._wanted:
                self._wanted.remove(wanted)
            elif not wanted.cancelled() and wanted.exception() is None:
                self._free(wanted.result())  # given in the same moment
            raise

    def _hire(self) -> None:
        """As many as are wanted, and as may be."""
        while len(self._wanted) > len(self._starting) and len(self._workers) < self._most:
            try:
                worker = self._born()
            except InfrastructureError as error:
                self._refuse(error)
                continue
            task = asyncio.get_running_loop().create_task(self._begin(worker))
            self._starting[task] = worker
            task.add_done_callback(self._has_begun)

    async def _begin(self, worker: Child) -> None:
        try:
            await worker.open(self._opening)
        except (CrossingError, InfrastructureError) as error:
            self._bury(worker)
            self._refuse(error)
        else:
            self._free(worker)

    def _has_begun(self, task: asyncio.Task[None]) -> None:
        del self._starting[task]
        if not task.cancelled():
            task.result()
            self._hire()

    def _born(self) -> Child:
        try:
            worker = Child(on_death=self._forget)
        except OSError as error:
            raise InfrastructureError(f"no worker process could be started: {error}") from error
        self._workers.add(worker)
        return worker

    def _free(self, worker: Child) -> None:
        if worker not in self._workers:
            self._hire()  # it has died since
        elif (wanted := self._next_wanted()) is not None:
            wanted.set_result(worker)
        else:
            self._idle.append(worker)

    def _refuse(self, error: Exception) -> None:
        """Whoever has waited longest hears of it; its sample is tried again."""
        if (wanted := self._next_wanted()) is not None:
            refused = InfrastructureError(f"no other worker process could be started: {error}")
            refused.__cause__ = error
            wanted.set_exception(refused)

    def _next_wanted(self) -> asyncio.Future[Child] | None:
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                return wanted
        return None

    def _bury(self, worker: Child) -> None:
        worker.kill()
        if worker in self._workers:
            self._workers.discard(worker)
            self._dying.add(worker)

    def _forget(self, worker: Child) -> None:
        self._workers.discard(worker)
        self._dying.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)


def opening_for(evaluation: Runnable) -> Opening:
    """What every worker of the run is told."""
    place = place_of(evaluation)
    name = evaluation.spec.name
    leading = {f"{place}" if place else "self": value for place, value in enumerate(evaluation.leading)}
    return Opening(
        parent_pid=os.getpid(),
        sys_path=[os.path.abspath(path) for path in sys.path],  # noqa: PTH100
        sys_argv=sys.argv,
        function=place,
        main=place_of_main(),
        options=evaluation.options,
        arguments=packed_arguments(evaluation.arguments, name),
        leading=packed_arguments(leading, name),
    )
