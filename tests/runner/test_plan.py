"""What is left to run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from evalve.contracts import Rows, Store
from evalve.declare.datasets import Dataset
from evalve.runner import plan as plan_module
from evalve.runner.plan import Plan
from evalve.storage import open_store
from recorded import done, failed, record


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


_OPENED: list[Rows] = []


@pytest.fixture(autouse=True)
async def close_rows() -> AsyncIterator[None]:
    yield
    while _OPENED:
        await _OPENED.pop().close()


def _plan(
    store: Store, source: Any, *, evaluation_id: int = 1, limit: int | None = None, **options: Any
) -> Plan:
    rows = Dataset(source, ("id",), "eval_x.py:1").open(limit)
    _OPENED.append(rows)
    asked = {"key": "eval_x.py::eval_math", "repeat": 1, "longest_first": False, **options}
    return Plan(rows, store, evaluation_id, **asked)


def _rows(*names: str) -> list[dict[str, str]]:
    return [{"id": name} for name in names]


async def _all(plan: Plan) -> list[tuple[str, int]]:
    taken = []
    while not plan.is_over:
        await plan.refill(at_most=2)
        while attempt := plan.take():
            taken.append((attempt.sample.id, attempt.repeat))
    return taken


async def test_an_empty_store_leaves_everything_to_run(store: Store) -> None:
    evaluation_id = record(store, "exp")

    plan = _plan(store, _rows("a", "b"), evaluation_id=evaluation_id)

    assert await _all(plan) == [("a", 0), ("b", 0)]
    assert (plan.total, plan.skipped, plan.failed_before, plan.rows_read) == (2, 0, 0, 2)


async def test_what_is_done_is_skipped_and_what_failed_runs_again(store: Store) -> None:
    evaluation_id = record(store, "exp", done("a", m=True), failed("b"))

    plan = _plan(store, _rows("a", "b", "c"), evaluation_id=evaluation_id)

    assert await _all(plan) == [("b", 0), ("c", 0)]
    assert (plan.total, plan.skipped, plan.failed_before) == (3, 1, 1)


async def test_each_repeat_is_an_attempt_of_its_own(store: Store) -> None:
    evaluation_id = record(store, "exp", done("a", m=True), done("a", repeat=2, m=True))

    plan = _plan(store, _rows("a", "b"), evaluation_id=evaluation_id, repeat=3)

    assert await _all(plan) == [("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert (plan.total, plan.skipped) == (6, 2)


async def test_done_samples_that_moved_get_their_new_places(store: Store) -> None:
    evaluation_id = record(
        store, "exp", failed("a"), done("a", repeat=1, also={"index": 0}, m=True), done("b", m=True)
    )

    await _all(_plan(store, _rows("b", "x", "a"), evaluation_id=evaluation_id, repeat=2))

    (info,) = store.evaluations("exp")
    assert [(r.sample_id, r.repeat, r.index) for r in store.records(info)] == [
        ("b", 0, 0),
        ("a", 0, 2),
        ("a", 1, 2),
    ]


async def test_a_list_tells_its_size_before_it_is_read(store: Store) -> None:
    assert _plan(store, _rows("a", "b", "c"), repeat=2).total == 6


async def test_a_limit_bounds_the_size(store: Store) -> None:
    assert _plan(store, _rows("a", "b", "c"), limit=2).total == 2


async def test_a_generator_has_no_size_until_its_end(store: Store) -> None:
    evaluation_id = record(store, "exp")
    plan = _plan(store, iter(_rows("a", "b", "c")), evaluation_id=evaluation_id)

    await plan.refill(at_most=1)
    before = plan.total
    await _all(plan)

    assert (before, plan.total) == (None, 3)


async def test_rows_are_read_only_where_none_are_waiting(store: Store) -> None:
    evaluation_id = record(store, "exp")
    plan = _plan(store, iter(_rows(*"abcdef")), evaluation_id=evaluation_id)

    await plan.refill(at_most=2)
    await plan.refill(at_most=2)

    assert (plan.rows_read, plan.waiting, plan.needs_rows()) == (2, 2, False)


async def test_reading_goes_on_past_rows_that_are_done(store: Store) -> None:
    evaluation_id = record(store, "exp", done("a", m=True), done("b", m=True), done("c", m=True))
    plan = _plan(store, iter(_rows(*"abcde")), evaluation_id=evaluation_id)

    await plan.refill(at_most=1)

    attempt = plan.take()
    assert attempt is not None
    assert (attempt.sample.id, plan.skipped) == ("d", 3)


def _timed(store: Store, **durations_s: float) -> None:
    samples = [done(name, wall_s=duration_s, m=True) for name, duration_s in durations_s.items()]
    record(store, "earlier", *samples)


async def test_the_longest_of_an_earlier_run_comes_first(store: Store) -> None:
    _timed(store, a=1.0, b=9.0, c=5.0)
    evaluation_id = record(store, "exp")

    plan = _plan(store, _rows("a", "b", "c"), evaluation_id=evaluation_id, longest_first=True)

    assert await _all(plan) == [("b", 0), ("c", 0), ("a", 0)]


async def test_a_sample_of_unknown_duration_counts_as_a_typical_one(store: Store) -> None:
    _timed(store, a=1.0, b=9.0)
    evaluation_id = record(store, "exp")

    plan = _plan(store, _rows("a", "new", "b"), evaluation_id=evaluation_id, longest_first=True)

    assert await _all(plan) == [("b", 0), ("new", 0), ("a", 0)]


async def test_without_known_durations_the_order_is_the_datasets(store: Store) -> None:
    evaluation_id = record(store, "exp")

    plan = _plan(store, _rows("c", "a", "b"), evaluation_id=evaluation_id, longest_first=True, repeat=2)

    assert await _all(plan) == [("c", 0), ("c", 1), ("a", 0), ("a", 1), ("b", 0), ("b", 1)]


async def test_longest_first_looks_ahead_only_so_far(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "LOOK_AHEAD_LAZY", 4)
    monkeypatch.setattr(plan_module, "CHUNK_LAZY", 2)
    _timed(store, a=1.0, b=2.0, c=3.0, d=4.0, e=99.0)
    evaluation_id = record(store, "exp")

    plan = _plan(store, iter(_rows(*"abcdef")), evaluation_id=evaluation_id, longest_first=True)
    await plan.refill(at_most=1)

    first = plan.take()
    assert first is not None
    assert (first.sample.id, plan.rows_read) == ("d", 4)


async def test_nothing_is_taken_before_it_has_looked_ahead(store: Store) -> None:
    plan = _plan(store, _rows("a"), longest_first=True)

    assert plan.take() is None
    assert plan.needs_rows()
