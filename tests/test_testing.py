"""Virtual time."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from evalve.clock import LOOP_CLOCK
from evalve.testing import run_in_virtual_time


def test_a_day_passes_at_once() -> None:
    async def sleep_for_a_day() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(sleep_for_a_day()) == pytest.approx(86_400)


def test_timers_end_in_the_order_of_their_times() -> None:
    async def race() -> list[tuple[str, float]]:
        ended: list[tuple[str, float]] = []

        async def sleeper(name: str, delay_s: float) -> None:
            await LOOP_CLOCK.sleep(delay_s)
            ended.append((name, round(LOOP_CLOCK.now_s(), 6)))

        await asyncio.gather(sleeper("slow", 30), sleeper("fast", 10), sleeper("middle", 20))
        return ended

    assert run_in_virtual_time(race()) == [
        ("fast", 10.0),
        ("middle", 20.0),
        ("slow", 30.0),
    ]


def test_two_that_wait_for_the_same_instant_do_not_wake_each_other_just_before_it() -> None:
    instant_s = math.nextafter(10.0, math.inf)
    turns = 0

    async def wait() -> None:
        nonlocal turns
        await LOOP_CLOCK.sleep(10.0)
        while LOOP_CLOCK.now_s() < instant_s and turns < 100:
            turns += 1
            await LOOP_CLOCK.sleep(instant_s - LOOP_CLOCK.now_s())

    async def both() -> None:
        await asyncio.gather(wait(), wait())

    run_in_virtual_time(both())

    assert turns == 2


def test_a_timeout_strikes_in_virtual_time() -> None:
    async def never() -> None:
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_in_virtual_time(never())


def test_without_a_timer_it_waits_for_threads() -> None:
    async def answered_by_a_thread() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, "hello")).start()
        return await answer, loop.time()

    assert run_in_virtual_time(answered_by_a_thread()) == ("hello", 0.0)


def test_what_the_coroutine_raises_passes() -> None:
    async def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_in_virtual_time(broken())
