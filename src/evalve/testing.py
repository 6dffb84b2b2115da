"""For tests: an event loop whose time is virtual, so that a test of a long wait takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run like `asyncio.run`, on a loop that jumps to its next timer instead of waiting for it."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Every `asyncio.sleep`, timer and timeout on it is over at once, in the right order.

    Threads and sockets still take real time, and virtual time does not wait for them.
    """

    def __init__(self) -> None:
        self._virtual_s = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._virtual_s

    def jump(self, delay_s: float) -> None:
        self._virtual_s += delay_s

    def catch_up(self) -> None:
        """A timer that is over within the clock's resolution is called now: so it is that late.

        A real clock goes on by itself; here two tasks that wait for the same instant would wake each other
        for ever just before it.
        """
        timers = self._scheduled  # type: ignore[attr-defined]
        if timers and timers[0].when() < self._virtual_s + self._clock_resolution:  # type: ignore[attr-defined]
            self._virtual_s = max(self._virtual_s, timers[0].when())


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._virtual_loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._virtual_loop.jump(timeout)
        self._virtual_loop.catch_up()
        return ready
