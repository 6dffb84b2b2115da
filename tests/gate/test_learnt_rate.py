"""A rate learnt from refusals: by tables, in a scope's state, and against a provider that states none."""

from __future__ import annotations

import pytest

from evalve.gate.booking import REFUSALS, ScopeState
from evalve.gate.learnt_rate import LearntRate
from evalve.gate.messages import Cost, Limit, Limits, Stated
from evalve.gate.plain_state import from_plain, to_plain
from evalve.gate.state import Refusal, Settlement, apply
from evalve.testing import run_in_virtual_time
from pacing_world import Provider, paced

ONE: Cost = {"requests": 1}


def a_rate(per_s: float = 10.0, refused_per_s: float | None = None, told: float = 0.0) -> LearntRate:
    """It last had nothing left at 100 s."""
    return LearntRate(
        per_s, 100.0, refused_per_s, told=told, stepped_at_s=100.0, known_at_s=100.0, in_row_since_s=100.0
    )


def used_for(rate: LearntRate, seconds: float, *, share: float = 1.0) -> None:
    """Calls go out at the rate, or at a share of it."""
    now_s = 100.0
    while now_s < 100.0 + seconds:
        now_s += 1 / (rate.per_s * share)
        rate.note_admitted(1, now_s)


# -- the rate


def test_however_little_was_served_something_is_tried() -> None:
    assert LearntRate.guessed(0.0, 0.0).per_s == 5.0


def test_what_was_served_between_two_refusals_is_the_rate_and_less_is_used_at_first() -> None:
    rate = a_rate(40.0)
    rate.admitted = 30

    rate.refused(103.0)

    assert (rate.refused_per_s, rate.per_s) == pytest.approx((10.0, 9.4))


def test_afterwards_it_is_between_what_was_served_and_what_was_refused() -> None:
    rate = a_rate(12.5, refused_per_s=10.0, told=100.0)
    rate.admitted = 80

    rate.refused(110.0)

    assert rate.refused_per_s == pytest.approx(10.0)


def test_while_nothing_is_known_it_doubles() -> None:
    rate = a_rate(10.0)

    used_for(rate, 0.65)

    assert 30.0 < rate.per_s < 60.0


def test_it_stops_near_the_rate_that_was_refused_and_tries_more_after_a_while() -> None:
    rate = a_rate(9.4, refused_per_s=10.0, told=150.0)

    used_for(rate, 12.0)
    then = rate.per_s
    used_for(rate, 40.0)

    assert then == pytest.approx(10.0)
    assert rate.per_s > 10.1


def test_where_little_is_called_for_it_does_not_grow() -> None:
    rate = a_rate(9.4, refused_per_s=10.0, told=150.0)

    used_for(rate, 30.0, share=0.3)

    assert rate.per_s == 9.4


def test_where_nothing_is_served_tries_are_further_and_further_apart() -> None:
    rate = a_rate(100.0)

    waits_s = [rate.block(now_s, 1.0) for now_s in (100.0, 101.0, 106.0, 150.0)]

    assert waits_s == pytest.approx([1.0, 1.0, 1.8, 4.0])
    assert rate.per_s == 12.5


def test_refusals_below_the_rate_that_was_refused_are_counted_against_it() -> None:
    rate = a_rate(9.4, refused_per_s=10.0, told=20.0)
    for now_s in (101.0, 102.0):
        rate.admitted = 10
        rate.refused(now_s)

    assert rate.below == 2.0


# -- in a scope


def refused(
    state: ScopeState, at_s: float, *, served_per_s: float, booked_for_s: float | None = None
) -> None:
    settlement = Settlement(
        {} if booked_for_s is None else ONE,
        {} if booked_for_s is None else ONE,
        at_s if booked_for_s is None else booked_for_s,
        {},
        True,
        Refusal(None, 1.0, served_per_s=served_per_s),
        version=state.version,
    )
    apply(state, Limits(), [settlement], [], holder="me", now_s=at_s, horizon_s=0.0)


def refused_all(state: ScopeState, at_s: float, *, served_per_s: float) -> None:
    """As many, and nothing but refusals, as show that calls come too fast."""
    for _ in range(5):
        refused(state, at_s, served_per_s=served_per_s)


def test_after_refusals_that_state_no_limit_calls_go_out_one_by_one() -> None:
    state = ScopeState()
    refused_all(state, 10.0, served_per_s=40.0)

    bookings = apply(state, Limits(), [], [ONE] * 3, holder="me", now_s=10.0, horizon_s=float("inf"))

    assert [one.start_s for one in bookings] == pytest.approx([10.25, 10.45, 10.65])
    assert state.buckets["requests"].source == REFUSALS
    assert not state.unlimited


def test_a_single_refusal_among_calls_that_are_served_holds_nobody_back() -> None:
    state = ScopeState()
    apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=9.0, horizon_s=float("inf"))

    refused(state, 10.0, served_per_s=100.0)
    bookings = apply(state, Limits(), [], [ONE] * 4, holder="me", now_s=10.1, horizon_s=float("inf"))

    assert [one.start_s for one in bookings] == [10.1] * 4
    assert state.learnt is None


def test_a_slower_pace_that_is_refused_as_often_is_given_up_and_left_alone_for_a_while() -> None:
    state, now_s = ScopeState(), 10.0
    while state.learnt is None:
        apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=now_s, horizon_s=float("inf"))
        now_s += 0.5
        refused(state, now_s, served_per_s=40.0)
    tried = state.learnt.per_s

    for _ in range(3):
        apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=now_s, horizon_s=float("inf"))
        now_s += 0.5
        refused(state, now_s, served_per_s=40.0, booked_for_s=now_s - 0.1)

    assert tried == pytest.approx(0.85 * 40.0)
    assert "requests" not in state.buckets
    assert now_s < state.doubt.immune_until_s


def test_all_refusals_of_one_episode_lower_the_rate_once() -> None:
    state = ScopeState()
    refused_all(state, 10.0, served_per_s=80.0)
    apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=12.0, horizon_s=float("inf"))

    refused(state, 14.0, served_per_s=80.0, booked_for_s=13.9)
    once = state.buckets["requests"].per_s
    refused(state, 14.1, served_per_s=80.0, booked_for_s=13.95)

    assert once == pytest.approx(0.94 * 19 / 4)
    assert state.buckets["requests"].per_s == once


def test_as_soon_as_headers_state_a_limit_it_holds_instead() -> None:
    state = ScopeState()
    refused(state, 10.0, served_per_s=5.0)

    state.observe({"requests": Stated(per_minute=6000, remaining=50)}, 20.0)
    state.hold(Limits(), 20.0)

    assert state.learnt is None
    assert (state.buckets["requests"].per_s, state.buckets["requests"].source) == (100.0, "response headers")


def test_nothing_is_learnt_where_a_limit_is_configured() -> None:
    state = ScopeState()
    configured = Limits({"requests": Limit(600)})
    state.hold(configured, 0.0)

    refused(state, 10.0, served_per_s=1.0, booked_for_s=9.9)

    assert (state.learnt, state.buckets["requests"].per_s) == (None, 10.0)


def test_it_is_the_same_after_it_was_stored_and_rows_from_before_can_be_read() -> None:
    state = ScopeState()
    refused(state, 10.0, served_per_s=5.0)
    plain = to_plain(state)
    older = {name: value for name, value in plain.items() if name != "learnt"}

    assert from_plain(plain) == state
    assert from_plain(older).learnt is None


# -- against a provider


@pytest.mark.parametrize("per_minute", [60, 300])
@pytest.mark.parametrize("depth_s", [1, 60])
@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("latency_s", [0.02, 3.0])
def test_where_refusals_state_no_limit_few_follow_and_most_of_the_rate_is_used(
    per_minute: int, depth_s: int, processes: int, latency_s: float
) -> None:
    provider = Provider(per_minute, depth_s, states=False, latency_s=latency_s)

    run_in_virtual_time(paced(provider, Limits(), until_s=180.0, processes=processes, window=60))

    begun_s = min(at_s for at_s, is_served in provider.seen if not is_served) + 1.0
    later = [is_served for at_s, is_served in provider.seen if begun_s < at_s <= 180.0]
    assert later.count(False) <= max(20, 0.05 * len(later))
    assert later.count(True) >= 0.8 * per_minute / 60 * (180.0 - begun_s)
