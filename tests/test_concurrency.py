"""The contract of every strategy, and what each adds to it."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from evalve import concurrency
from evalve.concurrency import (
    Adaptive,
    Batch,
    OneAtATime,
    Sequential,
    Sharing,
    SlidingWindow,
    Throttled,
    Window,
    choose,
    workers_for,
)
from evalve.contracts import Strategy, Task
from evalve.errors import OptionError
from evalve.options import Options
from evalve.testing import run_in_virtual_time


class Bench:
    """Tasks that take virtual time and note what happens to them."""

    def __init__(self, durations_s: Iterable[float]) -> None:
        self._durations_s = list(durations_s)
        self.starts: list[tuple[int, float]] = []
        self.in_flight = 0
        self.peak = 0

    async def generated(self) -> AsyncIterator[Task]:
        for number, duration_s in enumerate(self._durations_s):
            yield self._task(number, duration_s)

    def _task(self, number: int, duration_s: float) -> Task:
        async def task() -> int:
            self.starts.append((number, asyncio.get_running_loop().time()))
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            try:
                await asyncio.sleep(duration_s)
            finally:
                self.in_flight -= 1
            return number

        return task

    @property
    def started(self) -> list[int]:
        return [number for number, _ in self.starts]

    @property
    def started_at(self) -> list[float]:
        return [round(at_s, 6) for _, at_s in self.starts]


async def results_of(strategy: Strategy, tasks: AsyncIterator[Task]) -> list[Any]:
    return [result async for result in strategy.execute(tasks)]


class OwnStrategy:
    max_concurrency = 3

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        async for task in tasks:
            result = await task()
            if progress_callback:
                progress_callback(result)
            yield result


STRATEGIES = [
    pytest.param(Sequential, 1, id="Sequential"),
    pytest.param(lambda: Batch(4), 4, id="Batch"),
    pytest.param(lambda: SlidingWindow(4), 4, id="SlidingWindow"),
    pytest.param(lambda: SlidingWindow(4, throttle_s=0.25), 4, id="SlidingWindow-throttled"),
    pytest.param(lambda: Adaptive(2, 1, 4, adaptation_interval=1.0), 4, id="Adaptive"),
    pytest.param(lambda: Throttled(Batch(4), 0.25), 4, id="Throttled-Batch"),
    pytest.param(lambda: Throttled(Adaptive(4, 1, 4), 0.25), 4, id="Throttled-Adaptive"),
    pytest.param(lambda: Sharing(SlidingWindow(9), asyncio.Semaphore(4)), 4, id="Sharing"),
    pytest.param(OwnStrategy, 1, id="one's own"),
]


@pytest.mark.parametrize(("make", "limit"), STRATEGIES)
class TestContract:
    def test_each_task_is_awaited_once_and_its_result_yielded_once(
        self, make: Callable[[], Strategy], limit: int
    ) -> None:
        bench = Bench([1.0, 0.5, 2.0] * 7)

        results = run_in_virtual_time(results_of(make(), bench.generated()))

        assert sorted(results) == list(range(21))
        assert sorted(bench.started) == list(range(21))

    def test_the_callback_hears_every_result(self, make: Callable[[], Strategy], limit: int) -> None:
        heard: list[Any] = []

        async def run() -> list[Any]:
            execute = make().execute(Bench([1.0] * 9).generated(), heard.append)
            return [result async for result in execute]

        assert run_in_virtual_time(run()) == heard
        assert sorted(heard) == list(range(9))

    def test_the_limit_is_reached_and_never_passed(self, make: Callable[[], Strategy], limit: int) -> None:
        bench = Bench([3.0] * 40)

        run_in_virtual_time(results_of(make(), bench.generated()))

        assert bench.peak == limit

    def test_no_tasks_give_no_results(self, make: Callable[[], Strategy], limit: int) -> None:
        assert run_in_virtual_time(results_of(make(), Bench([]).generated())) == []

    def test_what_a_task_raises_surfaces_and_leaves_nothing_running(
        self, make: Callable[[], Strategy], limit: int
    ) -> None:
        async def broken() -> None:
            raise ValueError("a task broke")

        async def tasks() -> AsyncIterator[Task]:
            for _ in range(6):
                yield broken

        async def run() -> int:
            with pytest.raises(ValueError, match="a task broke"):
                await results_of(make(), tasks())
            await asyncio.sleep(10)
            return len(asyncio.all_tasks())

        assert run_in_virtual_time(run()) == 1

    def test_what_the_iterator_of_tasks_raises_surfaces(
        self, make: Callable[[], Strategy], limit: int
    ) -> None:
        async def tasks() -> AsyncIterator[Task]:
            yield Bench([1.0])._task(0, 1.0)
            raise ValueError("the iterator broke")

        with pytest.raises(ValueError, match="the iterator broke"):
            run_in_virtual_time(results_of(make(), tasks()))

    def test_closing_it_early_leaves_nothing_running(self, make: Callable[[], Strategy], limit: int) -> None:
        bench = Bench([1.0] + [100.0] * 20)

        async def run() -> int:
            results: Any = make().execute(bench.generated())
            await anext(results)
            await results.aclose()
            return len(asyncio.all_tasks())

        assert run_in_virtual_time(run()) == 1
        assert bench.in_flight == 0

    def test_it_can_be_executed_again(self, make: Callable[[], Strategy], limit: int) -> None:
        strategy = make()

        async def run() -> tuple[list[Any], list[Any]]:
            first = await results_of(strategy, Bench([1.0] * 5).generated())
            return first, await results_of(strategy, Bench([1.0] * 3).generated())

        first, second = run_in_virtual_time(run())
        assert (sorted(first), sorted(second)) == ([0, 1, 2, 3, 4], [0, 1, 2])


def test_sequential_starts_each_when_the_one_before_has_ended() -> None:
    bench = Bench([2.0, 1.0, 1.0])

    run_in_virtual_time(results_of(Sequential(), bench.generated()))

    assert bench.started_at == [0.0, 2.0, 3.0]


def test_a_batch_starts_when_the_whole_one_before_has_ended() -> None:
    bench = Bench([2.0, 1.0, 1.0, 1.0, 1.0])

    results = run_in_virtual_time(results_of(Batch(2), bench.generated()))

    assert bench.started_at == [0.0, 0.0, 2.0, 2.0, 3.0]
    assert results == [0, 1, 2, 3, 4]


def test_a_window_starts_the_next_as_soon_as_one_ends() -> None:
    bench = Bench([3.0, 1.0, 1.0, 1.0])

    results = run_in_virtual_time(results_of(SlidingWindow(2), bench.generated()))

    assert bench.started_at == [0.0, 0.0, 1.0, 2.0]
    assert results[:2] == [1, 2]


def test_a_throttled_window_spaces_its_starts() -> None:
    bench = Bench([1.0] * 4)

    run_in_virtual_time(results_of(SlidingWindow(10, throttle_s=0.5), bench.generated()))

    assert bench.started_at == [0.0, 0.5, 1.0, 1.5]


def test_a_throttle_that_the_window_outlasts_costs_nothing() -> None:
    bench = Bench([5.0] * 3)

    run_in_virtual_time(results_of(SlidingWindow(1, throttle_s=0.5), bench.generated()))

    assert bench.started_at == [0.0, 5.0, 10.0]


def test_a_throttled_batch_spaces_the_starts_within_the_batch() -> None:
    bench = Bench([1.0] * 4)

    run_in_virtual_time(results_of(Throttled(Batch(2), 0.5), bench.generated()))

    assert bench.started_at == [0.0, 0.5, 1.5, 2.0]


def test_a_throttle_holds_from_one_execution_to_the_next() -> None:
    bench = Bench([0.1, 0.1])
    strategy = Throttled(Sequential(), 2.0)

    async def run() -> None:
        await results_of(strategy, Bench([0.1]).generated())
        await results_of(strategy, bench.generated())

    run_in_virtual_time(run())
    assert bench.started_at == [2.0, 4.0]


def test_a_window_asks_a_slow_generator_one_worker_at_a_time() -> None:
    async def slow() -> AsyncIterator[Task]:
        async for task in Bench([0.5] * 6).generated():
            await asyncio.sleep(1.0)
            yield task

    assert run_in_virtual_time(results_of(SlidingWindow(3), slow())) == [0, 1, 2, 3, 4, 5]


class TestWindow:
    def test_a_larger_limit_is_filled_at_once(self) -> None:
        bench = Bench([10.0] * 8)

        async def run() -> list[Any]:
            window = Window(bench.generated(), 2)
            asyncio.get_running_loop().call_later(1.0, window.resize, 5)
            return [result async for result in window.results()]

        assert sorted(run_in_virtual_time(run())) == [0, 1, 2, 3, 4, 5, 6, 7]
        assert bench.started_at == [0.0, 0.0, 1.0, 1.0, 1.0, 10.0, 10.0, 11.0]

    def test_under_a_smaller_limit_workers_leave_as_their_tasks_end(self) -> None:
        bench = Bench([10.0] * 7)

        async def run() -> list[Any]:
            window = Window(bench.generated(), 4)
            asyncio.get_running_loop().call_later(1.0, window.resize, 1)
            return [result async for result in window.results()]

        assert sorted(run_in_virtual_time(run())) == [0, 1, 2, 3, 4, 5, 6]
        assert bench.started_at == [0.0, 0.0, 0.0, 0.0, 10.0, 20.0, 30.0]

    def test_it_shrinks_and_grows_again_without_deadlock(self) -> None:
        bench = Bench([1.0] * 40)

        async def run() -> list[Any]:
            loop = asyncio.get_running_loop()
            window = Window(bench.generated(), 8)
            loop.call_later(1.5, window.resize, 1)
            loop.call_later(4.5, window.resize, 6)
            loop.call_later(5.5, window.resize, 2)
            return [result async for result in window.results()]

        assert sorted(run_in_virtual_time(run())) == list(range(40))

    def test_the_peak_is_that_since_it_was_last_asked(self) -> None:
        async def run() -> tuple[int, int]:
            window = Window(Bench([1.0, 1.0, 1.0, 9.0]).generated(), 3)
            results: Any = window.results()
            await anext(results)
            first = window.take_peak()
            await asyncio.sleep(5)
            window.take_peak()
            second = window.take_peak()
            await results.aclose()
            return first, second

        assert run_in_virtual_time(run()) == (3, 1)


class TestAdaptive:
    def test_it_cuts_where_turns_fail_or_wait(self) -> None:
        strategy = Adaptive(10, adaptation_interval=1.0)

        async def waiting() -> str:
            await asyncio.sleep(0.5)
            return "waiting"

        async def tasks() -> AsyncIterator[Task]:
            for _ in range(60):
                yield waiting

        run_in_virtual_time(results_of(strategy, tasks()))

        assert [decision["to"] for decision in strategy.history] == [7, 4]
        assert strategy.concurrency == 4

    def test_turns_whose_samples_are_parked_say_nothing_about_success(self) -> None:
        strategy = Adaptive(10, adaptation_interval=1.0)

        async def turn(ending: str) -> str:
            await asyncio.sleep(0.5)
            return ending

        async def tasks() -> AsyncIterator[Task]:
            for _ in range(60):
                yield functools.partial(turn, "parked")
                yield functools.partial(turn, "done")

        run_in_virtual_time(results_of(strategy, tasks()))

        assert strategy.concurrency > 10

    def test_its_history_says_when_how_and_why(self) -> None:
        strategy = Adaptive(2, adaptation_interval=1.0, max_concurrency=4)

        run_in_virtual_time(results_of(strategy, Bench([0.5] * 12).generated()))

        assert strategy.history[0] == {
            "at_s": 1.5,
            "from": 2,
            "to": 4,
            "side": "provider",
            "per_second": 3.0,
            "success_share": 1.0,
            "reason": "3.0/s with all in use",
        }

    def test_a_limit_for_one_run_leaves_the_declared_strategy_as_it_is(self) -> None:
        declared = Adaptive(50, min_concurrency=20, max_concurrency=100)

        limited = declared.with_limit(10)

        assert (limited.concurrency, limited.min_concurrency, limited.max_concurrency) == (10, 10, 10)
        assert (declared.concurrency, declared.min_concurrency, declared.max_concurrency) == (50, 20, 100)

    def test_bounds_that_contradict_are_refused(self) -> None:
        with pytest.raises(OptionError) as caught:
            Adaptive(min_concurrency=6, max_concurrency=5)

        assert str(caught.value).endswith(
            ": Adaptive: min_concurrency must not be above max_concurrency; got 6 and 5"
        )

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"initial_concurrency": "a"}, "initial_concurrency must be a whole number, 1 or more; got 'a'"),
            ({"min_concurrency": 0}, "min_concurrency must be a whole number, 1 or more; got 0"),
            ({"max_concurrency": 2.5}, "max_concurrency must be a whole number, 1 or more; got 2.5"),
            ({"adaptation_interval": None}, "adaptation_interval must be a number, 0 or more; got None"),
            ({"increase_threshold": 98}, "increase_threshold must be a number, from 0 to 1; got 98"),
            ({"decrease_threshold": "low"}, "decrease_threshold must be a number, from 0 to 1; got 'low'"),
        ],
    )
    def test_a_bad_setting_is_refused_with_its_name_and_what_is_allowed(
        self, settings: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(OptionError) as caught:
            Adaptive(**settings)

        assert str(caught.value).endswith(f": Adaptive: {message}")

    def test_the_initial_size_is_brought_within_the_bounds(self) -> None:
        assert Adaptive(500, max_concurrency=20).concurrency == 20


class TestChoosing:
    def test_an_async_function_gets_a_window_of_ten(self) -> None:
        chosen = choose(None, is_async=True)

        assert isinstance(chosen, SlidingWindow)
        assert (chosen.max_concurrency, chosen.throttle_s) == (10, 0.0)

    def test_a_sync_function_runs_one_by_one(self) -> None:
        assert isinstance(choose(None, is_async=False), Sequential)

    def test_a_sync_function_stays_one_by_one_under_a_limit_of_one(self) -> None:
        assert isinstance(choose(None, is_async=False, max_concurrency=1), Sequential)

    def test_a_sync_function_given_a_number_gets_a_window(self) -> None:
        chosen = choose(None, is_async=False, max_concurrency=4)

        assert isinstance(chosen, SlidingWindow)
        assert chosen.max_concurrency == 4

    def test_auto_adapts(self) -> None:
        assert isinstance(choose(None, is_async=True, max_concurrency="auto"), Adaptive)

    def test_auto_keeps_a_declared_adaptive_strategy(self) -> None:
        declared = Adaptive(7)

        assert choose(declared, is_async=True, max_concurrency="auto") is declared

    def test_a_declared_strategy_is_kept_where_nothing_is_asked(self) -> None:
        declared = OwnStrategy()

        assert choose(declared, is_async=True) is declared

    def test_a_batch_takes_another_size(self) -> None:
        chosen = choose(Batch(4), is_async=True, max_concurrency=2)

        assert isinstance(chosen, Batch)
        assert chosen.batch_size == 2

    def test_ones_own_strategy_is_copied_under_another_limit(self) -> None:
        declared = OwnStrategy()

        chosen = choose(declared, is_async=True, max_concurrency=9)

        assert isinstance(chosen, OwnStrategy)
        assert (chosen.max_concurrency, declared.max_concurrency) == (9, 3)

    def test_a_subclass_of_a_window_stays_what_it_is(self) -> None:
        class Named(SlidingWindow):
            pass

        chosen = choose(Named(4), is_async=True, max_concurrency=9, throttle_s=0.5)

        assert isinstance(chosen, Named)
        assert (chosen.max_concurrency, chosen.throttle_s) == (9, 0.5)

    def test_a_strategy_without_a_limit_refuses_one(self) -> None:
        class Unlimited:
            execute = OwnStrategy.execute

        with pytest.raises(OptionError, match=r"^max_concurrency=3 cannot be applied to Unlimited: "):
            choose(Unlimited(), is_async=True, max_concurrency=3)

    def test_a_throttle_goes_around_any_other_strategy(self) -> None:
        chosen: Any = choose(OwnStrategy(), is_async=True, throttle_s=0.5)

        assert isinstance(chosen, Throttled)
        assert (chosen.throttle_s, chosen.max_concurrency) == (0.5, 3)

    def test_a_throttle_of_zero_takes_a_declared_one_away(self) -> None:
        chosen = choose(SlidingWindow(4, throttle_s=2.0), is_async=True, throttle_s=0.0)

        assert isinstance(chosen, SlidingWindow)
        assert (chosen.max_concurrency, chosen.throttle_s) == (4, 0.0)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "4", None])
def test_a_window_that_is_no_whole_number_from_one_is_refused_with_file_and_line(size: Any) -> None:
    with pytest.raises(OptionError) as caught:
        SlidingWindow(size)

    line = caught.traceback[0].lineno + 1
    assert str(caught.value) == (
        f"{__file__}:{line}: SlidingWindow: max_concurrency must be a whole number, 1 or more; got {size!r}"
    )


@pytest.mark.parametrize("throttle_s", [-0.1, float("nan"), "1"])
def test_a_throttle_that_is_no_time_is_refused(throttle_s: Any) -> None:
    with pytest.raises(OptionError, match=r": SlidingWindow: throttle_s must be a number, 0 or more; got "):
        SlidingWindow(5, throttle_s)


def test_a_batch_of_none_is_refused() -> None:
    with pytest.raises(OptionError, match=r": Batch: batch_size must be a whole number, 1 or more; got 0$"):
        Batch(0)


def test_each_strategy_has_a_second_name() -> None:
    assert (
        concurrency.SequentialStrategy,
        concurrency.BatchStrategy,
        concurrency.SlidingWindowStrategy,
        concurrency.AdaptiveStrategy,
        concurrency.AsyncConcurrencyStrategy,
    ) == (Sequential, Batch, SlidingWindow, Adaptive, Strategy)


def test_sync_functions_in_processes_run_as_many_at_once_as_there_are_workers() -> None:
    strategy = choose(None, is_async=False, workers=3)

    assert (type(strategy), getattr(strategy, "max_concurrency", None)) == (SlidingWindow, 3)


def test_what_is_declared_or_asked_for_stands_before_the_number_of_workers() -> None:
    assert type(choose(Sequential(), is_async=False, workers=3)) is Sequential
    assert getattr(choose(None, is_async=False, workers=3, max_concurrency=5), "max_concurrency", 0) == 5
    assert getattr(choose(None, is_async=True, workers=3), "max_concurrency", 0) == 10


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Options(), None),
        (Options(workers=4), None),
        (Options(engine="auto"), None),
        (Options(engine="processes", workers=4), 4),
        (Options(engine="processes"), len(os.sched_getaffinity(0))),
    ],
)
def test_workers_are_those_asked_for_or_as_many_as_cores(asked: Options, expected: int | None) -> None:
    assert workers_for(asked) == expected


def test_two_strategies_that_share_places_keep_one_limit_together() -> None:
    bench = Bench([1.0] * 20)

    async def both() -> None:
        places = asyncio.Semaphore(5)
        tasks = OneAtATime(bench.generated())
        await asyncio.gather(*(results_of(Sharing(SlidingWindow(4), places), tasks) for _ in range(2)))

    run_in_virtual_time(both())

    assert sorted(bench.started) == list(range(20))
    assert bench.peak == 5
