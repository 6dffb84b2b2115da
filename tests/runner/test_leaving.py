"""Samples that do not end when they are cancelled: left behind after a grace, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from evalve.runner.leaving import Leavable, leave_the_rest, runs_on_this_loop
from evalve.testing import run_in_virtual_time


async def _swallows_cancellation() -> None:
    while True:
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            pass


async def _cleans_up(for_s: float) -> str:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        await asyncio.sleep(for_s)
        raise
    return "never"


async def _waits_for_one_that_swallows() -> None:
    await asyncio.gather(_swallows_cancellation(), asyncio.sleep(1))


async def test_what_nobody_cancels_is_passed_on() -> None:
    async def answers() -> int:
        await asyncio.sleep(0)
        return 7

    assert await Leavable(answers(), lambda: 5.0) == 7


async def test_an_exception_of_what_it_awaits_reaches_the_coroutine() -> None:
    async def catches() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(10)
        except TimeoutError:
            return "caught"
        return "not caught"

    assert await Leavable(catches(), lambda: 5.0) == "caught"


@pytest.mark.parametrize("sample", [_swallows_cancellation, _waits_for_one_that_swallows])
def test_a_deadline_leaves_behind_what_swallows_its_cancellation(sample: object) -> None:
    async def run() -> tuple[float, bool]:
        loop = asyncio.get_running_loop()
        before = asyncio.all_tasks()
        call = Leavable(sample(), lambda: 10.0)  # type: ignore[operator]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2) as deadline:
                call.expect_end_after(deadline)
                await call
        ended_s = loop.time()
        await leave_the_rest(before)
        return ended_s, call.is_left

    assert run_in_virtual_time(run()) == (12.0, True)


def test_what_cleans_up_within_its_grace_is_not_left() -> None:
    async def run() -> tuple[float, bool]:
        call = Leavable(_cleans_up(for_s=4), lambda: 5.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await call
        return asyncio.get_running_loop().time(), call.is_left

    assert run_in_virtual_time(run()) == (6.0, False)


def test_a_shorter_grace_counts_from_the_later_cancellation() -> None:
    async def run() -> float:
        graces = iter([10.0, 1.0])
        calls: list[Leavable] = []

        async def awaited() -> None:
            calls.append(Leavable(_swallows_cancellation(), lambda: next(graces)))
            await calls[0]

        task = asyncio.create_task(awaited())
        await asyncio.sleep(1)
        for pause_s in (2, 0):
            task.cancel()
            calls[0].expect_end()
            await asyncio.sleep(pause_s)
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(run()) == 4.0


def test_tasks_that_do_not_end_keep_no_loop_from_closing() -> None:
    async def run() -> int:
        before = asyncio.all_tasks()
        swallowing = asyncio.create_task(_swallows_cancellation())
        await asyncio.sleep(1)
        left = await leave_the_rest(before)
        assert not swallowing.done()
        assert swallowing not in asyncio.all_tasks()
        return left

    assert run_in_virtual_time(run()) == 1  # and the loop has been closed


def test_a_time_out_of_the_samples_own_leaves_nothing_behind() -> None:
    async def has_its_own() -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(1000)
        except TimeoutError:
            pass
        await asyncio.sleep(1000)
        return "done"

    async def run() -> str:
        answer: str = await Leavable(has_its_own(), lambda: 5.0)
        return answer

    assert run_in_virtual_time(run()) == "done"


async def test_of_runs_beside_each_other_the_last_cancels_what_is_left_over() -> None:
    async def run(left: list[asyncio.Task[None]], until: asyncio.Event) -> bool:
        with runs_on_this_loop() as together:
            left.append(asyncio.create_task(asyncio.sleep(1000)))
            await until.wait()
            await together.leave_the_rest()
            return together.last_leaves

    left: list[asyncio.Task[None]] = []
    first_may_end, second_may_end = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(run(left, first_may_end))
    second = asyncio.create_task(run(left, second_may_end))
    await asyncio.sleep(0)
    first_may_end.set()
    assert await first is True
    assert not second.done()
    assert [task.done() for task in left] == [False, False]

    second_may_end.set()
    assert await second is True
    assert [task.cancelled() for task in left] == [True, True]
