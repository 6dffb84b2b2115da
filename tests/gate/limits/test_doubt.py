"""What refusals are about."""

from __future__ import annotations

import pytest

from evalve.gate.limits.doubt import BOOKED, Doubt, calls_to_tell
from evalve.gate.limits.history import History


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


def test_of_calls_sent_together_those_that_were_served_speak_against_it() -> None:
    doubt = Doubt()
    doubt.judge(10.0, 10.0)
    for _ in range(12):
        doubt.note_sent(10.1)

    verdicts = [doubt.judge(10.1, 10.2) for _ in range(5)]

    assert verdicts == ["chance"] * 5


def test_calls_that_nobody_booked_count_where_their_process_saw_them_in_a_row() -> None:
    doubt = Doubt()

    alone = [doubt.judge(10.0, 10.0, is_booked=False) for _ in range(9)]

    assert alone == ["chance"] * 9
    assert doubt.judge(10.0, 10.0, is_booked=False, in_a_row=True) == "too fast"


@pytest.mark.parametrize(
    ("refused", "served", "missing"),
    [(0, 0, 0), (1, 0, 4), (2, 0, 3), (2, 1, 3), (4, 0, 1), (4, 1, 1), (4, 2, 2), (1, 3, 0), (2, 5, 0)],
)
def test_as_many_more_calls_tell_as_are_missing(refused: int, served: int, missing: int) -> None:
    assert calls_to_tell(refused, served) == missing


def test_what_processes_sent_long_ago_is_forgotten() -> None:
    doubt, sent = Doubt(), History()
    sent.add(1, 10.0)

    doubt.note_unheld("gone", sent, 10.0)
    doubt.note_unheld("me", sent, 65.0)
    still = sorted(doubt.unheld)
    doubt.note_unheld("me", sent, 75.0)

    assert (still, sorted(doubt.unheld)) == (["gone", "me"], ["me"])


def test_what_is_booked_while_no_limit_is_known_counts_with_what_nobody_booked() -> None:
    doubt = Doubt()
    for at_s in (10.0, 10.1, 10.2):
        doubt.note_booked(at_s)

    doubt.note_unsent(10.1)

    assert doubt.unheld[BOOKED].parts == [[10.0, 1], [10.1, 0], [10.2, 1]]
