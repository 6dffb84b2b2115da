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
from typing import Any, NamedTuple, NoReturn, TypeVar

from evalve.contracts import WAITS_FOR_OTHERS, InFlight, Tally
from evalve.runner.turns import Body, Ending

T = TypeVar("T")


class WaitEnded(asyncio.CancelledError):
    """The run stops: what the sample waited for will not come. The sample runs again when it is resumed."""


class RunSurroundings:
    """What the attempts of one run have in common."""

    def __init__(self, tally: Tally, *, lends_slots: bool, in_flight: InFlight | None = None) -> None:
        self.tally = tally
        self.in_flight = in_flight
        self.lends_slots = lends_slots
        self.loop = asyncio.get_running_loop()
        self.lock = threading.RLock()
        """Guards the counts of every attempt. One for all: it is held for nanoseconds. Reentrant, because
        Ctrl-C ends waits from a signal handler, which may interrupt this very thread."""


class _Wait(NamedTuple):
    """One that is under way."""

    task: asyncio.Task[Any]
    reason: str
    turn_ends: Ending | None
    """How, where the slot is lent meanwhile."""


class _ToldStill:
    """Somebody with a clock of his own. On the run's own loop."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._is_still = False

    def now(self, is_still: bool) -> None:
        if is_still is not self._is_still:
            self._is_still = is_still
            self._tell(is_still)


class AttemptSurroundings:
    """One attempt, all its tries included. What most attempts never use has its beginning in the class."""

    stood_still_s = 0.0
    """For how long it did nothing but wait."""
    wait_ended = False
    """Whether a stop has ended a wait of it, or kept a call from it: then what it comes to is no result."""
    callbacks: tuple[Callable[[], None], ...] = ()
    """What follows when its record is committed, or when it will have none."""
    callbacks_of_record: tuple[Callable[[], None], ...] = ()
    """What follows only then."""
    _waits: tuple[_Wait, ...] = ()
    _calling: tuple[asyncio.Task[Any] | None, ...] = ()
    """The task of each call that is under way; a call works while its task does not wait."""
    _until_no_call_works: tuple[Future[None], ...] = ()
    _still_since_s: float | None = None
    _deadline: asyncio.Timeout | None = None
    _rests = False
    """Whether it is noted as not under way, because a batch takes hours, or an agent works."""
    _due_s: float | None = None
    """When the deadline was due before it stood still."""
    _told_still: tuple[_ToldStill, ...] = ()

    def __init__(self, run: RunSurroundings, body: Body) -> None:
        self._run = run
        self._body = body
        self._loop = run.loop
        self._lock = run.lock
        body.end_waits = self.end_waits
        body.waits_for_others = self.waits_for_others

    # -- what code of a sample asks for

    def held(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        """Wait with the deadline standing still and the slot kept."""
        return self._waited(awaitable, reason)

    def parked(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        """The same with the slot lent to others; afterwards wait for another one."""
        return self._waited(awaitable, reason, turn_ends="parked" if self._run.lends_slots else None)

    def parked_between_tries(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        """The same where the function is not running, whatever its engine."""
        return self._waited(awaitable, reason, turn_ends="waiting")

    async def _waited(self, awaitable: Awaitable[T], reason: str, *, turn_ends: Ending | None = None) -> T:
        task = asyncio.current_task()
        assert task is not None
        wait = _Wait(task, reason, turn_ends)
        self._begin(wait)
        try:
            if self._body.is_stopping():
                self._refuse(awaitable)
            try:
                return await awaitable
            finally:
                if turn_ends is not None and not self.wait_ended and not self._body.is_cancelling():
                    await self._slot()
                    if self._rests:
                        self._on_loop(self._work_on)
        except asyncio.CancelledError:
            if not self.wait_ended:
                raise
            await self._no_call_works()
            raise WaitEnded from None
        finally:
            self._end(wait)

    def call_begins(self) -> None:
        """While a call works, time counts and the slot is needed. It waits in the task that tells this."""
        with self._lock:
            self._calling += (asyncio.current_task(),)
            self._stand_still_or_move_on()

    def call_ends(self) -> None:
        with self._lock:
            self._calling = _without(asyncio.current_task(), self._calling)
            self._stand_still_or_move_on()

    def stop_run(self, reason: str, *, drops_sample: bool = False) -> None:
        """Any thread may ask for it: no further call can succeed."""
        self.wait_ended = self.wait_ended or drops_sample
        self._on_loop(self._body.stop_run, reason)

    def when_committed(self, callback: Callable[[], None]) -> None:
        self.callbacks += (callback,)

    def when_recorded(self, callback: Callable[[], None]) -> None:
        self.callbacks_of_record += (callback,)

    @contextmanager
    def telling_still(self, tell: Callable[[bool], None]) -> Iterator[None]:
        told = _ToldStill(tell)
        with self._lock:
            self._told_still += (told,)
        self._on_loop(self._tell_still)
        try:
            yield
        finally:
            with self._lock:
                self._told_still = _without(told, self._told_still)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Whoever kills the run, a machine that is switched off for one, shall not be blamed on an agent."""
        self._on_loop(self._rest)
        try:
            yield
        finally:
            self._on_loop(self._work_on)

    def waits_for(self) -> str:
        """In words; empty while it works. Any thread may ask."""
        waits = self._waits
        return "" if not waits or self._a_call_works() else waits[-1].reason

    # -- what the runner asks for

    def waits_for_others(self) -> bool:
        """Whether it waits for a batch, or for the equal call of one that does, and does nothing else."""
        waits = self._waits
        return bool(waits) and all(wait.reason in WAITS_FOR_OTHERS for wait in waits)

    def end_waits(self) -> None:
        """The run stops: let every wait of the attempt raise `WaitEnded`."""
        for wait in self._waits:
            loop = wait.task.get_loop()
            if loop is self._loop:
                self._cancel(wait)
            else:
                loop.call_soon_threadsafe(self._cancel, wait)

    @contextmanager
    def under(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """In the block, the deadline stands still whenever the attempt only waits."""
        self._deadline = deadline
        try:
            yield
        finally:
            self._deadline = None

    # -- counting

    def _begin(self, wait: _Wait) -> None:
        with self._lock:
            self._waits += (wait,)
            waiting = self._run.tally.waiting
            waiting[wait.reason] = waiting.get(wait.reason, 0) + 1
            self._stand_still_or_move_on()

    def _end(self, wait: _Wait) -> None:
        with self._lock:
            self._waits = _without(wait, self._waits)
            self._run.tally.waiting[wait.reason] -= 1
            self._stand_still_or_move_on()

    def _stand_still_or_move_on(self) -> None:
        if self._a_call_works():
            self._move_on()
            return
        for over in self._until_no_call_works:
            if over.set_running_or_notify_cancel():
                over.set_result(None)
        self._until_no_call_works = ()
        if not self._waits:
            self._move_on()
            return
        self._stand_still()
        if self._only_parks():
            # not at once: what the attempt does beside this wait may be about to begin
            self._soon_on_loop(self._lend_slot)

    def _a_call_works(self) -> bool:
        return any(all(wait.task is not task for wait in self._waits) for task in self._calling)

    def _only_parks(self) -> bool:
        return bool(self._waits) and all(wait.turn_ends is not None for wait in self._waits)

    def _stand_still(self) -> None:
        if self._still_since_s is None:
            self._still_since_s = self._loop.time()
            if self._told_still:
                self._on_loop(self._tell_still)
            if self._deadline is not None:
                self._on_loop(self._stop_deadline)

    def _move_on(self) -> None:
        if self._still_since_s is None:
            return
        still_s = self._loop.time() - self._still_since_s
        self._still_since_s = None
        self.stood_still_s += still_s
        if self._told_still:
            self._on_loop(self._tell_still)
        if self._deadline is not None:
            self._on_loop(self._go_on_with_deadline, still_s)

    # -- a stop

    def _refuse(self, awaitable: Awaitable[Any]) -> NoReturn:
        self.wait_ended = True
        close = getattr(awaitable, "close", None)
        if close is not None:
            close()  # a coroutine: or Python warns that it was never awaited
        raise WaitEnded

    def _cancel(self, wait: _Wait) -> None:
        """On the task's own loop: meanwhile it may have been given what it waited for."""
        if wait in self._waits:
            self.wait_ended = True
            wait.task.cancel()

    async def _no_call_works(self) -> None:
        """Who raises now may cancel the attempt's other tasks: a call in flight is paid for, and may end."""
        with self._lock:
            if not self._a_call_works():
                return
            over: Future[None] = Future()
            self._until_no_call_works += (over,)
        await asyncio.wrap_future(over)

    # -- slots and deadlines, on the run's own loop

    def _on_loop(self, act: Callable[..., None], *args: Any) -> None:
        if asyncio._get_running_loop() is self._loop:
            act(*args)
        else:
            self._loop.call_soon_threadsafe(act, *args)

    def _soon_on_loop(self, act: Callable[[], None]) -> None:
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(act)
        else:
            self._loop.call_soon_threadsafe(act)

    def _lend_slot(self) -> None:
        with self._lock:
            lends = self._only_parks() and not self._a_call_works()
            ending = self._waits[-1].turn_ends if lends else None
        if ending is not None:
            self._body.give_slot_back(ending)
            if self.waits_for_others():
                self._rest()

    def _rest(self) -> None:
        if self._run.in_flight is not None and not self._rests:
            self._rests = True
            self._run.in_flight.rests(*self._key())

    def _work_on(self) -> None:
        if self._run.in_flight is not None and self._rests:
            self._rests = False
            self._run.in_flight.begins(*self._key())

    def _key(self) -> tuple[str, int]:
        return self._body.attempt.sample.id, self._body.attempt.repeat

    def _stop_deadline(self) -> None:
        deadline = self._deadline
        if deadline is not None and not deadline.expired():
            self._due_s = deadline.when()
            deadline.reschedule(None)

    def _go_on_with_deadline(self, still_s: float) -> None:
        deadline = self._deadline
        if deadline is not None and self._due_s is not None and not deadline.expired():
            deadline.reschedule(self._due_s + still_s)

    def _tell_still(self) -> None:
        for told in self._told_still:
            told.now(self._still_since_s is not None)

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


def _without(one: T, all_of_them: tuple[T, ...]) -> tuple[T, ...]:
    at = all_of_them.index(one)
    return all_of_them[:at] + all_of_them[at + 1 :]
