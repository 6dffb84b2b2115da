"""Ctrl-C, as far as it needs no signal from outside: the handler is called as Python would."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evalve.runner.interruption import _Guard, _Presses, forwarding_interrupts, interruptible, obeying
from evalve.runner.turns import Turns
from evalve.runner.watchdog import Watchdog


class RecordingTurns:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def stop(self) -> None:
        self.asked.append("stop")

    def end_waits(self) -> None:
        self.asked.append("end waits")

    def cancel(self) -> None:
        self.asked.append("cancel")


def _press() -> None:
    handler = cast("Callable[[int, Any], None]", signal.getsignal(signal.SIGINT))
    handler(signal.SIGINT, None)


def _turns() -> tuple[RecordingTurns, Turns]:
    recording = RecordingTurns()
    return recording, cast(Turns, recording)


async def test_the_first_press_stops_and_says_so() -> None:
    recording, turns = _turns()
    said: list[str] = []

    with interruptible(turns, tell=said.append, blocked=lambda: False):
        _press()
        await asyncio.sleep(0)

    assert recording.asked == ["stop"]
    assert said == ["stopping: what is in flight may end and is saved; Ctrl-C again cancels it"]


async def test_runs_beside_each_other_all_hear_it() -> None:
    (first, first_turns), (second, second_turns) = _turns(), _turns()

    with (
        interruptible(first_turns, tell=lambda text: None, blocked=lambda: False),
        interruptible(second_turns, tell=lambda text: None, blocked=lambda: False),
    ):
        _press()
        await asyncio.sleep(0)

    assert first.asked == second.asked == ["stop"]


async def test_runs_beside_each_other_give_the_signal_back_in_whatever_order_they_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    first, second = ExitStack(), ExitStack()

    for stack in (first, second):
        stack.enter_context(interruptible(_turns()[1], tell=lambda text: None, blocked=lambda: False))
    first.close()
    assert signal.getsignal(signal.SIGINT) is not before
    second.close()

    assert signal.getsignal(signal.SIGINT) is before


async def test_the_second_press_cancels() -> None:
    recording, turns = _turns()
    said: list[str] = []

    with interruptible(turns, tell=said.append, blocked=lambda: False):
        _press()
        _press()
        await asyncio.sleep(0)

    assert (recording.asked, len(said)) == (["stop", "cancel"], 1)


class SlowWatchdog:
    """Takes so long to hear that a run is ending that the run has ended by then."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.hears, self.rests = threading.Event(), threading.Event()

    def note_alive(self) -> None:
        self.hears.set()
        self.rests.wait(0.1)
        self.told.append("alive")

    def note_rests(self) -> None:
        self.told.append("rests")
        self.rests.set()


async def test_the_last_that_a_watchdog_hears_of_a_run_is_that_it_has_ended() -> None:
    watchdog = SlowWatchdog()
    presses = _Presses(None)
    presses.watchdog = cast(Watchdog, watchdog)
    guard = _Guard(asyncio.get_running_loop(), presses, lambda text: None, None, None)

    with guard:
        begins = threading.Thread(target=guard.begin)
        begins.start()
        watchdog.hears.wait()
    begins.join()

    assert watchdog.told == ["alive", "rests"]


async def test_the_second_press_raises_where_a_sync_function_blocks_the_loop() -> None:
    recording, turns = _turns()

    with interruptible(turns, tell=lambda text: None, blocked=lambda: True):
        _press()
        with pytest.raises(KeyboardInterrupt):
            _press()
        asked_at_once = list(recording.asked)
        await asyncio.sleep(0)

    assert asked_at_once == ["end waits", "cancel"]


async def test_the_first_press_ends_waits_at_once_where_a_sync_function_blocks_the_loop() -> None:
    recording, turns = _turns()

    with interruptible(turns, tell=lambda text: None, blocked=lambda: True):
        _press()
        asked_at_once = list(recording.asked)
        await asyncio.sleep(0)

    assert (asked_at_once, recording.asked) == (["end waits"], ["end waits", "stop"])


async def test_the_handler_of_before_is_back_afterwards() -> None:
    _, turns = _turns()
    before = signal.getsignal(signal.SIGINT)

    with (
        pytest.raises(ValueError, match="no"),
        interruptible(turns, tell=lambda text: None, blocked=lambda: False),
    ):
        inside = signal.getsignal(signal.SIGINT)
        raise ValueError("no")

    assert inside is not before
    assert signal.getsignal(signal.SIGINT) is before


async def test_presses_right_after_an_interrupted_run_are_swallowed() -> None:
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        with interruptible(_turns()[1], tell=lambda text: None, blocked=lambda: False):
            _press()
        _press()
        _press()
    finally:
        signal.signal(signal.SIGINT, before)

    assert pressed == []


async def test_a_press_long_after_an_interrupted_run_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed: list[int] = []
    now_s = iter([99.0, 100.0, 103.5])
    monkeypatch.setattr("evalve.runner.interruption.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        with interruptible(_turns()[1], tell=lambda text: None, blocked=lambda: False):
            _press()
        _press()
    finally:
        signal.signal(signal.SIGINT, before)

    assert pressed == [signal.SIGINT]


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    handlers: list[Any] = []

    async def look() -> None:
        _, turns = _turns()
        with interruptible(turns, tell=lambda text: None, blocked=lambda: False):
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()

    assert handlers == [signal.getsignal(signal.SIGINT)]


async def test_whoever_obeys_counts_what_it_is_told_and_not_the_signals() -> None:
    recording, turns = _turns()
    told = 0

    with obeying(lambda: told), interruptible(turns, tell=lambda text: None, blocked=lambda: False):
        _press()
        told = 1
        _press()
        _press()
        await asyncio.sleep(0)
        after_one = list(recording.asked)
        told = 2
        _press()
        await asyncio.sleep(0)

    assert (after_one, recording.asked) == (["stop"], ["stop", "cancel"])


async def test_whoever_obeys_and_is_told_to_cancel_does_not_drain_first() -> None:
    recording, turns = _turns()
    said: list[str] = []

    with obeying(lambda: 2), interruptible(turns, tell=said.append, blocked=lambda: False):
        _press()
        await asyncio.sleep(0)

    assert (recording.asked, said) == (["cancel"], [])


def test_whoever_obeys_is_interrupted_once_while_no_evaluation_runs() -> None:
    told = 0

    with obeying(lambda: told):
        _press()
        told = 1
        with pytest.raises(KeyboardInterrupt):
            _press()
        told = 2
        _press()


async def test_an_evaluation_within_an_evaluation_hands_the_presses_back_when_it_ends() -> None:
    outer, outer_turns = _turns()
    inner, inner_turns = _turns()
    told = 0

    with obeying(lambda: told), interruptible(outer_turns, tell=lambda text: None, blocked=lambda: False):
        with (
            forwarding_interrupts(),
            interruptible(inner_turns, tell=lambda text: None, blocked=lambda: False),
        ):
            pass
        told = 1
        _press()
        await asyncio.sleep(0)

    assert (outer.asked, inner.asked) == (["stop"], [])


def test_evaluations_beside_each_other_all_hear_a_press_and_end_in_any_order() -> None:
    (first, first_turns), (second, second_turns) = _turns(), _turns()

    async def run() -> None:
        one = interruptible(first_turns, tell=lambda text: None, blocked=lambda: False)
        two = interruptible(second_turns, tell=lambda text: None, blocked=lambda: False)
        one.__enter__()
        two.__enter__()
        _press()
        await asyncio.sleep(0)
        one.__exit__(None, None, None)
        _press()
        await asyncio.sleep(0)
        two.__exit__(None, None, None)

    with forwarding_interrupts() as context:
        context.run(asyncio.run, run())

    assert first.asked == ["stop"]
    assert second.asked == ["stop", "cancel"]


def test_the_handler_is_back_when_nobody_is_obeyed_any_more() -> None:
    before = signal.getsignal(signal.SIGINT)

    with obeying(lambda: 0):
        inside = signal.getsignal(signal.SIGINT)

    assert inside is not before
    assert signal.getsignal(signal.SIGINT) is before
