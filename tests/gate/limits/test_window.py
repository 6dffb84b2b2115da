"""A window: at most so much within any time of a length."""

from __future__ import annotations

import pytest

from evalve.gate.limits.window import Window, asked_after_s, usual_length_s


def a_window(*taken: tuple[float, float]) -> Window:
    """Ten in a second, without slack."""
    window = Window(10.0, 1.0, slack_s=1e-9)
    for start_s, amount in taken:
        window.take(amount, start_s)
    return window


def test_what_fits_starts_at_once_but_not_before_what_is_booked() -> None:
    assert a_window().earliest_s(10.0) == 0.0
    assert a_window((5.0, 4.0)).earliest_s(6.0) == 5.0


def test_what_does_not_fit_waits_until_enough_is_over() -> None:
    window = a_window((5.0, 6.0), (5.5, 4.0))

    assert window.earliest_s(6.0) == pytest.approx(6.0)
    assert window.earliest_s(7.0) == pytest.approx(6.5)


def test_more_than_it_holds_waits_until_it_is_empty() -> None:
    assert a_window((5.0, 6.0), (5.5, 4.0)).earliest_s(50.0) == pytest.approx(6.5)


def test_what_is_given_back_is_there_again_and_a_booking_that_is_gone_holds_nobody_back() -> None:
    window = a_window((5.0, 8.0), (5.9, 2.0))

    window.give_back(2.0, 5.9)

    assert window.earliest_s(2.0) == pytest.approx(5.0)


def test_a_refusal_of_a_window_that_was_nearly_full_adds_slack() -> None:
    window = Window(10.0, 1.0, slack_s=0.02)
    window.take(9.0, 5.0)

    window.refused(5.0)

    assert (window.slack_s, window.length_s, window.surprises) == (0.04, 1.0, 0)


def test_a_refusal_of_one_with_much_room_makes_it_shorter() -> None:
    window = Window(40.0, 1.0)
    window.take(10.0, 5.0)

    window.refused(5.0)

    assert (window.length_s, window.most, window.surprises) == (0.25, 10.0, 1)


@pytest.mark.parametrize(
    ("measured_s", "usual_s"),
    [(0.2, 0.25), (0.9, 1.0), (8.8, 10.0), (64.0, 60.0), (12.7, 10.0), (1.6, 1.0), (14.5, 15.0), (2.1, 2.0)],
)
def test_providers_count_in_usual_lengths(measured_s: float, usual_s: float) -> None:
    assert usual_length_s(measured_s) == usual_s


def ending() -> Window:
    """Ten in a second, full since 5.1, and told to end at 5.4 and after every second again."""
    window = a_window((5.1, 4.0))
    window.end_at(5.4, 5.2)
    return window


def test_a_window_that_ends_for_all_at_once_has_room_for_one_when_it_is_said_to_be_over() -> None:
    window = ending()

    assert window.earliest_s(1.0) == pytest.approx(5.4)
    window.take(1.0, 5.4)
    assert window.earliest_s(1.0) == pytest.approx(5.65)


def test_after_some_have_tried_the_others_follow_at_once_and_it_ends_again() -> None:
    window = ending()
    for _ in range(8):
        window.take(1.0, 5.4)

    window.take(1.0, 5.4)
    assert window.earliest_s(1.0) == pytest.approx(5.4)
    window.take(1.0, 5.4)

    assert window.earliest_s(1.0) == pytest.approx(6.4)


def test_one_that_is_refused_when_it_was_said_to_be_over_slides() -> None:
    window = ending()
    window.take(1.0, 5.4)

    window.refused(5.4, 6.0)

    assert window.ends_s is None
    assert window.earliest_s(1.0) == pytest.approx(6.1)


def test_what_was_taken_counts_although_a_booking_for_much_later_was_given_back() -> None:
    window = Window(2.0, 10.0)
    window.take(1.0, 100.0)
    window.take(1.0, 100.1)
    window.take(1.0, 111.0)
    window.give_back(1.0, 111.0)

    assert window.earliest_s(1.0) >= 110.0


def asking() -> Window:
    """Forty in ten seconds, filled at once at 100.0; calls ask whether it is over."""
    window = Window(40.0, 10.0, slack_s=1e-9, since_s=100.2)
    window.take(40.0, 100.1)
    window.ask(100.0, 100.1, 100.2, allowed=5)
    return window


def test_of_a_window_that_was_filled_at_once_single_calls_ask_whether_it_is_over() -> None:
    window = asking()
    first_s, second_s = window.asks[:2]

    assert window.earliest_s(1.0) == first_s < 110.0
    window.take(1.0, first_s)

    assert window.earliest_s(1.0) == second_s


def test_one_that_is_refused_is_as_if_it_had_not_been() -> None:
    window = asking()
    first_s = window.asks[0]
    window.take(1.0, first_s)

    assert not window.answered(first_s, 1.0, first_s + 0.1, is_served=False)

    assert window.used(first_s) == 40.0


def test_one_that_is_served_shows_that_it_was_over_for_all() -> None:
    """What was taken before counted on, so that up to 188 were sent ten seconds after they had been taken."""
    window = asking()
    first_s = window.asks[0]
    window.take(1.0, first_s)

    assert window.answered(first_s, 1.0, first_s + 0.1, is_served=True)

    assert (window.ends_s, window.used(first_s), window.asks) == (first_s, 1.0, [])


def test_a_window_that_was_filled_slowly_is_not_asked() -> None:
    window = Window(40.0, 10.0)

    window.ask(100.0, 105.0, 105.1, allowed=5)

    assert window.asks == []


@pytest.mark.parametrize("allowed", [0, 3, 11])
def test_calls_ask_no_more_often_than_they_may_be_refused(allowed: int) -> None:
    asked_s = asked_after_s(60.0, 1.0, allowed)

    assert len(asked_s) <= allowed
    assert all(1.0 < at_s < 60.0 for at_s in asked_s)


def test_a_refusal_after_much_was_served_in_a_window_whose_end_is_known_makes_it_shorter() -> None:
    """Two windows were taken for one, because the first was nearly over when calls began."""
    window = Window(60.0, 15.0, since_s=0.0, ends_s=100.0)
    window.take(40.0, 101.0)

    window.refused(101.0)

    assert (window.length_s, window.most, window.ends_s) == (10.0, 40.0, 100.0)
