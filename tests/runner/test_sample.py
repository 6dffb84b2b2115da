"""One attempt, from its first try to its record."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from evalve.clock import utc_text
from evalve.contracts import CommitSink, RecordDraft, SampleContext, Store
from evalve.errors import SampleTimeout
from evalve.records import Failure, Result, Score, Try
from evalve.runner import commits as commits_module
from evalve.runner.attempted import Attempted
from evalve.runner.scoring import ScoreWriter
from evalve.runner.surroundings import AttemptSurroundings
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from running import records, rows, run, runnable, running


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


class _NoWaits:
    stood_still_s = 0.0


NO_WAITS = cast(AttemptSurroundings, _NoWaits())


def attempted(*steps: Callable[[Attempted], None], took_s: float = 2.0) -> Attempted:
    """An attempt whose first try took `took_s` and ended in these steps."""
    attempt = Attempted(10.0, NO_WAITS, None)
    attempt.begin_try(10.0)
    attempt.begin_call(10.0)
    for step in steps:
        step(attempt)
    attempt.end_call(10.0 + took_s)
    return attempt


class TestAttempted:
    def test_a_score_that_was_returned_is_taken(self) -> None:
        attempt = attempted(lambda attempt: attempt.take(Score("m", True), ScoreWriter()))

        assert attempt.scored is not None
        assert (attempt.scored.scores, attempt.failure, attempt.error) == ([Score("m", True)], None, None)

    def test_a_value_without_a_score_is_a_failure_without_an_error(self) -> None:
        attempt = attempted(lambda attempt: attempt.take("yes", ScoreWriter()))

        assert (attempt.scored, attempt.error) == (None, None)
        assert attempt.failure is not None
        assert attempt.failure.kind == "ResultError"

    def test_an_error_is_a_failure_with_a_traceback(self) -> None:
        attempt = attempted(lambda attempt: attempt.fail(ValueError("no")))

        assert attempt.failure == Failure("ValueError", "no", "ValueError: no\n")

    def test_an_error_of_our_own_needs_no_traceback(self) -> None:
        attempt = attempted(lambda attempt: attempt.fail(SampleTimeout("too long")))

        assert attempt.failure == Failure("SampleTimeout", "too long", failure_class="timeout")

    def test_a_result_that_replaces_an_error_takes_the_failure_away(self) -> None:
        attempt = attempted(
            lambda attempt: attempt.fail(ValueError("no")), lambda attempt: attempt.take(0.5, ScoreWriter())
        )

        assert attempt.failure is None
        assert attempt.scored is not None

    def test_an_error_after_a_result_takes_the_scores_away(self) -> None:
        attempt = attempted(
            lambda attempt: attempt.take(True, ScoreWriter()), lambda attempt: attempt.fail(ValueError("no"))
        )

        assert attempt.scored is None

    def test_working_time_is_the_sum_of_the_tries(self) -> None:
        attempt = attempted(took_s=2.0)
        attempt.begin_try(20.0)
        attempt.begin_call(20.0)
        attempt.end_call(23.0)

        assert (attempt.tries, attempt.working_s, attempt.first_started_s, attempt.ended_s) == (
            2,
            5.0,
            10.0,
            23.0,
        )

    def test_a_new_try_begins_without_the_outcome_of_the_last(self) -> None:
        attempt = attempted(lambda attempt: attempt.fail(ValueError("no")))

        attempt.begin_try(20.0)

        assert (attempt.scored, attempt.failure, attempt.error) == (None, None, None)

    def test_a_try_is_noted_with_its_error_and_time(self) -> None:
        attempt = attempted(lambda attempt: attempt.fail(ValueError("no")))

        attempt.note_try("run-1")

        assert attempt.history == [Try(attempt.started_at, 2.0, "ValueError: no", "run-1")]
        assert not attempt.try_is_open

    def test_a_run_that_stops_before_the_next_try_leaves_the_last_error(self) -> None:
        attempt = attempted(lambda attempt: attempt.fail(ValueError("no")))

        attempt.give_up()

        assert attempt.failure == Failure("ValueError", "no", "ValueError: no\n")

    def test_a_run_that_stops_while_a_result_asks_again_leaves_an_interruption(self) -> None:
        attempt = attempted(lambda attempt: attempt.take(True, ScoreWriter()))

        attempt.give_up()

        assert attempt.failure == Failure(
            "Interrupted", "the run was stopped before the next try", failure_class="infrastructure"
        )


def test_an_instant_is_written_in_utc_to_the_millisecond() -> None:
    assert utc_text(1_762_178_520.25) == "2025-11-03T14:02:00.250+00:00"


class LateStore:
    """Commits each record half a minute after it was added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.most_waiting = 0
        self._waiting = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, draft: RecordDraft, sink: CommitSink) -> None:
        self._waiting += 1
        self.most_waiting = max(self.most_waiting, self._waiting)
        asyncio.get_running_loop().call_later(30.0, self._commit, draft, sink)

    def _commit(self, draft: RecordDraft, sink: CommitSink) -> None:
        self._waiting -= 1
        self._store.add(draft, sink)


async def quick(id: str) -> bool:
    return True


def test_a_run_ends_when_its_last_record_is_committed(store: Store) -> None:
    late: Any = LateStore(store)

    outcome = run(runnable(quick, rows("a", "b")), late)

    assert (outcome.info.done, round(outcome.run.report["wall_s"], 6)) == (2, 30.0)


def test_samples_wait_where_too_many_records_are_on_their_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits_module, "MOST_UNCOMMITTED", 3)
    late: Any = LateStore(store)

    outcome = run(runnable(quick, rows(*"abcdefghij"), max_concurrency=2), late)

    assert outcome.info.done == 10
    assert late.most_waiting == 5  # three, and one more from each of the two slots


def test_a_cancelled_caller_still_waits_for_what_was_recorded(store: Store) -> None:
    late: Any = LateStore(store)

    async def cancelled_early() -> None:
        task = asyncio.ensure_future(running(runnable(quick, rows("a", "b")), late))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(cancelled_early())

    assert [record.sample_id for record in records(store)] == ["a", "b"]


def test_prompt_and_response_of_any_kind_are_stored(store: Store) -> None:
    class Reply:
        def __repr__(self) -> str:
            return "<Reply at 0x7f00>"

    async def evaluate(id: str) -> Result:
        return Result(True, prompt=["be brief", {"q": float("nan")}], response=Reply())

    run(runnable(evaluate, rows("a")), store)

    (record,) = records(store)
    assert (record.prompt, record.response) == (["be brief", {"q": "nan"}], "<Reply>")


def test_a_sample_that_is_over_leaves_nothing_to_the_garbage_collector(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        await asyncio.sleep(0)
        return True

    def contexts() -> set[int]:
        return {id(one) for one in gc.get_objects() if isinstance(one, SampleContext)}

    gc.collect()
    gc.disable()
    try:
        before = contexts()
        run(runnable(evaluate, rows(*"abcdef")), store)
        left = contexts() - before
    finally:
        gc.enable()

    assert left == set()
