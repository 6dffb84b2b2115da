"""Ctrl-C: the first stops starting and lets what runs end, the second cancels at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from evalve.runner.turns import Turns


@contextmanager
def interruptible(
    turns: Turns, *, tell: Callable[[str], None], blocked: Callable[[], bool]
) -> Iterator[None]:
    """Turn SIGINT into `turns.stop()` and then `turns.cancel()`.

    `blocked` says whether a sync function occupies the loop's thread; then only an exception raised
    from the signal handler reaches it. Outside the main thread signals are not ours to handle.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    pressed = 0

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed == 1:
            loop.call_soon_threadsafe(turns.stop)
            tell("stopping: what is in flight may end and is saved; Ctrl-C again cancels it")
            return
        loop.call_soon_threadsafe(turns.cancel)
        if blocked():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
