"""Signals whose handler does not run, as where the main thread is inside a call into C."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from evalve.runner import unheard
from evalve.runner.unheard import overhearing


@dataclass
class Handler:
    """Counts its calls; one that is deaf stands for one that does not run."""

    deaf: bool = False
    calls: int = 0
    last_call_s: float = float("-inf")

    def __call__(self, number: int, frame: object) -> None:
        if not self.deaf:
            self.calls, self.last_call_s = self.calls + 1, time.monotonic()


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handler]:
    monkeypatch.setattr(unheard, "PATIENCE_S", 0.01)
    while unheard._IDLE:  # of a run in another test
        unheard._IDLE.pop()._end()
    handler = Handler()
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.signal(number, handler) for number in numbers]
    yield handler
    for number, earlier in zip(numbers, before, strict=True):
        signal.signal(number, earlier)


def test_a_signal_that_no_handler_hears_is_taken_elsewhere(handler: Handler) -> None:
    handler.deaf = True
    taken: queue.SimpleQueue[int] = queue.SimpleQueue()

    with overhearing([signal.SIGUSR1], handler, taken.put):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert taken.get(timeout=30) == signal.SIGUSR1


def test_a_signal_that_its_handler_hears_is_left_to_it(handler: Handler) -> None:
    taken: queue.SimpleQueue[int] = queue.SimpleQueue()

    with overhearing([signal.SIGUSR1, signal.SIGUSR2], handler, taken.put):
        os.kill(os.getpid(), signal.SIGUSR1)
        handler.deaf = True
        os.kill(os.getpid(), signal.SIGUSR2)
        first = taken.get(timeout=30)

    assert (handler.calls, first, taken.empty()) == (1, signal.SIGUSR2, True)


def test_a_signal_that_comes_soon_after_one_that_was_heard_is_taken_if_it_is_not(handler: Handler) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(30)
    before = signal.set_wakeup_fd(ours.fileno())
    taken: queue.SimpleQueue[int] = queue.SimpleQueue()
    try:
        with overhearing([signal.SIGUSR1], handler, taken.put):
            os.kill(os.getpid(), signal.SIGUSR1)
            theirs.recv(1)  # the first was read
            handler.deaf = True
            os.kill(os.getpid(), signal.SIGUSR1)
            assert taken.get(timeout=30) == signal.SIGUSR1
    finally:
        signal.set_wakeup_fd(before)
        ours.close()
        theirs.close()

    assert (handler.calls, taken.empty()) == (1, True)


def test_who_listened_before_hears_of_all_signals_and_is_back_afterwards(handler: Handler) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    before = signal.set_wakeup_fd(ours.fileno())
    try:
        with overhearing([], handler, lambda number: None):
            os.kill(os.getpid(), signal.SIGUSR1)
            theirs.settimeout(30)
            assert theirs.recv(1) == bytes([signal.SIGUSR1])
        assert signal.set_wakeup_fd(before) == ours.fileno()
    finally:
        signal.set_wakeup_fd(before)
        ours.close()
        theirs.close()


def test_whoever_listens_in_the_meantime_is_left_alone(handler: Handler) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    before = signal.set_wakeup_fd(-1)
    try:
        with overhearing([], handler, lambda number: None):
            signal.set_wakeup_fd(ours.fileno())
        assert signal.set_wakeup_fd(before) == ours.fileno()
    finally:
        signal.set_wakeup_fd(before)
        ours.close()
        theirs.close()


def test_runs_that_follow_each_other_share_a_thread_until_a_signal_comes(handler: Handler) -> None:
    def listening() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "evalve-unheard"}

    with overhearing([signal.SIGUSR1], handler, lambda number: None):
        first = listening()
    with overhearing([signal.SIGUSR1], handler, lambda number: None):
        second = listening()
    assert (len(first), second) == (1, first)

    handler.deaf = True
    taken: queue.SimpleQueue[int] = queue.SimpleQueue()
    with overhearing([signal.SIGUSR1], handler, taken.put):
        os.kill(os.getpid(), signal.SIGUSR1)
        taken.get(timeout=30)
    assert listening() == set()


def test_the_thread_ends_where_no_run_follows(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unheard, "_IDLE_S", 0.01)
    with overhearing([signal.SIGUSR1], handler, lambda number: None):
        (thread,) = (one for one in threading.enumerate() if one.name == "evalve-unheard")

    thread.join(30)

    assert not thread.is_alive()
