"""Signals that no handler hears: Python runs it only once the main thread is back from a call into C.

Some calls do not come back for a signal: a database driver that waits, a lock of a library. The signal
itself writes a byte, which a thread reads; where no handler has run a while later, it acts in its place.
Where not even that thread can run, the watchdog beside the process does.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from evalve.runner.watchdog import Watchdog

PATIENCE_S = 1.0
"""How long a handler may take to run."""
_LATE_S = 0.5
"""A signal is read here no later than so long after its handler has run: earlier calls were for others."""
_IDLE_S = 3.0
"""How long the thread waits for another run before it ends."""
_END = 0


class Heard(Protocol):
    """What is known of a handler."""

    calls: int
    last_call_s: float


@contextmanager
def overhearing(
    numbers: Collection[int],
    heard: Heard,
    take: Callable[[signal.Signals], None],
    *,
    is_watched: bool = False,
) -> Iterator[Watchdog | None]:
    """In the block, `take` gets each signal that no handler took, in another thread. For the main thread.

    `is_watched`: each SIGINT is a Ctrl-C, and a second one kills a process that no longer hears any.
    """
    if "trio" in sys.modules:  # it listens in the same way, and warns of everybody else
        yield None
        return
    ear = _Ear.idle_or_new()
    watchdog = ear.be_watched() if is_watched else None
    before = signal.set_wakeup_fd(ear.writing, warn_on_full_buffer=False)
    ear.listener = _Listener(before, frozenset(numbers), heard, take)
    try:
        yield watchdog
    finally:
        _give_back(ear.writing, before)
        ear.leave()


def _give_back(ours: int, before: int) -> None:
    """Unless somebody else listens by now; whoever listened before may have gone, as a run beside ours."""
    try:
        now = signal.set_wakeup_fd(before)
    except (OSError, ValueError):
        now = signal.set_wakeup_fd(-1)
    if now != ours:
        signal.set_wakeup_fd(now)


class _Ear:
    """A socket and the thread that reads it: one for runs that follow each other, until a signal comes."""

    def __init__(self) -> None:
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        self._reading, self.writing = reading.detach(), writing.detach()
        self._watchdog: Watchdog | None = None
        self.listener: _Listener | None = None
        self._pid = os.getpid()
        self._has_read = False
        """Set before anything is taken out of the socket, so that nothing is in neither."""
        self._thread = threading.Thread(target=self._listen, name="evalve-unheard", daemon=True)
        self._thread.start()

    @classmethod
    def idle_or_new(cls) -> _Ear:
        with suppress(IndexError):
            ear = _IDLE.pop()
            if ear._pid != os.getpid():
                ear._close()  # of the process that this one is a fork of: its thread is there
            elif ear._is_quiet():
                return ear
            else:
                ear._end()
        return cls()

    def be_watched(self) -> Watchdog:
        self._watchdog = self._watchdog or Watchdog(self._reading)
        return self._watchdog

    def leave(self) -> None:
        """It listens for the next run; where a signal came, what is left of it is nobody else's."""
        if self._pid != os.getpid():
            return  # a fork of a sample's: the thread is its parent's
        if self._is_quiet() and not _IDLE:
            self.listener = None
            _IDLE.append(self)
        else:
            self._end()

    def _is_quiet(self) -> bool:
        """Whether no signal has ever come."""
        return not self._has_read and not self._comes(0.0)

    def _end(self) -> None:
        os.write(self.writing, bytes([_END]))
        self._thread.join()
        self._close()

    def _close(self) -> None:
        os.close(self.writing)
        os.close(self._reading)
        if self._watchdog is not None:
            self._watchdog.close() if self._pid == os.getpid() else self._watchdog.forget()

    def _comes(self, within_s: float) -> bool:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        return bool(poll.poll(within_s * 1000))

    def _listen(self) -> None:
        while True:
            listener = self.listener
            due_s = listener.due_s() if listener is not None else None
            if self._comes(_IDLE_S if due_s is None else max(0.0, due_s - time.monotonic())):
                self._has_read = True
                listener, came = self.listener, os.read(self._reading, 64)
                if self._watchdog is not None and signal.SIGINT in came:
                    self._watchdog.note_heard()
                if listener is not None:
                    listener.hear(came.rstrip(bytes([_END])))
                if _END in came:
                    return
            elif listener is not None and due_s is not None:
                calls = listener.calls()
                if not self._comes(0.0):  # each signal of which a handler has run is read by now
                    listener.judge(calls)
            elif self._is_needless():
                self._close()
                return

    def _is_needless(self) -> bool:
        """No run has come for it; from now on none finds it."""
        try:
            _IDLE.remove(self)
        except ValueError:
            return False
        return True


_IDLE: list[_Ear] = []
"""One, between runs. There is no lock, which a fork might inherit locked: each deed here is one step."""


class _Listener:
    """What one run makes of signals."""

    def __init__(
        self,
        others: int,
        numbers: frozenset[int],
        heard: Heard,
        take: Callable[[signal.Signals], None],
    ) -> None:
        self._others = others
        self._numbers = numbers
        self._heard = heard
        self._take = take
        self._waiting: deque[tuple[float, int]] = deque()
        """When each came that nobody has judged, and its number."""
        self._told = heard.calls
        """Calls of the handler that were for signals before these."""

    def calls(self) -> int:
        return self._heard.calls

    def due_s(self) -> float | None:
        return self._waiting[0][0] + PATIENCE_S if self._waiting else None

    def hear(self, came: bytes) -> None:
        """Signals that are read together count once, as Python calls their handler once."""
        if self._others != -1:
            with suppress(OSError):  # whoever listened before us has gone
                os.write(self._others, came)
        now_s = time.monotonic()
        if not self._waiting and self._heard.last_call_s < now_s - _LATE_S:
            self._told = self._heard.calls
        self._waiting.extend((now_s, number) for number in dict.fromkeys(came) if number in self._numbers)

    def judge(self, calls: int) -> None:
        """Take the first that waits, unless a handler has run for it: one for each, or one since it came."""
        came_s, number = self._waiting.popleft()
        is_heard = calls > self._told or self._heard.last_call_s >= came_s
        self._told = min(self._told + 1, calls) if self._waiting else calls
        if not is_heard:
            self._take(signal.Signals(number))
