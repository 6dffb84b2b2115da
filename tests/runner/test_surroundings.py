"""How code inside a sample waits: slots, deadlines, reasons, Ctrl-C."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from evalve.concurrency import Sequential, SlidingWindow
from evalve.contracts import SAMPLE, SampleContext, Store, Task, parked
from evalve.errors import ModelError
from evalve.runner import turns as turns_module
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from running import Notes, records, rows, run, runnable, running, statuses


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


class Times:
    """When what happened, in virtual seconds."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []

    def note(self, event: str) -> None:
        self.events.append((event, round(asyncio.get_running_loop().time(), 6)))


def sample() -> SampleContext:
    context = SAMPLE.get()
    assert context is not None
    return context


def call_of(work: Awaitable[Any]) -> Callable[[], Awaitable[Any]]:
    """A call as the gate makes it: it says when it begins and ends."""

    async def call() -> Any:
        surroundings = sample().surroundings
        assert surroundings is not None
        surroundings.call_begins()
        try:
            return await work
        finally:
            surroundings.call_ends()

    return call


def test_while_a_sample_is_parked_another_has_its_slot(store: Store) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        times.note(f"{id} starts")
        await parked(asyncio.sleep(10), "a batch")
        times.note(f"{id} goes on")
        return True

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

    assert times.events == [("a starts", 0.0), ("b starts", 0.0), ("a goes on", 10.0), ("b goes on", 10.0)]


def test_while_a_sample_is_held_it_keeps_its_slot(store: Store) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        times.note(f"{id} starts")
        await sample().held(asyncio.sleep(10), "limits")
        return True

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

    assert times.events == [("a starts", 0.0), ("b starts", 10.0)]


def test_a_sample_that_was_parked_queues_for_a_slot_before_it_goes_on(store: Store) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        if id == "a":
            await parked(asyncio.sleep(1), "a batch")
            times.note("a goes on")
        else:
            await asyncio.sleep(50)
            times.note("b ends")
        return True

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

    assert times.events == [("b ends", 50.0), ("a goes on", 50.0)]


@pytest.mark.parametrize("how", ["parked", "held"])
def test_a_wait_does_not_count_towards_the_deadline_or_the_working_time(store: Store, how: str) -> None:
    async def evaluate(id: str) -> bool:
        await asyncio.sleep(1)
        await getattr(sample(), how)(asyncio.sleep(100), "limits")
        await asyncio.sleep(0.5)
        return True

    run(runnable(evaluate, rows("a"), timeout_s=2.0), store)

    (record,) = records(store)
    assert (record.status, round(record.working_s, 6), round(record.wall_s, 6)) == ("done", 1.5, 101.5)


@pytest.mark.parametrize("how", ["parked", "held"])
def test_after_a_wait_the_deadline_goes_on_where_it_stood(store: Store, how: str) -> None:
    async def evaluate(id: str) -> bool:
        await asyncio.sleep(1)
        await getattr(sample(), how)(asyncio.sleep(100), "limits")
        await asyncio.sleep(1.5)
        return True

    run(runnable(evaluate, rows("a"), timeout_s=2.0), store)

    (record,) = records(store)
    assert record.failure is not None
    assert (record.failure.failure_class, round(record.wall_s, 6)) == ("timeout", 102.0)


def test_clocks_elsewhere_are_told_when_a_sample_only_waits(store: Store) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        with sample().telling_still(lambda is_still: times.note("still" if is_still else "on")):
            await asyncio.sleep(1)
            await sample().held(asyncio.sleep(100), "limits")
            await call_of(asyncio.sleep(5))()
            waiting = sample().held(asyncio.sleep(20), "limits")
            await asyncio.gather(waiting, call_of(asyncio.sleep(3))())
        await sample().held(asyncio.sleep(50), "limits")
        return True

    run(runnable(evaluate, rows("a")), store)

    began = times.events[0][1] - 1
    told = [(event, round(at - began, 6)) for event, at in times.events]
    assert [one for one in told if one[1] < 106] == [("still", 1.0), ("on", 101.0)]
    assert told[-2:] == [("still", 109.0), ("on", 126.0)]


def test_the_time_that_a_sample_queues_for_a_slot_does_not_count_either(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        if id == "a":
            await parked(asyncio.sleep(1), "a batch")
            return True
        await sample().held(asyncio.sleep(50), "limits")
        return True

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential(), timeout_s=2.0), store)

    assert statuses(store) == [("a", "done"), ("b", "done")]


def test_while_one_call_of_a_sample_works_its_time_counts(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        waits = call_of(sample().held(asyncio.sleep(100), "limits"))
        works = call_of(asyncio.sleep(5))
        await asyncio.gather(works(), waits())
        return True

    run(runnable(evaluate, rows("a"), timeout_s=50.0), store)

    (record,) = records(store)
    assert (record.status, round(record.working_s, 6)) == ("done", 5.0)


def test_a_sample_with_several_calls_lends_its_slot_when_all_of_them_are_parked(store: Store) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        times.note(f"{id} starts")
        if id == "a":
            calls = [call_of(asyncio.sleep(5)), call_of(sample().parked(asyncio.sleep(20), "overload"))]
            await asyncio.gather(*[call() for call in calls])
        return True

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

    assert times.events == [("a starts", 0.0), ("b starts", 5.0)]


def test_while_one_of_several_waits_of_a_sample_is_left_its_deadline_stands_still(store: Store) -> None:
    async def evaluate(id: str) -> bool:
        await asyncio.gather(parked(asyncio.sleep(1), "a batch"), parked(asyncio.sleep(50), "a sandbox"))
        return True

    run(runnable(evaluate, rows("a"), timeout_s=2.0), store)

    assert statuses(store) == [("a", "done")]


def test_while_one_of_several_waits_of_a_sample_is_left_its_slot_is_lent(store: Store) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        if id == "a":
            await asyncio.gather(parked(asyncio.sleep(1), "a batch"), parked(asyncio.sleep(50), "a sandbox"))
        await asyncio.sleep(2)
        times.note(f"{id} ends")
        return True

    run(runnable(evaluate, rows(*"abc"), strategy=Sequential()), store)

    assert times.events == [("b ends", 2.0), ("c ends", 4.0), ("a ends", 52.0)]


@pytest.mark.parametrize("first", ["the call", "the wait"])
def test_a_call_that_works_beside_a_wait_needs_time_and_the_slot(store: Store, first: str) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        times.note(f"{id} starts")
        if id == "a":
            work, wait = call_of(asyncio.sleep(5))(), parked(asyncio.sleep(20), "a batch")
            await asyncio.gather(*((work, wait) if first == "the call" else (wait, work)))
        return True

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

    assert times.events == [("a starts", 0.0), ("b starts", 5.0)]
    assert [round(record.working_s, 6) for record in records(store)] == [5.0, 0.0]


def test_a_wait_within_a_wait_does_not_let_the_deadline_go_on(store: Store) -> None:
    async def several_steps() -> None:
        await parked(asyncio.sleep(1), "a batch")
        await asyncio.sleep(30)

    async def evaluate(id: str) -> bool:
        await parked(several_steps(), "a sandbox")
        return True

    run(runnable(evaluate, rows("a"), timeout_s=2.0), store)

    assert statuses(store) == [("a", "done")]


class Endings:
    """One after another, with a note of what each turn came to."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        async for task in tasks:
            self.seen.append(await task())
            yield self.seen[-1]


def test_a_turn_that_ends_in_a_retry_is_told_from_one_whose_sample_is_parked(store: Store) -> None:
    strategy, tries = Endings(), []

    async def evaluate(id: str) -> bool:
        tries.append(id)
        await parked(asyncio.sleep(1), "a batch")
        if len(tries) < 2:
            raise ConnectionError("reset")
        return True

    run(runnable(evaluate, rows("a"), strategy=strategy), store)

    assert strategy.seen == ["parked", "waiting", "parked", "done"]


def test_progress_shows_why_samples_wait(store: Store) -> None:
    notes = Notes()
    seen: list[dict[str, int]] = []

    async def evaluate(id: str) -> bool:
        if id == "a":
            await parked(asyncio.sleep(10), "a batch")
        else:
            await asyncio.sleep(1)
            seen.append(dict(notes.tallies[0].waiting))
        return True

    run(runnable(evaluate, rows(*"ab"), strategy=SlidingWindow(2)), store, notes)

    assert seen == [{"a batch": 1}]
    assert notes.tallies[0].waiting == {"a batch": 0}


def test_outside_of_samples_parking_is_waiting() -> None:
    async def answer() -> int:
        return 42

    assert run_in_virtual_time(_awaited(parked(answer(), "nothing"))) == 42


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def test_what_is_raised_in_a_wait_is_raised_with_a_slot(store: Store) -> None:
    times = Times()

    async def refused() -> None:
        await asyncio.sleep(1)
        raise LookupError("the batch has expired")

    async def evaluate(id: str) -> bool:
        if id == "b":
            await asyncio.sleep(50)
            return True
        try:
            await parked(refused(), "a batch")
        except LookupError:
            times.note("a hears of it")
        return False

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

    assert times.events == [("a hears of it", 50.0)]


def test_who_gives_up_a_wait_goes_on_with_a_slot(store: Store) -> None:
    times = Times()

    async def evaluate(id: str) -> bool:
        if id == "b":
            await asyncio.sleep(50)
            return True
        try:
            await asyncio.wait_for(parked(asyncio.sleep(1000), "a batch"), 5)
        except TimeoutError:
            times.note("a goes on")
        return False

    run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

    assert times.events == [("a goes on", 50.0)]


class TestAStop:
    """The first Ctrl-C, seen from inside."""

    @pytest.mark.parametrize("how", ["parked", "held"])
    def test_ends_every_wait_and_leaves_no_record_of_it(self, store: Store, how: str) -> None:
        async def evaluate(id: str) -> bool:
            if id == "c":
                await asyncio.sleep(3)
                sample().stop_run("enough")
                await asyncio.sleep(1)
                return True
            await getattr(sample(), how)(asyncio.sleep(1000), "limits")
            return True

        async def ended_s() -> float:
            outcome = await running(runnable(evaluate, rows(*"abcd"), strategy=SlidingWindow(3)), store)
            assert outcome.interrupted
            return asyncio.get_running_loop().time()

        assert round(run_in_virtual_time(ended_s()), 6) == 4.0
        assert statuses(store) == [("c", "done")]

    def test_ends_waits_that_begin_later(self, store: Store) -> None:
        async def evaluate(id: str) -> bool:
            sample().stop_run("enough")
            await asyncio.sleep(1)
            await sample().held(asyncio.sleep(1000), "limits")
            return True

        run(runnable(evaluate, rows("a")), store)

        assert statuses(store) == []

    @pytest.mark.parametrize("makes_of_it", ["error", "score"])
    def test_for_which_a_call_was_not_made_leaves_no_record_whatever_the_sample_makes_of_it(
        self, store: Store, makes_of_it: str
    ) -> None:
        async def evaluate(id: str) -> bool:
            if id == "b":
                sample().stop_run("the budget is used up", drops_sample=True)
                if makes_of_it == "error":
                    raise ModelError("the budget is used up")
                return False
            await asyncio.sleep(1)
            return True

        outcome = run(runnable(evaluate, rows(*"abcd"), strategy=SlidingWindow(3), retries=3), store)

        assert (outcome.interrupted, outcome.stop_reason) == (True, "the budget is used up")
        assert statuses(store) == [("a", "done"), ("c", "done")]

    @pytest.mark.parametrize("together", ["gather", "task group"])
    def test_lets_a_call_in_flight_end_before_the_waits_beside_it(self, store: Store, together: str) -> None:
        times = Times()

        async def works() -> None:
            await asyncio.sleep(10)
            times.note("the call has its answer")

        async def waits() -> None:
            try:
                await sample().held(asyncio.sleep(1000), "limits")
            finally:
                times.note("the wait ends")

        async def evaluate(id: str) -> bool:
            asyncio.get_running_loop().call_later(3, sample().stop_run, "enough")
            calls = [call_of(waits())(), call_of(works())()]
            if together == "gather":
                await asyncio.gather(*calls)
            else:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(_awaited(call)) for call in calls]
                await tasks[0]
            return True

        run(runnable(evaluate, rows("a")), store)

        assert times.events == [("the call has its answer", 10.0), ("the wait ends", 10.0)]
        assert statuses(store) == []

    def test_lets_no_wait_begin_beside_a_call_in_flight(self, store: Store) -> None:
        times = Times()
        asked_for: list[str] = []

        async def works() -> None:
            await asyncio.sleep(10)
            times.note("the call has its answer")

        async def limit() -> None:
            asked_for.append("a place")

        async def waits() -> None:
            await asyncio.sleep(5)
            await sample().held(limit(), "limits")

        async def evaluate(id: str) -> bool:
            asyncio.get_running_loop().call_later(3, sample().stop_run, "enough")
            await asyncio.gather(call_of(waits())(), call_of(works())())
            return True

        run(runnable(evaluate, rows("a")), store)

        assert (times.events, asked_for) == ([("the call has its answer", 10.0)], [])
        assert statuses(store) == []

    @pytest.mark.parametrize("swallow", ["except", "gather"])
    def test_what_a_sample_makes_of_an_ended_wait_is_no_result(self, store: Store, swallow: str) -> None:
        async def evaluate(id: str) -> bool:
            asyncio.get_running_loop().call_later(3, sample().stop_run, "enough")
            wait = parked(asyncio.sleep(1000), "a batch")
            if swallow == "gather":
                await asyncio.gather(wait, return_exceptions=True)
            else:
                try:
                    await wait
                except asyncio.CancelledError:
                    pass
            return False

        run(runnable(evaluate, rows("a")), store)

        assert statuses(store) == []

    def test_ends_a_wait_for_a_slot(self, store: Store) -> None:
        times = Times()

        async def evaluate(id: str) -> bool:
            if id == "a":
                try:
                    await parked(asyncio.sleep(1), "a batch")
                except asyncio.CancelledError:
                    times.note("a ends")
                    raise
                return True
            asyncio.get_running_loop().call_later(5, sample().stop_run, "enough")
            await asyncio.sleep(50)
            return True

        run(runnable(evaluate, rows(*"ab"), strategy=Sequential()), store)

        assert times.events == [("a ends", 5.0)]
        assert statuses(store) == [("b", "done")]

    def test_during_the_wait_for_a_retry_leaves_the_last_failure(self, store: Store) -> None:
        async def evaluate(id: str) -> bool:
            asyncio.get_running_loop().call_later(0.1, sample().stop_run, "enough")
            raise ConnectionError("no")

        run(runnable(evaluate, rows("a")), store)

        (record,) = records(store)
        assert (record.status, record.tries, str(record.failure)) == ("failed", 1, "ConnectionError: no")


class TestTheNumberOfParkedSamples:
    def test_is_bounded(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        under_way: set[str] = set()
        peak: list[int] = []

        async def evaluate(id: str) -> bool:
            under_way.add(id)
            peak.append(len(under_way))
            await parked(asyncio.sleep(10), "a batch")
            under_way.discard(id)
            return True

        monkeypatch.setattr(turns_module, "MOST_PARKED", 5)
        run(runnable(evaluate, rows(*"abcdefghijklmnopqrst"), strategy=SlidingWindow(2)), store)

        assert 5 <= max(peak) <= 5 + 2  # those in the window had begun before the fifth was parked
        assert [status for _, status in statuses(store)] == ["done"] * 20

    def test_includes_those_that_were_cancelled_in_a_wait(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def evaluate(id: str) -> bool:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(1, task.cancel)
            await parked(asyncio.sleep(10), "a batch")
            return True

        monkeypatch.setattr(turns_module, "MOST_PARKED", 2)
        run(runnable(evaluate, rows(*"abcdef"), strategy=SlidingWindow(1)), store)

        assert [status for _, status in statuses(store)] == ["failed"] * 6


class TestFromAThread:
    """A sync function waits on another loop, in another thread: that of the gate."""

    @pytest.fixture
    def elsewhere(self) -> Iterator[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        yield loop
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    async def test_a_parked_sample_lends_its_slot(
        self, store: Store, elsewhere: asyncio.AbstractEventLoop
    ) -> None:
        b_started = asyncio.Event()

        def evaluate(id: str) -> bool:
            if id == "b":
                elsewhere.call_soon_threadsafe(b_started.set)
                return True
            wait = sample().parked(b_started.wait(), "a batch")
            asyncio.run_coroutine_threadsafe(_awaited(wait), elsewhere).result(30)
            return True

        await running(runnable(evaluate, rows(*"ab"), strategy=SlidingWindow(1), timeout_s=30.0), store)

        assert statuses(store) == [("a", "done"), ("b", "done")]

    async def test_a_wait_stops_the_deadline(
        self, store: Store, elsewhere: asyncio.AbstractEventLoop
    ) -> None:
        tallies = Notes()
        due: list[float | None] = []

        def evaluate(id: str) -> bool:
            async def wait() -> None:
                # the run's loop hears of it before the wait is over
                heard = threading.Event()
                surroundings: Any = sample().surroundings

                def look() -> None:
                    due.append(surroundings._deadline.when())
                    heard.set()

                surroundings._loop.call_soon_threadsafe(look)
                await asyncio.to_thread(heard.wait, 30)

            asyncio.run_coroutine_threadsafe(_awaited(sample().held(wait(), "limits")), elsewhere).result(30)
            return True

        await running(runnable(evaluate, rows("a"), timeout_s=30.0), store, tallies)

        assert due == [None]
        assert statuses(store) == [("a", "done")]

    async def test_a_stop_ends_the_wait(self, store: Store, elsewhere: asyncio.AbstractEventLoop) -> None:
        ended: list[type[BaseException]] = []

        def evaluate(id: str) -> bool:
            context = sample()

            async def wait() -> None:
                context.stop_run("enough")
                await asyncio.Event().wait()

            async def waits() -> None:
                try:
                    await context.held(wait(), "limits")
                except BaseException as error:
                    ended.append(type(error))
                    raise

            asyncio.run_coroutine_threadsafe(waits(), elsewhere).result(30)
            return True

        outcome = await running(runnable(evaluate, rows("a"), timeout_s=30.0), store)

        assert (outcome.interrupted, [kind.__name__ for kind in ended]) == (True, ["WaitEnded"])
        assert statuses(store) == []

    async def test_a_function_on_the_loops_own_thread_keeps_its_slot(
        self, store: Store, elsewhere: asyncio.AbstractEventLoop
    ) -> None:
        def evaluate(id: str) -> bool:
            wait = sample().parked(asyncio.sleep(0), "a batch")
            asyncio.run_coroutine_threadsafe(_awaited(wait), elsewhere).result(30)
            return True

        await running(runnable(evaluate, rows(*"ab")), store)

        assert statuses(store) == [("a", "done"), ("b", "done")]


def test_a_running_sample_tells_what_it_waits_for_until_it_has_ended() -> None:
    seen: list[tuple[str, int, str]] = []
    progress = Notes()

    async def waiting(n: int) -> bool:
        sample = SAMPLE.get()
        assert sample is not None

        def note() -> None:
            seen.extend(
                (one.sample_id, one.repeat, one.waits_for()) for one in progress.tallies[0].running.values()
            )

        note()
        asyncio.get_running_loop().call_later(1, note)
        await sample.held(asyncio.sleep(2), "limits")
        note()
        return True

    run(runnable(waiting, [{"id": "one", "n": 1}]), open_store("memory://"), progress)

    assert seen == [("one", 0, ""), ("one", 0, "limits"), ("one", 0, "")]
    assert progress.tallies[0].running == {}
