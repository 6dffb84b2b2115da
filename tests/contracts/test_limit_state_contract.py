"""What every shared state of limits promises, whatever keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalve.gate.limits.booking import Booking
from evalve.gate.limits.state import LimitState, MemoryState, Refusal, Settlement
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.messages import Cost, Dimension, Limit, Limits, Stated

SCOPE = "api.test/key/model"
EVER = float("inf")
NOTHING_CONFIGURED = Limits()
ONE: Cost = {"requests": 1}


class Time:
    """Stands still unless told."""

    def __init__(self) -> None:
        self.now_s = 10_000.0

    def __call__(self) -> float:
        return self.now_s


class Shared:
    """The state under test, and the time it goes by; instants are told from the start of the test."""

    def __init__(self, state: LimitState, other: LimitState, time: Time) -> None:
        self.state = state
        self.other = other
        """The same as another process has it."""
        self._time = time
        self._began_s = time.now_s

    def wait(self, delay_s: float) -> None:
        self._time.now_s += delay_s

    @property
    def now_s(self) -> float:
        return self._time.now_s

    async def book(
        self, limits: Limits, *costs: Cost, horizon_s: float = EVER, scope: str = SCOPE
    ) -> list[Booking]:
        return await self.state.exchange(scope, limits, [], list(costs), horizon_s=horizon_s)

    async def starts(self, limits: Limits, *costs: Cost) -> list[float]:
        return self.told(await self.book(limits, *costs))

    def told(self, bookings: Sequence[Booking]) -> list[float]:
        return [booking.start_s - self._began_s for booking in bookings]

    async def settle(self, limits: Limits, booking: Booking, actual: Cost | None = None, **said: Any) -> None:
        settlement = Settlement(
            booking.cost,
            booking.cost if actual is None else actual,
            booking.start_s,
            version=booking.version,
            **said,
        )
        await self.state.exchange(SCOPE, limits, [settlement], [], horizon_s=0.0)

    async def answer(self, limits: Limits, booking: Booking, **stated: Stated) -> None:
        await self.settle(limits, booking, stated=stated, answered=True)

    async def level(self, dimension: Dimension) -> float:
        return (await self.state.peek(SCOPE)).buckets[dimension].level(self.now_s)


@pytest.fixture(params=["memory", "sqlite"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shared]:
    time = Time()
    state: LimitState
    other: LimitState
    if request.param == "memory":
        state = MemoryState(now_s=time)
        other = MemoryState(now_s=time, beside=state)
    else:
        state = SqliteState(tmp_path / "limits.db", now_s=time)
        other = SqliteState(tmp_path / "limits.db", now_s=time)
    yield Shared(state, other, time)
    await state.close()
    await other.close()


def limits_of(concurrency: int | None = None, **both: tuple[float, float]) -> Limits:
    """By dimension: how much a minute, and how much at once."""
    limits = {name: Limit(*values) for name, values in both.items()}
    return Limits(limits, concurrency=concurrency)  # type: ignore[arg-type]


async def filled(shared: Shared, limits: Limits) -> None:
    """Until the buckets exist, are full, and have served a call."""
    (first,) = await shared.book(limits, {})
    await shared.settle(limits, first)
    shared.wait(1000)
    shared._began_s = shared.now_s


# -- booking


async def test_calls_are_booked_in_the_order_in_which_they_ask(shared: Shared) -> None:
    limits = limits_of(input_tokens=(60_000, 1000))
    await filled(shared, limits)

    starts = await shared.starts(limits, {"input_tokens": 1000}, {"input_tokens": 1000}, {"input_tokens": 1})

    # the last is small, and could start before the second if it were let pass
    assert starts == pytest.approx([0.0, 1.0, 1.251], abs=0.01)


async def test_every_dimension_is_booked_at_the_start_instant(shared: Shared) -> None:
    limits = limits_of(requests=(60, 4), input_tokens=(60_000, 1000))
    await filled(shared, limits)
    big: Cost = {"requests": 1, "input_tokens": 1000}

    await shared.book(limits, big, big)
    shared.wait(1.0)

    # at the second's start the bucket of requests was full again: one is missing, not two
    assert await shared.level("requests") == pytest.approx(3.0)


async def test_what_is_asked_for_later_than_the_horizon_is_told_and_not_booked(shared: Shared) -> None:
    limits = limits_of(input_tokens=(60_000, 1000))
    await filled(shared, limits)
    big: Cost = {"input_tokens": 1000}

    bookings = await shared.book(limits, big, big, big, horizon_s=0.5)
    again = await shared.starts(limits, big)

    assert [booking.granted for booking in bookings] == [True, False]
    assert shared.told(bookings) == pytest.approx([0.0, 1.0])
    assert again == pytest.approx([1.0])


async def test_the_first_is_booked_however_late_it_starts(shared: Shared) -> None:
    limits = limits_of(input_tokens=(60_000, 1000))
    await filled(shared, limits)
    await shared.book(limits, {"input_tokens": 50_000})

    bookings = await shared.book(limits, {"input_tokens": 1000}, horizon_s=0.0)

    assert [booking.granted for booking in bookings] == [True]
    assert shared.told(bookings) == pytest.approx([50.0])


async def test_a_request_larger_than_the_bucket_is_admitted_when_it_is_full(shared: Shared) -> None:
    limits = limits_of(input_tokens=(60_000, 1000))
    await filled(shared, limits)

    starts = await shared.starts(limits, {"input_tokens": 5000}, {"input_tokens": 5000})

    assert starts == pytest.approx([0.0, 5.0])


async def test_what_has_no_limit_starts_at_once(shared: Shared) -> None:
    huge: Cost = {"input_tokens": 1e9}

    starts = await shared.starts(limits_of(requests=(60, 1)), huge, huge, huge)

    assert starts == [0.0, 0.0, 0.0]


async def test_scopes_do_not_share(shared: Shared) -> None:
    limits = limits_of(requests=(60, 1))
    await filled(shared, limits)
    await shared.book(limits, ONE, ONE, ONE)

    (elsewhere,) = await shared.book(limits, ONE, scope="api.test/key/other")

    assert shared.told([elsewhere]) == [0.0]


async def test_the_binding_limit_is_named(shared: Shared) -> None:
    limits = limits_of(requests=(60, 1), input_tokens=(60, 1))
    await filled(shared, limits)
    await shared.book(limits, {"input_tokens": 5})

    (booking,) = await shared.book(limits, {"requests": 1, "input_tokens": 1})

    assert booking.binding == "input_tokens"


async def test_many_who_book_at_once_are_told_different_instants(shared: Shared) -> None:
    limits = limits_of(requests=(60, 1))
    await filled(shared, limits)

    booked = await asyncio.gather(*(shared.starts(limits, ONE) for _ in range(20)))

    assert sorted(start for (start,) in booked) == pytest.approx([float(n) for n in range(20)])


# -- settling


async def test_what_was_booked_too_much_comes_back(shared: Shared) -> None:
    limits = limits_of(output_tokens=(6000, 1000))
    await filled(shared, limits)
    (booking,) = await shared.book(limits, {"output_tokens": 900})

    await shared.settle(limits, booking, {"output_tokens": 100})

    assert await shared.level("output_tokens") == pytest.approx(900.0)


async def test_what_was_booked_too_little_is_taken(shared: Shared) -> None:
    limits = limits_of(output_tokens=(6000, 1000))
    await filled(shared, limits)
    (booking,) = await shared.book(limits, {"output_tokens": 100})

    await shared.settle(limits, booking, {"output_tokens": 1500})

    assert await shared.level("output_tokens") == pytest.approx(-500.0)


async def test_a_booking_that_is_given_back_was_never_made(shared: Shared) -> None:
    limits = limits_of(requests=(60, 10), input_tokens=(60_000, 1000))
    await filled(shared, limits)
    cost: Cost = {"requests": 1, "input_tokens": 1000}
    await shared.book(limits, cost)
    (given_back,) = await shared.book(limits, cost)

    await shared.settle(limits, given_back, {})
    starts = await shared.starts(limits, cost)

    assert starts == pytest.approx([given_back.start_s - shared._began_s])


async def test_settlements_come_before_the_bookings_of_the_same_exchange(shared: Shared) -> None:
    limits = limits_of(1, requests=(6e6, 1e5))
    (held,) = await shared.book(limits, ONE)
    settlement = Settlement(held.cost, held.cost, held.start_s, version=held.version)

    bookings = await shared.state.exchange(SCOPE, limits, [settlement], [ONE], horizon_s=0.0)

    assert [booking.granted for booking in bookings] == [True]


# -- concurrency


async def test_no_more_are_granted_at_once_than_the_concurrency_limit(shared: Shared) -> None:
    limits = limits_of(2, requests=(6e6, 1e5))

    bookings = await shared.book(limits, ONE, ONE, ONE)

    assert [(booking.granted, booking.binding) for booking in bookings] == [
        (True, ""),
        (True, ""),
        (False, "concurrency"),
    ]


async def test_a_settled_call_makes_room_for_another(shared: Shared) -> None:
    limits = limits_of(1, requests=(6e6, 1e5))
    (first,) = await shared.book(limits, ONE)
    (before,) = await shared.book(limits, ONE)
    await shared.settle(limits, first)

    (after,) = await shared.book(limits, ONE)

    assert (before.granted, after.granted) == (False, True)


async def test_a_call_that_was_never_booked_frees_nobodys_place(shared: Shared) -> None:
    limits = limits_of(1, requests=(6e6, 1e5))
    await shared.book(limits, ONE)
    unbooked = Settlement({}, {}, shared.now_s, answered=True)

    bookings = await shared.state.exchange(SCOPE, limits, [unbooked], [ONE], horizon_s=0.0)

    assert [booking.granted for booking in bookings] == [False]


async def test_a_refusal_of_too_many_at_once_shows_how_many_may_be_and_one_more_is_tried_now_and_then(
    shared: Shared,
) -> None:
    limits = limits_of(requests=(6e6, 1e5))
    *_, fourth, fifth = await shared.book(limits, *[ONE] * 5)
    await shared.settle(limits, fifth, ONE, refusal=Refusal("concurrency", 1.0))
    await shared.settle(limits, fourth, ONE, refusal=Refusal("concurrency", 1.0))

    at_once = await shared.book(limits, ONE)
    shared.wait(1)
    later = await shared.book(limits, ONE, ONE)

    assert [(booking.granted, booking.binding) for booking in at_once] == [(False, "concurrency")]
    assert [booking.granted for booking in later] == [True, False]


async def test_a_refusal_of_too_many_at_once_counts_calls_that_were_never_booked(shared: Shared) -> None:
    unbooked = Settlement({}, {}, shared.now_s, answered=True, refusal=Refusal("concurrency", 1.0, 3))

    bookings = await shared.state.exchange(SCOPE, Limits(), [unbooked], [ONE] * 4, horizon_s=1.0)

    assert [booking.granted for booking in bookings] == [True, True, True, False]


async def test_a_refusal_of_too_many_at_once_leaves_rates_and_what_is_booked_alone(shared: Shared) -> None:
    limits = limits_of(requests=(60, 10))
    await filled(shared, limits)
    (refused,) = await shared.book(limits, ONE)
    before = await shared.state.version(SCOPE)

    await shared.settle(limits, refused, ONE, refusal=Refusal("concurrency", 7.0, 20))

    assert await shared.state.version(SCOPE) == before
    assert await shared.starts(limits, *[ONE] * 8) == [0.0] * 8


# -- places that several wait for

ONE_AT_ONCE = Limits(concurrency=1)
TWO_AT_ONCE = Limits(concurrency=2)
PATIENCE_S = 60


async def ask(state: LimitState, limits: Limits, *ended: Booking) -> Booking:
    """For one place, telling at the same go what has ended."""
    settlements = [ended_as_booked(booking) for booking in ended]
    (booking,) = await state.exchange(SCOPE, limits, settlements, [ONE], horizon_s=0.0)
    return booking


def ended_as_booked(booking: Booking) -> Settlement:
    return Settlement(booking.cost, booking.cost, booking.start_s, version=booking.version)


def heard_by(state: LimitState) -> asyncio.Event:
    """Set when the state tells of a place."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    state.on_place(lambda: loop.call_soon_threadsafe(heard.set))
    return heard


async def test_who_was_denied_a_place_is_told_when_another_process_leaves_one(shared: Shared) -> None:
    heard = heard_by(shared.other)
    held = await ask(shared.state, ONE_AT_ONCE)
    denied = await ask(shared.other, ONE_AT_ONCE)

    await shared.settle(ONE_AT_ONCE, held)
    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()

    assert (denied.granted, (await ask(shared.other, ONE_AT_ONCE)).granted) == (False, True)


async def test_who_was_denied_a_place_is_told_also_when_its_own_call_ends(shared: Shared) -> None:
    heard = heard_by(shared.state)
    held = await ask(shared.state, ONE_AT_ONCE)
    await ask(shared.state, ONE_AT_ONCE)

    await shared.settle(ONE_AT_ONCE, held)

    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()


async def test_who_ends_a_call_does_not_take_the_place_again_from_who_has_none(shared: Shared) -> None:
    held = await ask(shared.state, TWO_AT_ONCE)
    await ask(shared.state, TWO_AT_ONCE)
    await ask(shared.other, TWO_AT_ONCE)

    again = await ask(shared.state, TWO_AT_ONCE, held)
    others = await ask(shared.other, TWO_AT_ONCE)

    assert (again.granted, again.binding, others.granted) == (False, "concurrency", True)


async def test_a_place_that_cannot_be_divided_goes_round(shared: Shared) -> None:
    held = await ask(shared.state, ONE_AT_ONCE)
    await ask(shared.other, ONE_AT_ONCE)
    turns = []

    for mine, theirs in ((shared.state, shared.other), (shared.other, shared.state)) * 2:
        shared.wait(1.0)
        turns.append((await ask(mine, ONE_AT_ONCE, held)).granted)
        held = await ask(theirs, ONE_AT_ONCE)
        turns.append(held.granted)

    assert turns == [False, True] * 4


async def test_who_gives_up_keeps_no_place_from_others_and_they_are_told(shared: Shared) -> None:
    heard = heard_by(shared.state)
    held = await ask(shared.state, ONE_AT_ONCE)
    await ask(shared.other, ONE_AT_ONCE)
    passed_over = await ask(shared.state, ONE_AT_ONCE, held)

    await shared.other.give_up(SCOPE)
    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()

    assert (passed_over.granted, (await ask(shared.state, ONE_AT_ONCE)).granted) == (False, True)


async def test_a_place_is_kept_for_a_moment_and_who_was_passed_over_is_told_for_how_long(
    shared: Shared,
) -> None:
    held = await ask(shared.state, ONE_AT_ONCE)
    await ask(shared.other, ONE_AT_ONCE)
    passed_over = await ask(shared.state, ONE_AT_ONCE, held)
    (kept_s,) = shared.told([passed_over])

    shared.wait(kept_s)
    after = await ask(shared.state, ONE_AT_ONCE)

    assert kept_s == 0.25
    assert (passed_over.granted, after.granted) == (False, True)


async def test_who_waits_for_no_place_is_told_of_none(shared: Shared) -> None:
    held = await ask(shared.state, TWO_AT_ONCE)
    await ask(shared.other, TWO_AT_ONCE)

    await shared.settle(TWO_AT_ONCE, held)

    assert not (await shared.state.peek(SCOPE)).line.waits


# -- refusals


async def test_a_refusal_of_a_known_limit_holds_that_limit_until_it_was_told_to_come_again(
    shared: Shared,
) -> None:
    limits = limits_of(requests=(60, 10), input_tokens=(60_000, 1000))
    await filled(shared, limits)
    (refused,) = await shared.book(limits, {"input_tokens": 1})

    await shared.settle(limits, refused, {}, answered=True, refusal=Refusal("input_tokens", 7.0))

    assert await shared.starts(limits, {"input_tokens": 1}) == pytest.approx([7.0])
    assert await shared.starts(limits, {"requests": 1}) == [0.0]


async def test_a_refusal_that_names_no_limit_pauses_everything(shared: Shared) -> None:
    limits = limits_of(requests=(60, 10), input_tokens=(60_000, 1000))
    await filled(shared, limits)
    (refused,) = await shared.book(limits, ONE)

    await shared.settle(limits, refused, {}, answered=True, refusal=Refusal(None, 7.0))
    (booking,) = await shared.book(limits, {"input_tokens": 1})

    assert shared.told([booking]) == pytest.approx([7.0])
    assert booking.binding in ("pause", "input_tokens")


async def test_calls_of_one_episode_are_punished_once(shared: Shared) -> None:
    limits = limits_of(requests=(60, 10))
    await filled(shared, limits)
    refused = await shared.book(limits, ONE, ONE, ONE)

    for booking in refused:
        await shared.settle(limits, booking, {}, answered=True, refusal=Refusal("requests", 5.0))
        shared.wait(1.0)

    assert (await shared.state.peek(SCOPE)).version == 1
    assert await shared.starts(limits, ONE) == pytest.approx([5.0])


async def test_a_call_that_was_sent_after_the_penalty_and_is_refused_begins_another_episode(
    shared: Shared,
) -> None:
    limits = limits_of(requests=(60, 10))
    await filled(shared, limits)
    (refused,) = await shared.book(limits, ONE)
    await shared.settle(limits, refused, {}, answered=True, refusal=Refusal("requests", 5.0))
    shared.wait(10.0)
    (again,) = await shared.book(limits, ONE)

    await shared.settle(limits, again, {}, answered=True, refusal=Refusal("requests", 5.0))

    assert await shared.state.version(SCOPE) == 2
    assert await shared.starts(limits, ONE) == pytest.approx([15.0])


async def test_service_resumes_one_by_one_after_a_refusal(shared: Shared) -> None:
    limits = limits_of(requests=(600, 100))
    await filled(shared, limits)
    (refused,) = await shared.book(limits, ONE)

    await shared.settle(limits, refused, {}, answered=True, refusal=Refusal("requests", 5.0))

    assert await shared.starts(limits, ONE, ONE, ONE) == pytest.approx([5.0, 5.1, 5.2])


async def test_the_version_changes_with_a_penalty_and_with_nothing_else(shared: Shared) -> None:
    limits = limits_of(requests=(60, 10))
    before = await shared.state.version(SCOPE)
    (booking,) = await shared.book(limits, ONE)
    await shared.answer(limits, booking, requests=Stated(per_minute=60, remaining=9))
    unchanged = await shared.state.version(SCOPE)
    (booking,) = await shared.book(limits, ONE)
    await shared.settle(limits, booking, {}, answered=True, refusal=Refusal(None, 1.0))

    assert (before, unchanged, booking.version) == (0, 0, 0)
    assert await shared.state.version(SCOPE) == 1


async def test_after_a_ramp_refusal_the_rate_is_halved_and_grows_again(shared: Shared) -> None:
    limits = limits_of(requests=(600, 10))
    await filled(shared, limits)
    (refused,) = await shared.book(limits, ONE)
    await shared.settle(limits, refused, {}, answered=True, refusal=Refusal("ramp", 1.0))
    rates = []

    for delay_s in (1.0, 10.0, 10.0):
        shared.wait(delay_s)
        await shared.book(limits, ONE)
        rates.append((await shared.state.peek(SCOPE)).buckets["requests"].per_s)

    assert rates == pytest.approx([5.0, 7.5, 10.0])


# -- headers


async def test_limits_are_learnt_from_headers(shared: Shared) -> None:
    (first,) = await shared.book(NOTHING_CONFIGURED, ONE)

    await shared.answer(NOTHING_CONFIGURED, first, requests=Stated(per_minute=60, remaining=0))
    state = await shared.state.peek(SCOPE)

    assert state.buckets["requests"].per_s == 1.0
    assert state.buckets["requests"].source == "response headers"
    assert await shared.level("requests") <= 0.0


async def test_a_stated_limit_holds_where_it_is_lower_than_the_configured_one(shared: Shared) -> None:
    limits = limits_of(requests=(6000, 100))
    (first,) = await shared.book(limits, ONE)

    await shared.answer(limits, first, requests=Stated(per_minute=600, remaining=50))
    await shared.book(limits, ONE)

    assert (await shared.state.peek(SCOPE)).buckets["requests"].per_s == 10.0


async def test_a_level_below_ours_is_believed_at_once(shared: Shared) -> None:
    limits = limits_of(input_tokens=(60_000, 10_000))
    await filled(shared, limits)
    (booking,) = await shared.book(limits, {"input_tokens": 10})

    await shared.answer(limits, booking, input_tokens=Stated(per_minute=60_000, remaining=700))

    assert await shared.level("input_tokens") == pytest.approx(701)


async def test_a_level_above_ours_is_believed_a_second_of_the_rate_at_a_time(shared: Shared) -> None:
    limits = limits_of(input_tokens=(60_000, 10_000))
    await filled(shared, limits)
    (booking,) = await shared.book(limits, {"input_tokens": 10_000})
    shared.wait(2.0)

    await shared.answer(limits, booking, input_tokens=Stated(per_minute=60_000, remaining=9000))

    assert await shared.level("input_tokens") == pytest.approx(3000.0)


async def test_what_is_booked_for_later_is_not_taken_for_what_the_provider_says_remains(
    shared: Shared,
) -> None:
    limits = limits_of(input_tokens=(60_000, 10_000))
    await filled(shared, limits)
    (sent,) = await shared.book(limits, {"input_tokens": 9000})
    (waiting,) = await shared.book(limits, {"input_tokens": 9000})
    shared.wait(1.0)

    # true: 10,000 less what was sent, more what a second brought; it tells us nothing new
    for _ in range(10):
        stated = {"input_tokens": Stated(per_minute=60_000, remaining=2000)}
        answer = Settlement({}, {}, sent.start_s, stated, answered=True)  # type: ignore[arg-type]
        await shared.state.exchange(SCOPE, limits, [answer], [], horizon_s=0.0)

    assert await shared.starts(limits, {"input_tokens": 9000}) == pytest.approx(
        [waiting.start_s - shared._began_s + 9.0]
    )


async def test_output_that_is_still_being_written_is_not_there_to_be_used_again(shared: Shared) -> None:
    limits = limits_of(output_tokens=(60_000, 10_000))
    await filled(shared, limits)
    first, _ = await shared.book(limits, {"output_tokens": 4000}, {"output_tokens": 4000})
    shared.wait(1.0)

    # nothing of the second is charged yet; our own level, 3,000, is right
    await shared.answer(limits, first, output_tokens=Stated(per_minute=60_000, remaining=7000))

    assert await shared.level("output_tokens") == pytest.approx(3000.0)


async def test_how_deep_a_bucket_is_shows_in_what_remains(shared: Shared) -> None:
    limits = Limits({"requests": Limit(60)})
    (booking,) = await shared.book(limits, ONE)

    await shared.answer(limits, booking, requests=Stated(per_minute=60, remaining=59))
    shared.wait(1000)
    await shared.book(limits, {})

    assert await shared.level("requests") >= 59.0


async def test_use_by_others_slows_us_down(shared: Shared) -> None:
    limits = limits_of(requests=(600, 100))
    await filled(shared, limits)

    for remaining in (90, 60, 30, 0):
        (booking,) = await shared.book(limits, ONE)
        await shared.answer(limits, booking, requests=Stated(per_minute=600, remaining=remaining))
        shared.wait(5.0)

    assert (await shared.state.peek(SCOPE)).buckets["requests"].rate() < 6.0


async def test_an_answer_that_states_no_limit_says_that_there_is_none(shared: Shared) -> None:
    (booking,) = await shared.book(NOTHING_CONFIGURED, ONE)

    await shared.answer(NOTHING_CONFIGURED, booking)

    assert (await shared.state.peek(SCOPE)).unlimited


# -- looking


async def test_an_unknown_scope_is_empty(shared: Shared) -> None:
    assert (await shared.state.peek("nobody")).buckets == {}
    assert await shared.state.version("nobody") == 0
    assert await shared.state.views() == []


async def test_looking_changes_nothing(shared: Shared) -> None:
    limits = limits_of(requests=(60, 1))
    await filled(shared, limits)
    await shared.book(limits, ONE)

    await shared.state.peek(SCOPE)
    await shared.state.views()

    assert await shared.starts(limits, ONE) == pytest.approx([1.0])


async def test_views_show_every_scope_with_its_limits_and_what_is_in_flight(shared: Shared) -> None:
    limits = limits_of(3, requests=(60, 10))
    await shared.book(limits, ONE)
    await shared.book(limits, ONE, scope="another")

    views = {view.scope: view for view in await shared.state.views()}

    assert set(views) == {SCOPE, "another"}
    shown = views[SCOPE]
    assert shown.state.buckets["requests"].per_s == 1.0
    assert shown.state.concurrency == 3
    assert sum(held.in_flight for held in shown.state.holders.values()) == 1
    assert shown.now_s == shared.now_s
