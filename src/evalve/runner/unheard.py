"""Signals that no handler hears: Python runs it only once the main thread is back from a call into C.

Some calls do not come back for a signal: a database driver that waits, a lock of a library. The signal
itself writes a byte, which a thread reads; where no handler has run a while later, it acts in its place.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

PATIENCE_S = 1.0
"""How long a handler may take to run."""
_SAME_CALL_S = 2.0
"""Python calls a handler once for signals that come together: the second of them was heard as well."""
_END = 0


class Heard(Protocol):
    """What is known of a handler."""

    calls: int
    last_call_s: float


@contextmanager
def overhearing(
    numbers: Collection[int], heard: Heard, take: Callable[[signal.Signals], None]
) -> Iterator[None]:
    """In the block, `take` gets each signal that no handler took, in another thread. For the main thread."""
    if "trio" in sys.modules:  # it listens in the same way, and warns of everybody else
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    listener = _Listener(reading, before, frozenset(numbers), heard, take)
    thread = threading.Thread(target=listener.listen, name="evalve-unheard", daemon=True)
    thread.start()
    try:
        yield
    finally:
        _give_back(writing, before)
        listener.over.set()
        os.write(writing, bytes([_END]))
        thread.join()
        os.close(writing)
        os.close(reading)


def _give_back(ours: int, before: int) -> None:
    """Unless somebody else listens by now; whoever listened before may have gone, as a run beside ours."""
    try:
        now = signal.set_wakeup_fd(before)
    except (OSError, ValueError):
        now = signal.set_wakeup_fd(-1)
    if now != ours:
        signal.set_wakeup_fd(now)


class _Listener:
    def __init__(
        self,
        reading: int,
        others: int,
        numbers: frozenset[int],
        heard: Heard,
        take: Callable[[signal.Signals], None],
    ) -> None:
        self.over = threading.Event()
        self._reading = reading
        self._others = others
        self._numbers = numbers
        self._heard = heard
        self._take = take
        self._calls_before = heard.calls

    def listen(self) -> None:
        while not self.over.is_set():
            came = os.read(self._reading, 64)
            if self._others != -1:
                with suppress(OSError):  # whoever listened before us has gone
                    os.write(self._others, came.rstrip(bytes([_END])))
            for number in came:
                if number in self._numbers and not self.over.wait(PATIENCE_S) and not self._was_heard():
                    self._take(signal.Signals(number))

    def _was_heard(self) -> bool:
        calls, self._calls_before = self._calls_before, self._heard.calls
        return self._heard.calls > calls or time.monotonic() - self._heard.last_call_s < (
            PATIENCE_S + _SAME_CALL_S
        )
