"""What an attempt is lent: taken before each try, given back after it whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt

from evalve.concurrency import SlidingWindow
from evalve.contracts import SAMPLE, SampleContext, Store, parked
from evalve.errors import OptionError
from evalve.runner.evaluation import Outcome
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from lending import KeepsDrafts, Numbered
from running import FailingStore, Notes, records, rows, run, runnable, running, statuses


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


def test_each_sample_is_lent_its_own_and_gives_it_back(store: Store) -> None:
    numbers: list[int] = []

    async def evaluate(id: str, thing: int) -> bool:
        numbers.append(thing)
        return True

    thing = Numbered()
    run(runnable(evaluate, rows("a", "b"), lenders={"thing": thing}, max_concurrency=1), store)

    assert numbers == [1, 2]
    assert thing.events == [
        ("lent", 1, "a", 1),
        ("back", 1, "done"),
        ("lent", 2, "b", 1),
        ("back", 2, "done"),
    ]


@pytest.mark.parametrize("max_concurrency", [1, 4])
def test_sync_functions_are_lent_things_too(store: Store, max_concurrency: int) -> None:
    def evaluate(id: str, thing: int) -> bool:
        return thing > 0

    run(
        runnable(evaluate, rows(*"abc"), lenders={"thing": Numbered()}, max_concurrency=max_concurrency),
        store,
    )

    assert statuses(store) == [("a", "done"), ("b", "done"), ("c", "done")]


def test_what_a_lender_notes_is_recorded_under_its_argument(store: Store) -> None:
    async def evaluate(id: str, left: int, right: int) -> bool:
        return True

    kept: Any = KeepsDrafts(store)
    run(runnable(evaluate, rows("a"), lenders={"left": Numbered(), "right": Numbered()}), kept)

    assert kept.lent == {"a": {"left": {"number": 1}, "right": {"number": 1}}}


def test_each_try_is_lent_its_own_and_the_last_one_is_recorded(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> float:
        if thing < 3:
            raise ConnectionError("try again")
        return float(thing)

    thing = Numbered()
    kept: Any = KeepsDrafts(store)
    run(runnable(evaluate, rows("a"), lenders={"thing": thing}), kept)

    assert thing.events == [
        ("lent", 1, "a", 1),
        ("back", 1, "retried"),
        ("lent", 2, "a", 2),
        ("back", 2, "retried"),
        ("lent", 3, "a", 3),
        ("back", 3, "done"),
    ]
    assert kept.lent == {"a": {"thing": {"number": 3}}}


def test_a_result_that_asks_for_another_try_is_retried_with_a_loan_of_its_own(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        return thing == 2

    thing = Numbered()
    retrying = AsyncRetrying(retry=retry_if_result(lambda value: value is False), stop=stop_after_attempt(3))
    run(runnable(evaluate, rows("a"), lenders={"thing": thing}, retries=retrying), store)

    assert [event for event in thing.events if event[0] == "back"] == [
        ("back", 1, "retried"),
        ("back", 2, "done"),
    ]


def test_lenders_are_told_of_failures_and_of_results_that_are_no_score(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> Any:
        if id == "raises":
            raise ValueError("no")
        return "a text is no score"

    thing = Numbered()
    run(runnable(evaluate, rows("raises", "returns"), lenders={"thing": thing}, max_concurrency=1), store)

    assert [event for event in thing.events if event[0] == "back"] == [
        ("back", 1, "failed"),
        ("back", 2, "failed"),
    ]


def test_a_skip_is_told_as_such(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        pytest.skip("not for this one")

    thing = Numbered()
    run(runnable(evaluate, rows("a"), lenders={"thing": thing}), store)

    assert thing.events[-1] == ("back", 1, "skipped")


def test_a_lender_may_skip_the_sample(store: Store) -> None:
    class Unavailable:
        @asynccontextmanager
        async def lend(self, context: SampleContext) -> AsyncIterator[None]:
            if context.sample_id == "a":
                pytest.skip("no such thing on this machine")
            yield

    async def evaluate(id: str, thing: None) -> bool:
        return True

    kept: Any = KeepsDrafts(store)
    run(runnable(evaluate, rows("a"), lenders={"thing": Unavailable()}), kept)

    assert [draft.status for draft in kept.drafts] == ["skipped"]


def test_a_lender_that_cannot_lend_twice_is_asked_a_third_time(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        return True

    thing = Numbered(fails=2)
    run(runnable(evaluate, rows("a"), lenders={"thing": thing}), store)

    assert [event[:2] for event in thing.events] == [
        ("refused", 1),
        ("refused", 2),
        ("lent", 3),
        ("back", 3),
    ]
    assert statuses(store) == [("a", "done")]


def test_a_lender_that_never_lends_is_a_failure_of_the_infrastructure_and_no_score(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        raise AssertionError("is never called")

    thing = Numbered(fails=9)
    outcome = run(runnable(evaluate, rows("a"), lenders={"thing": thing}), store)

    (record,) = records(store)
    assert (record.tries, record.scores, len(thing.events)) == (3, [], 3)
    assert record.failure is not None
    assert (record.failure.kind, record.failure.failure_class) == ("LenderError", "infrastructure")
    assert record.failure.message == (
        "'thing' could not be lent by Numbered: ConnectionError: nobody answers"
    )
    assert outcome.info.done == 0


def test_the_failure_shows_where_in_the_lender_it_broke(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        return True

    run(runnable(evaluate, rows("a"), lenders={"thing": Numbered(fails=3)}), store)

    (failed,) = records(store)
    assert failed.failure is not None
    traceback = failed.failure.traceback
    assert 'raise ConnectionError("nobody answers")' in traceback
    assert "evalve/runner" not in traceback


def test_retries_of_the_persons_own_do_not_change_how_often_a_lender_is_asked(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        return True

    thing = Numbered(fails=9)
    retrying = AsyncRetrying(stop=stop_after_attempt(7))
    run(runnable(evaluate, rows("a"), lenders={"thing": thing}, retries=retrying), store)

    assert len(thing.events) == 3


def test_what_was_lent_before_another_lender_failed_is_given_back(store: Store) -> None:
    async def evaluate(id: str, left: int, right: int) -> bool:
        return True

    left = Numbered()
    run(runnable(evaluate, rows("a"), lenders={"left": left, "right": Numbered(fails=9)}), store)

    assert [event for event in left.events if event[0] == "back"] == [
        ("back", 1, "retried"),
        ("back", 2, "retried"),
        ("back", 3, "failed"),
    ]


def test_a_lender_that_cannot_take_back_makes_the_sample_run_again(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> float:
        return float(thing)

    run(runnable(evaluate, rows("a"), lenders={"thing": Numbered(fails_to_take_back=1)}), store)

    (record,) = records(store)
    assert (record.tries, [score.value for score in record.scores]) == (2, [2.0])


def test_what_was_answered_with_a_loan_that_cannot_be_trusted_is_asked_for_again(store: Store) -> None:
    asked: list[int] = []

    async def evaluate(id: str, thing: int) -> bool:
        sample = SAMPLE.get()
        assert sample is not None
        if sample.answer is None:
            asked.append(thing)
            sample.answer = f"with {thing}"
        return bool(sample.answer == "with 2")

    run(runnable(evaluate, rows("a"), lenders={"thing": Numbered(fails_to_take_back=1)}), store)

    assert asked == [1, 2]
    assert [score.value for score in records(store)[0].scores] == [True]


def test_a_lender_that_never_takes_back_is_a_failure_and_no_score(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        return True

    run(runnable(evaluate, rows("a"), lenders={"thing": Numbered(fails_to_take_back=9)}), store)

    (record,) = records(store)
    assert (record.status, record.scores, record.tries) == ("failed", [], 3)
    assert record.failure is not None
    assert record.failure.message == "'thing' could not be taken back by Numbered: OSError: it is in use"


def test_other_lenders_are_told_that_the_try_has_failed_where_one_cannot_take_back(store: Store) -> None:
    async def evaluate(id: str, first: int, last: int) -> bool:
        return True

    first = Numbered()
    lenders = {"first": first, "last": Numbered(fails_to_take_back=1)}
    run(runnable(evaluate, rows("a"), lenders=lenders), store)

    assert [event for event in first.events if event[0] == "back"] == [
        ("back", 1, "failed"),
        ("back", 2, "done"),
    ]


def test_a_time_out_ends_before_the_loan_does(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        await asyncio.sleep(3600)
        return True

    thing = Numbered()
    run(runnable(evaluate, rows("a"), lenders={"thing": thing}, timeout_s=5.0), store)

    assert thing.events == [("lent", 1, "a", 1), ("back", 1, "failed")]


def test_the_time_that_lending_takes_is_no_working_time(store: Store) -> None:
    class Slow:
        @asynccontextmanager
        async def lend(self, context: SampleContext) -> AsyncIterator[None]:
            await asyncio.sleep(60)
            yield
            await asyncio.sleep(60)

    async def evaluate(id: str, thing: None) -> bool:
        await asyncio.sleep(2)
        return True

    run(runnable(evaluate, rows("a"), lenders={"thing": Slow()}, timeout_s=5.0), store)

    (record,) = records(store)
    assert (record.status, round(record.working_s, 6), round(record.wall_s, 6)) == ("done", 2.0, 122.0)


def test_a_cancelled_run_gives_back_what_it_was_lent(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        await asyncio.sleep(3600)
        return True

    thing = Numbered()

    async def cancelled() -> None:
        task = asyncio.ensure_future(
            running(runnable(evaluate, rows("a", "b"), lenders={"thing": thing}), store)
        )
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(cancelled())

    assert sorted(thing.events)[:2] == [("back", 1, None), ("back", 2, None)]
    assert records(store) == []


def test_a_stop_ends_a_wait_inside_of_a_lender_and_records_nothing(store: Store) -> None:
    """What the first Ctrl-C does."""

    class Full:
        contexts: ClassVar[list[SampleContext]] = []
        ended = 0

        @asynccontextmanager
        async def lend(self, context: SampleContext) -> AsyncIterator[None]:
            self.contexts.append(context)
            try:
                await context.held(asyncio.sleep(3600), "a place")
                yield
            finally:
                self.ended += 1

    async def evaluate(id: str, thing: None) -> bool:
        return True

    full, notes = Full(), Notes()

    async def stopped() -> Outcome:
        task = asyncio.ensure_future(
            running(runnable(evaluate, rows("a", "b"), lenders={"thing": full}), store, notes)
        )
        await asyncio.sleep(1.0)
        assert notes.tallies[0].waiting == {"a place": 2}
        full.contexts[0].stop_run("enough")
        return await task

    outcome = run_in_virtual_time(stopped())

    assert (outcome.interrupted, outcome.stop_reason) == (True, "enough")
    assert (full.ended, records(store)) == (2, [])


class ToldOfCommits:
    """A lender that notes whose record is safe."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[int]:
        yield 1
        context.when_committed(lambda: self.told.append(context.sample_id))


def test_a_lender_is_not_told_of_a_commit_that_failed(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        return True

    thing = ToldOfCommits()
    failing: Any = FailingStore(store, after=1)
    with pytest.raises(OSError, match="the disk is full"):
        run(runnable(evaluate, rows("a", "b"), lenders={"thing": thing}, max_concurrency=1), failing)

    assert thing.told == ["a"]


def test_a_lender_that_returns_no_context_manager_is_told_so(store: Store) -> None:
    class Wrong:
        def lend(self, context: SampleContext) -> int:
            return 7

    async def evaluate(id: str, thing: int) -> bool:
        return True

    lenders: Any = {"thing": Wrong()}
    run(runnable(evaluate, rows("a"), lenders=lenders), store)

    (record,) = records(store)
    assert record.failure is not None
    assert "lend() returned a int, where an async context manager is needed" in record.failure.message


class Readied(Numbered):
    """Wants to know of runs."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__()
        self.refuses = refuses

    async def run_begins(self, at_once: int | None) -> None:
        if self.refuses:
            raise OptionError(self.refuses)
        self.events.append(("begins", at_once))

    async def run_ends(self) -> str:
        self.events.append(("ends",))
        return "everything is back"


def test_a_lender_is_told_of_the_run_and_what_it_says_at_the_end_is_noted(store: Store) -> None:
    async def evaluate(id: str, thing: int, other: int) -> bool:
        return True

    thing = Readied()
    lenders = {"thing": thing, "other": thing}
    outcome = run(runnable(evaluate, rows("a"), lenders=lenders, max_concurrency=3), store)

    assert (thing.events[0], thing.events[-1]) == (("begins", 3), ("ends",))
    assert len(thing.events) == 6  # told once, however many arguments it lends for
    assert outcome.run.report["notes"] == ["everything is back"]


def test_a_lender_may_refuse_the_run_before_anything_is_recorded(store: Store) -> None:
    async def evaluate(id: str, thing: int, other: int) -> bool:
        return True

    ready, refuses = Readied(), Readied("there is no room")
    with pytest.raises(OptionError, match="there is no room"):
        run(runnable(evaluate, rows("a"), lenders={"thing": ready, "other": refuses}), store)

    assert [event[0] for event in ready.events] == ["begins", "ends"]
    assert statuses(store) == []


class Few:
    """Lends at most so many at once; whoever comes then waits, parked. Counts who came."""

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number)
        self.under_way = 0
        self.peak = 0

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[int]:
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            await context.parked(self._free.acquire(), "database")
            try:
                yield self.under_way
            finally:
                self._free.release()
        finally:
            self.under_way -= 1


def test_no_more_samples_wait_for_a_loan_than_run_at_once(store: Store) -> None:
    few = Few(2)

    async def evaluate(id: str, thing: int) -> bool:
        await asyncio.sleep(1)
        return True

    names = [str(number) for number in range(100)]
    run(runnable(evaluate, rows(*names), lenders={"thing": few}, strategy=SlidingWindow(3)), store)

    assert few.peak <= 2 + 3 + 3  # those that have it, those that wait, and those in the window
    assert [status for _, status in statuses(store)] == ["done"] * 100


def test_who_has_a_loan_and_waits_gets_a_slot_before_those_that_wait_for_a_loan(store: Store) -> None:
    async def evaluate(id: str, thing: int) -> bool:
        for _ in range(3):
            await parked(asyncio.sleep(1), "a batch")
        return True

    names = [str(number) for number in range(20)]
    run(runnable(evaluate, rows(*names), lenders={"thing": Few(1)}, strategy=SlidingWindow(2)), store)

    assert [status for _, status in statuses(store)] == ["done"] * 20


def test_those_that_cannot_be_lent_anything_do_not_keep_others_from_beginning(store: Store) -> None:
    class Refuses:
        @asynccontextmanager
        async def lend(self, context: SampleContext) -> AsyncIterator[int]:
            await context.parked(asyncio.sleep(1), "database")
            if context.sample_id:
                raise ConnectionError("nobody answers")
            yield 1

    async def evaluate(id: str, thing: int) -> bool:
        return True

    run(runnable(evaluate, rows(*"abcdef"), lenders={"thing": Refuses()}, strategy=SlidingWindow(2)), store)

    assert [status for _, status in statuses(store)] == ["failed"] * 6
