"""What an attempt may ask for while it runs, above all how it waits.

While everything that it does is a wait, its deadline stands still. While all of that is parked, its slot is
lent to another. A sync function waits on the gate's loop in another thread, so any thread may ask; slots and
deadlines belong to the run's own loop, which is told.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from evalve.contracts import Tally
from evalve.runner.turns import Body

T = TypeVar("T")


class WaitEnded(asyncio.CancelledError):
    """The run stops: what the sample waited for will not come. The sample runs again when it is resumed."""


class RunSurroundings:
    """What the attempts of one run have in common."""

    def __init__(self, tally: Tally, *, lends_slots: bool) -> None:
        self.tally = tally
        self.lends_slots = lends_slots
        self.loop = asyncio.get_running_loop()
        self.lock = threading.RLock()
        """Guards the counts of every attempt. One for all: it is held for nanoseconds. Reentrant, because
        Ctrl-C ends waits from a signal handler, which may interrupt this very thread."""


class AttemptSurroundings:
    """One attempt, all its tries included. What most attempts never use has its beginning in the class."""

    stood_still_s = 0.0
    """For how long it did nothing but wait."""
    wait_ended = False
    """Whether a stop has ended a wait of it: then what it comes to is no result."""
    callbacks: tuple[Callable[[], None], ...] = ()
    """What follows when its record is committed."""
    _calls = 0
    _parked = 0
    _tasks: tuple[asyncio.Task[Any], ...] = ()
    """Those that wait now."""
    _still_since_s: float | None = None
    _deadline: asyncio.Timeout | None = None
    _due_s: float | None = None
    """When the deadline was due before it stood still."""

    def __init__(self, run: RunSurroundings, body: Body) -> None:
        self._run = run
        self._body = body
        self._loop = run.loop
        self._lock = run.lock
        body.end_waits = self.end_waits

    # -- what code of a sample asks for

    async def held(self, awaitable: Awaitable[T], reason: str) -> T:
        """Wait with the deadline standing still and the slot kept."""
        task = self._begin(awaitable, reason)
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self.wait_ended:
                raise WaitEnded from None
            raise
        finally:
            self._end(task, reason)

    async def parked(self, awaitable: Awaitable[T], reason: str) -> T:
        """The same with the slot lent to others; afterwards wait for another one."""
        if not self._run.lends_slots:
            return await self.held(awaitable, reason)
        return await self.parked_between_tries(awaitable, reason)

    async def parked_between_tries(self, awaitable: Awaitable[T], reason: str) -> T:
        """The same where the function is not running, whatever its engine."""
        task = self._begin(awaitable, reason, parks=True)
        try:
            try:
                return await awaitable
            finally:
                if not self.wait_ended and not self._body.is_cancelling():
                    await self._slot()
        except asyncio.CancelledError:
            if self.wait_ended:
                raise WaitEnded from None
            raise
        finally:
            self._end(task, reason, parks=True)

    def call_begins(self) -> None:
        """Calls tell when they wait. While one does not, time counts and the slot is needed."""
        with self._lock:
            self._calls += 1
            self._move_on()

    def call_ends(self) -> None:
        with self._lock:
            self._calls -= 1
            self._stand_still_if_all_wait()

    def stop_run(self, reason: str) -> None:
        """Any thread may ask for it: no further call can succeed."""
        self._loop.call_soon_threadsafe(self._body.stop_run, reason)

    def when_committed(self, callback: Callable[[], None]) -> None:
        self.callbacks += (callback,)

    # -- what the runner asks for

    def end_waits(self) -> None:
        """The run stops: let every wait of the attempt raise `WaitEnded`."""
        with self._lock:
            tasks = self._tasks
            self.wait_ended = self.wait_ended or bool(tasks)
        for task in tasks:
            loop = task.get_loop()
            if loop is self._loop:
                task.cancel()
            else:
                loop.call_soon_threadsafe(self._cancel_if_waiting, task)

    @contextmanager
    def under(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """In the block, the deadline stands still whenever the attempt only waits."""
        self._deadline = deadline
        try:
            yield
        finally:
            self._deadline = None

    # -- counting

    def _begin(self, awaitable: Awaitable[Any], reason: str, *, parks: bool = False) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._body.is_stopping():
                self.wait_ended = True
                close = getattr(awaitable, "close", None)
                if close is not None:
                    close()  # a coroutine: or Python warns that it was never awaited
                raise WaitEnded
            self._tasks += (task,)
            self._parked += parks
            self._stand_still_if_all_wait()
            waiting = self._run.tally.waiting
            waiting[reason] = waiting.get(reason, 0) + 1
        return task

    def _end(self, task: asyncio.Task[Any], reason: str, *, parks: bool = False) -> None:
        with self._lock:
            at = self._tasks.index(task)
            self._tasks = self._tasks[:at] + self._tasks[at + 1 :]
            self._parked -= parks
            self._move_on()
            self._run.tally.waiting[reason] -= 1

    def _stand_still_if_all_wait(self) -> None:
        waiting = len(self._tasks)
        if not waiting or waiting < self._calls:
            return
        if self._still_since_s is None:
            self._still_since_s = self._loop.time()
            if self._deadline is not None:
                self._on_loop(self._stop_deadline)
        if self._parked == waiting:
            self._on_loop(self._body.give_slot_back)

    def _move_on(self) -> None:
        if self._still_since_s is None:
            return
        still_s = self._loop.time() - self._still_since_s
        self._still_since_s = None
        self.stood_still_s += still_s
        if self._deadline is not None:
            self._on_loop(self._go_on_with_deadline, still_s)

    def _cancel_if_waiting(self, task: asyncio.Task[Any]) -> None:
        """On the task's own loop: meanwhile it may have been given what it waited for."""
        if task in self._tasks:
            task.cancel()

    # -- slots and deadlines, on the run's own loop

    def _on_loop(self, act: Callable[..., None], *args: Any) -> None:
        if asyncio._get_running_loop() is self._loop:
            act(*args)
        else:
            self._loop.call_soon_threadsafe(act, *args)

    def _stop_deadline(self) -> None:
        deadline = self._deadline
        if deadline is not None and not deadline.expired():
            self._due_s = deadline.when()
            deadline.reschedule(None)

    def _go_on_with_deadline(self, still_s: float) -> None:
        deadline = self._deadline
        if deadline is not None and self._due_s is not None and not deadline.expired():
            deadline.reschedule(self._due_s + still_s)

    async def _slot(self) -> None:
        """Return when the body has a slot."""
        if asyncio._get_running_loop() is self._loop:
            if not self._body.has_slot:
                await self._body.slot()
            return
        granted: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._ask_for_slot, granted)
        await asyncio.wrap_future(granted)

    def _ask_for_slot(self, granted: Future[None]) -> None:
        def pass_on(_: object = None) -> None:
            if granted.set_running_or_notify_cancel():
                granted.set_result(None)

        if self._body.has_slot:
            pass_on()
        else:
            self._body.slot().add_done_callback(pass_on)
