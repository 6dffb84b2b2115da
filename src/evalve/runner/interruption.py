"""Ctrl-C: the first stops starting and lets what runs end, the second cancels at once."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from evalve.runner.turns import Turns

OnPress = Callable[[int], None]

_LATE_PRESS_S = 1.0
"""How long after an interrupted run a further press is taken for one that was meant for it."""


@contextmanager
def interruptible(
    turns: Turns, *, tell: Callable[[str], None], blocked: Callable[[], bool]
) -> Iterator[None]:
    """Turn SIGINT into `turns.stop()` and then `turns.cancel()`.

    `blocked` says whether a sync function occupies the loop's thread; then only an exception raised
    from the signal handler reaches it. On a thread where no signals arrive, they are those that
    `forwarding_interrupts` catches for it, if anyone does.
    """
    loop = asyncio.get_running_loop()
    on_main_thread = threading.current_thread() is threading.main_thread()

    def pressed(times: int) -> None:
        if times == 1:
            if blocked():
                turns.end_waits()  # the loop stands still until the function that waits has returned
            loop.call_soon_threadsafe(turns.stop)
            tell("stopping: what is in flight may end and is saved; Ctrl-C again cancels it")
            return
        if not blocked():
            loop.call_soon_threadsafe(turns.cancel)
            return
        if on_main_thread:
            turns.cancel()  # this is the loop's own thread, inside the function that it waits for
        raise KeyboardInterrupt

    presses = _FORWARDED.get()
    if presses is not None:
        with presses.heard_by(pressed):
            yield
    elif on_main_thread:
        with _handling(_Presses(pressed)):
            yield
    else:
        yield


@contextmanager
def forwarding_interrupts() -> Iterator[contextvars.Context]:
    """A context for a thread that runs an evaluation while this one waits for it and gets its signals."""
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
        yield
    finally:
        _FORWARDED.set(None)
        signal.signal(signal.SIGINT, before)


class _Presses:
    """Counts Ctrl-C for whoever listens.

    While nobody does, one that is told interrupts as usual, and of its own the second.
    """

    def __init__(self, on_press: OnPress | None, *, told: Callable[[], int] | None = None) -> None:
        self._on_press = on_press
        self._told = told
        self._times = 0

    @property
    def happened(self) -> bool:
        return self._times > 0

    @contextmanager
    def heard_by(self, on_press: OnPress) -> Iterator[None]:
        before, self._on_press = self._on_press, on_press
        if self._times:
            on_press(self._times)
        try:
            yield
        finally:
            self._on_press = before

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        before = self._times
        self._times = before + 1 if self._told is None else self._told()
        if self._times == before:
            return
        if self._on_press is not None:
            self._on_press(self._times)
        elif (before == 0) == (self._told is not None):
            raise KeyboardInterrupt


_FORWARDED: contextvars.ContextVar[_Presses | None] = contextvars.ContextVar("forwarded", default=None)


@contextmanager
def _handling(presses: _Presses) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, presses)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _late_press(before) if presses.happened else before)


def _late_press(before: Any) -> Callable[[int, FrameType | None], None]:
    """Swallows the second press of a quick hand, which finds everything drained and saved.

    Otherwise it would hit whoever is just about to say how to resume: pytest, for one, dies of it.
    """
    ended_s = time.monotonic()

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        if time.monotonic() - ended_s > _LATE_PRESS_S and callable(before):
            before(number, frame)

    return handle
