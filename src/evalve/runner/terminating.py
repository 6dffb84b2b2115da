"""SIGTERM and SIGHUP, which ask a process to end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

GENTLE = (signal.SIGTERM, signal.SIGHUP)
"""What asks a process to end: when it is shut down, or when its terminal is closed."""


class EndsAll:
    """A handler of SIGTERM and SIGHUP between evaluations: raises what ends everything in order."""

    def __init__(self, make_error: Callable[[], BaseException]) -> None:
        self.instead: Callable[[int, FrameType | None], None] | None = None
        """Who gets them while an evaluation runs: setting this costs less than telling the system."""
        self._make_error = make_error
        self._pid = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.instead is not None:
            self.instead(number, frame)
        elif os.getpid() != self._pid:
            die_of(number)
        else:
            raise self._make_error()


@contextmanager
def taking_gentle(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """In the block the handler gets SIGTERM and SIGHUP, where nobody else has said what they mean.

    One that is ignored stays ignored: `nohup` does that.
    """
    before = {}
    between: dict[EndsAll, Callable[[int, FrameType | None], None] | None] = {}
    if threading.current_thread() is threading.main_thread():
        for number in GENTLE:
            now = signal.getsignal(number)
            if isinstance(now, EndsAll):
                between.setdefault(now, now.instead)
                now.instead = handler
            elif now == signal.SIG_DFL:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for ends_all, was_instead in between.items():
            ends_all.instead = was_instead
        for number, was in before.items():
            signal.signal(number, was)


def die_of(number: int) -> None:
    """As if nobody had said anything about the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
