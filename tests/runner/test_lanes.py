"""Lanes: one after another inside, beside each other outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from evalve.concurrency import Adaptive, Batch, Sequential, SlidingWindow
from evalve.contracts import SAMPLE, SampleContext, Store, Strategy
from evalve.declare.datasets import Dataset
from evalve.errors import DatasetError, InfrastructureError
from evalve.runner.plan import Plan
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from recorded import record
from running import CollectFirst, Notes, RateLimited, run, runnable, running, statuses


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


def _first_letter(row: Mapping[str, Any]) -> str:
    return str(row["id"])[0]


def _rows(text: str) -> list[dict[str, str]]:
    return [{"id": name} for name in text.split()]


class Watched:
    """An evaluation that notes who runs when; each sample takes a second."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.takes_s = takes_s
        self.begun: list[str] = []
        self.overlaps: list[tuple[str, str]] = []
        self._now: dict[str, str] = {}

    async def evaluate(self, id: str) -> bool:
        context = SAMPLE.get()
        assert context is not None
        lane = f"{id[0]}{context.repeat}"
        if lane in self._now:
            self.overlaps.append((self._now[lane], id))
        self._now[lane] = id
        self.begun.append(id)
        await asyncio.sleep(self.takes_s)
        del self._now[lane]
        return True


@pytest.mark.parametrize(
    "strategy",
    [Sequential(), SlidingWindow(8), Batch(3), Adaptive(4), RateLimited(3), CollectFirst()],
    ids=lambda strategy: type(strategy).__name__,
)
def test_a_lane_is_serial_and_in_dataset_order_under_any_strategy(store: Store, strategy: Strategy) -> None:
    watched = Watched()
    names = "a1 b1 a2 c1 a3 b2 a4 c2 b3"

    outcome = run(runnable(watched.evaluate, _rows(names), strategy=strategy, lane=_first_letter), store)

    assert watched.overlaps == []
    for lane in "abc":
        own = [name for name in watched.begun if name[0] == lane]
        assert own == sorted(own)
    assert outcome.info.done == 9
    assert [sample_id for sample_id, _ in statuses(store)] == names.split()


def test_the_longest_lane_begins_first_and_goes_on_before_others_begin(store: Store) -> None:
    watched = Watched()

    run(
        runnable(watched.evaluate, _rows("a1 b1 c1 b2 c2 c3"), strategy=SlidingWindow(2), lane=_first_letter),
        store,
    )

    assert watched.begun == ["c1", "b1", "c2", "b2", "c3", "a1"]


def test_the_turns_of_conversations_weigh_a_lane(store: Store) -> None:
    begun: list[str] = []
    rows = [
        {"id": "a1", "turns": [1]},
        {"id": "a2", "turns": [1]},
        {"id": "b1", "turns": [1, 2, 3]},
    ]

    async def evaluate(id: str) -> bool:
        begun.append(id)
        return True

    run(runnable(evaluate, rows, strategy=Sequential(), lane=_first_letter), store)

    assert begun == ["b1", "a1", "a2"]


def test_lanes_of_a_stream_begin_in_the_order_of_their_arrival(store: Store) -> None:
    watched = Watched()

    def stream() -> Iterator[dict[str, str]]:
        yield from _rows("a1 b1 b2 b3 c1")

    run(runnable(watched.evaluate, stream, strategy=SlidingWindow(2), lane=_first_letter), store)

    assert watched.begun == ["a1", "b1", "b2", "c1", "b3"]
    assert watched.overlaps == []


def test_each_repeat_of_a_lane_is_a_lane(store: Store) -> None:
    watched = Watched()

    run(
        runnable(watched.evaluate, _rows("a1 a2"), strategy=SlidingWindow(8), lane=_first_letter, repeat=3),
        store,
    )

    assert watched.begun == ["a1", "a1", "a1", "a2", "a2", "a2"]
    assert watched.overlaps == []


def test_a_sample_that_is_tried_again_or_parked_keeps_its_lane(store: Store) -> None:
    begun: list[str] = []
    tried: list[str] = []

    async def evaluate(id: str) -> bool:
        tried.append(id)
        if id == "a1" and tried.count("a1") < 3:
            raise InfrastructureError("the machine was busy")
        context = SAMPLE.get()
        assert context is not None
        if id == "b1":
            await context.parked(asyncio.sleep(100.0), "a test")
        begun.append(id)
        return True

    run(runnable(evaluate, _rows("a1 a2 b1 b2 c1"), strategy=SlidingWindow(2), lane=_first_letter), store)

    assert tried[:3].count("a2") == 0 and tried.count("a1") == 3
    assert begun.index("a1") < begun.index("a2")
    assert begun[-2:] == ["b1", "b2"]


def test_a_failure_does_not_hold_its_lane_up(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        if id == "a1":
            raise ValueError("broken")
        return True

    run(runnable(evaluate, _rows("a1 a2"), lane=_first_letter), store)

    assert statuses(store) == [("a1", "failed"), ("a2", "done")]


def test_resuming_goes_on_with_what_is_left_of_each_lane(store: Store) -> None:
    watched = Watched()

    def evaluation(samples: int | None) -> Any:
        return runnable(
            watched.evaluate,
            _rows("a1 b1 a2 b2 a3"),
            strategy=SlidingWindow(4),
            lane=_first_letter,
            samples=samples,
        )

    run(evaluation(2), store)
    watched.begun.clear()
    run(evaluation(None), store)

    assert watched.begun == ["a2", "b2", "a3"]


def test_the_next_of_a_lane_begins_when_the_one_before_is_recorded(store: Store) -> None:
    recorded: dict[str, int] = {}

    async def evaluate(id: str) -> bool:
        (info,) = store.evaluations("exp")
        recorded[id] = info.done
        return True

    run(runnable(evaluate, _rows("a1 a2 a3"), strategy=SlidingWindow(8), lane=_first_letter), store)

    assert recorded == {"a1": 0, "a2": 1, "a3": 2}


def test_a_lane_that_a_row_does_not_have_is_told_with_the_row(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        return True

    def lane(row: Mapping[str, Any]) -> str:
        raise DatasetError("row 1 lacks the column 'workflow'")

    with pytest.raises(DatasetError, match="'workflow'"):
        run(runnable(evaluate, _rows("a1"), lane=lane), store)


def test_nothing_of_a_lane_begins_after_the_run_was_stopped(store: Store) -> None:
    begun: list[str] = []

    async def evaluate(id: str) -> bool:
        begun.append(id)
        if id == "a2":
            context = SAMPLE.get()
            assert context is not None
            context.stop_run("enough")
        return True

    outcome = run(runnable(evaluate, _rows("a1 a2 a3 a4"), lane=_first_letter), store)

    assert begun == ["a1", "a2"]
    assert outcome.interrupted


async def test_what_a_process_may_have_died_of_keeps_its_place_in_its_lane(store: Store) -> None:
    evaluation_id = record(store, "exp")
    rows = Dataset(_rows("a1 a2 b1 b2"), ("id",), "eval_x.py:1").open(None)
    plan = Plan(rows, store, evaluation_id, key="", repeat=1, longest_first=False, lane_of=_first_letter)
    plan.deaths = {("a1", 0): 1}
    await plan.refill(4)

    taken = []
    while attempt := plan.take():
        taken.append(attempt.sample.id)
        plan.ended(attempt)
    await rows.close()

    assert taken == ["b1", "b2", "a1", "a2"]


# -- what is kept through a lane


class Kept:
    """Lends a list that the samples of a lane share."""

    def __init__(self, through: str) -> None:
        self.kept_through = through
        self.shared: dict[tuple[str, int], list[str]] = {}

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[list[str]]:
        lane = context.lane
        assert lane is not None
        yield self.shared.setdefault((lane.name, lane.repeat), [])
        if lane.is_ending:
            del self.shared[lane.name, lane.repeat]


def _carrying(
    kept: Kept, saw: dict[str, list[str]], *, breaks: set[str] | None = None, samples: int | None = None
) -> Any:
    async def evaluate(id: str, notes: list[str]) -> bool:
        saw[id] = list(notes)
        if id in (breaks or ()):
            raise ValueError("broken")
        notes.append(id)
        return True

    return runnable(
        evaluate,
        _rows("a1 b1 a2 b2 a3"),
        strategy=SlidingWindow(4),
        lane=_first_letter,
        lenders={"notes": kept},
        samples=samples,
    )


def test_a_lane_that_was_not_recorded_to_its_end_runs_again_from_its_first(store: Store) -> None:
    saw: dict[str, list[str]] = {}
    run(_carrying(Kept("lane"), {}, samples=4), store)  # all of b, and a without its last
    progress = Notes()

    outcome = run(_carrying(Kept("lane"), saw), store, progress)

    assert saw == {"a1": [], "a2": ["a1"], "a3": ["a1", "a2"]}
    assert outcome.info.done == 5
    assert "2 recorded samples run again" in progress.notes[0]


def test_what_was_recorded_after_a_failure_does_not_outlive_the_lane_that_runs_again(store: Store) -> None:
    run(_carrying(Kept("lane"), {}, breaks={"a2"}), store)
    assert dict(statuses(store)) == {"a1": "done", "a2": "failed", "a3": "done", "b1": "done", "b2": "done"}
    saw: dict[str, list[str]] = {}
    evaluation = _carrying(Kept("lane"), saw)

    async def interrupted() -> None:
        async with asyncio.timeout(None) as deadline:
            call = evaluation.call

            async def evaluate(id: str, notes: list[str]) -> Any:
                if id == "a3":
                    deadline.reschedule(0.0)
                    await asyncio.sleep(100.0)
                return await call(id, notes)

            await running(replace(evaluation, call=evaluate, function=evaluate), store)

    with pytest.raises(TimeoutError):
        run_in_virtual_time(interrupted())

    assert dict(statuses(store))["a2"] == "done"
    assert dict(statuses(store))["a3"] == "failed"  # it had been made without what a2 does


def test_nothing_runs_where_all_lanes_are_recorded(store: Store) -> None:
    saw: dict[str, list[str]] = {}
    run(_carrying(Kept("lane"), {}), store)

    outcome = run(_carrying(Kept("lane"), saw), store)

    assert saw == {}
    assert outcome.ran == 0


def test_what_is_kept_through_the_run_makes_one_lane_of_all(store: Store) -> None:
    saw: dict[str, list[str]] = {}

    run(_carrying(Kept("run"), saw), store)

    assert saw["a3"] == ["a1", "b1", "a2", "b2"]
