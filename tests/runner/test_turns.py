"""Slots and bodies, without samples: bodies that a test drives by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from evalve.concurrency import Batch, Sequential, SlidingWindow
from evalve.contracts import Store, Strategy, Tally, Task
from evalve.declare.datasets import Dataset
from evalve.runner.plan import Plan
from evalve.runner.surroundings import AttemptSurroundings, RunSurroundings, WaitEnded
from evalve.runner.turns import Body, Ending, Turns
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from recorded import record
from running import RateLimited


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    record(store, "exp")
    yield store
    store.close()


Drive = Callable[["Bodies", Body], Awaitable[Ending]]


class Bodies:
    """Drives bodies by a function, and notes what happens to them."""

    def __init__(self, store: Store, drive: Drive, names: str) -> None:
        self._rows = Dataset([{"id": name} for name in names], ("id",), "eval_x.py:1").open(None)
        plan = Plan(self._rows, store, 1, key="key", repeat=1, longest_first=False)
        self.tally = Tally("exp", "eval_x", started_s=0.0)
        self.events: list[tuple[str, float]] = []
        self.owed = 0
        self.turns = Turns(plan, lambda body: drive(self, body), self.tally, owed=lambda: self.owed)
        self._surroundings = RunSurroundings(self.tally, lends_slots=True)

    async def run(self, strategy: Strategy) -> None:
        try:
            await self.turns.run(strategy)
        finally:
            await self._rows.close()

    async def wait(self, body: Body, delay_s: float) -> bool:
        """Whether the wait was not ended by a stop."""
        try:
            await AttemptSurroundings(self._surroundings, body).parked(asyncio.sleep(delay_s), "retry")
        except WaitEnded:
            if body.is_cancelling():
                raise
            return False
        return True

    def owe_a_record_for(self, delay_s: float) -> None:
        def commit() -> None:
            self.owed -= 1
            self.turns.recheck()

        self.owed += 1
        self.later(delay_s, commit)

    def note(self, event: str) -> None:
        self.events.append((event, round(asyncio.get_running_loop().time(), 6)))

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, call)


def _run(
    store: Store,
    drive: Drive,
    *,
    names: str = "abc",
    strategy: Strategy | None = None,
    meanwhile: Callable[[Bodies], None] = lambda bodies: None,
) -> Bodies:
    async def run() -> Bodies:
        bodies = Bodies(store, drive, names)
        meanwhile(bodies)
        await bodies.run(strategy or Sequential())
        return bodies

    return run_in_virtual_time(run())


async def work_for_a_second(bodies: Bodies, body: Body) -> Ending:
    name = body.attempt.sample.id
    bodies.note(f"{name} starts")
    await asyncio.sleep(1.0)
    return "done"


async def wait_ten_seconds_once(bodies: Bodies, body: Body) -> Ending:
    """One second of work, a wait of ten, another second."""
    name = body.attempt.sample.id
    bodies.note(f"{name} starts")
    await asyncio.sleep(1.0)
    goes_on = await bodies.wait(body, 10.0)
    bodies.note(f"{name} {'goes on' if goes_on else 'gives up'}")
    if goes_on:
        await asyncio.sleep(1.0)
    return "done" if goes_on else "failed"


class Endings:
    """A window that keeps what turns returned."""

    def __init__(self, size: int) -> None:
        self._window = SlidingWindow(size)
        self.seen: list[Any] = []

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        async for ending in self._window.execute(tasks, progress_callback):
            self.seen.append(ending)
            yield ending


def test_a_body_that_waits_lends_its_slot_and_queues_for_another(store: Store) -> None:
    bodies = _run(store, wait_ten_seconds_once, names="ab")

    assert bodies.events == [
        ("a starts", 0.0),
        ("b starts", 1.0),
        ("a goes on", 11.0),
        ("b goes on", 12.0),
    ]


def test_each_turn_says_how_it_ended(store: Store) -> None:
    strategy = Endings(2)

    _run(store, wait_ten_seconds_once, names="ab", strategy=strategy)

    assert strategy.seen == ["parked", "parked", "done", "done"]


def test_the_tally_counts_bodies_in_flight_and_why_they_wait(store: Store) -> None:
    seen: list[tuple[int, dict[str, int]]] = []

    def look(bodies: Bodies) -> None:
        tally = bodies.tally
        for at_s in (0.5, 5.0, 11.5):
            bodies.later(at_s, lambda: seen.append((tally.in_flight, dict(tally.waiting))))

    bodies = _run(store, wait_ten_seconds_once, names="ab", strategy=SlidingWindow(2), meanwhile=look)

    assert seen == [(2, {}), (0, {"retry": 2}), (2, {"retry": 0})]
    assert (bodies.tally.in_flight, bodies.tally.peak_in_flight, bodies.tally.total) == (0, 2, 2)


STRATEGIES = [
    pytest.param(Sequential(), id="Sequential"),
    pytest.param(Batch(2), id="Batch"),
    pytest.param(SlidingWindow(2), id="SlidingWindow"),
    pytest.param(RateLimited(2), id="one's own"),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_after_a_stop_nothing_starts_and_what_runs_may_end(store: Store, strategy: Strategy) -> None:
    bodies = _run(
        store,
        work_for_a_second,
        names="abcdef",
        strategy=strategy,
        meanwhile=lambda bodies: bodies.later(0.5, bodies.turns.stop),
    )

    assert {at_s for _, at_s in bodies.events} == {0.0}
    assert (bodies.turns.stopping, bodies.tally.stopping) == (True, True)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stop_ends_every_wait(store: Store, strategy: Strategy) -> None:
    bodies = _run(
        store,
        wait_ten_seconds_once,
        names="ab",
        strategy=strategy,
        meanwhile=lambda bodies: bodies.later(3.0, bodies.turns.stop),
    )

    assert sorted(bodies.events[-2:]) == [("a gives up", 3.0), ("b gives up", 3.0)]


def test_a_stop_while_a_body_queues_for_its_turn_ends_it(store: Store) -> None:
    async def drive(bodies: Bodies, body: Body) -> Ending:
        if body.attempt.sample.id == "a":
            return await wait_ten_seconds_once(bodies, body)
        await asyncio.sleep(100.0)
        return "done"

    bodies = _run(store, drive, names="ab", meanwhile=lambda bodies: bodies.later(50.0, bodies.turns.stop))

    assert bodies.events == [("a starts", 0.0), ("a gives up", 50.0)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cancel_ends_bodies_that_run_wait_or_queue(store: Store, strategy: Strategy) -> None:
    async def drive(bodies: Bodies, body: Body) -> Ending:
        try:
            if body.attempt.sample.id in "ab":
                await bodies.wait(body, 10.0 if body.attempt.sample.id == "a" else 1000.0)
            await asyncio.sleep(100.0)
        finally:
            bodies.note(body.attempt.sample.id)
        return "done"

    bodies = _run(
        store,
        drive,
        names="abcd",
        strategy=strategy,
        meanwhile=lambda bodies: bodies.later(50.0, bodies.turns.cancel),
    )

    assert {at_s for _, at_s in bodies.events} == {50.0}
    assert bodies.tally.in_flight == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_error_of_the_run_ends_all_bodies_and_is_raised(store: Store, strategy: Strategy) -> None:
    def fail(bodies: Bodies) -> None:
        bodies.later(1.5, lambda: bodies.turns.fail(OSError("the disk is full")))

    with pytest.raises(OSError, match="the disk is full"):
        _run(store, wait_ten_seconds_once, names="abcdef", strategy=strategy, meanwhile=fail)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_that_ends_with_an_error_lets_what_runs_end_first(store: Store, strategy: Strategy) -> None:
    noted: list[tuple[str, float]] = []

    async def drive(bodies: Bodies, body: Body) -> Ending:
        await asyncio.sleep(60.0)
        bodies.note("ended")
        noted[:] = bodies.events
        return "done"

    def end(bodies: Bodies) -> None:
        def end_with_an_error() -> None:
            bodies.turns.end_with(OSError("the disk is full"))

        bodies.later(1.5, end_with_an_error)

    with pytest.raises(OSError, match="the disk is full"):
        _run(store, drive, names="abcdef", strategy=strategy, meanwhile=end)

    assert set(noted) == {("ended", 60.0)}


def test_of_several_errors_the_first_is_raised(store: Store) -> None:
    def fail_twice(bodies: Bodies) -> None:
        def fail() -> None:
            bodies.turns.fail(OSError("first"))
            bodies.turns.fail(OSError("second"))

        bodies.later(1.5, fail)

    with pytest.raises(OSError, match="first"):
        _run(store, work_for_a_second, meanwhile=fail_twice)


def test_the_run_is_over_only_when_everything_is_committed(store: Store) -> None:
    ended_at: list[float] = []

    async def drive(bodies: Bodies, body: Body) -> Ending:
        bodies.owe_a_record_for(30.0)
        return "done"

    async def run() -> None:
        await Bodies(store, drive, "a").run(Sequential())
        ended_at.append(round(asyncio.get_running_loop().time(), 6))

    run_in_virtual_time(run())

    assert ended_at == [30.0]


def test_a_strategy_that_raises_ends_the_run_once_what_it_did_is_committed(store: Store) -> None:
    class Raising:
        async def execute(
            self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
        ) -> AsyncIterator[Any]:
            async for task in tasks:
                yield await task()
                raise ZeroDivisionError("a mistake in the strategy")

    async def drive(bodies: Bodies, body: Body) -> Ending:
        bodies.owe_a_record_for(30.0)
        return "done"

    async def run() -> float:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(Bodies(store, drive, "ab").run(Raising()), timeout=60.0)
        return round(asyncio.get_running_loop().time(), 6)

    assert run_in_virtual_time(run()) == 30.0


def test_a_turn_that_its_strategy_gives_up_leaves_the_body_alive(store: Store) -> None:
    class Impatient:
        async def execute(
            self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
        ) -> AsyncIterator[Any]:
            async for task in tasks:
                try:
                    yield await asyncio.wait_for(task(), 0.5)
                except TimeoutError:
                    yield None

    async def drive(bodies: Bodies, body: Body) -> Ending:
        await asyncio.sleep(1.0)
        bodies.note(body.attempt.sample.id)
        return "done"

    bodies = _run(store, drive, names="ab", strategy=Impatient())

    assert bodies.events == [("a", 1.0), ("b", 1.5)]


async def test_whose_cancellation_it_is(store: Store) -> None:
    bodies = Bodies(store, work_for_a_second, "a")
    before = bodies.turns.is_cancelling()

    bodies.turns.cancel()

    assert (before, bodies.turns.is_cancelling()) == (False, True)
