"""Admission in virtual time: exact waits, no refusals, nothing lost when waiters go away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from evalve.gate.limits.booking import Booking
from evalve.gate.limits.limiter import Limiter, Permit
from evalve.gate.limits.state import MemoryState, Refusal
from evalve.gate.messages import Call, Cost, Dimension, Limit, Limits, Stated
from evalve.testing import run_in_virtual_time


def a_call(model: str = "m") -> Call:
    return Call(
        provider="anthropic",
        host="api.test",
        model=model,
        pool=model,
        key_hash="k",
        input_bytes=100,
        max_output_tokens=100,
        streams=False,
    )


def a_limiter(limits: Limits) -> tuple[Limiter, MemoryState]:
    state = MemoryState(now_s=lambda: asyncio.get_running_loop().time())
    return Limiter(state, limits_for=lambda call: limits), state


def requests_per_minute(
    number: float, *, burst: float | None = None, concurrency: int | None = None
) -> Limits:
    return Limits({"requests": Limit(number, burst)}, concurrency=concurrency)


ONE: Cost = {"requests": 1}
NO_LIMITS = Limits()


async def starts_of(limiter: Limiter, costs: list[Cost], *, hold_s: float = 0.0) -> list[float]:
    loop = asyncio.get_running_loop()
    starts: list[float] = []

    async def one(cost: Cost) -> None:
        permit = await limiter.admit(a_call(), cost)
        starts.append(round(loop.time(), 4))
        if hold_s:
            await asyncio.sleep(hold_s)
        await limiter.settle(permit, cost, stated={})

    await asyncio.gather(*(one(cost) for cost in costs))
    return starts


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_in_virtual_time(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtually
async def test_a_full_bucket_is_used_at_once_and_then_calls_follow_at_the_rate() -> None:
    limiter, _ = a_limiter(requests_per_minute(60, burst=10))

    starts = await starts_of(limiter, [ONE] * 12)

    # the bucket holds ten, and half of that is trusted before an answer has confirmed it; a quarter of a
    # second's worth is always left alone
    assert starts[:4] == [0.0] * 4
    assert starts[4:7] == pytest.approx([0.25, 1.25, 2.25])


@virtually
async def test_every_dimension_is_held_at_once() -> None:
    limits = Limits({"requests": Limit(6000, 100), "input_tokens": Limit(60_000, 1000)})
    limiter, _ = a_limiter(limits)

    starts = await starts_of(limiter, [{"requests": 1, "input_tokens": 500}] * 4)

    assert starts == pytest.approx([0.0, 0.75, 1.25, 1.75])


@virtually
async def test_a_request_larger_than_the_bucket_is_admitted_when_it_is_full() -> None:
    limiter, _ = a_limiter(Limits({"input_tokens": Limit(60_000, 1000)}))

    starts = await starts_of(limiter, [{"input_tokens": 5000}, {"input_tokens": 10}])

    assert starts[0] == 0.0
    assert starts[1] == pytest.approx(4.76)


@virtually
async def test_what_was_booked_too_much_comes_back_with_the_settlement() -> None:
    limiter, _ = a_limiter(Limits({"output_tokens": Limit(6000, 100)}))
    loop = asyncio.get_running_loop()
    first = await limiter.admit(a_call(), {"output_tokens": 1000})
    await limiter.settle(first, {"output_tokens": 95}, stated={})

    await limiter.admit(a_call(), {"output_tokens": 95})

    assert loop.time() == pytest.approx(1.45)


@virtually
async def test_no_more_calls_are_in_flight_than_the_concurrency_limit_allows() -> None:
    limiter, _ = a_limiter(requests_per_minute(1e6, concurrency=2))

    starts = await starts_of(limiter, [ONE] * 5, hold_s=10.0)

    assert starts == pytest.approx([0.0, 0.0, 10.0, 10.0, 20.0])


@virtually
async def test_a_cancelled_waiter_gives_its_place_to_the_next() -> None:
    limiter, _ = a_limiter(requests_per_minute(60, burst=1))
    loop = asyncio.get_running_loop()
    await limiter.admit(a_call(), ONE)
    waiting = [asyncio.create_task(limiter.admit(a_call(), ONE)) for _ in range(3)]
    await asyncio.sleep(0.5)

    waiting[0].cancel()
    waiting[1].cancel()
    await waiting[2]

    assert loop.time() == pytest.approx(1.5)


@virtually
async def test_evaluations_take_turns() -> None:
    limiter, _ = a_limiter(requests_per_minute(60, burst=1))
    order: list[str] = []

    async def one(group: str) -> None:
        await limiter.admit(a_call(), ONE, group=group)
        order.append(group)

    async with asyncio.TaskGroup() as tasks:
        for group in ["first"] * 4 + ["second"] * 2:
            tasks.create_task(one(group))

    # one of the first was on its way when the others came
    assert order == ["first", "first", "second", "first", "second", "first"]


@virtually
async def test_without_any_limit_the_first_answer_is_awaited_and_then_everybody_goes() -> None:
    limiter, _ = a_limiter(NO_LIMITS)

    starts = await starts_of(limiter, [ONE] * 5, hold_s=0.5)

    assert starts == pytest.approx([0.0, 0.5, 0.5, 0.5, 0.5])


@virtually
async def test_limits_are_learnt_from_the_first_answers_headers() -> None:
    limiter, state = a_limiter(NO_LIMITS)
    first = await limiter.admit(a_call(), ONE)
    stated: dict[Dimension, Stated] = {"requests": Stated(per_minute=60, remaining=0)}
    await limiter.settle(first, ONE, stated=stated)

    await limiter.admit(a_call(), ONE)
    second: Permit = await limiter.admit(a_call(), ONE)

    assert second.started_at_s == pytest.approx(1.9, abs=0.2)
    assert (await state.peek(a_call().scope)).stated["requests"][0] == 1.0


@virtually
async def test_a_refusal_holds_everybody_back_once_and_service_resumes_without_a_herd() -> None:
    limiter, _ = a_limiter(requests_per_minute(600, burst=10))
    refused = [await limiter.admit(a_call(), ONE) for _ in range(3)]
    for permit in refused:
        await limiter.settle(permit, {}, stated={}, refusal=Refusal("requests", 5.0))

    starts = await starts_of(limiter, [ONE] * 3)

    # refused after 0.05 s; what the refused calls give back does not bring the resumption forward
    assert starts == pytest.approx([5.05, 5.15, 5.25], abs=0.01)


@virtually
async def test_a_waiter_that_slept_towards_an_older_instant_books_again_after_a_refusal() -> None:
    limiter, _ = a_limiter(requests_per_minute(60, burst=1))
    loop = asyncio.get_running_loop()
    first = await limiter.admit(a_call(), ONE)
    waiting = asyncio.create_task(limiter.admit(a_call(), ONE))
    await asyncio.sleep(0.5)

    await limiter.settle(first, {}, stated={}, refusal=Refusal(None, 30.0))
    await waiting

    assert loop.time() == pytest.approx(30.5, abs=0.01)


class Faulty(MemoryState):
    """A state that takes a tenth of a second for everything, and that can be told to fail."""

    fails = False

    async def exchange(self, *arguments: Any, **named: Any) -> list[Booking]:
        await asyncio.sleep(0.1)
        if self.fails:
            self.fails = False
            raise OSError("the disk is full")
        return await super().exchange(*arguments, **named)


@virtually
async def test_when_the_leader_fails_those_behind_it_are_still_served() -> None:
    state = Faulty(now_s=lambda: asyncio.get_running_loop().time())
    limiter = Limiter(state, limits_for=lambda call: requests_per_minute(6e6, burst=1e5))
    waiting = [asyncio.create_task(limiter.admit(a_call(), ONE)) for _ in range(4)]

    state.fails = True

    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError, Permit, Permit, Permit]


@virtually
async def test_when_the_leader_is_cancelled_while_it_books_those_behind_it_are_still_served() -> None:
    state = Faulty(now_s=lambda: asyncio.get_running_loop().time())
    limiter = Limiter(state, limits_for=lambda call: requests_per_minute(6e6, burst=1e5))
    waiting = [asyncio.create_task(limiter.admit(a_call(), ONE)) for _ in range(3)]
    await asyncio.sleep(0.05)

    waiting[0].cancel()

    async with asyncio.timeout(60):
        served = await asyncio.gather(*waiting[1:])
    assert len(served) == 2
    assert waiting[0].cancelled()


@virtually
async def test_who_waited_books_what_is_expected_by_then() -> None:
    limiter, _ = a_limiter(Limits({"output_tokens": Limit(6000, 100)}))
    loop = asyncio.get_running_loop()
    expected: Cost = {"output_tokens": 1000.0}
    first = await limiter.admit(a_call(), lambda: expected)
    queued = [asyncio.create_task(limiter.admit(a_call(), lambda: expected)) for _ in range(3)]

    expected = {"output_tokens": 5.0}
    await limiter.settle(first, expected, stated={})
    permits = await asyncio.gather(*queued)

    assert [permit.cost for permit in permits] == [{"output_tokens": 5.0}] * 3
    assert loop.time() == 0.0


@virtually
async def test_until_the_first_answer_calls_go_out_few_at_a_time() -> None:
    limiter, _ = a_limiter(NO_LIMITS)

    starts = await starts_of(limiter, [ONE] * 9, hold_s=3.5)

    assert starts == pytest.approx([0.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.5])


@virtually
async def test_who_learns_of_a_limit_from_another_process_lets_few_go_at_first_too() -> None:
    one = MemoryState(now_s=asyncio.get_running_loop().time)
    first = Limiter(one, limits_for=lambda call: NO_LIMITS)
    second = Limiter(MemoryState(now_s=one.now_s, beside=one), limits_for=lambda call: NO_LIMITS)
    answered = await first.admit(a_call(), ONE)
    queued = [asyncio.create_task(second.admit(a_call(), ONE)) for _ in range(40)]
    await asyncio.sleep(0.5)
    stated: dict[Dimension, Stated] = {"requests": Stated(per_minute=6000, remaining=5999)}
    await first.settle(answered, ONE, stated=stated)

    await asyncio.sleep(0.51)

    assert sum(task.done() for task in queued) == 1 + 4
    for task in queued:
        task.cancel()


@virtually
async def test_behind_the_first_answer_few_go_at_once_and_of_a_crowd_the_first_four() -> None:
    few, _ = a_limiter(NO_LIMITS)
    crowd, _ = a_limiter(NO_LIMITS)

    of_few = await starts_of(few, [ONE] * 10, hold_s=0.2)
    began_s = asyncio.get_running_loop().time()
    of_crowd = await starts_of(crowd, [ONE] * 40, hold_s=0.2)

    assert of_few == [0.0] + [0.2] * 9
    assert [round(start_s - began_s, 4) for start_s in of_crowd].count(0.2) == 4


@virtually
async def test_a_call_that_ends_while_somebody_waits_is_told_even_if_that_one_gives_up() -> None:
    limiter, state = a_limiter(requests_per_minute(60, burst=1, concurrency=5))
    first = await limiter.admit(a_call(), ONE)
    waiting = asyncio.create_task(limiter.admit(a_call(), ONE))
    await asyncio.sleep(0.1)
    await limiter.settle(first, ONE, stated={})

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    (view,) = await state.views()
    assert sum(held.in_flight for held in view.state.holders.values()) == 0


# -- beside other processes


def states_side_by_side(number: int) -> list[MemoryState]:
    """As many processes would have it."""
    first = MemoryState(now_s=lambda: asyncio.get_running_loop().time())
    return [first, *(MemoryState(now_s=first.now_s, beside=first) for _ in range(number - 1))]


def limiters_side_by_side(number: int, limits: Limits) -> list[Limiter]:
    return [a_limiter_that_never_asks_again(state, limits) for state in states_side_by_side(number)]


def a_limiter_that_never_asks_again(state: MemoryState, limits: Limits) -> Limiter:
    """Unless it is told of a place, or was told when to."""
    return Limiter(state, limits_for=lambda call: limits, ask_again_s=1e9)


async def hold(limiter: Limiter, hold_s: float = 10.0) -> float:
    """One call; when it started."""
    permit = await limiter.admit(a_call(), ONE)
    started_s = asyncio.get_running_loop().time()
    await asyncio.sleep(hold_s)
    await limiter.settle(permit, ONE, stated={})
    return started_s


@virtually
async def test_who_waits_for_another_process_is_served_in_the_instant_in_which_that_one_ends() -> None:
    one, other = limiters_side_by_side(2, Limits(concurrency=1))

    starts = [*await asyncio.gather(hold(one, 12.345), hold(other))]

    assert starts == [0.0, 12.345]


@virtually
async def test_processes_share_a_ceiling_evenly_while_all_have_work_and_leave_no_place_unused() -> None:
    early, late = limiters_side_by_side(2, Limits(concurrency=4))
    async with asyncio.TaskGroup() as tasks:
        of_early = [tasks.create_task(hold(early)) for _ in range(12)]
        await asyncio.sleep(5.0)
        of_late = [tasks.create_task(hold(late)) for _ in range(4)]

    assert [task.result() for task in of_early] == [0.0] * 4 + [10.0] * 2 + [20.0] * 2 + [30.0] * 4
    assert [task.result() for task in of_late] == [10.0] * 2 + [20.0] * 2


@virtually
async def test_a_place_that_cannot_be_divided_goes_round() -> None:
    limiters = limiters_side_by_side(3, Limits(concurrency=1))

    starts = await asyncio.gather(*(hold(limiter) for limiter in limiters for _ in range(2)))

    assert starts == [0.0, 30.0, 10.0, 40.0, 20.0, 50.0]


@virtually
async def test_a_cancelled_waiter_keeps_no_place_from_another_process() -> None:
    busy, cancelled, other = limiters_side_by_side(3, Limits(concurrency=1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold(busy))
        waiting = tasks.create_task(hold(cancelled))
        await asyncio.sleep(1.0)
        served = tasks.create_task(hold(other))
        await asyncio.sleep(1.0)
        waiting.cancel()

    assert served.result() == 10.0


@virtually
async def test_a_process_that_was_stopped_while_it_waited_keeps_a_place_for_a_moment_only() -> None:
    limits = Limits(concurrency=1)
    state, stopped = states_side_by_side(2)
    limiter = a_limiter_that_never_asks_again(state, limits)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold(limiter))
        await asyncio.sleep(1.0)
        await stopped.exchange(a_call().scope, limits, [], [ONE], horizon_s=0.0)
        served = tasks.create_task(hold(limiter))

    assert served.result() == 10.25


@virtually
async def test_what_has_ended_is_told_while_the_next_waits_for_its_instant() -> None:
    limits = requests_per_minute(6, burst=1, concurrency=2)
    paced, other = limiters_side_by_side(2, limits)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold(paced, 3.0))
        tasks.create_task(hold(paced, 3.0))  # books an instant seconds ahead, and the second place
        await asyncio.sleep(1.0)
        third = tasks.create_task(other.admit(a_call(), {}))

    assert (third.result().started_at_s, third.result().waited_s) == (3.0, 2.0)


@virtually
async def test_leave_that_was_given_without_limits_is_not_settled_against_limits_learnt_since() -> None:
    limiter, state = a_limiter(NO_LIMITS)
    first = await limiter.admit(a_call(), ONE)
    others = [asyncio.create_task(limiter.admit(a_call(), ONE)) for _ in range(3)]
    await asyncio.sleep(0.1)
    await limiter.settle(first, ONE, stated={})
    permits = await asyncio.gather(*others)
    stated: dict[Dimension, Stated] = {"requests": Stated(per_minute=60, remaining=0)}
    await limiter.settle(permits[0], ONE, stated=stated)
    level = (await state.peek(a_call().scope)).buckets["requests"].full_at_s

    await limiter.settle(permits[1], {}, stated=None)

    assert (await state.peek(a_call().scope)).buckets["requests"].full_at_s == level
