"""What was sent lately, in parts."""

from __future__ import annotations

import pytest

from evalve.gate.limits.history import History, together


def sent(*instants_s: float) -> History:
    history = History()
    for instant_s in instants_s:
        history.add(1, instant_s)
    return history


def test_nothing_is_lost_when_parts_become_longer() -> None:
    history = sent(*[0.1 * number for number in range(400)])

    assert len(history.parts) <= 16
    assert history.sum_after(-1.0) == 400


def test_a_part_is_as_late_as_the_last_that_was_sent_in_it() -> None:
    history = sent(0.001, 0.002, 0.003)

    assert history.parts == [[0.003, 3]]
    assert (history.began_s, history.first_after(0.0)) == (0.001, 0.001)


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    history = sent(0.0, 100.0)

    assert (history.began_s, history.parts) == (100.0, [[100.0, 1]])


def test_what_was_refused_is_taken_back_where_it_was_sent() -> None:
    history = sent(0.0, 1.0, 2.0)

    history.take_back(1, 1.0)

    assert [amount for _, amount in history.parts] == [1, 0, 1]


def test_what_is_taken_back_twice_of_one_instant_is_not_forgotten() -> None:
    history = sent(0.0, 1.0, 2.0)

    history.take_back(1, 1.0)
    history.take_back(1, 0.9)  # it was counted with what came next

    assert history.sum_after(-1.0) == 1


def test_the_most_in_any_time_of_a_length() -> None:
    assert sent(0.0, 5.0, 5.1, 5.2, 9.0).most_within(1.0) == 3


def test_histories_of_several_are_put_together_in_order() -> None:
    both = together([sent(0.0, 2.0), History(), sent(1.0, 3.0)])

    assert both.parts == [[0.0, 1], [1.0, 1], [2.0, 1], [3.0, 1]]
    assert both.began_s == 0.0


def test_the_rate_is_that_of_the_last_second_and_nothing_when_it_is_long_ago() -> None:
    history = sent(*[0.1 * number for number in range(31)])

    assert history.per_s(3.0) == pytest.approx(10.0, rel=0.2)
    assert history.per_s(6.0) == 0.0


def test_what_was_sent_after_a_pause_was_not_sent_during_it() -> None:
    assert sent(0.0, 3.0, 3.001).first_after(1.0) == pytest.approx(3.0, abs=0.011)
