"""One event loop on a thread of its own, for callers that cannot await."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import logging
import os
import queue
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from evalve.contracts import SAMPLE, Surroundings

T = TypeVar("T")
Opened = TypeVar("Opened")
Item = TypeVar("Item")

_LOG = logging.getLogger(__name__)
_READ_AHEAD = 16
_LONGEST_STOP_S = 2.0


def _log_failure(done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _LOG.error("work in the background failed", exc_info=error)


class BackgroundLoop:
    """Runs coroutines for other threads; its thread starts with the first of them.

    A coroutine sees the context variables of its caller. The thread is a daemon: what is under way when
    the interpreter ends is cancelled, and gets a moment to clean up.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._inherited: list[asyncio.AbstractEventLoop] = []

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; an interrupted wait cancels it."""
        work = self._work(coroutine)
        try:
            work.begin()
            return work.outcome.result()
        except BaseException:
            work.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """The same without waiting here."""
        work = self._work(coroutine)
        work.begin()
        return work.outcome

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """The same from any thread, this loop's own included, for work whose end nobody waits for."""
        asyncio.run_coroutine_threadsafe(coroutine, self._running_loop()).add_done_callback(_log_failure)

    def open(
        self,
        context: AbstractAsyncContextManager[Opened],
        items: Callable[[Opened], AsyncIterator[Item]],
    ) -> BackgroundStream[Opened, Item]:
        """Enter a context and iterate over what it gives; entered, read and left by one task."""
        flow = _Flow(context, items)
        work = self._work(flow.run())
        try:
            work.begin()
            return BackgroundStream(flow.opened.result(), flow, work)
        except BaseException:
            work.cancel()
            raise

    def _work(self, coroutine: Coroutine[Any, Any, T]) -> _Work[T]:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "a sync call on evalve's background loop would wait for itself; await it there"
            )
        return _Work(self._running_loop(), coroutine)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is not None and self._pid == os.getpid():
            return loop
        with self._starting:
            if self._loop is None or self._pid != os.getpid():
                self._start_thread()
            assert self._loop is not None
            return self._loop

    def _start_thread(self) -> None:
        if self._loop is not None:
            # A fork copied the loop without its thread. It shares its selector with the parent, so closing
            # it would disturb the parent: it is kept, and never touched again.
            self._inherited.append(self._loop)
        elif not self._pid:
            _mind_forks(self)
            atexit.register(self.stop)
        self._pid = os.getpid()
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(loop,), name="evalve-background", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what is under way and end the thread; the next call starts another."""
        with self._starting:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None or self._pid != os.getpid():
                return
            self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_LONGEST_STOP_S)

    def _after_fork(self) -> None:
        self._starting = threading.Lock()  # a thread that does not exist here may have held it


SHARED = BackgroundLoop()
"""The process's own; idle until somebody calls."""


def _mind_forks(background: BackgroundLoop) -> None:
    weak = weakref.ref(background)

    def after_fork() -> None:
        if (alive := weak()) is not None:
            alive._after_fork()

    os.register_at_fork(after_in_child=after_fork)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_wind_up())
        loop.close()


async def _wind_up() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class _Work(Generic[T]):
    """A coroutine handed to the loop.

    Made before anything begins, so that whoever is interrupted while handing it over can still cancel it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self.outcome: Future[T] = Future()

    def begin(self) -> None:
        # scheduled in a copy of this thread's context, which the task inherits
        context = contextvars.copy_context()
        sample = SAMPLE.get()
        if sample is not None and sample.surroundings is not None and asyncio._get_running_loop() is not None:
            keeps_slot = replace(sample, surroundings=KeepsSlot(sample.surroundings))
            context.run(SAMPLE.set, keeps_slot)
        self._loop.call_soon_threadsafe(self._run, context=context)

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs there
            self._loop.call_soon_threadsafe(self._drop)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        _UNDER_WAY.add(self)
        self._task.add_done_callback(self._ended)

    def _drop(self) -> None:
        if self._task is None:
            self._coroutine.close()  # interrupted before it was handed over
        else:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        _UNDER_WAY.discard(self)
        # asyncio's, not that of futures: who waits for it must not take it for an error of the call
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not self.outcome.set_running_or_notify_cancel():
            return  # nobody waits for it any more, and asyncio need not tell of its error
        if error is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


_UNDER_WAY: set[_Work[Any]] = set()
"""A loop does not hold its tasks: one whose end nobody waits for would be collected as garbage."""


class KeepsSlot:
    """The surroundings of a sample that waits here while it may block its own event loop.

    That loop lends slots, and stands still: who gave one back would wait for ever to have it again.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self.parked = self.held = surroundings.held
        self.call_begins = surroundings.call_begins
        self.call_ends = surroundings.call_ends
        self.stop_run = surroundings.stop_run
        self.when_committed = surroundings.when_committed
        self.when_recorded = surroundings.when_recorded
        self.telling_still = surroundings.telling_still
        self.elsewhere = surroundings.elsewhere


class _End:
    """Closes a queue; carries what went wrong."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _Flow(Generic[Opened, Item]):
    """A stream's half on the loop: reads ahead a little, so that a reader does not wait for each item."""

    def __init__(
        self,
        context: AbstractAsyncContextManager[Opened],
        items: Callable[[Opened], AsyncIterator[Item]],
    ) -> None:
        self._context = context
        self._items = items
        self._room = asyncio.Semaphore(_READ_AHEAD)
        self.opened: Future[Opened] = Future()
        self.queue: queue.SimpleQueue[Item | _End] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            async with self._context as opened, _closing(self._items(opened)) as items:
                self.opened.set_result(opened)
                async for item in items:
                    await self._room.acquire()
                    self.queue.put(item)
        except asyncio.CancelledError:
            self._fail(asyncio.CancelledError())
            raise
        except Exception as error:  # raised again where it is waited for
            self._fail(error)
        else:
            self.queue.put(_End())
        finally:
            self.ended.set()

    def _fail(self, error: BaseException) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
        self.queue.put(_End(error))

    def made_room(self) -> None:
        assert self.loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for room
            self.loop.call_soon_threadsafe(self._room.release)


@contextlib.asynccontextmanager
async def _closing(items: AsyncIterator[Item]) -> AsyncIterator[AsyncIterator[Item]]:
    """Not left to the garbage collector, which may come to it when the loop has ended."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


class BackgroundStream(Generic[Opened, Item]):
    """A stream's half in the caller's thread. One that is dropped without `close` is cancelled."""

    def __init__(self, opened: Opened, flow: _Flow[Opened, Item], work: _Work[None]) -> None:
        self.opened = opened
        self._flow = flow
        self._work = work
        weakref.finalize(self, work.cancel).atexit = False

    def __iter__(self) -> Iterator[Item]:
        while True:
            item = self._flow.queue.get()
            if isinstance(item, _End):
                self._flow.queue.put(item)  # for whoever asks again
                if item.error is not None:
                    raise item.error
                return
            self._flow.made_room()
            yield item

    def close(self) -> None:
        """Leave the context, and return when it is left."""
        self._work.cancel()
        self._flow.ended.wait()
