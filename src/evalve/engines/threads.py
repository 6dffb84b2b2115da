"""A sync function in threads of this process, beside each other."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from evalve.contracts import SampleContext

Work = Callable[[], bool]
"""Runs a function and hands its answer over; whether the thread goes on to serve."""


_IDLE_S = 1.0
"""How long a thread that no engine has waits for another one before it ends."""


class ThreadEngine:
    """As many threads as there are calls at once.

    They are daemons: a cancelled run does not wait for a function that never returns.
    """

    lends_slots = True
    may_block_loop = False
    leaves_behind = "its thread was left behind and goes on until the function returns"

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._free: list[_Thread] = []
        self._is_closed = False

    async def start(self) -> None: ...

    async def call(self, values: dict[str, Any], context: SampleContext) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        variables = contextvars.copy_context()
        with self._lock:
            thread = self._free.pop() if self._free else _Thread.idle_or_new()

        def work() -> bool:
            try:
                value, error = variables.run(self._function, **values), None
            except BaseException as raised:  # carried to the awaiting side, which knows what to do with it
                value, error = None, raised
            stays = self._takes_back(thread)
            _deliver(loop, answer, value, error)
            return stays

        thread.give(work)
        return await answer

    def occupies_loop(self) -> bool:
        return False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            _IDLE.extend(self._free)
            self._free.clear()

    def _takes_back(self, thread: _Thread) -> bool:
        """Before anyone hears the answer, who may have the next call ready."""
        with self._lock:
            if not self._is_closed:
                self._free.append(thread)
            return not self._is_closed


class _Thread:
    """A thread for the samples of one engine after another: starting one costs more than a small run."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._pid = os.getpid()
        thread = threading.Thread(
            target=self._serve, name=f"evalve-sample-{next(self._numbers)}", daemon=True
        )
        contextvars.Context().run(thread.start)  # it is not the first sample's alone

    @classmethod
    def idle_or_new(cls) -> _Thread:
        with suppress(IndexError):
            while True:
                thread = _IDLE.pop()
                if thread._pid == os.getpid():  # else of the process that this one is a fork of
                    return thread
        return cls()

    def give(self, work: Work) -> None:
        self._work.put(work)

    def _serve(self) -> None:
        stays = True
        while stays:
            try:
                work = self._work.get(timeout=_IDLE_S)
            except queue.Empty:
                stays = not self._is_needless()
            else:
                stays = work()
                del work  # or it would hold what the sample had

    def _is_needless(self) -> bool:
        """No engine has come for it; from now on none finds it."""
        try:
            _IDLE.remove(self)
        except ValueError:
            return False
        return True


_IDLE: list[_Thread] = []
"""Those that no engine has. There is no lock, which a fork might inherit locked: each deed is one step."""


def _deliver(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], value: Any, error: BaseException | None
) -> None:
    try:
        loop.call_soon_threadsafe(_settle, answer, value, error)
    except RuntimeError:
        pass  # the loop is closed: the run was cancelled and nobody waits


def _settle(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    elif isinstance(error, StopIteration):
        answer.set_exception(RuntimeError(f"the evaluation raised StopIteration: {error}"))
    else:
        answer.set_exception(error)
