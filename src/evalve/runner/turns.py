"""Slots and bodies: a strategy's task lends a slot; a body that only waits gives it back.

A body is an attempt in progress. A strategy sees tasks; awaiting one is a turn on a slot, which ends
when the body ends or has to wait. A body that has waited queues for another turn through the same
iterator. Retries, Ctrl-C and strategies that users write all rest on this one mechanism.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal

from evalve.contracts import Strategy, Tally, Task
from evalve.errors import StrategyError
from evalve.runner.plan import Attempt, Plan

Ending = Literal["done", "failed", "waiting", "parked", "cancelled"]
"""How a turn ended. `waiting` is for the next try: one has failed. `parked` says nothing of the kind."""


MOST_PARKED = 10_000
"""How many bodies may be without a slot at once. Each holds its row, its coroutines and its calls: about
10 kB, and more where they are large. Past this, slots stay empty until some of them go on."""


LEAVE_AFTER_S = 6.0
"""How long a cancelled body may take to clean up and to give back what it was lent. A little longer than its
function has (`leaving.AFTER_CANCEL_S`), which is left first."""


class Body:
    """An attempt in progress, and what it may ask of the turns that it is given."""

    __slots__ = (
        "_slots_asked",
        "_turns",
        "attempt",
        "end_waits",
        "expect_end",
        "has_begun",
        "has_slot",
        "takes_loans",
        "task",
        "turn_over",
        "waits_for_others",
    )

    def __init__(self, attempt: Attempt, turns: Turns) -> None:
        self.attempt = attempt
        self.has_begun = False
        self.has_slot = True
        self.takes_loans = False
        """Whether it has not begun yet, because it is about to be lent what it needs."""
        self.end_waits: Callable[[], None] = nothing
        """Called when the run stops: what the body waits for shall not be waited for any longer."""
        self.waits_for_others: Callable[[], bool] = _never
        """Whether all it does is to wait for what others do."""
        self.expect_end: Callable[[], None] = nothing
        """Called when it is cancelled: what does not end within a grace is left behind."""
        self.task: asyncio.Task[None] | None = None
        self.turn_over: asyncio.Future[Ending] | None = None
        self._turns = turns
        self._slots_asked: list[asyncio.Future[None]] = []

    def is_stopping(self) -> bool:
        return self._turns.stopping

    def is_cancelling(self) -> bool:
        """Whether a cancellation was asked for by the run or by whoever runs it, not by the body itself."""
        return self._turns.is_cancelling()

    def stop_run(self, reason: str) -> None:
        self._turns.stop(reason)

    def give_slot_back(self, ending: Ending) -> None:
        """Its turn is over, and it goes on."""
        if self.has_slot and self.task is not None and not self.task.done():
            self.has_slot = False
            self._turns.parked += 1
            if self.takes_loans:
                self._turns.wait_for_loans.add(self)
            self._end_turn(ending)

    def slot(self) -> asyncio.Future[None]:
        """Done when the body has its next turn."""
        if not self._slots_asked:
            self._turns.queue(self)
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots_asked.append(asked)
        return asked

    def take_slot(self) -> None:
        if not self.has_slot:
            self._has_slot_again()
        asked, self._slots_asked = self._slots_asked, []
        for future in asked:
            _set(future)

    def end(self, ending: Ending) -> None:
        self.waits_for_others = _never
        self.end_waits = nothing  # or a circle of references would be left to the garbage collector
        if not self.has_slot:
            self._has_slot_again()
        self._end_turn(ending)

    def _has_slot_again(self) -> None:
        self.has_slot = True
        self._turns.parked -= 1
        self._turns.has_loans(self)

    def _end_turn(self, ending: Ending) -> None:
        if self.turn_over is not None and not self.turn_over.done():
            self.turn_over.set_result(ending)


class Turns:
    """The iterator of tasks that a strategy is given, and the bookkeeping of all bodies."""

    def __init__(
        self,
        plan: Plan,
        drive: Callable[[Body], Awaitable[Ending]],
        tally: Tally,
        *,
        owed: Callable[[], int] = lambda: 0,
        tell_quiet: Callable[[], str] = lambda: "",
    ) -> None:
        """`owed` counts what ended bodies have left to be done before the run is over: their records.

        `tell_quiet` is called when no body works and none can begin: all wait for what comes from outside.
        Where it gives a reason, the run stops.
        """
        self.parked = 0
        """Bodies that are without a slot."""
        self.wait_for_loans: set[Body] = set()
        """Those of them that wait until something is lent to them."""
        self.error: BaseException | None = None
        self.stopping = False
        self.stop_reason = ""
        """Why, where it was not a person who stopped the run."""
        self.left_behind = 0
        """Bodies that did not end although they were cancelled."""
        self.was_cancelled = False
        """Whether bodies were ended before they had ended by themselves."""
        self._plan = plan
        self._drive = drive
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Body] = deque()
        self._unstarted: dict[int, Body] = {}
        self._bodies: set[Body] = set()
        self._owed = owed
        self._tell_quiet = tell_quiet
        self._held_back: Attempt | None = None
        """What waits until it can run alone."""
        self._alone: Body | None = None
        """What runs alone, or did."""
        self._turns_taken = 0
        self._owner: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._hungry: deque[asyncio.Future[None]] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._broke_off: Exception | None = None
        """What ended the dataset before its end."""
        self._ends_with: BaseException | None = None
        """What `run` raises although whatever ran has ended by itself."""

    # -- what the runner calls

    async def run(self, strategy: Strategy) -> None:
        """Hand every attempt to the strategy, again and again while work is owed."""
        self._owner = asyncio.current_task()
        try:
            while not self._is_over() and self.error is None:
                taken_before = self._turns_taken
                await self._round(strategy)
                self._reclaim()
                if self.error is None and (self._ready or not self._is_all_handed_out()):
                    if self._turns_taken == taken_before:
                        name = type(strategy).__name__
                        raise StrategyError(
                            f"{name}.execute() ended without awaiting any task that it was given"
                        )
                elif not self._is_over() and self.error is None:
                    await self._hunger()
        finally:
            await self._close()
        if (error := self.error or self._ends_with) is not None:
            raise error
        if self._broke_off is not None and not self.stopping:
            raise self._broke_off

    async def _round(self, strategy: Strategy) -> None:
        results = strategy.execute(self, None)
        if not hasattr(results, "__aiter__"):
            raise StrategyError(_no_iterator(strategy, results))
        try:
            async for _ in results:
                if self.error is not None:
                    return
        finally:
            if isinstance(results, AsyncGenerator):
                await results.aclose()

    def stop(self, reason: str = "") -> None:
        """Start nothing more; what runs may end, what only waits ends now."""
        self.end_waits()
        self.stop_reason = self.stop_reason or reason
        if self._reading is not None:
            self._reading.cancel()
        self._feed_all()

    def end_waits(self) -> None:
        """The part of stopping that needs no loop; any thread may call it."""
        self.stopping = self._tally.stopping = True
        for body in list(self._bodies):
            body.end_waits()

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = self.was_cancelled = True
            self.stop()
            self._cancel_bodies()

    @property
    def is_reading(self) -> bool:
        """After `run`: an async dataset goes on although it was cancelled."""
        return self._reading is not None

    def is_cancelling(self) -> bool:
        """Whether a cancellation was asked for by the run or by whoever runs it, not by the body itself."""
        return self._cancelled or (self._owner is not None and self._owner.cancelling() > 0)

    def fail(self, error: BaseException) -> None:
        """End the whole run with this error."""
        if self.error is None:
            self.error = error
        self.cancel()

    def end_with(self, error: BaseException) -> bool:
        """Stop, and raise this when what runs has ended: its calls are paid for. Whether it is the first."""
        is_first = self._ends_with is None
        if is_first:
            self._ends_with = error
            self.stop()
        return is_first

    def recheck(self) -> None:
        """Something that was owed is done."""
        if self._is_over() or self._held_back is not None or (self._cancelled and not self._owed()):
            self._feed_all()

    def has_loans(self, body: Body) -> None:
        """It does not wait for them any longer, whatever has become of it."""
        if body in self.wait_for_loans:
            self.wait_for_loans.discard(body)
            self._feed(1)  # another one may begin to wait

    def queue(self, body: Body) -> None:
        """The body wants another turn."""
        self._ready.append(body)
        self._feed_all()

    # -- what a strategy calls

    def __aiter__(self) -> Turns:
        return self

    async def __anext__(self) -> Task:
        while True:
            body = self._next_body()
            if body is not None:
                self._unstarted[id(body)] = body
                return lambda: self._turn(body)
            if self.error is not None or self._is_over():
                raise StopAsyncIteration
            if self._unstarted and self._reading is None:
                await asyncio.sleep(0)  # a task that the strategy just made starts now
                if self._unstarted and not self._ready:
                    # the strategy collects first: let it run what it has
                    raise StopAsyncIteration
                continue
            await self._hunger()

    def _next_body(self) -> Body | None:
        if self._ready:
            return self._ready.popleft()
        if self.stopping or self.parked >= MOST_PARKED:
            return None
        if self._reading is None and self._plan.needs_rows():
            self._reading = self._loop.create_task(self._read())
        alone = self._alone
        if alone is not None and alone in self._bodies and not alone.waits_for_others():
            return None
        attempt = self._held_back or self._plan.take()
        if attempt is None:
            return None
        if self._has_enough_waiting(attempt):
            self._held_back = attempt
            return None
        if attempt.runs_alone and (self._somebody_works() or self._owed()):  # what is done is saved before
            self._held_back = attempt
            return None
        self._held_back = None
        body = Body(attempt, self)
        self._alone = body if attempt.runs_alone else None
        self._bodies.add(body)
        return body

    def _has_enough_waiting(self, attempt: Attempt) -> bool:
        """Whether whoever begins now would only be one more to wait until something is lent to it.

        As many may wait as have ever run at once. In a lane it is the next one that makes an end of what the
        lane has, so it is not kept from beginning.
        """
        return attempt.lane is None and len(self.wait_for_loans) >= max(1, self._tally.peak_in_flight)

    async def _read(self) -> None:
        try:
            await self._plan.refill(at_most=self._tally.in_flight + len(self._hungry) + 1)
            self._tally.total = self._plan.total
            self._tally.skipped = self._plan.skipped
        except asyncio.CancelledError:
            if not self.stopping:
                raise
        except Exception as error:  # what was read before runs to its end, and then `run` raises it
            self._broke_off = error
            self._plan.break_off()
        except BaseException as error:  # whatever it is, `run` raises it
            self.fail(error)
        finally:
            self._reading = None
            # one more than there are rows: it finds none and reads on
            self._feed(self._plan.waiting + 1 if self._plan.waiting else len(self._hungry))

    async def _turn(self, body: Body) -> Ending:
        if self._unstarted.pop(id(body), None) is None:
            self.fail(StrategyError("the concurrency strategy awaited the same task twice"))
            return "cancelled"
        if self.stopping if body.task is None else body.task.done():
            self._drop(body)
            return "cancelled"
        self._turns_taken += 1
        tally = self._tally
        tally.in_flight += 1
        if tally.in_flight > tally.peak_in_flight:
            tally.peak_in_flight = tally.in_flight
        over: asyncio.Future[Ending] = self._loop.create_future()
        body.turn_over = over
        if body.task is None:
            body.task = self._loop.create_task(self._live(body))
        else:
            body.take_slot()
        try:
            return await over
        finally:
            tally.in_flight -= 1

    async def _live(self, body: Body) -> None:
        ending: Ending = "cancelled"
        body.has_begun = True
        try:
            if not self._cancelled:
                ending = await self._drive(body)
        except asyncio.CancelledError:
            if self.error is None and not self.stopping:
                raise
        except GeneratorExit:
            raise  # the loop is gone, and nobody waits any more
        except BaseException as error:  # whatever it is, `run` raises it
            self.fail(error)
        finally:
            self._bodies.discard(body)
            was_parked = not body.has_slot
            if body.attempt.lane is not None and self._plan.ended(body.attempt):
                self._feed(1)
            body.end(ending)
            if self._is_over() or self._held_back is not None or body is self._alone:
                self._feed_all()
            elif was_parked:
                self._feed(1)  # there may be room for another

    # -- bookkeeping

    def _is_over(self) -> bool:
        return not self._bodies and not self._owed() and self._is_all_handed_out()

    def _is_all_handed_out(self) -> bool:
        return self.stopping or (self._plan.is_over and self._held_back is None)

    def _reclaim(self) -> None:
        """Take back the tasks that a strategy took and never awaited."""
        for body in self._unstarted.values():
            if self.stopping and body.task is None:
                self._drop(body)
            else:
                self._ready.append(body)
        self._unstarted.clear()

    def _drop(self, body: Body) -> None:
        self._bodies.discard(body)
        if self._is_over() or self._held_back is not None or body is self._alone:
            self._feed_all()

    def _somebody_works(self) -> bool:
        """Who waits for a batch does nothing that could harm or be harmed."""
        return any(not body.waits_for_others() for body in self._bodies)

    def _is_quiet(self) -> bool:
        """Asked when a strategy wants a body and there is none; then mostly somebody has a slot."""
        return (
            not self._tally.in_flight
            and not self._unstarted
            and self._reading is None
            and bool(self._bodies)
            and all(body.waits_for_others() for body in self._bodies)
        )

    async def _hunger(self) -> None:
        """Wait until there may be a body, or the end."""
        if self._is_quiet() and (reason := self._tell_quiet()):
            self.stop(reason)
        fed = self._loop.create_future()
        self._hungry.append(fed)
        await fed

    def _feed(self, most: int) -> None:
        while self._hungry and most > 0:
            fed = self._hungry.popleft()
            if not fed.done():
                fed.set_result(None)
                most -= 1

    def _feed_all(self) -> None:
        self._feed(len(self._hungry))

    async def _close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if not self._cancelled:
            self._cancelled = True
            self._cancel_bodies()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=LEAVE_AFTER_S)
            self._leave_bodies()
        while self._owed() and self.error is None:
            await self._hunger()

    def _cancel_bodies(self) -> None:
        """Once: a second time would hit what they do to give back what they were lent."""
        for body in list(self._bodies):
            if body.has_begun and body.task is not None:  # one that has not sees it when it begins
                body.task.cancel()
                body.expect_end()
        if self._bodies:
            self._loop.call_later(LEAVE_AFTER_S, self._leave_bodies)

    def _leave_bodies(self) -> None:
        """They have not ended although they were cancelled: nobody waits for them any longer."""
        for body in list(self._bodies):
            self._bodies.discard(body)
            self.left_behind += 1
            body.end("cancelled")
        self._feed_all()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [body.task for body in self._bodies if body.task is not None]


def _no_iterator(strategy: Strategy, returned: object) -> str:
    close = getattr(returned, "close", None)
    if callable(close):
        close()  # a coroutine: or Python warns later, far from here, that it was never awaited
    return (
        f"{type(strategy).__name__}.execute() returned a {type(returned).__name__}, where an async "
        "iterator is needed: write it as `async def` and `yield` each task's result"
    )


def nothing() -> None: ...


def _never() -> bool:
    return False


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
