"""Ctrl-C: the first stops starting and lets what runs end, the second cancels at once.

SIGTERM and SIGHUP are like the first. What a cancellation does not reach, because it blocks the event loop,
is ended by an exception after a grace; and where that does not help either, the process is: also where a call
into C does not even let the handler run.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any

from evalve.runner.terminating import GENTLE, die_of, taking_gentle
from evalve.runner.turns import Turns
from evalve.runner.unheard import overhearing
from evalve.runner.watchdog import Watchdog

OnPress = Callable[[int], None]

_LATE_PRESS_S = 3.0
"""How long after an interrupted run a further press is taken for one that was meant for it."""

STUCK_AFTER_S = 5.0
"""How long a cancelled run's loop may stand still before what blocks it is ended by force."""
_LOOK_EVERY_S = 0.2


@contextmanager
def interruptible(
    turns: Turns,
    *,
    tell: Callable[[str], None],
    blocked: Callable[[], bool],
    give_up: Callable[[], None] | None = None,
    under_way: Callable[[], str] = lambda: "",
) -> Iterator[None]:
    """Turn SIGINT into `turns.stop()` and then `turns.cancel()`.

    `blocked` says whether a sync function occupies the loop's thread; then only an exception raised
    from the signal handler reaches it. On a thread where no signals arrive, they are those that
    `forwarding_interrupts` catches for it, if anyone does. `give_up` saves what there is and ends the
    process, or the wait for it; it is called in another thread where the loop cannot be freed. `under_way`
    says what takes long, in words, so that a person can decide whether to wait.
    """
    loop = asyncio.get_running_loop()
    on_main_thread = threading.current_thread() is threading.main_thread()

    def pressed(times: int) -> None:
        if times == 1:
            if blocked():
                turns.end_waits()  # the loop stands still until the function that waits has returned
            loop.call_soon_threadsafe(turns.stop)
            runs = under_way()
            said = "stopping: what is in flight may end and is saved; Ctrl-C again cancels it"
            tell(f"{said}; {runs}" if runs else said)
            return
        guard.begin()
        if not on_main_thread or not blocked() or threading.get_ident() != main_thread():
            loop.call_soon_threadsafe(turns.cancel)
            return
        turns.cancel()  # this is the loop's own thread, inside the function that it waits for
        raise KeyboardInterrupt

    with ExitStack() as stack:
        presses = _FORWARDED.get()
        if presses is None and on_main_thread:
            presses = stack.enter_context(_handling_together())
        presses = presses or _Presses(None)
        # on the loop's own thread, because the loop that would call it stands still
        guard = _Guard(loop, presses, tell, give_up, turns.cancel if on_main_thread else None)
        stack.enter_context(guard)
        stack.enter_context(presses.heard_by(pressed))
        yield


@contextmanager
def forwarding_interrupts() -> Iterator[contextvars.Context]:
    """A context for evaluations, one or several beside each other, whose signals this thread gets."""
    context = contextvars.copy_context()
    if _FORWARDED.get() is not None or threading.current_thread() is not threading.main_thread():
        yield context
        return
    presses = _Presses(None)
    context.run(_FORWARDED.set, presses)
    with _handling(presses):
        yield context


@contextmanager
def obeying(told: Callable[[], int]) -> Iterator[None]:
    """In the block, presses are those that `told` counts; a signal only says that it may have changed.

    For a process whose terminal interrupts it together with the one that it works for.
    """
    presses = _Presses(None, told=told)
    before = signal.signal(signal.SIGINT, presses)
    _FORWARDED.set(presses)
    try:
        with taking_gentle(presses.asked_to_end), _overhearing(presses):
            yield
    finally:
        _FORWARDED.set(None)
        signal.signal(signal.SIGINT, before)


class _Presses:
    """Counts Ctrl-C for whoever listens.

    While nobody does, one that is told interrupts as usual, and of its own the second.
    """

    def __init__(self, on_press: OnPress | None, *, told: Callable[[], int] | None = None) -> None:
        self._listeners: list[OnPress] = [] if on_press is None else [on_press]
        self._told = told
        self._times = 0
        self._pid = os.getpid()
        self.free_loop: Callable[[], None] | None = None
        """Set by a guard before it sends a signal: call it, and raise where the main thread stands."""
        self.watchdog: Watchdog | None = None
        """Who kills a process that no longer hears; not for one that is told of presses."""
        self.calls, self.last_call_s = 0, float("-inf")
        self._taken: set[int] = set()
        """Signals that were acted upon before the handler could run."""

    @property
    def happened(self) -> bool:
        return self._times > 0

    @contextmanager
    def heard_by(self, on_press: OnPress) -> Iterator[None]:
        self._listeners.append(on_press)
        if self._times:
            on_press(self._times)
        try:
            yield
        finally:
            self._listeners.remove(on_press)

    def asked_to_end(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM or SIGHUP: a first press, and never a second."""
        if os.getpid() != self._pid:
            die_of(number)  # a fork of a sample's: whoever terminates it means it
        self.calls, self.last_call_s = self.calls + 1, time.monotonic()
        if self._times == 0:
            self._press()

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.calls, self.last_call_s = self.calls + 1, time.monotonic()
        if self.free_loop is not None:
            free_loop, self.free_loop = self.free_loop, None
            free_loop()
            raise KeyboardInterrupt
        if number in self._taken:
            self._taken.remove(number)
        else:
            self._press()

    def take_unheard(self, number: int) -> None:
        """In another thread: the main thread is inside a call, and will run the handler when it returns."""
        if self._listeners and (number == signal.SIGINT or self._times == 0):
            self._taken.add(number)
            self._press()

    def _press(self) -> None:
        before = self._times
        self._times = before + 1 if self._told is None else self._told()
        if self._times == before:
            return
        if self._listeners:
            self._tell(self._listeners[:])
        elif (before == 0) == (self._told is not None):
            raise KeyboardInterrupt

    def _tell(self, listeners: list[OnPress]) -> None:
        """All of them, also where one raises to end what blocks the loop."""
        if listeners:
            try:
                listeners[0](self._times)
            finally:
                self._tell(listeners[1:])


_FORWARDED: contextvars.ContextVar[_Presses | None] = contextvars.ContextVar("forwarded", default=None)


class _Guard:
    """Looks after a run that was cancelled: frees a loop that stands still, or has the process ended."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        presses: _Presses,
        tell: Callable[[str], None],
        give_up: Callable[[], None] | None,
        free_loop: Callable[[], None] | None,
    ) -> None:
        """`free_loop` is `None` where no exception can: the loop is on a thread that gets no signals."""
        self._free_loop = free_loop
        self._loop = loop
        self._presses = presses
        self._tell = tell
        self._give_up = give_up
        self._over = threading.Event()
        self._has_begun = False
        self._telling = threading.RLock()
        """Or what the watchdog hears last might be that a run is ending which has ended, and it would kill
        whoever comes next. A handler may take it where the main thread has it."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._telling:
            if self._has_begun and self._presses.watchdog is not None:
                self._presses.watchdog.note_rests()

    def begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._is_alive()
            threading.Thread(target=self._look_on, name="evalve-guard", daemon=True).start()

    def _look_on(self) -> None:
        while self._comes_round():
            self._is_alive()
            if self._over.wait(_LOOK_EVERY_S):
                return
        if self._over.is_set():
            return
        if self._free_loop is not None:
            self._tell("something blocks the event loop: it is ended by a KeyboardInterrupt")
            self._presses.free_loop = self._free_loop
            signal.pthread_kill(main_thread(), signal.SIGINT)
            if self._comes_round():
                return
        if not self._over.is_set() and self._give_up is not None:
            self._give_up()

    def _is_alive(self) -> None:
        with self._telling:
            if self._presses.watchdog is not None and not self._over.is_set():
                self._presses.watchdog.note_alive()

    def _comes_round(self) -> bool:
        """Whether the loop takes its turns; also true where it has ended."""
        beat = threading.Event()
        try:
            self._loop.call_soon_threadsafe(beat.set)
        except RuntimeError:
            return True  # closed
        until_s = time.monotonic() + STUCK_AFTER_S
        while not beat.wait(_LOOK_EVERY_S):
            self._is_alive()
            if self._over.is_set():
                return True
            if time.monotonic() > until_s:
                return False
        return True


def main_thread() -> int:
    """Where signals arrive."""
    thread = threading.main_thread().ident
    assert thread is not None
    return thread


@contextmanager
def _handling(presses: _Presses) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, presses)
    try:
        with taking_gentle(presses.asked_to_end), _overhearing(presses, is_watched=True) as watchdog:
            presses.watchdog = watchdog
            yield
    finally:
        presses.watchdog = None
        signal.signal(signal.SIGINT, _late_press(before) if presses.happened else before)


class _Together:
    """The handler of runs that are beside each other on the main thread, in whatever order they end."""

    def __init__(self) -> None:
        self.presses = _Presses(None)
        self.runs = 0
        self.pid = os.getpid()
        self._handling = _handling(self.presses)
        self._handling.__enter__()

    def end(self) -> None:
        self._handling.__exit__(None, None, None)


_TOGETHER: list[_Together] = []
"""One, while any run is under way on the main thread."""


@contextmanager
def _handling_together() -> Iterator[_Presses]:
    """The first run begins to handle signals; the last to end gives them back."""
    if _TOGETHER and _TOGETHER[0].pid != os.getpid():
        _TOGETHER.clear()  # of the process that this one is a fork of
    if not _TOGETHER:
        _TOGETHER.append(_Together())
    together = _TOGETHER[0]
    together.runs += 1
    try:
        yield together.presses
    finally:
        together.runs -= 1
        if not together.runs:
            _TOGETHER.clear()
            together.end()


def _overhearing(presses: _Presses, *, is_watched: bool = False) -> AbstractContextManager[Watchdog | None]:
    return overhearing((signal.SIGINT, *GENTLE), presses, presses.take_unheard, is_watched=is_watched)


def _late_press(before: Any) -> Callable[[int, FrameType | None], None]:
    """Swallows the further presses of a quick hand, which find everything drained and saved.

    Otherwise it would hit whoever is just about to say how to resume: pytest, for one, dies of it.
    """
    ended_s = time.monotonic()

    def handle(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - ended_s <= _LATE_PRESS_S:
            return
        signal.signal(signal.SIGINT, before)
        if callable(before):
            before(number, frame)

    return handle
