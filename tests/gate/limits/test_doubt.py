"""What refusals are about."""

from __future__ import annotations

from evalve.gate.limits.doubt import Doubt


def test_four_refusals_in_a_row_are_about_the_rate() -> None:
    doubt = Doubt()

    verdicts = [doubt.judge(10.0, 10.0) for _ in range(4)]

    assert verdicts == ["chance", "chance", "chance", "too fast"]


def test_calls_that_were_served_between_speak_against_it() -> None:
    doubt = Doubt()
    doubt.judge(10.0, 10.0)
    for number in range(1, 7):
        doubt.note_sent(10.0 + 0.01 * number)

    verdicts = [doubt.judge(10.1, 10.1) for _ in range(4)]

    assert verdicts == ["chance"] * 4


def test_calls_that_were_sent_after_the_refused_one_tell_nothing_yet() -> None:
    doubt = Doubt()
    doubt.judge(10.0, 10.0)
    for _ in range(8):
        doubt.note_sent(10.2)

    verdicts = [doubt.judge(10.1, 10.2) for _ in range(3)]

    assert verdicts == ["chance", "chance", "too fast"]


def test_calls_sent_before_the_first_refusal_was_known_count_for_nothing() -> None:
    doubt = Doubt()

    verdicts = [doubt.judge(9.0, 10.0) for _ in range(9)]

    assert verdicts == ["chance"] * 9
