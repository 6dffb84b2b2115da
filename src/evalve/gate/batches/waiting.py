"""One call that waits for its batch, and how it is told on its own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from evalve.gate.batches.asked import Delivery

if TYPE_CHECKING:
    from evalve.gate.batches.runs import RunBatches


class Waiter:
    """One call that waits for its batch, on its own loop. There may be ten thousand, so it has little."""

    __slots__ = ("future", "intent", "is_resuming", "run")

    def __init__(self, run: RunBatches, intent: str) -> None:
        self.future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self.run = run
        self.intent = intent
        self.is_resuming = False


def answered_now(run: RunBatches, came: Delivery) -> Waiter:
    waiter = Waiter(run, "")
    waiter.future.set_result(came)
    return waiter


def settle(waiters: Iterable[Waiter], came: Delivery) -> None:
    for waiter in waiters:
        _on_its_loop(waiter, partial(_set_result, waiter.future, came))


def fail(waiters: Iterable[Waiter], error: Exception) -> None:
    for waiter in waiters:
        _on_its_loop(waiter, partial(_set_exception, waiter.future, error))


def _on_its_loop(waiter: Waiter, act: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and nobody waits there
        waiter.future.get_loop().call_soon_threadsafe(act)


def _set_result(future: asyncio.Future[Delivery], came: Delivery) -> None:
    if not future.done():
        future.set_result(came)


def _set_exception(future: asyncio.Future[Delivery], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
