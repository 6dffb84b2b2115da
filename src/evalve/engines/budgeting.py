"""The budget of a run whose calls are made in worker processes: it stays with the parent, whom they ask.

A share for each worker would be spent by one and left over by another, and a worker that takes the place of a
dead one would have it again.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from evalve.contracts import CallLog, SampleContext
from evalve.engines.channel import Channel
from evalve.engines.crossing import Release, Reserve, Reserved, Unread, Withdraw


class ParentsBudget:
    """A worker's half: the gate's budget there. What the gate sets aside for a call travels as it is."""

    def __init__(
        self, channel: Channel, limit_usd: float, under_way: Callable[[], tuple[int, CallLog] | None]
    ) -> None:
        """`under_way` is the number of the work that is done now, and what its calls came to."""
        self.limit_usd: float | None = limit_usd
        self._channel = channel
        self._under_way = under_way
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Future[None]] = {}
        self._held: dict[int, tuple[int, CallLog, Any]] = {}
        """By identity: for which work, its calls, what is set aside."""

    async def reserve(self, look_ahead: Callable[[], Any]) -> Any:
        ahead, work = look_ahead(), self._under_way()
        if work is None:
            return ahead  # of no sample, so that nobody would count it
        told: Future[None] = Future()
        with self._lock:
            number = next(self._numbers)
            self._asked[number] = told
        self._channel.send(Reserve(work[0], number, ahead))
        try:
            await asyncio.wrap_future(told)
        except asyncio.CancelledError:
            self._channel.send(Withdraw(work[0], number))
            raise
        finally:
            with self._lock:
                del self._asked[number]
        with self._lock:
            self._held[id(ahead)] = (*work, ahead)
        return ahead

    def reserve_now(self, ahead: Any) -> bool:
        return False

    def release(self, ahead: Any, *, is_unknown: bool = False) -> None:
        with self._lock:
            work, calls, _ = self._held.pop(id(ahead), (None, None, None))
        if work is not None and calls is not None:
            self._channel.send(Release(work, ahead, is_unknown, calls))

    def stand_still(self, ahead: Any) -> None:
        self._tell(ahead, is_unread=True)

    def go_on(self, ahead: Any) -> None:
        self._tell(ahead, is_unread=False)

    def used_usd(self) -> float:
        """Known to the parent alone."""
        return 0.0

    def take(self, message: Reserved) -> None:
        """On the thread that listens."""
        with self._lock:
            told = self._asked.get(message.number)
        if told is None or not told.set_running_or_notify_cancel():
            return
        if message.refusal is None:
            told.set_result(None)
        else:
            told.set_exception(message.refusal)

    def _tell(self, ahead: Any, *, is_unread: bool) -> None:
        with self._lock:
            held = self._held.get(id(ahead))
        if held is not None:
            self._channel.send(Unread(held[0], ahead, is_unread))


class WorkersSpending:
    """The parent's half, for one try of a sample."""

    def __init__(self, context: SampleContext, tell: Callable[[Any], None]) -> None:
        self._account = context.account
        self._tell = tell
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._granted: dict[int, Any] = {}
        self._held: list[Any] = []
        self._unread: list[Any] = []

    def take(self, message: Reserve | Withdraw | Release | Unread) -> None:
        if isinstance(message, Reserve):
            task = asyncio.get_running_loop().create_task(self._reserve(message))
            self._asking[message.number] = task
        elif isinstance(message, Withdraw):
            self._withdraw(message.number)
        elif isinstance(message, Release):
            self._release(message.ahead, is_unknown=message.is_unknown)
        elif message.is_unread:
            self._unread.append(message.ahead)
            self._account.budget.stand_still(message.ahead)
        else:
            self._unread.remove(message.ahead)
            self._account.budget.go_on(message.ahead)

    async def end(self) -> None:
        """What the worker did not give back may have been spent: it was killed, or left a stream open."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for ahead in list(self._held):
            self._release(ahead, is_unknown=True)

    async def _reserve(self, message: Reserve) -> None:
        refusal = None
        try:
            if self._account is not None:
                await self._account.budget.reserve(lambda: message.ahead)
                self._held.append(message.ahead)
                self._granted[message.number] = message.ahead
        except Exception as error:  # that the budget is spent, for the worker to raise
            refusal = error
        self._tell(Reserved(message.work, message.number, refusal))

    def _withdraw(self, number: int) -> None:
        """It waits no longer, perhaps just when it was granted."""
        self._asking[number].cancel()
        if number in self._granted:
            self._release(self._granted[number], is_unknown=False)

    def _release(self, ahead: Any, *, is_unknown: bool) -> None:
        if ahead in self._held:
            self._held.remove(ahead)
            if ahead in self._unread:
                self._unread.remove(ahead)
                self._account.budget.go_on(ahead)
            self._account.budget.release(ahead, is_unknown=is_unknown)
