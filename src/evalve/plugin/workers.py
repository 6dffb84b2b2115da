"""Ctrl-C under xdist: the controller passes it on and waits for its workers; they notice when it is gone.

Left to itself, xdist's controller leaves its loop at the first Ctrl-C and kills after ten seconds whatever
still runs; and a terminal interrupts the workers as well, so that nobody could tell a first from a second.
So only the controller counts, and its workers hear from it, over a channel of their own.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from evalve.runner.interruption import main_thread, obeying
from evalve.runner.terminating import taking_gentle

_PATIENCE_S = 10.0
"""How long workers may take to end after they were told to cancel."""
_CANCEL = 2
"""What the second press says. A controller that is gone says the same."""


class Workers:
    """The controller's side: counts the presses, and tells the workers."""

    def __init__(self, *, beginners: int) -> None:
        self._beginners = beginners
        self._channels: list[Any] = []
        self._evaluating: list[object] = []
        self._times = 0
        self._to_tell: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._over = threading.Event()
        threading.Thread(target=self._tell, name="evalve-workers", daemon=True).start()
        is_main = threading.current_thread() is threading.main_thread()
        self._before = signal.signal(signal.SIGINT, self._pressed) if is_main else None
        self._gentle = ExitStack()
        self._gentle.enter_context(taking_gentle(self._asked_to_end))

    def channel_to(self, gateway: Any) -> Any:
        """A channel for a new worker, which is to be sent with its input."""
        channel = gateway.newchannel()
        channel.setcallback(partial(self._heard, channel))
        self._channels.append(channel)
        return channel

    def have_ended(self) -> None:
        """Nothing runs any more; a late press would only hit pytest while it says how to go on."""
        self._over.set()

    def close(self) -> None:
        self._over.set()
        self._to_tell.put(None)
        self._gentle.close()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _heard(self, channel: Any, message: object) -> None:
        self._evaluating.append(message)
        if self._times:  # this worker takes the place of one that has died since
            channel.send(self._times)

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        if self._times == 0:
            self._pressed(number, frame)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        if len(self._evaluating) < self._beginners:
            # until all have collected, none is given anything to run
            if callable(self._before):
                self._before(number, frame)
            return
        if self._over.is_set():
            return
        self._times += 1
        if self._times > _CANCEL:
            self._over.set()
            # pytest ends, and xdist kills the workers that do not
            raise pytest.exit.Exception("interrupted", returncode=int(pytest.ExitCode.INTERRUPTED))
        # nothing is sent from here: the signal may have come in the middle of another message
        self._to_tell.put(self._times)

    def _tell(self) -> None:
        while (times := self._to_tell.get()) is not None:
            for channel in [*self._channels]:
                with suppress(OSError):  # that worker has ended
                    channel.send(times)
            if times == _CANCEL and not self._over.wait(_PATIENCE_S):
                signal.pthread_kill(main_thread(), signal.SIGINT)


class Controller:
    """A worker's side: hears of presses, and of the controller's end."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._times = 0
        self._deaf = False

    @property
    def has_interrupted(self) -> bool:
        return self._times > 0

    @contextmanager
    def obeyed(self) -> Iterator[None]:
        """In the block, Ctrl-C is what the controller says it is."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals do not come here
            return
        with obeying(lambda: self._times):
            self._channel.setcallback(self._heard, endmarker=_CANCEL)
            self._channel.send("evaluates")
            yield

    def have_ended(self) -> None:
        """Nothing runs any more, so there is nothing to interrupt."""
        self._deaf = True

    def _heard(self, times: int) -> None:
        if not self._deaf:
            self._times = times
            signal.pthread_kill(main_thread(), signal.SIGINT)
