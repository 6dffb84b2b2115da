"""Writes to the cache in groups: whatever is queued goes into one transaction, and who waits is told.

Orders are carried out in the order in which they were given; a whole process has one queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from evalve.gate.cache.file import CacheFile

_LOG = logging.getLogger(__name__)
_AT_MOST = 256
_LOOKS, _LOOKS_EVERY_S = 4, 0.25
"""For so long whoever gives an order waits for it: meanwhile the time of a sample passes. In pieces, or a
loop that stood still for a second would be taken for a cache that is locked."""

T_co = TypeVar("T_co", covariant=True)


class Order(Protocol[T_co]):
    """Something to do to the database. Both halves may be called again after a failure."""

    def prepare(self) -> None:
        """What needs no lock."""

    def apply(self, connection: sqlite3.Connection) -> T_co: ...


class Writer(Protocol):
    """Takes orders from any thread and loop."""

    async def do(self, order: Order[T_co]) -> T_co | None:
        """What the order gave, once it is committed; `None` where the cache cannot be written soon.

        Neither giving up nor cancelling the wait cancels the order.
        """

    def post(self, order: Order[object]) -> None:
        """The same, without waiting."""

    def flush(self) -> None:
        """Return when every order given before is done."""

    def close(self) -> None: ...


class InlineWriter:
    """Writes at once, on the caller's thread: for loops whose time is virtual, which wait for no thread."""

    def __init__(self, file: CacheFile) -> None:
        self._file = file
        self._busy = threading.RLock()
        self._posted: deque[Order[object]] = deque()
        self._depth = 0

    async def do(self, order: Order[T_co]) -> T_co | None:
        return self.carry_out(order)  # type: ignore[no-any-return]  # what `apply` gave

    def post(self, order: Order[object]) -> None:
        with self._busy:
            self._posted.append(order)
            if self._depth == 0:  # else an order has given an order: it comes after it
                self.carry_out(self._posted.popleft())

    def flush(self) -> None:
        """Nothing is ever waiting."""

    def close(self) -> None:
        """Nothing is ever waiting."""

    def carry_out(self, order: Order[object]) -> Any:
        """What the order gave; `None` where the cache cannot be written."""
        with self._busy:
            self._depth += 1
            try:
                (given,) = committed(self._file, [order])
                while self._posted and self._depth == 1:
                    committed(self._file, [self._posted.popleft()])
            finally:
                self._depth -= 1
        return given


class ThreadWriter:
    """Writes on one thread of its own, which starts with the first order."""

    def __init__(self, file: CacheFile) -> None:
        self._file = file
        self._starting = threading.Lock()
        self._made_by = os.getpid()
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._gathering = threading.Lock()
        self._gathered: list[_Asked] = []
        self._gathered_by: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False

    async def do(self, order: Order[T_co]) -> T_co | None:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T_co | None] = loop.create_future()
        if not self._put(_Asked(order, loop, told)):
            return None
        for _ in range(_LOOKS):
            if (await asyncio.wait((told,), timeout=_LOOKS_EVERY_S))[0]:
                return told.result()
        self._file.warn_of_waiting()
        return None

    def post(self, order: Order[object]) -> None:
        self._put(_Asked(order, None, None))

    def flush(self) -> None:
        if self._pid == os.getpid() and self._thread is not threading.current_thread():
            reached = threading.Event()
            self._hand_over()
            self._queue.put(reached)
            reached.wait()

    def close(self) -> None:
        with self._starting:
            self._closed = True
            if self._pid == os.getpid() and self._thread is not None:
                self._hand_over()
                self._queue.put(None)
                self._thread.join()
            self._pid = 0
            self._hand_over()
            self._refuse_the_late()

    def _refuse_the_late(self) -> None:
        """Nobody may wait for ever for an order that came while the door was closing."""
        while not self._queue.empty():
            item = self._queue.get_nowait()
            if isinstance(item, list):
                _tell(item, [None] * len(item))
            elif item is not None:
                item.set()

    def _put(self, asked: _Asked) -> bool:
        """Hand it over with whatever else comes in this turn of the loop: waking the thread for each of a
        call's orders, and contending with it for the interpreter, took 25 µs a call."""
        if self._pid != os.getpid() and not self._started():
            return False
        loop = _running_loop()
        with self._gathering:
            self._gathered.append(asked)
            if loop is not None and self._gathered_by is None:
                self._gathered_by = loop
                loop.call_soon(self._hand_over)
            waits = loop is not None and loop is self._gathered_by
        if not waits:
            self._hand_over()  # not to depend on another thread's loop, which may be busy
        return True

    def _hand_over(self) -> None:
        with self._gathering:
            gathered, self._gathered, self._gathered_by = self._gathered, [], None
            if gathered:
                self._queue.put(gathered)

    def _started(self) -> bool:
        if self._made_by != os.getpid():  # a forked child may have got the lock while it was held
            self._starting, self._made_by = threading.Lock(), os.getpid()
            self._gathering, self._gathered, self._gathered_by = threading.Lock(), [], None
        with self._starting:
            if not self._closed and self._pid != os.getpid():
                self._queue = SimpleQueue()  # a forked child must not write what its parent has queued
                self._thread = threading.Thread(
                    target=_serve, args=(self._queue, self._file), name="evalve-cache", daemon=True
                )
                self._thread.start()
                self._pid = os.getpid()
            return not self._closed


@dataclass(slots=True)  # not frozen: there is one for every call, and freezing triples its cost
class _Asked:
    order: Order[Any]
    loop: asyncio.AbstractEventLoop | None
    told: asyncio.Future[Any] | None


_Item = list[_Asked] | threading.Event | None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _serve(queue: SimpleQueue[_Item], file: CacheFile) -> None:
    while (item := queue.get()) is not None:
        group: list[_Asked] = []
        while isinstance(item, list):
            group += item
            if len(group) >= _AT_MOST:
                break
            try:
                item = queue.get_nowait()
            except Empty:
                break
        if group:
            _tell(group, committed(file, [asked.order for asked in group]))
        if isinstance(item, threading.Event):
            item.set()
        elif item is None:
            return


def committed(file: CacheFile, orders: Sequence[Order[Any]]) -> list[Any]:
    """What each order gave. One transaction for all; where one of them is to blame, one for each."""
    try:
        return _transacted(file, orders)
    except sqlite3.OperationalError:  # locked, full, read-only: the next would fare no better
        return [None] * len(orders)
    except Exception:  # also a damaged file, which has been replaced by now
        return [_committed_alone(file, order) for order in orders]


def _committed_alone(file: CacheFile, order: Order[Any]) -> Any:
    try:
        return _transacted(file, [order])[0]
    except Exception as error:  # the boundary of a transaction: the next one may succeed
        file.warn(f"order {type(error).__name__}", f"something was not written: {error}")
        return None


def _transacted(file: CacheFile, orders: Sequence[Order[Any]]) -> list[Any]:
    for order in orders:
        order.prepare()
    with file.writing() as connection:
        if connection is None:
            return [None] * len(orders)
        return [order.apply(connection) for order in orders]


def _tell(group: Sequence[_Asked], given: Sequence[Any]) -> None:
    """One call per loop, however many wait on it: waking a loop costs more than a row."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for asked, value in zip(group, given, strict=True):
        if asked.loop is not None and asked.told is not None:
            by_loop.setdefault(asked.loop, []).append((asked.told, value))
    for loop, answers in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, answers)
        except RuntimeError:  # the loop is closed: nobody waits any more
            _LOG.debug("%d answers came after their loop was closed", len(answers))


def _settle(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for told, value in answers:
        if not told.done():
            told.set_result(value)
