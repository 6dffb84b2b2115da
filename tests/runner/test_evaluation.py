"""An evaluation from its first row to its verdict, on a store in memory and in virtual time."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from evalve.concurrency import Adaptive, Batch, Sequential, SlidingWindow
from evalve.contracts import SAMPLE, Store, Strategy, Task
from evalve.engines.loop import LoopEngine
from evalve.errors import CrossingError, DatasetError, ExperimentChanged, Locked, ModelError, StrategyError
from evalve.options import Threshold, Tolerance
from evalve.records import Result, Score
from evalve.runner.evaluation import Outcome, run_evaluation
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from recorded import done, record
from running import (
    CollectFirst,
    DistantStore,
    FailingStore,
    Notes,
    RateLimited,
    records,
    rows,
    run,
    runnable,
    running,
    statuses,
)


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


async def right(id: str) -> bool:
    await asyncio.sleep(1.0)
    return True


# -- recording ---------------------------------------------------------------------------------------


def test_every_sample_is_recorded_in_dataset_order(store: Store) -> None:
    delays_s = {"a": 3.0, "b": 1.0, "c": 2.0}

    async def evaluate(id: str) -> Result:
        await asyncio.sleep(delays_s[id])
        return Result(Score("match", id != "b"), prompt=f"{id}?", response={"text": id})

    outcome = run(runnable(evaluate, rows("a", "b", "c")), store)

    a, b, c = records(store)
    assert [(r.sample_id, r.index, r.status) for r in (a, b, c)] == [
        ("a", 0, "done"),
        ("b", 1, "done"),
        ("c", 2, "done"),
    ]
    assert (b.scores, b.prompt, b.response, b.row, b.tries, b.history) == (
        [Score("match", False)],
        "b?",
        {"text": "b"},
        {"id": "b"},
        1,
        [],
    )
    assert (round(a.wall_s, 6), round(a.working_s, 6)) == (3.0, 3.0)
    assert [(value.evaluator, value.metric, value.samples) for value in outcome.metrics] == [
        ("match", "accuracy", 3)
    ]
    assert (outcome.ran, outcome.info.done, outcome.info.failed, outcome.info.total) == (3, 3, 0, 3)
    assert (outcome.run.status, outcome.interrupted, outcome.problems) == ("complete", False, [])


def test_the_runs_report_says_what_it_took(store: Store) -> None:
    outcome = run(runnable(right, rows("a", "b", "c"), max_concurrency=2), store)

    report = outcome.run.report
    assert (round(report["wall_s"], 6), report["ran"], report["skipped"], report["failed"]) == (2.0, 3, 0, 0)
    assert (report["peak_in_flight"], report["strategy"], report["max_concurrency"]) == (
        2,
        "SlidingWindow",
        2,
    )
    assert outcome.run.options == {"experiment": "exp", "max_concurrency": 2}
    assert outcome.run.fingerprint["rows"] == 3
    assert [stored.status for stored in store.runs(outcome.info.id)] == ["complete"]


def test_the_report_names_the_strategy_that_is_throttled(store: Store) -> None:
    outcome = run(runnable(right, rows("a", "b"), strategy=Batch(2), throttle_s=1.0), store)

    assert outcome.run.report["strategy"] == "Batch, throttled"


def test_adaptive_decisions_are_kept_in_the_report(store: Store) -> None:
    strategy = Adaptive(1, adaptation_interval=1.0)

    outcome = run(runnable(right, rows(*"abcdefghij"), strategy=strategy), store)

    assert outcome.run.report["decisions"][0]["from"] == 1
    assert outcome.run.report["decisions"][0]["to"] == 2


def test_progress_is_told_of_start_and_end(store: Store) -> None:
    progress = Notes()

    run(runnable(right, rows("a", "b")), store, progress)

    (tally,) = progress.tallies
    assert progress.finished_tallies == [tally]
    assert (tally.total, tally.done, tally.failed, tally.in_flight, tally.limit) == (2, 2, 0, 0, 10)


def test_code_called_by_a_sample_knows_which_it_is(store: Store) -> None:
    seen: list[Any] = []

    async def evaluate(id: str) -> bool:
        context = SAMPLE.get()
        assert context is not None
        seen.append((context.experiment, context.evaluation, context.sample_id, context.repeat))
        return True

    run(runnable(evaluate, rows("a"), repeat=2), store)

    assert sorted(seen) == [("exp", "eval_x", "a", 0), ("exp", "eval_x", "a", 1)]


def test_no_rows_are_a_complete_run(store: Store) -> None:
    outcome = run(runnable(right, []), store)

    assert (outcome.ran, outcome.info.total, outcome.run.status) == (0, 0, "complete")


# -- failures ----------------------------------------------------------------------------------------


def raise_value_error() -> None:
    raise ValueError("no answer")


def raise_pytest_fail() -> None:
    pytest.fail("not like this")


def raise_system_exit() -> None:
    raise SystemExit(3)


def raise_generator_exit() -> None:
    raise GeneratorExit


def raise_cancelled() -> None:
    raise asyncio.CancelledError


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raise_unspeakable() -> None:
    raise Unspeakable


@pytest.mark.parametrize(
    ("broken", "kind", "message"),
    [
        (raise_value_error, "ValueError", "no answer"),
        (raise_pytest_fail, "Failed", "not like this"),
        (raise_system_exit, "SystemExit", "3"),
        (raise_generator_exit, "GeneratorExit", ""),
        (raise_cancelled, "CancelledError", ""),
        (cancel_own_task, "CancelledError", ""),
        (raise_unspeakable, "Unspeakable", "its message cannot be read: __str__ raised RuntimeError"),
    ],
)
def test_what_one_sample_raises_is_its_failure_alone(
    store: Store, broken: Callable[[], None], kind: str, message: str
) -> None:
    async def evaluate(id: str) -> bool:
        if id == "b":
            broken()
        await asyncio.sleep(1.0)
        return True

    outcome = run(runnable(evaluate, rows("a", "b", "c"), strategy=Sequential()), store)

    _, b, _ = records(store)
    assert statuses(store) == [("a", "done"), ("b", "failed"), ("c", "done")]
    assert b.failure is not None
    assert (b.failure.kind, b.failure.message, b.scores) == (kind, message, [])
    assert outcome.problems == ["1 of 3 samples failed (code)"]


def test_a_failures_traceback_begins_in_the_persons_code(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        raise_value_error()
        return True

    run(runnable(evaluate, rows("a")), store)

    (record,) = records(store)
    assert record.failure is not None
    lines = record.failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("in evaluate")
    assert lines[-1] == "ValueError: no answer"


@pytest.mark.parametrize(
    "broken", [raise_value_error, raise_pytest_fail, raise_system_exit, raise_generator_exit]
)
def test_what_a_sync_sample_raises_is_its_failure_alone(store: Store, broken: Callable[[], None]) -> None:
    def evaluate(id: str) -> bool:
        if id == "b":
            broken()
        return True

    run(runnable(evaluate, rows("a", "b", "c")), store)

    assert statuses(store) == [("a", "done"), ("b", "failed"), ("c", "done")]


def test_a_return_value_without_a_score_is_a_failure_that_says_what_it_was(store: Store) -> None:
    async def evaluate(id: str) -> Any:
        return None if id == "a" else True

    run(runnable(evaluate, rows("a", "b")), store)

    a, b = records(store)
    assert (a.status, b.status) == ("failed", "done")
    assert str(a.failure).startswith("ResultError: the evaluation returned None: is a `return` missing?")


def test_a_score_with_a_metric_that_does_not_exist_is_a_failure_of_its_sample(store: Store) -> None:
    async def evaluate(id: str) -> Score:
        return Score("m", True, metrics="acuracy" if id == "a" else "accuracy")

    run(runnable(evaluate, rows("a", "b")), store)

    a, b = records(store)
    assert (a.status, b.status) == ("failed", "done")
    assert str(a.failure).startswith(
        "DeclarationError: there is no metric 'acuracy'; did you mean 'accuracy'?"
    )


def test_failures_within_the_tolerance_are_no_problem(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        if id == "b":
            raise_value_error()
        return True

    outcome = run(runnable(evaluate, rows("a", "b"), allow_failures=Tolerance(count=1)), store)

    assert (outcome.info.failed, outcome.problems) == (1, [])


def test_a_gate_that_is_missed_is_a_problem(store: Store) -> None:
    async def evaluate(id: str) -> Score:
        return Score("match", id == "a")

    outcome = run(runnable(evaluate, rows("a", "b"), require=[Threshold("accuracy", 0.9)]), store)

    assert outcome.problems == ["match.accuracy is 0.5, below the required 0.9"]


# -- tries, waits, deadlines -------------------------------------------------------------------------


class Flaky:
    """Breaks its connection a number of times per sample, then answers after a second."""

    def __init__(self, **breaks: int) -> None:
        self._left = dict(breaks)
        self.calls: list[tuple[str, float]] = []

    async def __call__(self, id: str) -> bool:
        raise NotImplementedError

    async def evaluate(self, id: str) -> bool:
        self.calls.append((id, asyncio.get_running_loop().time()))
        if self._left.get(id, 0) > 0:
            self._left[id] -= 1
            raise ConnectionResetError("gone")
        await asyncio.sleep(1.0)
        return True


def test_every_try_is_recorded(store: Store) -> None:
    flaky = Flaky(a=2)

    async def evaluate(id: str) -> bool:
        return await flaky.evaluate(id)

    run(runnable(evaluate, rows("a", "b")), store)

    a, b = records(store)
    assert (a.status, a.tries, [one.error for one in a.history]) == (
        "done",
        3,
        ["ConnectionResetError: gone", "ConnectionResetError: gone", None],
    )
    assert (b.tries, b.history) == (1, [])
    assert 4.0 <= a.wall_s <= 6.0
    assert round(a.working_s, 6) == 1.0


def test_after_three_tries_the_last_error_stands(store: Store) -> None:
    flaky = Flaky(a=9)

    async def evaluate(id: str) -> bool:
        return await flaky.evaluate(id)

    run(runnable(evaluate, rows("a")), store)

    (a,) = records(store)
    assert (a.status, a.tries, str(a.failure)) == ("failed", 3, "ConnectionResetError: gone")
    assert [one.error for one in a.history] == ["ConnectionResetError: gone"] * 3


class Boom(Exception):
    pass


class BrokenPolicy:
    """Looks like tenacity; its condition raises."""

    def retry(self, state: Any) -> bool:
        raise Boom("the condition broke")

    def stop(self, state: Any) -> bool:
        return False

    def wait(self, state: Any) -> float:
        return 0.0


def test_a_retry_condition_that_raises_is_the_failure_of_its_sample(store: Store) -> None:
    run(runnable(right, rows("a", "b"), retries=BrokenPolicy()), store)

    a, b = records(store)
    assert (str(a.failure), str(b.failure)) == ("Boom: the condition broke", "Boom: the condition broke")
    assert (a.scores, a.tries) == ([], 1)


WINDOWS_OF_ONE = [
    pytest.param(Sequential(), id="Sequential"),
    pytest.param(SlidingWindow(1), id="SlidingWindow"),
    pytest.param(RateLimited(1), id="one's own"),
    pytest.param(RateLimited(1, interval_s=0.1), id="one's own with pauses"),
    pytest.param(Adaptive(1, max_concurrency=1), id="Adaptive"),
]


@pytest.mark.parametrize("strategy", WINDOWS_OF_ONE)
def test_a_sample_that_waits_for_its_next_try_leaves_its_slot_to_others(
    store: Store, strategy: Strategy
) -> None:
    flaky = Flaky(a=1)

    async def evaluate(id: str) -> bool:
        return await flaky.evaluate(id)

    run(runnable(evaluate, rows("a", "b", "c", "d"), strategy=strategy), store)

    assert [name for name, _ in flaky.calls][:2] == ["a", "b"]
    assert sorted(name for name, _ in flaky.calls) == ["a", "a", "b", "c", "d"]
    assert statuses(store) == [("a", "done"), ("b", "done"), ("c", "done"), ("d", "done")]
    # a's try and three others' seconds, and a's second try: nobody waits for the backoff
    assert max(at_s for _, at_s in flaky.calls) < 3.5


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(Batch(2), id="Batch"),
        pytest.param(CollectFirst(), id="collects first"),
        pytest.param(RateLimited(2), id="one's own"),
    ],
)
def test_retries_come_back_under_strategies_that_hold_tasks(store: Store, strategy: Strategy) -> None:
    flaky = Flaky(a=2, c=1, e=9)

    async def evaluate(id: str) -> bool:
        return await flaky.evaluate(id)

    run(runnable(evaluate, rows(*"abcde"), strategy=strategy), store)

    assert [(r.sample_id, r.status, r.tries) for r in records(store)] == [
        ("a", "done", 3),
        ("b", "done", 1),
        ("c", "done", 2),
        ("d", "done", 1),
        ("e", "failed", 3),
    ]


def test_a_sample_that_runs_too_long_fails_and_is_not_tried_again(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        await asyncio.sleep(100.0 if id == "a" else 1.0)
        return True

    run(runnable(evaluate, rows("a", "b"), timeout_s=5.0), store)

    a, b = records(store)
    assert (a.status, b.status, a.tries, round(a.wall_s, 6)) == ("failed", "done", 1, 5.0)
    assert str(a.failure) == "SampleTimeout: ran for 5 s without an end (timeout_s=5)"


def test_the_deadline_counts_all_tries_but_not_the_waits(store: Store) -> None:
    starts: list[float] = []

    async def evaluate(id: str) -> bool:
        starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(2.0)
        raise ConnectionResetError("gone")

    run(runnable(evaluate, rows("a"), timeout_s=5.0, retries=9), store)

    (a,) = records(store)
    assert (a.tries, round(a.working_s, 6), str(a.failure)) == (
        3,
        5.0,
        "SampleTimeout: ran for 5 s without an end (timeout_s=5)",
    )


def test_a_timeout_of_the_functions_own_is_tried_again(store: Store) -> None:
    calls: list[str] = []

    async def evaluate(id: str) -> bool:
        calls.append(id)
        if len(calls) == 1:
            raise TimeoutError
        return True

    run(runnable(evaluate, rows("a"), timeout_s=5.0), store)

    assert (statuses(store), calls) == ([("a", "done")], ["a", "a"])


async def test_a_sync_function_with_a_deadline_runs_in_a_thread(store: Store) -> None:
    threads: list[bool] = []

    def evaluate(id: str) -> bool:
        threads.append(threading.current_thread() is threading.main_thread())
        return True

    await running(runnable(evaluate, rows("a"), timeout_s=600.0), store)

    assert threads == [False]


# -- resuming ----------------------------------------------------------------------------------------


def test_a_complete_experiment_runs_nothing_and_gives_the_same_verdict(store: Store) -> None:
    async def evaluate(id: str) -> Score:
        return Score("match", id == "a")

    evaluation = runnable(evaluate, rows("a", "b"), require=[Threshold("accuracy", 0.9)])
    first = run(evaluation, store)

    again = run(evaluation, store)

    assert (first.ran, again.ran) == (2, 0)
    assert again.metrics == first.metrics
    assert again.problems == first.problems == ["match.accuracy is 0.5, below the required 0.9"]


def test_failures_are_tried_again_and_done_samples_are_not(store: Store) -> None:
    calls: list[str] = []

    async def evaluate(id: str) -> bool:
        calls.append(id)
        if len(calls) == 2:
            raise_value_error()
        return True

    evaluation = runnable(evaluate, rows("a", "b", "c"), strategy=Sequential())
    run(evaluation, store)

    outcome = run(evaluation, store)

    b = records(store)[1]
    assert calls == ["a", "b", "c", "b"]
    assert statuses(store) == [("a", "done"), ("b", "done"), ("c", "done")]
    assert (b.tries, [one.error for one in b.history]) == (2, ["ValueError: no answer", None])
    assert (outcome.ran, outcome.run.report["skipped"], outcome.problems) == (1, 2, [])


def test_the_number_of_samples_is_a_total_that_may_grow(store: Store) -> None:
    names = rows(*"abcdef")

    ran = [run(runnable(right, names, samples=n), store).ran for n in (2, 2, 5, 3)]

    assert ran == [2, 0, 3, 0]
    assert [name for name, _ in statuses(store)] == ["a", "b", "c", "d", "e"]


def test_a_smaller_number_of_samples_later_forgets_nothing(store: Store) -> None:
    run(runnable(right, rows(*"abcd"), samples=4), store)

    outcome = run(runnable(right, rows(*"abcd"), samples=2), store)

    assert (outcome.info.done, outcome.info.total) == (4, 4)


def test_each_repeat_is_a_record_of_its_own(store: Store) -> None:
    run(runnable(right, rows("a", "b")), store)

    outcome = run(runnable(right, rows("a", "b"), repeat=3), store)

    assert (outcome.ran, outcome.info.total) == (4, 6)
    assert [(r.sample_id, r.repeat) for r in records(store)] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
        ("b", 1),
        ("b", 2),
    ]


def test_rows_added_in_front_move_the_others_and_run_alone(store: Store) -> None:
    run(runnable(right, rows("a", "b"), repeat=2), store)

    outcome = run(runnable(right, rows("new", "b", "a"), repeat=2), store)

    assert outcome.ran == 2
    assert [(r.sample_id, r.index, r.repeat) for r in records(store)] == [
        ("new", 0, 0),
        ("new", 0, 1),
        ("b", 1, 0),
        ("b", 1, 1),
        ("a", 2, 0),
        ("a", 2, 1),
    ]


def test_an_endless_dataset_is_read_only_as_far_as_it_is_needed(store: Store) -> None:
    pulled: list[int] = []

    def endless() -> Iterator[dict[str, str]]:
        number = 0
        while True:
            pulled.append(number)
            yield {"id": f"s{number}"}
            number += 1

    outcome = run(runnable(right, endless(), samples=7), store)

    assert (outcome.ran, outcome.info.total) == (7, 7)
    assert pulled == [0, 1, 2, 3, 4, 5, 6]


async def test_fresh_forgets_what_was_recorded(store: Store) -> None:
    calls: list[str] = []

    async def evaluate(id: str) -> bool:
        calls.append(id)
        return True

    await running(runnable(evaluate, rows("a")), store)
    await running(runnable(evaluate, rows("a", "b"), fresh=True), store)

    assert calls == ["a", "a", "b"]
    assert [r.tries for r in records(store)] == [1, 1]


class RefusesToStart(LoopEngine):
    async def start(self) -> None:
        raise CrossingError("the argument 'client' cannot be handed over")


async def test_fresh_forgets_nothing_where_the_engine_refuses_to_run_it(store: Store) -> None:
    await running(runnable(quick, rows("a")), store)
    again = runnable(quick, rows("a", "b"), fresh=True)

    with pytest.raises(CrossingError):
        await run_evaluation(
            again,
            store=store,
            progress=Notes(),
            engine_for=lambda evaluation, _: RefusesToStart(evaluation.call),
        )

    assert statuses(store) == [("a", "done")]


def test_order_auto_starts_the_longest_first_and_records_in_dataset_order(store: Store) -> None:
    durations_s = {"a": 1.0, "b": 9.0, "c": 5.0}
    started: list[str] = []

    async def evaluate(id: str) -> bool:
        started.append(id)
        await asyncio.sleep(durations_s[id])
        return True

    run(runnable(evaluate, rows("a", "b", "c")), store)
    started.clear()
    run(
        runnable(evaluate, rows("a", "b", "c"), experiment="second", order="auto", strategy=Sequential()),
        store,
    )

    assert started == ["b", "c", "a"]
    assert [name for name, _ in statuses(store, "second")] == ["a", "b", "c"]


def test_each_repeat_and_each_try_gets_a_row_of_its_own_and_the_record_holds_it_as_it_was(
    store: Store,
) -> None:
    tries = 0

    async def evaluate(id: str, messages: list[str]) -> dict[str, int]:
        nonlocal tries
        tries += 1
        messages.append("q")
        if tries == 1:
            raise ConnectionError("gone")
        return {"length": len(messages)}

    run(runnable(evaluate, [{"id": "a", "messages": []}], repeat=3, strategy=Sequential()), store)

    assert tries == 4
    assert [record.scores[0].value for record in records(store)] == [1, 1, 1]
    assert [record.row["messages"] for record in records(store)] == [[], [], []]


# -- rows that are gone ------------------------------------------------------------------------------


def _counted(outcome: Outcome) -> tuple[int, int | None, int]:
    return outcome.info.done, outcome.info.total, outcome.info.left_out


def test_a_row_that_is_gone_does_not_count_and_its_record_stays(store: Store) -> None:
    run(runnable(right, rows("a", "b", "c")), store)

    fewer = run(runnable(right, rows("c")), store)
    back = run(runnable(right, rows("c", "a", "b")), store)

    assert (fewer.ran, _counted(fewer)) == (0, (1, 1, 2))
    assert fewer.metrics[0].observations == 1
    assert (back.ran, _counted(back)) == (0, (3, 3, 0))


def test_one_row_goes_while_another_comes_back(store: Store) -> None:
    run(runnable(right, rows("a", "b")), store)
    run(runnable(right, rows("a")), store)

    outcome = run(runnable(right, rows("b")), store)

    assert (outcome.ran, _counted(outcome)) == (0, (1, 1, 1))
    assert [record.sample_id for record in records(store)] == ["b"]


def test_a_failure_of_a_row_that_is_gone_fails_nothing(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        return int(id) > 0

    first = run(runnable(evaluate, rows("1", "two")), store)
    second = run(runnable(evaluate, rows("1", "2")), store)

    assert first.problems == ["1 of 2 samples failed (code)"]
    assert second.problems == []


def test_fewer_samples_or_repeats_than_before_leave_nothing_out(store: Store) -> None:
    run(runnable(right, rows("a", "b"), repeat=3), store)

    fewer = run(runnable(right, rows("a", "b"), repeat=3, samples=1), store)
    once = run(runnable(right, rows("a", "b")), store)

    assert _counted(fewer) == (6, 6, 0)
    assert _counted(once) == (6, 6, 0)


def test_a_dataset_that_breaks_or_is_not_read_to_its_end_leaves_nothing_out(store: Store) -> None:
    def breaking() -> Iterator[dict[str, str]]:
        yield {"id": "a"}
        raise OSError("the line went dead")

    run(runnable(right, rows("a", "b", "c")), store)
    with pytest.raises(DatasetError):
        run(runnable(right, breaking()), store)
    cut = run(runnable(right, iter(rows("a", "x", "c")), samples=2), store)

    assert _counted(cut) == (4, 4, 0)


# -- rows that have changed --------------------------------------------------------------------------


async def _is_four(id: str, answer: int) -> bool:
    return answer == 4


def test_a_row_with_an_id_of_its_own_runs_again_when_its_content_has_changed(store: Store) -> None:
    run(runnable(_is_four, [{"id": "a", "answer": 4}, {"id": "b", "answer": 5}], repeat=2), store)
    corrected = [{"id": "b", "answer": 4}, {"id": "a", "answer": 4}]

    second = run(runnable(_is_four, corrected, repeat=2), store)
    third = run(runnable(_is_four, corrected, repeat=2), store)

    assert (second.ran, second.run.report["rows_changed"]) == (2, 1)
    assert (third.ran, third.run.report["rows_changed"]) == (0, 0)
    assert [(r.sample_id, r.scores[0].value, r.tries, r.row["answer"]) for r in records(store)] == [
        ("b", True, 2, 4),
        ("b", True, 2, 4),
        ("a", True, 1, 4),
        ("a", True, 1, 4),
    ]
    assert len(records(store)[0].history) == 2


def test_a_sample_recorded_without_a_hash_of_its_row_is_unchanged(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        return True

    record(store, "exp", done("a", m=True), name="eval_x")

    outcome = run(runnable(evaluate, [{"id": "a", "answer": 4}]), store)

    assert (outcome.ran, outcome.run.report["rows_changed"]) == (0, 0)


# -- changes -----------------------------------------------------------------------------------------


def _of(body: str, **options: Any) -> Any:
    return runnable(right, rows("a", "b"), fingerprint={"function eval_x": body}, **options)


def test_a_changed_function_stops_with_what_changed(store: Store) -> None:
    run(_of("def eval_x(id):\n    return old"), store)

    with pytest.raises(ExperimentChanged) as caught:
        run(_of("def eval_x(id):\n    return new"), store)

    assert str(caught.value) == (
        "eval_x has changed since the 2 samples of experiment 'exp' were recorded:\n\n"
        "  function eval_x:\n"
        "     def eval_x(id):\n"
        "    -    return old\n"
        "    +    return new\n\n"
        "Use --fresh (fresh=True) to start the experiment over, --accept-changes (accept_changes=True) "
        "to go on with what is recorded, or another experiment's name."
    )


def test_a_record_whose_parts_were_made_in_another_way_is_unchanged_once_and_recorded_anew(
    store: Store,
) -> None:
    def made(method: str, body: str) -> Any:
        return runnable(right, rows("a"), fingerprint={"method": method, "function eval_x": body})

    run(runnable(right, rows("a"), fingerprint={"function eval_x": "one"}), store)

    notes = Notes()
    outcome = run(made("2", "two"), store, notes)

    assert outcome.ran == 0
    assert [note for note in notes.notes if "was recorded by another version of evalve" in note] != []
    with pytest.raises(ExperimentChanged):
        run(made("2", "three"), store)


def test_accepted_changes_go_on_and_are_the_new_state(store: Store) -> None:
    run(_of("old", samples=1), store)

    outcome = run(_of("new", accept_changes=True), store)
    again = run(_of("new"), store)

    assert (outcome.ran, again.ran) == (1, 0)


def test_a_fresh_start_may_change_anything(store: Store) -> None:
    run(_of("old"), store)

    assert run(_of("new", fresh=True), store).ran == 2


def test_where_nothing_is_done_nothing_has_changed(store: Store) -> None:
    async def broken(id: str) -> bool:
        raise ValueError("no answer")

    run(runnable(broken, rows("a"), fingerprint={"function eval_x": "old"}), store)

    assert run(_of("new"), store).ran == 2


# -- strategies --------------------------------------------------------------------------------------


STRATEGIES = [
    pytest.param(Sequential(), 20.0, id="Sequential"),
    pytest.param(Batch(5), 4.0, id="Batch"),
    pytest.param(SlidingWindow(5), 4.0, id="SlidingWindow"),
    pytest.param(RateLimited(5), 4.0, id="one's own"),
    pytest.param(CollectFirst(), 20.0, id="collects first"),
]


@pytest.mark.parametrize(("strategy", "wall_s"), STRATEGIES)
@pytest.mark.parametrize("lazily", [False, True], ids=["list", "async generator"])
def test_every_strategy_keeps_its_concurrency_over_any_dataset(
    store: Store, strategy: Strategy, wall_s: float, lazily: bool
) -> None:
    names = [f"s{number:02}" for number in range(20)]
    source: Any = one_by_one(names) if lazily else rows(*names)

    outcome = run(runnable(right, source, strategy=strategy), store)

    assert [name for name, _ in statuses(store)] == names
    assert round(outcome.run.report["wall_s"], 6) == wall_s


async def one_by_one(names: list[str]) -> AsyncIterator[dict[str, str]]:
    for name in names:
        await asyncio.sleep(0)
        yield {"id": name}


def test_a_chunks_end_does_not_drain_ones_own_window(store: Store) -> None:
    names = [f"s{number:03}" for number in range(400)]

    outcome = run(runnable(right, rows(*names), strategy=RateLimited(100)), store)

    assert round(outcome.run.report["wall_s"], 6) == 4.0


def test_a_throttle_spaces_the_starts(store: Store) -> None:
    starts: list[float] = []

    async def evaluate(id: str) -> bool:
        starts.append(round(asyncio.get_running_loop().time(), 6))
        return True

    run(runnable(evaluate, rows(*"abc"), throttle_s=2.0), store)

    assert starts == [0.0, 2.0, 4.0]


class Dropping:
    """Takes two tasks, awaits one of them, and forgets the other."""

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        first = await anext(tasks, None)
        task = await anext(tasks, None) or first
        if task is not None:
            yield await task()


class NeverAwaiting:
    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        async for _ in tasks:
            yield None


class NeverTaking:
    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        nothing: list[Any] = []
        for result in nothing:
            yield result


class Twice:
    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        async for task in tasks:
            yield await task()
            yield await task()


class WithoutYield:
    """Typed as a strategy, but for its coroutine: this is what a forgotten `yield` gives."""

    async def execute(self, tasks: AsyncIterator[Task], progress_callback: Any = None) -> Any:
        async for task in tasks:
            await task()


class Raising:
    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        yield await (await anext(tasks))()
        raise ZeroDivisionError("a mistake in the strategy")


class OnePerExecution:
    """Starts one task, does not wait for it, and is done."""

    def __init__(self) -> None:
        self._started: set[asyncio.Future[Any]] = set()

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        task = await anext(tasks, None)
        if task is not None:
            self._started.add(asyncio.ensure_future(task()))
            await asyncio.sleep(0)
            yield None


class AsksForFourAtOnce:
    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        while True:
            taken = await asyncio.gather(*(anext(tasks, None) for _ in range(4)))
            batch = [task for task in taken if task is not None]
            if not batch:
                return
            for result in await asyncio.gather(*(task() for task in batch)):
                yield result


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(Dropping(), id="drops every other task"),
        pytest.param(OnePerExecution(), id="leaves after one"),
        pytest.param(AsksForFourAtOnce(), id="asks for several at once"),
    ],
)
def test_work_that_a_strategy_leaves_is_given_to_it_again(store: Store, strategy: Strategy) -> None:
    flaky = Flaky(b=1)

    async def evaluate(id: str) -> bool:
        return await flaky.evaluate(id)

    run(runnable(evaluate, rows(*"abcde"), strategy=strategy), store)

    assert [(r.sample_id, r.status, r.tries) for r in records(store)] == [
        ("a", "done", 1),
        ("b", "done", 2),
        ("c", "done", 1),
        ("d", "done", 1),
        ("e", "done", 1),
    ]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (NeverAwaiting(), r"^NeverAwaiting\.execute\(\) ended without awaiting any task that it was given$"),
        (NeverTaking(), r"^NeverTaking\.execute\(\) ended without awaiting any task that it was given$"),
        (Twice(), r"^the concurrency strategy awaited the same task twice$"),
        (
            WithoutYield(),
            r"^WithoutYield\.execute\(\) returned a coroutine, where an async iterator is needed",
        ),
    ],
)
def test_a_strategy_that_breaks_its_contract_is_an_error(
    store: Store, strategy: Strategy, message: str
) -> None:
    with pytest.raises(StrategyError, match=message):
        run(runnable(right, rows("a", "b"), strategy=strategy), store)


def test_what_a_strategy_raises_ends_the_run_and_leaves_it_resumable(store: Store) -> None:
    with pytest.raises(ZeroDivisionError, match="a mistake in the strategy"):
        run(runnable(right, rows("a", "b", "c"), strategy=Raising()), store)

    assert statuses(store) == [("a", "done")]
    assert run(runnable(right, rows("a", "b", "c")), store).ran == 2
    assert [stored.status for stored in store.runs(1)] == ["broken", "complete"]


# -- what ends a run early ---------------------------------------------------------------------------


ANY_STRATEGY = [
    pytest.param(Sequential(), id="Sequential"),
    pytest.param(Batch(2), id="Batch"),
    pytest.param(SlidingWindow(2), id="SlidingWindow"),
    pytest.param(RateLimited(2), id="one's own"),
    pytest.param(RateLimited(50), id="one's own, wider than the dataset"),
    pytest.param(CollectFirst(), id="collects first"),
]


@pytest.mark.parametrize("raises_at_once", [False, True], ids=["told later", "raises"])
@pytest.mark.parametrize("strategy", ANY_STRATEGY)
def test_a_store_that_cannot_write_ends_the_run(
    store: Store, strategy: Strategy, raises_at_once: bool
) -> None:
    failing: Any = FailingStore(store, after=3, raises_at_once=raises_at_once)

    with pytest.raises(OSError, match=r"the disk is"):
        run(runnable(right, rows(*"abcdefgh"), strategy=strategy), failing)

    assert len(records(store)) == 3


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        pytest.param(OSError("the disk is full"), ["a", "b", "c"], id="full"),
        pytest.param(Locked("another run has taken the experiment"), ["a"], id="taken"),
    ],
)
def test_what_is_under_way_when_a_record_cannot_be_written_ends_unless_another_run_does_the_same(
    store: Store, error: Exception, ended: list[str]
) -> None:
    full: Any = FailingStore(store, after=0, error=error)
    seconds = {"a": 1, "b": 60, "c": 61}
    seen: list[str] = []

    async def eval_x(id: str) -> bool:
        await asyncio.sleep(seconds[id])
        seen.append(id)
        return True

    with pytest.raises(type(error), match=str(error)):
        run(runnable(eval_x, rows("a", "b", "c"), strategy=SlidingWindow(3)), full)

    assert seen == ended


def test_a_dataset_that_breaks_midway_ends_the_run_and_keeps_what_is_done(store: Store) -> None:
    def breaking() -> Iterator[dict[str, str]]:
        yield {"id": "a"}
        yield {"id": "b"}
        raise ValueError("the file ends here")

    with pytest.raises(DatasetError, match=r"row 3 .* raised ValueError: the file ends here$"):
        run(runnable(quick, breaking(), strategy=Sequential()), store)

    assert statuses(store) == [("a", "done"), ("b", "done")]


async def quick(id: str) -> bool:
    return True


def test_two_rows_of_one_id_are_an_error(store: Store) -> None:
    with pytest.raises(DatasetError, match=r"rows 1 and 3 have the id 'a'"):
        run(runnable(right, rows("a", "b", "a")), store)


@pytest.mark.parametrize("strategy", ANY_STRATEGY)
def test_the_callers_cancellation_passes_and_leaves_a_resumable_store(
    store: Store, strategy: Strategy
) -> None:
    async def evaluate(id: str) -> bool:
        await asyncio.sleep(100.0 if id == "f" else 1.0)
        return True

    async def cancelled_in_the_middle() -> None:
        task = asyncio.ensure_future(running(runnable(evaluate, rows(*"abcdef"), strategy=strategy), store))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(cancelled_in_the_middle())
    kept = [record.sample_id for record in records(store)]
    outcome = run(runnable(right, rows(*"abcdef")), store)

    assert 1 <= len(kept) <= 5
    assert {record.status for record in records(store)} == {"done"}
    assert outcome.ran == 6 - len(kept)
    assert outcome.info.done == 6
    assert [stored.status for stored in store.runs(outcome.info.id)] == ["broken", "complete"]


def test_a_loop_that_shuts_down_records_no_false_failure(store: Store) -> None:
    async def left_alone() -> None:
        task = asyncio.ensure_future(running(runnable(right, rows(*"abc")), store))
        await asyncio.sleep(0.5)
        assert not task.done()

    run_in_virtual_time(left_alone())

    assert records(store) == []


# -- skipped samples ---------------------------------------------------------------------------------


def test_a_skipped_sample_is_recorded_and_does_not_run_again(store: Store) -> None:
    asked: list[str] = []

    async def evaluate(id: str) -> bool:
        asked.append(id)
        if id == "b":
            pytest.skip("does not apply")
        return True

    first = run(runnable(evaluate, rows("a", "b", "c")), store)
    again = run(runnable(evaluate, rows("a", "b", "c")), store)

    assert sorted(asked) == ["a", "b", "c"]
    assert statuses(store) == [("a", "done"), ("b", "skipped"), ("c", "done")]
    assert (first.info.total, first.info.done, first.info.skipped) == (3, 2, 1)
    assert (first.run.status, again.run.status, again.info.left_out) == ("complete", "complete", 0)


def test_a_run_whose_last_sample_was_skipped_while_it_stopped_is_complete(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        if id == "b":
            context = SAMPLE.get()
            assert context is not None
            context.stop_run("enough")
            pytest.skip("does not apply")
        return True

    outcome = run(runnable(evaluate, rows("a", "b"), strategy=Sequential()), store)

    assert (outcome.interrupted, outcome.run.status) == (True, "complete")


# -- a store behind a network ------------------------------------------------------------------------


def test_a_run_works_on_a_store_that_is_far_away(store: Store) -> None:
    distant = cast(Store, DistantStore(store))

    async def fails_once(id: str) -> bool:
        if id == "b" and not store.runs(1)[1:]:
            raise ValueError("no")
        return True

    run(runnable(fails_once, rows("a", "b", "c"), order="auto"), distant)
    outcome = run(runnable(fails_once, rows("a", "b"), order="auto"), distant)

    assert statuses(store) == [("a", "done"), ("b", "done")]
    assert (outcome.ran, outcome.info.left_out, outcome.run.status) == (1, 1, "complete")
    assert [value.value for value in outcome.metrics] == [1.0]


def _breaks_at_the_fourth(rows_before: list[dict[str, str]], kind: str) -> Iterator[dict[str, str]]:
    yield from rows_before
    if kind == "bad row":
        yield {"nothing": "here"}
    raise OSError("the disk is gone")


@pytest.mark.parametrize("kind", ["raises", "bad row"])
def test_a_dataset_that_breaks_lets_the_rows_before_the_break_run_to_their_end(
    store: Store, kind: str
) -> None:
    good = rows("a", "b", "c")
    asked: list[str] = []

    async def eval_x(id: str) -> bool:
        asked.append(id)
        await asyncio.sleep(60)
        return True

    with pytest.raises(DatasetError, match="row 4"):
        run(runnable(eval_x, lambda: _breaks_at_the_fourth(good, kind)), store)

    assert asked == ["a", "b", "c"]
    assert statuses(store) == [("a", "done"), ("b", "done"), ("c", "done")]


@pytest.mark.parametrize(
    ("error", "ordinals"),
    [
        (ValueError("no number"), [1, 2, 3]),
        (json.JSONDecodeError("no JSON", "", 0), [1, 2, 3]),
        (ConnectionError("reset"), [1, 1, 1]),
    ],
    ids=["its own code", "an answer that cannot be read", "the network"],
)
def test_only_what_was_not_about_the_answer_asks_for_the_same_one_again(
    store: Store, error: Exception, ordinals: list[int]
) -> None:
    from tenacity import AsyncRetrying, stop_after_attempt

    seen: list[int] = []

    async def eval_x(id: str) -> bool:
        sample = SAMPLE.get()
        assert sample is not None
        asked = sample.calls.ordinals["question"] = sample.calls.ordinals.get("question", 0) + 1
        sample.calls.requests += 1
        seen.append(asked)
        raise error

    run(runnable(eval_x, rows("a"), retries=AsyncRetrying(stop=stop_after_attempt(3))), store)

    assert seen == ordinals


def asking(seen: list[int], error: Exception) -> Callable[[str], Coroutine[Any, Any, bool]]:
    async def eval_x(id: str) -> bool:
        sample = SAMPLE.get()
        assert sample is not None
        asked = sample.calls.ordinals["question"] = sample.calls.ordinals.get("question", 0) + 1
        sample.calls.requests += 1
        seen.append(asked)
        if len(seen) < 3:
            raise error
        return True

    return eval_x


@pytest.mark.parametrize(
    ("error", "ordinals"),
    [
        (ValueError("no number"), [1, 2, 3]),
        (json.JSONDecodeError("no JSON", "", 0), [1, 2, 3]),
        (ModelError("the budget is used up"), [1, 1, 1]),
        (TimeoutError(), [1, 1, 1]),
    ],
    ids=["code", "answer", "gate", "timeout"],
)
def test_a_resumed_sample_asks_anew_where_its_failure_may_be_about_the_answer(
    store: Store, error: Exception, ordinals: list[int]
) -> None:
    seen: list[int] = []
    evaluation = runnable(asking(seen, error), rows("a"), retries=1)

    for _ in range(3):
        run(evaluation, store)

    assert seen == ordinals
    (record,) = records(store)
    assert record.calls is not None
    assert "asked" not in record.calls


@pytest.mark.parametrize("changed", ["function", "cache"])
def test_a_resumed_sample_asks_the_same_where_its_function_was_changed_or_nobody_may_be_asked(
    store: Store, changed: str
) -> None:
    seen: list[int] = []
    first = runnable(asking(seen, ValueError("no number")), rows("a"), retries=1)
    second = first
    if changed == "function":
        second = replace(first, spec=replace(first.spec, fingerprint={"function": "mended"}))
    else:
        second = replace(first, options=replace(first.options, cache="read"))

    run(first, store)
    run(second, store)

    assert seen == [1, 1]


@pytest.mark.parametrize("begins", ["with it", "later"])
def test_a_run_that_leaves_the_rest_does_not_cancel_the_end_of_a_run_beside_it(
    store: Store, begins: str
) -> None:
    async def read_slowly_closed() -> AsyncIterator[dict[str, str]]:
        try:
            for name in "abc":
                yield {"id": name}
        finally:
            await asyncio.sleep(1.5)  # the other run's sample is over its deadline meanwhile

    async def evaluate(id: str) -> bool:
        return True

    async def hang(id: str) -> bool:
        await asyncio.sleep(1000)
        return True

    async def both() -> tuple[Outcome, Outcome]:
        async def ending() -> Outcome:
            ends = runnable(evaluate, read_slowly_closed, key="eval_x.py::eval_ends", samples=1)
            if begins == "with it":
                return await running(ends, store)
            await asyncio.sleep(0.1)
            return await asyncio.create_task(running(ends, store))

        hangs = runnable(hang, rows("a"), key="eval_x.py::eval_hangs", timeout_s=1.0)
        return await asyncio.gather(ending(), running(hangs, store))

    ended, timed_out = run_in_virtual_time(both())

    assert ended.problems == []
    assert timed_out.problems == ["1 of 1 samples failed (timeout)"]
