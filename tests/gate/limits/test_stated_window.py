"""A window whose end headers tell: as much as it holds until then, and as much again afterwards."""

from __future__ import annotations

import pytest

from evalve.gate.limits.stated_window import StatedWindow, ToldEnd


def exactly(end_s: float) -> ToldEnd:
    return ToldEnd(end_s, end_s, end_s)


def a_window(taken: float = 0.0) -> StatedWindow:
    """Ten in ten seconds, until 104."""
    return StatedWindow(10.0, 10.0, exactly(104.0), taken)


def test_what_remains_may_go_at_once_and_the_rest_just_after_the_end() -> None:
    window = a_window(taken=8.0)

    assert window.earliest_s(2.0) <= 100.0
    window.take(2.0, 100.0)
    assert window.earliest_s(1.0) == pytest.approx(104.02)


def test_what_is_booked_for_the_next_window_is_in_that_one() -> None:
    window = a_window(taken=10.0)
    window.take(7.0, 104.02)

    assert window.earliest_s(3.0) == pytest.approx(104.02)
    assert window.earliest_s(4.0) == pytest.approx(114.02)

    window.go_on(105.0)

    assert (window.taken, window.end, window.later) == (7.0, exactly(114.0), [])


def test_one_that_nobody_used_has_ended_several_times() -> None:
    window = a_window(taken=10.0)

    window.go_on(131.0)

    assert (window.taken, window.end) == (0.0, exactly(134.0))


def test_each_answer_narrows_when_it_ends() -> None:
    """37 seconds in whole ones, told half a second after 36.6: it ends between both."""
    window = StatedWindow(10.0, 60.0, ToldEnd(136.0, 137.0, 137.1))

    window.observe(ToldEnd(136.4, 137.4, 137.5), used=3.0, since=0.0, sent_at_s=100.4, now_s=100.5)

    assert window.end == ToldEnd(136.4, 137.0, 137.1)
    assert window.taken == 3.0


def test_what_others_took_is_taken() -> None:
    window = a_window(taken=2.0)

    window.observe(exactly(104.0), used=9.0, since=0.0, sent_at_s=100.0, now_s=100.1)

    assert window.earliest_s(2.0) == pytest.approx(104.02)


def test_where_the_end_is_not_sure_single_calls_try_ever_faster_until_it_is_believed() -> None:
    window = StatedWindow(20.0, 10.0, ToldEnd(103.0, 104.0, 104.0), taken=20.0)
    window.take(1.0, 104.02)
    window.go_on(104.02)

    starts_s = []
    for _ in range(8):
        starts_s.append(window.earliest_s(1.0))
        window.take(1.0, starts_s[-1])

    assert starts_s[:3] == pytest.approx([104.27, 104.395, 104.4783], abs=1e-3)
    assert window.is_proven
    assert window.earliest_s(10.0) <= starts_s[-1]


def test_a_refusal_that_says_that_the_last_one_is_not_over_yet_is_believed() -> None:
    window = StatedWindow(10.0, 10.0, ToldEnd(103.0, 104.0, 105.0), taken=10.0)
    window.take(1.0, 104.02)
    window.go_on(104.02)

    moved = window.observe(exactly(104.6), used=10.0, since=0.0, sent_at_s=104.02, now_s=104.03)

    assert moved
    assert window.earliest_s(1.0) == pytest.approx(104.62)


def test_an_answer_that_comes_late_and_tells_of_the_last_one_changes_nothing() -> None:
    window = a_window(taken=10.0)
    window.go_on(104.1)

    moved = window.observe(ToldEnd(104.0, 104.0, 105.0), used=10.0, since=0.0, sent_at_s=103.0, now_s=104.5)

    assert not moved
    assert (window.taken, window.end) == (0.0, exactly(114.0))


def test_where_the_end_is_known_well_calls_go_when_it_is_over_for_certain() -> None:
    """Answers may tell what was true when they left: everybody came 0.2 seconds too early."""
    window = StatedWindow(10.0, 10.0, ToldEnd(103.8, 103.8, 104.0), taken=10.0)

    assert window.earliest_s(1.0) == pytest.approx(104.02)


def test_what_has_gone_counts_in_a_window_that_turns_out_to_be_longer() -> None:
    window = StatedWindow(10.0, 5.0, exactly(104.0))
    window.go_on(104.02)
    for _ in range(8):
        window.take(1.0, 104.02)

    window.observe(exactly(114.0), used=1.0, since=3.0, sent_at_s=104.02, now_s=104.2)

    assert (window.taken, window.end) == (8.0, exactly(114.0))


def test_a_window_that_begins_with_its_first_call_ends_as_much_later() -> None:
    window = a_window(taken=10.0)
    window.take(1.0, 104.02)
    window.go_on(104.02)

    window.observe(exactly(114.05), used=1.0, since=0.0, sent_at_s=104.02, now_s=104.2)

    assert (window.taken, window.end) == (1.0, exactly(114.05))


def test_what_is_given_back_is_there_again_in_the_window_that_it_was_taken_from() -> None:
    window = a_window(taken=10.0)
    window.take(4.0, 104.02)

    window.give_back(3.0, 104.02)
    assert window.earliest_s(9.0) == pytest.approx(104.02)

    window.go_on(104.1)
    window.give_back(5.0, 101.0)  # of the one before
    assert window.taken == 1.0


def test_a_refusal_without_a_word_fills_it() -> None:
    window = a_window(taken=1.0)

    window.refuse(100.0)

    assert window.earliest_s(1.0) == pytest.approx(104.02)
