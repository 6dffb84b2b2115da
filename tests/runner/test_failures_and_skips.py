"""What becomes of samples that break, by the class of their failure, and of those that are skipped."""

from __future__ import annotations

import asyncio
import errno
import json
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenacity

from evalve.concurrency import SlidingWindow
from evalve.contracts import SAMPLE, Store
from evalve.errors import AgentError, AnswerError, ExperimentChanged, InfrastructureError
from evalve.records import FailureClass
from evalve.runner.telling import as_progress
from evalve.storage import open_store
from running import Notes, records, rows, run, runnable, statuses


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


def raising(error: Callable[[], BaseException]) -> Callable[..., Any]:
    """An evaluation of which each sample raises the error."""

    async def breaks(id: str) -> bool:
        raise error()

    return breaks


@pytest.mark.parametrize(
    ("error", "expected", "tries"),
    [
        (lambda: ValueError("no"), "code", 1),
        (lambda: AnswerError("no number in it"), "answer", 1),
        (lambda: AgentError("exited with 1"), "agent", 1),
        (lambda: ConnectionError("refused"), "provider", 3),
        (lambda: ExceptionGroup("tasks", [ConnectionError("refused")]), "provider", 3),
        (lambda: TimeoutError("its own"), "timeout", 3),
        (lambda: InfrastructureError("the disk is gone"), "infrastructure", 3),
        (lambda: OSError(errno.ENOSPC, "no space left"), "infrastructure", 3),
    ],
)
def test_a_failure_is_recorded_with_its_class(
    error: Callable[[], BaseException], expected: FailureClass, tries: int, store: Store
) -> None:
    progress = Notes()

    outcome = run(runnable(raising(error), rows("a")), store, progress)

    (record,) = records(store)
    assert (record.status, record.failure_class, record.tries) == ("failed", expected, tries)
    assert outcome.info.failures == {expected: 1}
    assert outcome.run.report["failures"] == {expected: 1}
    assert progress.tallies[0].failures == {expected: 1}
    assert outcome.problems == [f"1 of 1 samples failed ({expected})"]


def test_what_is_not_a_score_is_the_code_s_failure(store: Store) -> None:
    async def forgets_to_return(id: str) -> None: ...

    run(runnable(forgets_to_return, rows("a")), store)

    assert records(store)[0].failure_class == "code"


def test_the_deadline_is_a_class_of_its_own(store: Store) -> None:
    async def never_ends(id: str) -> bool:
        await asyncio.sleep(60)
        return True

    run(runnable(never_ends, rows("a"), timeout_s=2.0), store)

    assert records(store)[0].failure_class == "timeout"


def test_an_answer_that_cannot_be_read_is_the_answer_s_failure(store: Store) -> None:
    async def reads(id: str) -> Any:
        sample = SAMPLE.get()
        assert sample is not None
        sample.calls.requests += id == "asked"
        return json.loads("Sure! Here is the JSON")

    run(runnable(reads, rows("asked", "not-asked")), store)

    assert [record.failure_class for record in records(store)] == ["answer", "code"]


@pytest.mark.parametrize(
    "retries", [1, 10, False, tenacity.AsyncRetrying(stop=tenacity.stop_after_attempt(7))]
)
def test_infrastructure_is_tried_three_times_whatever_the_retries_are(retries: Any, store: Store) -> None:
    tries: Counter[str] = Counter()

    async def recovers(id: str) -> bool:
        tries[id] += 1
        if id == "never" or tries[id] < 3:
            raise InfrastructureError("the machine is full")
        return True

    outcome = run(runnable(recovers, rows("third", "never"), retries=retries), store)

    assert statuses(store) == [("third", "done"), ("never", "failed")]
    assert tries == {"third": 3, "never": 3}
    assert outcome.metrics[0].value == 1.0, "never wrong"
    (note,) = store.runs(outcome.info.id)[0].report["notes"]
    assert "tried again" in note, "a person is told once why it takes longer"
    assert "the machine is full" in note


def test_a_failure_of_infrastructure_runs_again_on_resume(store: Store) -> None:
    run(runnable(raising(lambda: InfrastructureError("full")), rows("a")), store)

    async def works(id: str) -> bool:
        return True

    outcome = run(runnable(works, rows("a")), store)

    assert statuses(store) == [("a", "done")]
    assert (outcome.info.failures, outcome.problems) == ({}, [])


# -- skips


def skips_b(id: str) -> bool:
    if id == "b":
        pytest.skip("b does not apply")
    return True


async def skips_b_async(id: str) -> bool:
    return skips_b(id)


async def skips_b_in_a_task(id: str) -> bool:
    async with asyncio.TaskGroup() as group:
        return await group.create_task(skips_b_async(id))


def expects_b_to_fail(id: str) -> bool:
    if id == "b":
        pytest.xfail("b does not apply")
    return True


def skips_b_as_unittest(id: str) -> bool:
    if id == "b":
        raise unittest.SkipTest("b does not apply")
    return True


@pytest.mark.parametrize(
    ("function", "strategy"),
    [
        (skips_b, None),
        (skips_b, SlidingWindow(2)),
        (skips_b_async, None),
        (skips_b_in_a_task, None),
        (skips_b_as_unittest, None),
        (expects_b_to_fail, None),
    ],
    ids=["inline", "threads", "async", "task group", "unittest", "xfail"],
)
def test_a_skip_is_recorded_with_its_reason_and_is_neither_done_nor_failed(
    function: Callable[..., Any], strategy: Any, store: Store
) -> None:
    progress = Notes()
    evaluation = runnable(function, rows("a", "b", "c"), strategy=strategy, retries=5)

    outcome = run(evaluation, store, progress)

    assert statuses(store) == [("a", "done"), ("b", "skipped"), ("c", "done")]
    record = records(store)[1]
    assert (record.tries, record.scores, record.failure_class) == (1, [], None)
    assert record.failure is not None
    assert (record.failure.kind, record.failure.message) == ("Skipped", "b does not apply")
    info, tally = outcome.info, progress.tallies[0]
    assert (info.done, info.failed, info.skipped, info.total) == (2, 0, 1, 3)
    assert (tally.done, tally.failed, tally.skipped_now) == (2, 0, 1)
    assert (outcome.ran, outcome.run.status, outcome.problems) == (3, "complete", [])
    assert [(value.metric, value.value, value.samples) for value in outcome.metrics] == [("accuracy", 1.0, 2)]


def test_a_skipped_sample_does_not_run_again(store: Store) -> None:
    run(runnable(skips_b, rows("a", "b")), store)
    ran: list[str] = []

    def notes(id: str) -> bool:
        ran.append(id)
        return True

    outcome = run(runnable(notes, rows("a", "b", "c")), store)

    assert ran == ["c"]
    assert statuses(store) == [("a", "done"), ("b", "skipped"), ("c", "done")]
    assert outcome.ran == 1


def test_a_sample_that_failed_may_be_skipped_later(store: Store) -> None:
    run(runnable(raising(lambda: ValueError("no")), rows("a", "b")), store)

    outcome = run(runnable(skips_b_async, rows("a", "b")), store)

    assert statuses(store) == [("a", "done"), ("b", "skipped")]
    assert (outcome.info.failed, outcome.info.failures, outcome.problems) == (0, {}, [])


def test_of_repeats_each_skips_for_itself(store: Store) -> None:
    seen: Counter[str] = Counter()

    async def skips_the_second(id: str) -> bool:
        seen[id] += 1
        if seen[id] == 2:
            pytest.skip("enough")
        return True

    outcome = run(runnable(skips_the_second, rows("a"), repeat=3), store)

    assert (outcome.info.done, outcome.info.skipped, outcome.info.total) == (2, 1, 3)


def test_a_row_that_is_gone_is_noticed_among_skips(store: Store) -> None:
    run(runnable(skips_b, rows("a", "b", "gone")), store)

    outcome = run(runnable(skips_b, rows("a", "b")), store)

    assert outcome.info.left_out == 1
    assert (outcome.info.done, outcome.info.skipped, outcome.info.total) == (1, 1, 2)


def test_a_changed_function_does_not_go_on_with_what_the_old_one_skipped(store: Store) -> None:
    run(runnable(skips_b, rows("b"), fingerprint={"function": "skips"}), store)

    with pytest.raises(ExperimentChanged, match="since the 1 samples of experiment 'exp'"):
        run(runnable(skips_b, rows("b"), fingerprint={"function": "skips less"}), store)


def test_a_skip_inside_the_deadline_is_no_timeout(store: Store) -> None:
    async def skips_late(id: str) -> bool:
        await asyncio.sleep(1)
        pytest.skip("late")

    run(runnable(skips_late, rows("a"), timeout_s=2.0), store)

    assert statuses(store) == [("a", "skipped")]


def test_pytest_fail_is_a_failure_and_no_skip(store: Store) -> None:
    async def fails(id: str) -> bool:
        pytest.fail("not good")

    run(runnable(fails, rows("a")), store)

    (record,) = records(store)
    assert (record.status, record.failure_class) == ("failed", "code")


def test_live_progress_has_the_classes(store: Store) -> None:
    progress = Notes()
    outcome = run(runnable(raising(lambda: AgentError("no")), rows("a", "b")), store, progress)

    live = as_progress(outcome.run, progress.tallies[0])

    assert (live.failed, live.failures, live.skipped) == (2, {"agent": 2}, 0)


def test_five_hundred_failures_are_counted_as_they_are_committed(store: Store) -> None:
    progress = Notes()
    many = [{"id": f"s{number}"} for number in range(500)]

    run(runnable(raising(lambda: AnswerError("no")), many), store, progress)

    assert progress.tallies[0].failures == {"answer": 500}
