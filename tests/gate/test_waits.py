"""How calls wait: what lends the sample's slot, what keeps it, and what an ended wait leaves behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from test_exchange import FakeSender, World, a_request, failed, ok

from evalve.clock import LoopClock
from evalve.concurrency import SlidingWindow
from evalve.contracts import SAMPLE, CallLog, SampleContext, Store
from evalve.gate.background import BackgroundLoop
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState
from evalve.gate.messages import Limit, Limits, Reply, SendError
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from fake_surroundings import FakeSurroundings
from running import records, runnable, running, statuses

NONE_KNOWN = Limits()
ONE_A_SECOND = Limits({"requests": Limit(60.0, 1.0)})
FULL = failed(529, "overloaded_error")


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


@contextmanager
def a_world(folder: Path, limits: Limits = NONE_KNOWN) -> Iterator[World]:
    world = World(folder, limits=limits)
    try:
        yield world
    finally:
        world.store.close()


@contextmanager
def in_sample(run: FakeSurroundings) -> Iterator[SampleContext]:
    context = SampleContext("exp", "eval_a", "s1", 0, 1, CallLog(), surroundings=run)
    token = SAMPLE.set(context)
    try:
        yield context
    finally:
        SAMPLE.reset(token)


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_in_virtual_time(test(*arguments, **named))

    return run


def numbers(up_to: int) -> list[dict[str, int]]:
    return [{"number": number} for number in range(up_to)]


async def ended_after(run: FakeSurroundings, call: Awaitable[Any], delay_s: float) -> BaseException | None:
    """What a call raises whose wait a stop ends after so long."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(delay_s)
    run.end_waits()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    return outcome if isinstance(outcome, BaseException) else None


# -- which waits lend the slot


@virtually
async def test_a_call_that_nothing_holds_back_does_not_wait(tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        await world.gate.exchange(a_request("first"), FakeSender())
        run = FakeSurroundings()

        with in_sample(run):
            await world.gate.exchange(a_request("second"), FakeSender())
            await world.gate.exchange(a_request("first"), FakeSender())

        assert (run.waits, run.calls, run.most_calls) == ([], 0, 1)


@virtually
async def test_waiting_for_a_limit_keeps_the_slot(tmp_path: Path) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path, ONE_A_SECOND) as world, in_sample(run):
        await asyncio.gather(*(world.gate.exchange(a_request(f"{n}"), FakeSender()) for n in range(3)))

    assert run.waits == [("held", "limits")] * 3
    assert run.most_calls == 3


@virtually
async def test_the_pause_after_a_refusal_keeps_the_slot(tmp_path: Path) -> None:
    run, sender = FakeSurroundings(), FakeSender([failed(429, "rate_limit_error", retry_after="7"), ok()])
    with a_world(tmp_path, ONE_A_SECOND) as world, in_sample(run):
        await world.gate.exchange(a_request(), sender)

    assert set(run.waits) == {("held", "limits")}
    assert len(sender.sent_at_s) == 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [(FULL, "overload"), (failed(500), "server"), (SendError("reset", reached=True), "connection")],
)
@virtually
async def test_the_pause_after_trouble_lends_the_slot(trouble: Any, reason: str, tmp_path: Path) -> None:
    run, sender = FakeSurroundings(), FakeSender([trouble, ok()])
    with a_world(tmp_path) as world:
        await world.gate.exchange(a_request("before"), FakeSender())
        with in_sample(run):
            await world.gate.exchange(a_request(), sender)

    assert run.waits == [("parked", reason)]


@virtually
async def test_an_open_circuit_lends_the_slot(tmp_path: Path) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path) as world:
        await world.gate.exchange(a_request("before"), FakeSender())
        storm = [world.gate.exchange(a_request(f"{n}"), FakeSender([FULL])) for n in range(20)]
        calls = [asyncio.ensure_future(each) for each in storm]
        await asyncio.sleep(1.5)

        with in_sample(run):
            reply = await world.gate.exchange(a_request("mine"), FakeSender())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    assert reply.status == 200
    assert run.waits == [("parked", "the provider to recover")]


@virtually
async def test_waiting_for_an_equal_call_lends_the_slot(tmp_path: Path) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path) as world:
        first = asyncio.ensure_future(world.gate.exchange(a_request(), FakeSender()))
        await asyncio.sleep(0.5)

        with in_sample(run):
            reply = await world.gate.exchange(a_request(), FakeSender())
        await first

    assert reply.cached
    assert run.waits == [("parked", "an equal call")]


@virtually
async def test_waiting_for_room_in_the_budget_keeps_the_slot(tmp_path: Path) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path) as world:
        await world.gate.exchange(a_request("before"), FakeSender())
        world.account.budget.limit_usd = 1.5  # a call may cost a dollar, and costs 0.05
        first = asyncio.ensure_future(world.gate.exchange(a_request("first"), FakeSender()))
        await asyncio.sleep(0.5)

        with in_sample(run):
            await world.gate.exchange(a_request("second"), FakeSender())
        await first

    assert run.waits == [("held", "the budget")]


@virtually
async def test_a_stream_is_a_call_until_its_first_piece_is_there(tmp_path: Path) -> None:
    run, counted = FakeSurroundings(), []
    with a_world(tmp_path) as world, in_sample(run):
        async with world.gate.stream(a_request(stream=True), FakeSender()) as reply:
            counted = [run.calls async for _ in reply.chunks]

    assert run.most_calls == 1
    assert set(counted) == {0}


# -- a wait that a stop ends leaves nothing behind


@virtually
async def test_a_wait_for_a_limit_that_is_ended_gives_its_place_back(tmp_path: Path) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path, ONE_A_SECOND) as world:
        world.account.budget.limit_usd = 1000.0
        await world.gate.exchange(a_request("one"), FakeSender(takes_s=0.0))
        with in_sample(run):
            two = asyncio.ensure_future(world.gate.exchange(a_request("two"), FakeSender()))
            error = await ended_after(run, world.gate.exchange(a_request("three"), FakeSender()), 0.5)
        await asyncio.gather(two, return_exceptions=True)
        sender = FakeSender(takes_s=0.0)
        await world.gate.exchange(a_request("three"), sender)

        assert isinstance(error, asyncio.CancelledError)
        assert sender.sent_at_s[0] <= 1.5  # not behind those who are gone
        assert (await world.in_flight(), run.calls) == (0, 0)


@virtually
async def test_a_pause_that_is_ended_leaves_the_call_to_those_who_wait_for_an_equal_one(
    tmp_path: Path,
) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path) as world:
        await world.gate.exchange(a_request("before"), FakeSender())
        with in_sample(run):
            failing = FakeSender([failed(529, "overloaded_error", retry_after="60")], takes_s=0.0)
            call = asyncio.ensure_future(world.gate.exchange(a_request(), failing))
        await asyncio.sleep(0.1)
        other = asyncio.ensure_future(world.gate.exchange(a_request(), FakeSender()))
        await asyncio.sleep(0.1)

        run.end_waits()

        assert (await other).status == 200
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        assert (await world.in_flight(), run.calls) == (0, 0)


@virtually
async def test_who_is_stopped_while_it_waits_for_an_equal_call_leaves_the_others_waiting(
    tmp_path: Path,
) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path) as world:
        first = asyncio.ensure_future(world.gate.exchange(a_request(), FakeSender()))
        await asyncio.sleep(0.1)
        with in_sample(run):
            error = await ended_after(run, world.gate.exchange(a_request(), FakeSender()), 0.2)
        sender = FakeSender()
        other = asyncio.ensure_future(world.gate.exchange(a_request(), sender))

        assert isinstance(error, asyncio.CancelledError)
        assert (await first).status == 200
        assert (await other).cached
        assert sender.sent_at_s == []


@virtually
async def test_a_wait_for_the_budget_that_is_ended_reserves_nothing(tmp_path: Path) -> None:
    run = FakeSurroundings()
    with a_world(tmp_path) as world:
        await world.gate.exchange(a_request("before"), FakeSender())
        world.account.budget.limit_usd = 1.5
        first = asyncio.ensure_future(world.gate.exchange(a_request("first"), FakeSender()))
        await asyncio.sleep(0.1)
        with in_sample(run):
            error = await ended_after(run, world.gate.exchange(a_request("second"), FakeSender()), 0.2)
        await first

        assert isinstance(error, asyncio.CancelledError)
        assert (await world.gate.exchange(a_request("third"), FakeSender())).status == 200


# -- with a run around them


@virtually
async def test_samples_that_wait_for_a_limit_do_not_time_out(tmp_path: Path, store: Store) -> None:
    with a_world(tmp_path, ONE_A_SECOND) as world:

        async def eval_paced(number: int) -> bool:
            await world.gate.exchange(a_request(f"{number}"), FakeSender(takes_s=0.02))
            return True

        await running(runnable(eval_paced, numbers(8), timeout_s=2.0), store)

        assert {status for _, status in statuses(store)} == {"done"}
        assert max(record.working_s for record in records(store)) < 0.1


@virtually
async def test_a_sample_whose_answer_does_not_come_still_times_out(tmp_path: Path, store: Store) -> None:
    with a_world(tmp_path, ONE_A_SECOND) as world:

        async def eval_slow(number: int) -> bool:
            await world.gate.exchange(a_request(f"{number}"), FakeSender(takes_s=3.0))
            return True

        await running(runnable(eval_slow, numbers(3), timeout_s=2.0), store)

        assert {status for _, status in statuses(store)} == {"failed"}


@pytest.mark.parametrize("trouble", [failed(503), SendError("refused", reached=False)])
@virtually
async def test_a_provider_that_is_down_does_not_hold_up_samples_that_ask_another(
    trouble: Any, tmp_path: Path, store: Store
) -> None:
    loop = asyncio.get_running_loop()
    back_at_s = 30.0

    class DownForAWhile(FakeSender):
        async def send(self, request: Any) -> Any:
            self.answers = [trouble if loop.time() < back_at_s else ok()]
            return await super().send(request)

    ended_s: dict[str, list[float]] = {"down": [], "well": []}
    with a_world(tmp_path) as world:
        world.retries.random = lambda: 0.5
        for name in ("api.anthropic.com", "well.example.com"):
            url = f"https://{name}/v1/messages"
            await world.gate.exchange(a_request("before", url=url), FakeSender(takes_s=0.0))

        async def eval_two(number: int) -> bool:
            if number < 10:
                reply = await world.gate.exchange(a_request(f"{number}"), DownForAWhile(takes_s=0.1))
            else:
                url = "https://well.example.com/v1/messages"
                reply = await world.gate.exchange(a_request(f"{number}", url=url), FakeSender(takes_s=0.1))
            ended_s["down" if number < 10 else "well"].append(loop.time())
            return reply.status == 200

        await running(runnable(eval_two, numbers(30), strategy=SlidingWindow(2)), store)

        assert {status for _, status in statuses(store)} == {"done"}
    assert max(ended_s["well"]) < 5.0
    assert min(ended_s["down"]) > 5.0


def test_an_async_function_that_blocks_its_loop_with_a_sync_call_gets_its_answer(
    tmp_path: Path, store: Store
) -> None:
    """On real loops: the one that lends slots stands still while the call waits on another."""
    background = BackgroundLoop()
    with a_world(tmp_path) as world:
        world.gate.limiter = Limiter(MemoryState(now_s=time.monotonic), limits_for=lambda call: NONE_KNOWN)

        async def eval_blocking(number: int) -> bool:
            sender = FakeSender([FULL, ok()], takes_s=0.0)
            reply: Reply = background.call(world.gate.exchange(a_request(f"{number}"), sender))
            return reply.status == 200

        asyncio.run(running(runnable(eval_blocking, numbers(2)), store))

        assert {status for _, status in statuses(store)} == {"done"}
    background.stop()


def test_a_sync_function_lends_its_slot_while_its_call_waits(tmp_path: Path, store: Store) -> None:
    """Of two samples in a window of one, the second answers what the first waits for."""
    background = BackgroundLoop()
    with a_world(tmp_path) as world:
        world.gate.limiter = Limiter(MemoryState(now_s=time.monotonic), limits_for=lambda call: NONE_KNOWN)
        world.gate.clock = clock = LetGoClock()

        def eval_sync(number: int) -> bool:
            if number == 1:
                clock.let_go()
            sender = FakeSender([ok()] if number else [FULL, ok()], takes_s=0.0)
            reply: Reply = background.call(world.gate.exchange(a_request(f"{number}"), sender))
            return reply.status == 200

        one_at_once = runnable(eval_sync, numbers(2), strategy=SlidingWindow(1), timeout_s=60.0)
        asyncio.run(running(one_at_once, store))

        assert {status for _, status in statuses(store)} == {"done"}
    background.stop()


class LetGoClock(LoopClock):
    """Sleeps until it is told to let go, from any thread."""

    def __init__(self) -> None:
        self._over: Future[None] = Future()

    def let_go(self) -> None:
        self._over.set_result(None)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.wrap_future(self._over)


@virtually
async def test_a_stop_ends_waits_at_once_and_the_samples_are_left_for_the_next_run(
    tmp_path: Path, store: Store
) -> None:
    loop = asyncio.get_running_loop()
    with a_world(tmp_path, Limits({"requests": Limit(1.0, 1.0)})) as world:

        async def eval_paced(number: int) -> bool:
            sample = SAMPLE.get()
            if number == 0 and sample is not None:
                loop.call_later(1.0, sample.stop_run, "enough")
            await world.gate.exchange(a_request(f"{number}"), FakeSender(takes_s=5.0))
            return True

        outcome = await running(runnable(eval_paced, numbers(8)), store)

        assert loop.time() == pytest.approx(5.0, abs=0.1)  # with the one call in flight
        assert (outcome.interrupted, outcome.stop_reason) == (True, "enough")
        assert [status for _, status in statuses(store)] == ["done"]
        assert await world.in_flight() == 0
