"""Where refusals go on although every known limit is kept, calls go out more slowly."""

from __future__ import annotations

import pytest

from evalve.gate.limits.pace import Pace


def refused_and_served(pace: Pace, *, refused: int, served_each: int, every_s: float) -> None:
    """From 100 s on, with ten calls a second known."""
    for number in range(refused):
        at_s = 100.0 + number * every_s
        pace.note_refused(at_s - 0.01, 10.0, at_s)
        for _ in range(served_each):
            pace.note_served()


def test_refusals_that_go_on_slow_calls_to_a_little_less_than_was_served() -> None:
    pace = Pace()

    refused_and_served(pace, refused=16, served_each=4, every_s=0.5)

    assert pace.per_s == pytest.approx(0.95 * 8.0)


def test_one_in_ten_is_chance() -> None:
    pace = Pace()

    refused_and_served(pace, refused=100, served_each=9, every_s=1.0)

    assert pace.per_s is None


def test_calls_that_were_sent_before_a_refusal_was_known_tell_nothing_new() -> None:
    pace = Pace()

    for _ in range(50):
        pace.note_refused(99.0, 10.0, 100.0)

    assert pace.score == 5.0


def test_it_is_never_less_than_half_of_what_is_known() -> None:
    pace = Pace()

    refused_and_served(pace, refused=20, served_each=1, every_s=2.0)

    assert pace.per_s is not None
    assert pace.per_s >= 0.95 * 5.0


def slowed() -> Pace:
    return Pace(per_s=6.0, last_s=100.0, grown_at_s=100.0)


def test_calls_go_out_evenly() -> None:
    pace = slowed()

    pace.note_sent(101.0)

    assert pace.earliest_s() == pytest.approx(101.0 + 1 / 6)


def test_it_becomes_faster_while_nothing_is_refused_until_it_is_what_is_known() -> None:
    pace = slowed()

    paces = []
    for second in (109.9, 110.0, 120.0, 130.0, 140.0):
        pace.go_on(10.0, second)
        paces.append(pace.per_s)

    assert paces == [6.0, *(pytest.approx(each) for each in (6.3, 6.93, 8.316)), None]
    assert pace.earliest_s() == 0.0


def test_a_refusal_makes_it_slower_again_and_lets_it_stay_so_for_longer() -> None:
    pace = slowed()

    pace.note_refused(104.9, 10.0, 105.0)
    pace.go_on(10.0, 124.9)
    assert pace.per_s == pytest.approx(5.7)
    pace.go_on(10.0, 125.0)

    assert pace.per_s == pytest.approx(5.7 * 1.05)
