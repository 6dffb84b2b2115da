"""`evalve.limiter`: for code that calls a provider by means of its own, async, sync and in threads."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from evalve.contracts import SAMPLE, SampleContext
from evalve.errors import OptionError
from evalve.gate.background import BackgroundLoop
from evalve.gate.doors.limiting import ScopeLimiter
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState
from evalve.gate.limits.state_sqlite import machine_now_s
from evalve.gate.messages import Call, Dimension, Limit, Limits
from evalve.testing import run_in_virtual_time

CALL = Call("anthropic", "api.test", "claude", "claude", "k", 0, None, False, "anthropic")
ONE_A_SECOND = Limits({"requests": Limit(60, 1)})


def nobody_waits_here(coroutine: Coroutine[Any, Any, Any]) -> Any:
    coroutine.close()
    raise AssertionError("async code must not wait for another loop")


class Door:
    """A limiter of one model, and the limits behind it."""

    def __init__(
        self,
        limits: Limits,
        *,
        now_s: Callable[[], float],
        call_sync: Callable[[Coroutine[Any, Any, Any]], Any] = nobody_waits_here,
        combined: bool = False,
    ) -> None:
        self.state = MemoryState(now_s=now_s)
        self.core = Limiter(self.state, limits_for=lambda call: limits)
        self.limiter = ScopeLimiter(self.core, CALL, combined=combined, call_sync=call_sync)

    async def level(self, dimension: Dimension) -> float:
        state = await self.state.peek(CALL.scope)
        return state.buckets[dimension].level(self.state.now_s())

    async def in_flight(self) -> int:
        state = await self.state.peek(CALL.scope)
        return sum(held.in_flight for held in state.holders.values())


def a_door(limits: Limits, *, combined: bool = False) -> Door:
    return Door(limits, now_s=lambda: asyncio.get_running_loop().time(), combined=combined)


async def a_full_door(limits: Limits, *, combined: bool = False) -> Door:
    """Its buckets exist, and are full."""
    door = a_door(limits, combined=combined)
    async with door.limiter.acquire():
        pass
    await asyncio.sleep(10_000)
    return door


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.stop()


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_in_virtual_time(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


# -- async code


@virtually
async def test_an_awaited_acquisition_waits_its_turn() -> None:
    door = await a_full_door(ONE_A_SECOND)
    loop = asyncio.get_running_loop()
    began_s, starts = loop.time(), list[float]()

    for _ in range(3):
        await door.limiter.acquire()
        starts.append(loop.time() - began_s)

    assert starts == pytest.approx([0.0, 1.0, 2.0])


@virtually
async def test_an_acquisition_is_an_async_context_manager() -> None:
    door = await a_full_door(Limits({"requests": Limit(6e6, 1e5)}, concurrency=1))

    async with door.limiter.acquire() as permit:
        inside = await door.in_flight()

    assert (inside, await door.in_flight()) == (1, 0)
    assert permit.waited_s == 0.0


@virtually
async def test_what_was_really_taken_replaces_what_was_asked_for() -> None:
    door = await a_full_door(Limits({"input_tokens": Limit(60, 1000), "output_tokens": Limit(60, 1000)}))

    async with door.limiter.acquire(input_tokens=900, output_tokens=500) as permit:
        await permit.settle(input_tokens=100, output_tokens=20)

    assert await door.level("input_tokens") == pytest.approx(900)
    assert await door.level("output_tokens") == pytest.approx(980)


@virtually
async def test_without_a_settlement_what_was_asked_for_counts() -> None:
    door = await a_full_door(Limits({"input_tokens": Limit(60, 1000)}))

    async with door.limiter.acquire(input_tokens=900):
        pass

    assert await door.level("input_tokens") == pytest.approx(100)


@virtually
async def test_the_limiter_settles_too() -> None:
    door = await a_full_door(Limits({"input_tokens": Limit(60, 1000)}))
    permit = await door.limiter.acquire(input_tokens=900)

    await door.limiter.settle(permit, input_tokens=1, output_tokens=0)

    assert await door.level("input_tokens") == pytest.approx(999)
    assert await door.in_flight() == 0


@virtually
async def test_input_and_output_count_together_where_the_provider_counts_so() -> None:
    door = await a_full_door(Limits({"tokens": Limit(60, 1000)}), combined=True)

    async with door.limiter.acquire(input_tokens=300, output_tokens=200):
        pass

    assert await door.level("tokens") == pytest.approx(500)


@virtually
async def test_a_limit_on_all_tokens_of_a_workspace_is_held_too() -> None:
    door = await a_full_door(Limits({"tokens": Limit(60, 1000)}))

    async with door.limiter.acquire(input_tokens=300, output_tokens=200):
        pass

    assert await door.level("tokens") == pytest.approx(500)


@virtually
async def test_a_failure_inside_the_block_frees_its_place() -> None:
    door = await a_full_door(Limits({"requests": Limit(6e6, 1e5)}, concurrency=1))

    with pytest.raises(ValueError, match="broken"):
        async with door.limiter.acquire():
            raise ValueError("broken")

    assert await door.in_flight() == 0


@virtually
async def test_a_bare_acquisition_that_is_dropped_frees_its_place() -> None:
    door = await a_full_door(Limits({"requests": Limit(6e6, 1e5)}, concurrency=1))

    async with asyncio.timeout(60):
        for _ in range(3):
            await door.limiter.acquire()
            gc.collect()


@virtually
async def test_the_budget_is_shared_with_every_other_call_of_the_scope() -> None:
    door = await a_full_door(ONE_A_SECOND)
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    await door.core.admit(CALL, {"requests": 1})
    await door.limiter.acquire()
    await door.core.admit(CALL, {"requests": 1})

    assert loop.time() - began_s == pytest.approx(2.0)


@virtually
async def test_waiting_is_told_to_the_sample_that_waits() -> None:
    door = await a_full_door(ONE_A_SECOND)
    sample = SampleContext("exp", "eval_a", "s1", 0, 1)
    token = SAMPLE.set(sample)

    await door.limiter.acquire()
    permit = await door.limiter.acquire()
    waited_s = permit.waited_s
    await permit.settle()
    SAMPLE.reset(token)

    assert [waited_s, sample.calls.waited_s] == pytest.approx([1.0, 1.0])
    assert permit.waited_s == waited_s


@virtually
async def test_a_scope_without_limits_lets_everybody_pass() -> None:
    door = a_door(Limits())
    loop = asyncio.get_running_loop()

    await asyncio.gather(*(door.limiter.acquire()._acquired() for _ in range(100)))

    assert loop.time() == 0.0


async def test_a_plain_with_in_async_code_is_limited_too(background: BackgroundLoop) -> None:
    limits = Limits({"requests": Limit(6e6, 1e5)}, concurrency=1)
    door = Door(limits, now_s=machine_now_s, call_sync=background.call)

    with door.limiter.acquire():
        inside = await door.in_flight()

    assert (inside, await door.in_flight()) == (1, 0)


# -- sync code


def test_in_sync_code_the_wait_is_over_when_the_call_returns(background: BackgroundLoop) -> None:
    door = Door(Limits({"requests": Limit(1200, 1)}), now_s=machine_now_s, call_sync=background.call)

    permits = [door.limiter.acquire() for _ in range(5)]

    starts = [permit._permit.started_at_s for permit in permits if permit._permit is not None]
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts[1:])]
    assert min(gaps) >= 0.05 - 1e-6  # twenty a second
    for permit in permits:
        permit.settle(input_tokens=1, output_tokens=1)
    assert asyncio.run(door.in_flight()) == 0


def test_an_acquisition_is_a_context_manager_in_sync_code(background: BackgroundLoop) -> None:
    limits = Limits({"requests": Limit(6e6, 1e5), "input_tokens": Limit(1, 1000)}, concurrency=1)
    door = Door(limits, now_s=machine_now_s, call_sync=background.call)

    with door.limiter.acquire(input_tokens=400) as permit:
        inside = asyncio.run(door.in_flight())
        permit.settle(input_tokens=10)
    level = asyncio.run(door.level("input_tokens"))
    with door.limiter.acquire(input_tokens=400):
        pass

    assert (inside, asyncio.run(door.in_flight())) == (1, 0)
    assert level - asyncio.run(door.level("input_tokens")) == pytest.approx(400, abs=1)


def test_threads_share_the_budget(background: BackgroundLoop) -> None:
    limits = Limits({"requests": Limit(6e6, 1e5)}, concurrency=2)
    door = Door(limits, now_s=machine_now_s, call_sync=background.call)
    lock, inside, peaks = threading.Lock(), list[int](), list[int]()

    def work() -> None:
        for _ in range(10):
            with door.limiter.acquire():
                with lock:
                    inside.append(1)
                    peaks.append(len(inside))
                with lock:
                    inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(peaks) == 60
    assert max(peaks) <= 2
    assert asyncio.run(door.in_flight()) == 0


def test_its_text_names_the_model_and_no_key() -> None:
    door = Door(Limits(), now_s=machine_now_s)

    assert repr(door.limiter) == "<limiter of claude at api.test>"


async def test_fewer_than_no_tokens_are_refused() -> None:
    door = a_door(ONE_A_SECOND)

    with pytest.raises(OptionError, match=r"input_tokens= needs a number of tokens, 0 or more; got -5"):
        door.limiter.acquire(input_tokens=-5)
