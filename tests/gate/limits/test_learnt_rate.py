"""A rate learnt from refusals: by tables, in a scope's state, and against a provider that states none."""

from __future__ import annotations

import json

import pytest

from evalve.gate.limits.answers import note_unheld, observe
from evalve.gate.limits.booking import REFUSALS, ScopeState
from evalve.gate.limits.history import History
from evalve.gate.limits.learnt_rate import LearntRate
from evalve.gate.limits.plain_state import from_plain, to_plain
from evalve.gate.limits.state import Refusal, Settlement, apply
from evalve.gate.limits.window import Window
from evalve.gate.messages import Cost, Limit, Limits, Stated
from evalve.testing import run_in_virtual_time
from pacing_world import Provider, paced

ONE: Cost = {"requests": 1}


def a_rate(per_s: float = 10.0, given_per_s: float | None = None, uncertain: float = 0.02) -> LearntRate:
    """It last had nothing left at 100 s."""
    rate = LearntRate(per_s, 100.0, given_per_s)
    rate.stepped_at_s = rate.known_at_s = rate.counted_from_s = 100.0
    if given_per_s is not None:
        rate.least_per_s, rate.most_per_s = given_per_s / (1 + uncertain), given_per_s * (1 + uncertain)
        rate.is_measured = True
    return rate


def sent_at(*instants_s: float) -> dict[str, History]:
    history = History()
    for instant_s in instants_s:
        history.add(1, instant_s)
    return {"me": history}


def refused_at(rate: LearntRate, at_s: float) -> None:
    rate.note_sent(at_s)
    rate.note_unsent(at_s)
    rate.note_refused(at_s)
    rate.refused(at_s, 1.0, at_s + 0.01)


def used_for(rate: LearntRate, seconds: float, *, share: float = 1.0) -> None:
    """Calls go out at the rate, or at a share of it."""
    now_s = 100.0
    while now_s < 100.0 + seconds:
        now_s += 1 / (rate.per_s * share)
        rate.note_sent(now_s)


# -- the rate


def test_what_was_served_between_two_refusals_is_the_rate_and_less_is_used_at_first() -> None:
    rate = a_rate(40.0)
    used_for(rate, 0.75)
    served = rate.admitted

    rate.refused(103.0, 1.0, 103.01)

    assert rate.given_per_s == pytest.approx(served / 3.01)
    assert rate.per_s == pytest.approx(0.94 * served / 3.01)


def test_calls_sent_after_the_one_that_was_refused_tell_nothing_yet() -> None:
    rate = a_rate(40.0)
    for number in range(1, 31):
        rate.note_sent(100.0 + 0.1 * number)
    rate.per_s = 10.0
    rate.note_sent(103.005)

    rate.refused(103.0, 1.0, 103.01)

    assert rate.given_per_s == pytest.approx(30 / 3.01)
    assert rate.admitted == 1


def test_a_refusal_of_a_call_that_was_sent_before_anything_was_counted_takes_nothing_from_the_count() -> None:
    rate = a_rate(10.0)
    rate.note_sent(100.5)

    rate.note_unsent(99.9)

    assert rate.admitted == 1


def test_every_measure_narrows_what_the_rate_may_be() -> None:
    rate = a_rate(10.0)
    widths = []
    for began_s in (100.0, 103.0, 106.0):
        for number in range(30):
            rate.note_sent(began_s + 0.1 * (number + 0.9))
        rate.per_s = 10.5
        rate.refused(began_s + 2.995, 1.0, began_s + 3.0)
        widths.append(rate.most_per_s / rate.least_per_s)
        assert rate.least_per_s < 10.0 < rate.most_per_s

    assert rate.given_per_s == pytest.approx(10.0, rel=0.02)
    assert widths[0] < 1.3
    assert widths == sorted(widths, reverse=True)


def test_slow_calls_before_a_refusal_do_not_say_that_there_is_no_more() -> None:
    """Of a shallow bucket: what it cannot hold is lost."""
    rate = a_rate(40.0)
    for number in range(10):
        rate.note_sent(100.0 + 0.2 * number)

    rate.per_s = 40.0
    rate.refused(102.0, 1.0, 102.01)

    assert rate.least_per_s < 10 / 2.01 < 10.0 < (rate.given_per_s or 0.0) < rate.most_per_s == 40.0


def test_while_nothing_is_known_it_doubles() -> None:
    rate = a_rate(10.0)

    used_for(rate, 0.65)

    assert 30.0 < rate.per_s < 60.0


def test_it_stops_near_the_rate_that_was_refused_and_tries_more_after_a_while() -> None:
    rate = a_rate(9.4, given_per_s=10.0)

    used_for(rate, 18.0)
    then = rate.per_s
    used_for(rate, 60.0)

    assert then == pytest.approx(10.0)
    assert rate.per_s > 10.1


def test_where_little_is_called_for_it_does_not_grow() -> None:
    rate = a_rate(9.4, given_per_s=10.0)

    used_for(rate, 30.0, share=0.3)

    assert rate.per_s == 9.4


def test_where_nothing_is_served_tries_go_out_when_windows_of_usual_lengths_would_be_over() -> None:
    rate = LearntRate.blocked(sent_at(98.0, 98.5, 99.0), 1.0, 99.1)
    tries_s = []
    while rate.try_at_s is not None and rate.try_at_s < 130.0:
        tries_s.append(rate.try_at_s)
        rate.note_sent(rate.try_at_s)
        rate.note_unsent(rate.try_at_s)
        rate.refused(tries_s[-1], 1.0, tries_s[-1] + 0.01)

    assert tries_s == pytest.approx([99.2, 99.42, 100.1, 103.1, 108.1, 128.1], abs=0.02)


def test_what_refusals_ask_to_wait_for_is_waited_for_but_its_rounding() -> None:
    whole = LearntRate.blocked(sent_at(98.0, 98.5, 99.0), 9.0, 99.1)
    dated = LearntRate.blocked(sent_at(98.0, 98.5, 99.0), 10.0, 99.1)
    exact = LearntRate.blocked(sent_at(98.0, 98.5, 99.0), 8.9, 99.1)

    assert whole.try_at_s == dated.try_at_s == pytest.approx(108.1)
    assert exact.try_at_s == pytest.approx(108.0)


def test_a_window_is_as_long_as_it_took_until_calls_were_served_again_after_the_first_of_them() -> None:
    rate = LearntRate.blocked(sent_at(98.0, 98.5, 99.0), 9.0, 99.1)
    rate.note_sent(108.02)

    full = rate.resume(108.02)
    assert full is not None
    length_s, sent = full.length_s, full.sent

    assert (length_s, sent.sum_after(0.0)) == (10.0, 3.0)


def test_what_is_served_soon_flows_in() -> None:
    rate = LearntRate.blocked(sent_at(98.0, 98.5, 99.0), 1.0, 99.1)
    rate.note_sent(99.15)

    assert rate.resume(99.15) is None


def test_no_window_is_believed_that_holds_less_than_was_once_served_in_its_length() -> None:
    past = sent_at(*[50.0 + 0.01 * number for number in range(100)], 98.0, 98.5, 99.0)
    rate = LearntRate.blocked(past, 9.0, 99.1)
    rate.note_sent(108.02)

    full = rate.resume(108.02)

    assert full is not None
    assert (full.length_s, full.sent.sum_after(full.began_s)) == (60.0, 103.0)


def test_a_window_is_explained_by_what_was_served_from_one_end_to_the_next() -> None:
    """Twenty a second by the provider's clock: the first ones came in the middle of a second."""
    rate = LearntRate.blocked(sent_at(*[100.0 + 0.015 * number for number in range(20)]), 1.0, 100.32)
    rate.note_refused(100.31)
    refused_at(rate, 100.42)
    rate.note_sent(100.66)
    assert rate.resume(100.66) is None

    for number in range(1, 20):
        rate.note_sent(100.66 + 0.012 * number)
    refused_at(rate, 100.91)
    refused_at(rate, 101.3)
    found = rate.explain(None, 1.0, 101.31)

    assert found is not None
    assert (found.length_s, found.most) == (1.0, 20.0)
    assert found.begins_s == pytest.approx(100.66, abs=0.03)
    assert rate.per_s == 20.0


def test_what_fits_into_a_window_goes_out_gently_until_it_has_shown_that_it_is_one() -> None:
    rate = a_rate(100.0)
    rate.gently_until_s = 103.0
    rate.note_sent(100.0)

    assert rate.earliest_s() == pytest.approx(100.004)

    rate.note_sent(103.0)

    assert rate.earliest_s() == 0.0


def test_while_nothing_is_served_only_the_try_goes_out_also_where_a_window_was_just_found() -> None:
    rate = a_rate(100.0)
    rate.gently_until_s = 110.0
    rate.note_sent(100.5)

    rate.refused(100.5, 10.0, 100.51)

    assert rate.try_at_s is not None
    assert rate.earliest_s() == rate.try_at_s > 101.0


def test_a_window_is_given_up_in_which_nothing_is_served_for_longer_than_it_lasts() -> None:
    """It refused 52 calls, one every 90 ms."""
    rate = a_rate(400.0)
    rate.settle(400.0)
    window = Window(100.0, 0.25, since_s=100.0)
    rate.note_sent(101.0)
    rate.note_refused(101.1)

    assert not rate.doubt_window(window, 101.2, 101.21)
    assert rate.doubt_window(window, 101.4, 101.41)


def test_what_explains_refusals_is_asked_ever_more_seldom_while_nothing_does() -> None:
    rate = LearntRate.blocked(sent_at(100.0), 1.0, 100.1)
    asked = 0
    for number in range(300):
        rate.note_sent(101.0 + number)
        refused_at(rate, 101.5 + number)
        before = rate.asked_in_vain
        rate.explain(None, 1.0, 101.6 + number)
        asked += rate.asked_in_vain > before

    assert 20 <= asked <= 60


def test_a_call_that_is_served_after_a_fill_tells_a_bucket() -> None:
    rate = LearntRate.blocked(sent_at(*[100.0 + 0.015 * number for number in range(20)]), 1.0, 100.32)
    rate.note_sent(100.42)
    rate.note_unsent(100.42)
    rate.refused(100.42, 1.0, 100.43)
    rate.note_sent(100.66)
    rate.resume(100.66)
    for number in range(1, 5):
        rate.note_sent(100.66 + 0.012 * number)
    rate.note_sent(100.72)
    rate.note_unsent(100.72)
    rate.refused(100.72, 1.0, 100.73)
    asked_at_s = rate.earliest_s()
    rate.note_sent(asked_at_s)

    assert asked_at_s < 101.0
    assert rate.resume(asked_at_s) is None
    assert rate.given_per_s is not None


def test_refusals_soon_below_the_best_rate_are_counted_against_it() -> None:
    rate = a_rate(9.0, given_per_s=10.0)
    rate.best_per_s = 10.0
    used_for(rate, 1.0)

    rate.refused(101.0, 1.0, 101.01)

    assert rate.below == 1.0


# -- in a scope


def refused(
    state: ScopeState, at_s: float, *, booked_for_s: float | None = None, in_a_row: bool = False
) -> None:
    settlement = Settlement(
        {} if booked_for_s is None else ONE,
        {} if booked_for_s is None else ONE,
        at_s if booked_for_s is None else booked_for_s,
        {},
        True,
        Refusal(None, 1.0, in_a_row=in_a_row),
        version=state.version,
    )
    apply(state, Limits(), [settlement], [], holder="me", now_s=at_s, horizon_s=0.0)


def refused_all(state: ScopeState, at_s: float) -> None:
    """As many, and nothing but refusals, as show that calls come too fast."""
    refused(state, at_s)
    refused(state, at_s, in_a_row=True)


def test_after_refusals_that_state_no_limit_one_call_tries_before_others_follow() -> None:
    state = ScopeState()
    refused_all(state, 10.0)

    (first,) = apply(state, Limits(), [], [ONE], holder="me", now_s=10.0, horizon_s=1.0)
    (second,) = apply(state, Limits(), [], [ONE], holder="me", now_s=10.1, horizon_s=1.0)
    then = state.version
    (third,) = apply(state, Limits(), [], [ONE], holder="me", now_s=10.15, horizon_s=1.0)

    assert [first.start_s, second.start_s] == pytest.approx([10.1, 10.15])
    assert [first.version, second.version] == [then, then - 1]  # the second will book again
    assert third.version == state.version > then
    assert state.buckets["requests"].source == REFUSALS
    assert not state.unlimited


def test_a_single_refusal_among_calls_that_are_served_holds_nobody_back() -> None:
    state = ScopeState()
    apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=9.0, horizon_s=float("inf"))

    refused(state, 10.0)
    bookings = apply(state, Limits(), [], [ONE] * 4, holder="me", now_s=10.1, horizon_s=float("inf"))

    assert [one.start_s for one in bookings] == [10.1] * 4
    assert state.learnt is None


def test_a_slower_pace_that_is_refused_as_often_is_given_up_and_left_alone_for_a_while() -> None:
    state, now_s = ScopeState(), 10.0
    while state.learnt is None:
        apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=now_s, horizon_s=float("inf"))
        now_s += 0.5
        refused(state, now_s)
    tried = state.learnt.per_s

    for _ in range(3):
        apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=now_s, horizon_s=float("inf"))
        now_s += 0.5
        refused(state, now_s, booked_for_s=now_s - 0.1)

    assert tried == pytest.approx(0.85 * 40.0, rel=0.1)
    assert "requests" not in state.buckets
    assert now_s < state.doubt.immune_until_s


def test_all_refusals_of_one_episode_lower_the_rate_once() -> None:
    state = ScopeState()
    state.learnt = a_rate(100.0)
    apply(state, Limits(), [], [ONE] * 20, holder="me", now_s=101.0, horizon_s=float("inf"))

    refused(state, 103.0, booked_for_s=102.9)
    once = state.buckets["requests"].per_s
    refused(state, 103.1, booked_for_s=102.95)

    assert once < 50.0
    assert state.buckets["requests"].per_s == once


def test_as_soon_as_headers_state_a_limit_it_holds_instead() -> None:
    state = ScopeState()
    refused(state, 10.0)

    observe(state, {"requests": Stated(per_minute=6000, remaining=50)}, 20.0)
    state.hold(Limits(), 20.0)

    assert state.learnt is None
    assert (state.buckets["requests"].per_s, state.buckets["requests"].source) == (100.0, "response headers")


def test_nothing_is_learnt_where_a_limit_is_configured() -> None:
    state = ScopeState()
    configured = Limits({"requests": Limit(600)})
    state.hold(configured, 0.0)

    refused(state, 10.0, booked_for_s=9.9)

    assert (state.learnt, state.buckets["requests"].per_s) == (None, 10.0)


def test_it_is_the_same_after_it_was_stored_and_rows_from_before_can_be_read() -> None:
    state = ScopeState()
    note_unheld(state, "me", sent_at(9.0, 9.5)["me"], ONE, sent_at_s=9.5, now_s=9.6)
    refused_all(state, 10.0)
    apply(state, Limits(), [], [ONE], holder="me", now_s=10.0, horizon_s=1.0)
    plain = json.loads(json.dumps(to_plain(state)))
    older = {name: value for name, value in plain.items() if name not in ("learnt", "refusals")}

    assert state.learnt is not None
    assert from_plain(plain) == state
    assert from_plain(older).learnt is None
    assert not from_plain(older).buckets  # they would hold calls to a rate that nobody changes


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
