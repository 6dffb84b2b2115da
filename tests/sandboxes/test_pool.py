"""Clients that are made when they are needed, each lent to one attempt at a time."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

import evalve
from evalve.contracts import SampleContext, Store
from evalve.errors import DeclarationError
from evalve.sandboxes.pool import Pool
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from running import Notes, records, rows, run, runnable, running


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


class Client:
    """Knows how many use it at once, and whether it was closed."""

    def __init__(self) -> None:
        self.users = 0
        self.is_closed = False

    async def ask(self, seconds: float = 1.0) -> None:
        assert not self.is_closed
        self.users += 1
        assert self.users == 1
        await asyncio.sleep(seconds)
        self.users -= 1

    def close(self) -> None:
        self.is_closed = True


class Factory:
    """Makes clients, and remembers them."""

    def __init__(self, fails: int = 0) -> None:
        self.made: list[Client] = []
        self.fails = fails

    def __call__(self) -> Client:
        if self.fails:
            self.fails -= 1
            raise ConnectionError("refused")
        self.made.append(Client())
        return self.made[-1]

    def closed(self) -> list[bool]:
        return [client.is_closed for client in self.made]


async def asks(id: str, client: Client) -> bool:
    await client.ask()
    return True


def test_no_two_attempts_have_the_same_client_at_a_time(store: Store) -> None:
    make = Factory()

    outcome = run(runnable(asks, rows(*"abcdefghi"), lenders={"client": Pool(make, size=3)}), store)

    assert (outcome.info.done, len(make.made)) == (9, 3)
    assert round(outcome.run.report["wall_s"], 6) == 3.0


def test_clients_are_made_when_they_are_needed(store: Store) -> None:
    make = Factory()

    run(runnable(asks, rows(*"abc"), lenders={"client": Pool(make)}, max_concurrency=1), store)

    assert len(make.made) == 1


def test_a_sync_function_is_lent_one_too(store: Store) -> None:
    def evaluate(id: str, client: Client) -> bool:
        return not client.is_closed

    make = Factory()
    run(runnable(evaluate, rows(*"abcd"), lenders={"client": Pool(make, size=2)}, max_concurrency=4), store)

    assert [record.scores[0].value for record in records(store)] == [True] * 4
    assert 1 <= len(make.made) <= 2


def test_who_asks_first_is_served_first(store: Store) -> None:
    order: list[str] = []

    async def evaluate(id: str, client: Client) -> bool:
        order.append(id)
        await client.ask()
        return True

    run(runnable(evaluate, rows(*"abcdef"), lenders={"client": Pool(Factory(), size=1)}), store)

    assert order == ["a", "b", "c", "d", "e", "f"]


def test_waiting_for_a_client_is_shown_and_is_no_time_of_the_sample(store: Store) -> None:
    notes, shown = Notes(), []

    async def evaluate(id: str, client: Client) -> bool:
        shown.append(dict(notes.tallies[0].waiting))
        await client.ask(4.0)
        return True

    pool = Pool(Factory(), size=1)
    run(runnable(evaluate, rows("a", "b", "c"), lenders={"client": pool}, timeout_s=5.0), store, notes)

    assert shown[1:] == [{"pool": 1}, {"pool": 0}]
    assert [(record.status, round(record.working_s, 6)) for record in records(store)] == [("done", 4.0)] * 3


def test_who_has_a_client_and_is_parked_gets_a_slot_again(store: Store) -> None:
    """Those who wait for the client keep no slot meanwhile, or nobody would ever go on."""
    pool = Pool(Factory(), size=1)

    async def evaluate(id: str, client: Client) -> bool:
        await evalve.parked(client.ask(), "report")
        return True

    waiting = runnable(evaluate, rows(*"abcdef"), lenders={"client": pool}, max_concurrency=2)

    assert run(waiting, store).info.done == 6


def test_a_stop_ends_the_wait_for_a_client(store: Store) -> None:
    contexts: list[SampleContext] = []

    async def evaluate(id: str, client: Client) -> bool:
        await client.ask()
        contexts[0].stop_run("enough")
        return True

    class Watched(Pool):
        def lend(self, context: SampleContext) -> Any:
            contexts.append(context)
            return super().lend(context)

    pool = Watched(Factory(), size=1)
    outcome = run(runnable(evaluate, rows("a", "b", "c"), lenders={"client": pool}), store)

    assert outcome.interrupted
    assert [record.sample_id for record in records(store)] == ["a"]


class TestMaking:
    def test_make_may_be_async(self, store: Store) -> None:
        async def make() -> Client:
            await asyncio.sleep(1)
            return Client()

        outcome = run(runnable(asks, rows("a"), lenders={"client": Pool(make)}), store)

        assert outcome.info.done == 1

    def test_make_may_return_an_async_context_manager(self, store: Store) -> None:
        events: list[str] = []

        @asynccontextmanager
        async def make() -> AsyncIterator[Client]:
            events.append("opened")
            yield Client()
            events.append("closed")

        run(runnable(asks, rows("a", "b"), lenders={"client": Pool(make, size=1)}), store)

        assert events == ["opened", "closed"]

    def test_make_may_return_a_context_manager(self, store: Store) -> None:
        events: list[str] = []

        @contextmanager
        def make() -> Iterator[Client]:
            events.append("opened")
            yield Client()
            events.append("closed")

        run(runnable(asks, rows("a", "b"), lenders={"client": Pool(make, size=1)}), store)

        assert events == ["opened", "closed"]

    def test_one_that_cannot_be_made_leaves_its_place_to_the_next_try(self, store: Store) -> None:
        make = Factory(fails=2)

        run(runnable(asks, rows("a"), lenders={"client": Pool(make, size=1)}), store)

        (record,) = records(store)
        assert (record.status, record.tries) == ("done", 3)

    def test_one_that_can_never_be_made_is_a_failure_of_the_infrastructure(self, store: Store) -> None:
        run(runnable(asks, rows("a"), lenders={"client": Pool(Factory(fails=9), size=1)}), store)

        (record,) = records(store)
        assert record.failure is not None
        assert (record.failure.failure_class, record.tries) == ("infrastructure", 3)
        assert record.failure.message == "'client' could not be lent by Pool: ConnectionError: refused"


class TestComingBack:
    def test_a_client_whose_try_raised_is_closed_and_replaced(self, store: Store) -> None:
        async def evaluate(id: str, client: Client) -> bool:
            if id == "bad":
                raise ValueError("no")
            return True

        make = Factory()
        pool = Pool(make, size=1, close=Client.close)
        run(runnable(evaluate, rows("bad", "good"), lenders={"client": pool}, max_concurrency=1), store)

        assert make.closed() == [True, True]  # the second one with the loop

    def test_after_a_skip_it_is_lent_again(self, store: Store) -> None:
        async def evaluate(id: str, client: Client) -> bool:
            if id == "skips":
                pytest.skip("not this one")
            return True

        make = Factory()
        run(
            runnable(evaluate, rows("skips", "b"), lenders={"client": Pool(make, size=1)}, max_concurrency=1),
            store,
        )

        assert len(make.made) == 1

    def test_a_client_that_was_in_use_when_the_sample_timed_out_is_replaced(self, store: Store) -> None:
        async def evaluate(id: str, client: Client) -> bool:
            await client.ask(60.0 if id == "slow" else 1.0)
            return True

        make = Factory()
        pool = Pool(make, size=1, close=Client.close)
        run(
            runnable(evaluate, rows("slow", "b"), lenders={"client": pool}, timeout_s=5.0, max_concurrency=1),
            store,
        )

        assert [record.status for record in records(store)] == ["failed", "done"]
        assert len(make.made) == 2

    def test_reset_is_called_before_the_next_one_has_it(self, store: Store) -> None:
        used: list[str] = []

        async def reset(client: Client) -> None:
            await asyncio.sleep(1)
            used.append("reset")

        async def evaluate(id: str, client: Client) -> bool:
            used.append(id)
            return True

        run(runnable(evaluate, rows("a", "b"), lenders={"client": Pool(Factory(), 1, reset=reset)}), store)

        assert used == ["a", "reset", "b", "reset"]

    def test_a_client_that_cannot_be_reset_is_replaced_and_the_sample_is_done(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        def reset(client: Client) -> None:
            raise OSError("gone")

        make = Factory()
        pool = Pool(make, size=1, reset=reset, close=Client.close)
        with caplog.at_level(logging.WARNING):
            outcome = run(runnable(asks, rows("a", "b"), lenders={"client": pool}), store)

        assert (outcome.info.done, make.closed()) == (2, [True, True])
        assert caplog.messages[0] == "a client of the pool was replaced: reset raised OSError: gone"

    def test_a_client_that_does_not_close_holds_nothing_up(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def close(client: Client) -> None:
            await asyncio.sleep(3600)

        with caplog.at_level(logging.WARNING):
            outcome = run(runnable(asks, rows("a"), lenders={"client": Pool(Factory(), close=close)}), store)

        assert outcome.info.done == 1
        assert caplog.messages == ["a client of the pool did not close: TimeoutError: "]


class TestLoops:
    def test_the_end_of_a_loop_closes_its_clients_on_it(self, store: Store) -> None:
        closed_on: list[asyncio.AbstractEventLoop] = []
        made_on: list[asyncio.AbstractEventLoop] = []

        async def make() -> Client:
            made_on.append(asyncio.get_running_loop())
            return Client()

        async def close(client: Client) -> None:
            closed_on.append(asyncio.get_running_loop())

        pool = Pool(make, close=close)
        run(runnable(asks, rows("a"), lenders={"client": pool}), store)
        run(runnable(asks, rows("a"), lenders={"client": pool}, experiment="second"), store)

        assert len(set(made_on)) == 2
        assert closed_on == made_on

    def test_loops_of_several_threads_have_clients_of_their_own(self) -> None:
        made_on: list[asyncio.AbstractEventLoop] = []
        both = threading.Barrier(2, timeout=30)

        async def make() -> asyncio.AbstractEventLoop:
            made_on.append(asyncio.get_running_loop())
            return made_on[-1]

        pool = Pool(make, size=1)

        async def borrow() -> bool:
            async with pool.lend(SampleContext("exp", "eval_x", "a", 0, 1)) as client:
                both.wait()  # each has one at the same time
                return client is asyncio.get_running_loop()

        with ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(lambda _: asyncio.run(borrow()), range(2)))

        assert answers == [True, True]
        assert len(made_on) == 2

    def test_it_can_be_closed_earlier_and_used_again(self, store: Store) -> None:
        make = Factory()

        async def twice() -> None:
            async with Pool(make, close=Client.close) as pool:
                await running(runnable(asks, rows("a"), lenders={"client": pool}), store)
                assert make.closed() == [False]
                await pool.aclose()
                assert make.closed() == [True]
                await running(runnable(asks, rows("b"), lenders={"client": pool}), store)
            assert make.closed() == [True, True]

        run_in_virtual_time(twice())

    def test_a_client_that_is_lent_while_the_pool_is_closed_is_closed_when_it_comes_back(self) -> None:
        make = Factory()

        async def closed_while_lent() -> list[bool]:
            pool = Pool(make, close=Client.close)
            async with pool.lend(SampleContext("exp", "eval_x", "a", 0, 1)):
                await pool.aclose()
                before = make.closed()
            return before + make.closed()

        assert run_in_virtual_time(closed_while_lent()) == [False, True]


def test_one_pool_for_two_arguments_is_refused_instead_of_waiting_for_ever(store: Store) -> None:
    async def evaluate(id: str, left: Client, right: Client) -> bool:
        return True

    pool = Pool(Factory(), size=1)
    run(runnable(evaluate, rows("a"), lenders={"left": pool, "right": pool}), store)

    (record,) = records(store)
    assert record.failure is not None
    assert record.failure.message == (
        "'right' and another argument are one Pool: samples would wait for each other; "
        "give each argument a Pool of its own"
    )


def test_a_cancelled_run_leaves_all_places_free(store: Store) -> None:
    make = Factory()
    pool = Pool(make, size=2)

    async def evaluate(id: str, client: Client) -> bool:
        await client.ask(3600.0)
        return True

    async def cancelled_and_run_again() -> int:
        task = asyncio.ensure_future(
            running(runnable(evaluate, rows(*"abcd"), lenders={"client": pool}), store)
        )
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = await running(runnable(asks, rows(*"abcd"), lenders={"client": pool}), store)
        return again.info.done

    assert run_in_virtual_time(cancelled_and_run_again()) == 4
    assert len(make.made) == 4


def test_its_settings_are_what_it_was_told() -> None:
    assert evalve.Pool(Client, size=3).settings == {"make": f"{__name__}.Client", "size": 3}
    assert Pool(partial(Client)).settings["make"] == f"{__name__}.Client"
    assert Pool(Factory()).settings["make"] == f"{__name__}.Factory"


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "4"])
def test_a_size_that_is_no_number_of_clients_is_refused(size: Any) -> None:
    with pytest.raises(DeclarationError, match=r"test_pool\.py:\d+: Pool\(size=…\) is a whole number"):
        Pool(Client, size)


def test_what_makes_clients_is_a_function() -> None:
    with pytest.raises(DeclarationError, match=r"Pool\(make=…\) takes a function, as in Pool\(connect"):
        Pool(Client())  # type: ignore[arg-type]
