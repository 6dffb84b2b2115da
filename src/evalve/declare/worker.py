"""A thread of one's own for code that may block or belongs to the thread that it started on."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

CLOSE_WITHIN_S = 2.0
"""How long a generator's own cleaning up is waited for."""

_logger = logging.getLogger(__name__)


class SourceBroke(Exception):
    """The person's own code raised while rows were read: the cause is theirs."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Worker:
    """One daemon thread that runs functions one after another, in the context of whoever asked first.

    It starts with the first function, and ends when stopped or when nobody holds it any more.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    async def run(self, function: Callable[[], Any]) -> Any:
        """What the function returns; what it raises comes as `SourceBroke`."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        if self._thread is None:
            self._start()
        self._idle.clear()
        self._jobs.put((function, loop, done))
        return await done

    async def stop(self, last: Callable[[], None] = lambda: None) -> None:
        """End the thread after a last function, without waiting for one that is blocked in its work."""
        if self._thread is None or self._stopped:
            return
        self._stopped = True
        if self._idle.is_set():
            try:
                async with asyncio.timeout(CLOSE_WITHIN_S):
                    await self.run(last)
            except TimeoutError:
                _logger.warning("%s takes long to close; its thread is left to it", self._name)
        else:
            loop = asyncio.get_running_loop()
            self._jobs.put((last, loop, loop.create_future()))
        self._jobs.put(None)

    def _start(self) -> None:
        context = contextvars.copy_context()
        # The thread holds the queue but not the worker, so that an abandoned worker can be collected.
        self._thread = threading.Thread(
            target=context.run, args=(_work, self._jobs, self._idle), name=self._name, daemon=True
        )
        self._thread.start()
        weakref.finalize(self, self._jobs.put, None)


_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


def _work(jobs: queue.SimpleQueue[_Job | None], idle: threading.Event) -> None:
    while (job := jobs.get()) is not None:
        function, loop, done = job
        result, broke = None, None
        try:
            result = function()
        except BaseException as error:  # whatever it is, the loop must hear of it, not wait for ever
            broke = SourceBroke(error)
        del job, function  # before anybody is told: an idle thread keeps nothing alive
        idle.set()
        try:
            loop.call_soon_threadsafe(_settle, done, result, broke)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more
        del loop, done, result, broke


def _settle(done: asyncio.Future[Any], result: Any, broke: SourceBroke | None) -> None:
    if done.done():
        return  # its owner was cancelled
    if broke is not None:
        done.set_exception(broke)
    else:
        done.set_result(result)
