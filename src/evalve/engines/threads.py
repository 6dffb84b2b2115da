"""A sync function in threads of this process, beside each other."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
from collections.abc import Callable
from typing import Any

from evalve.contracts import SampleContext

Work = Callable[[], Callable[[], None]]
"""Runs a function, and returns what hands its answer over."""


class ThreadEngine:
    """As many threads as there are calls at once.

    They are daemons: a cancelled run does not wait for a function that never returns.
    """

    lends_slots = True
    may_block_loop = False
    leaves_behind = "its thread was left behind and goes on until the function returns"

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def start(self) -> None: ...

    async def call(self, values: dict[str, Any], context: SampleContext) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        variables = contextvars.copy_context()

        def work() -> Callable[[], None]:
            try:
                value, error = variables.run(self._function, **values), None
            except BaseException as raised:  # carried to the awaiting side, which knows what to do with it
                value, error = None, raised
            return functools.partial(_deliver, loop, answer, value, error)

        self._hand_over(work)
        return await answer

    def occupies_loop(self) -> bool:
        return False

    def close(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)

    def _hand_over(self, work: Work) -> None:
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._threads += 1
                threading.Thread(
                    target=self._serve, name=f"evalve-sample-{self._threads}", daemon=True
                ).start()
        self._work.put(work)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            deliver = work()
            with self._lock:
                self._idle += 1  # before anyone hears the answer, who may have the next call ready
            deliver()


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
