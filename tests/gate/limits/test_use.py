"""Whether a time that is told in whole seconds is shorter, by how much of what is sent answers call used."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evalve.gate.limits.use import UNKNOWN_S, Use

LIMIT, FIRST_S = 10.0, 100.0


def answered(
    use: Use,
    used_at: Callable[[float], float],
    *,
    per_s: float,
    from_s: float,
    to_s: float,
    taken: float = 0.0,
) -> float:
    """Answers to calls that are sent evenly, for a limit of ten in a second; what has been taken at last."""
    for number in range(round((to_s - from_s) * per_s)):
        at_s = from_s + number / per_s
        length_s = min(1.0, use.shown_s)
        taken += 1
        use.learn(used_at(at_s), LIMIT, length_s, cost=1.0, sent_at_s=at_s, taken=taken, now_s=at_s)
    return taken


def tried() -> tuple[Use, float]:
    """What a call that was sent a moment ago has taken is all that is used."""
    use = Use()
    return use, answered(use, lambda at_s: 3.0, per_s=10.0, from_s=FIRST_S, to_s=FIRST_S + 1.15)


def test_a_second_of_which_all_is_used_that_was_sent_in_it_is_one() -> None:
    use = Use()

    answered(use, lambda at_s: min(10.0, 1 + (at_s - FIRST_S) * 10), per_s=10.0, from_s=FIRST_S, to_s=110.0)

    assert use == Use(
        watched_from_s=use.watched_from_s,
        watched_taken=use.watched_taken,
        most_used=10.0,
        answered=100,
    )


def test_the_next_shorter_time_is_tried_where_little_of_what_was_sent_is_used() -> None:
    use, _ = tried()

    assert (use.shown_s, use.before_s) == (0.5, 1.0)
    assert use.tried_from_s == pytest.approx(FIRST_S + 1.0 + 0.5)


def test_it_is_shorter_where_what_is_sent_twice_as_fast_comes_back() -> None:
    use, taken = tried()

    answered(use, lambda at_s: 5.0, per_s=20.0, from_s=FIRST_S + 1.2, to_s=FIRST_S + 2.05, taken=taken)

    assert (use.shown_s, use.tried_from_s, use.is_believed) == (0.5, None, True)


def test_once_it_was_seen_to_be_shorter_the_shortest_is_tried_too() -> None:
    use, taken = tried()

    answered(use, lambda at_s: 5.0, per_s=20.0, from_s=FIRST_S + 1.2, to_s=FIRST_S + 2.6, taken=taken)

    assert (use.shown_s, use.before_s, use.is_believed) == (0.25, 0.5, True)


def test_nothing_is_decided_while_too_few_are_sent_to_tell() -> None:
    use, taken = tried()

    answered(use, lambda at_s: 3.0, per_s=10.0, from_s=FIRST_S + 1.2, to_s=FIRST_S + 9.0, taken=taken)

    assert (use.shown_s, use.tried_from_s is None, use.is_believed) == (0.5, False, True)


def test_it_is_not_where_no_more_comes_back_for_long() -> None:
    use, taken = tried()

    def filling(at_s: float) -> float:
        return 10.0 * (at_s - FIRST_S - 1.2)

    answered(use, filling, per_s=20.0, from_s=FIRST_S + 1.2, to_s=FIRST_S + 3.6, taken=taken)

    assert (use.shown_s, use.tried_from_s, use.is_believed) == (UNKNOWN_S, None, False)


def test_it_is_not_where_calls_are_refused_twice_while_it_is_tried() -> None:
    use, _ = tried()

    use.note_refused(FIRST_S + 1.3, FIRST_S + 1.31)
    use.note_refused(FIRST_S + 1.3, FIRST_S + 1.32)
    once = use.is_believed
    use.note_refused(FIRST_S + 1.4, FIRST_S + 1.41)

    assert (once, use.is_believed, use.shown_s) == (True, False, UNKNOWN_S)


def test_a_refusal_before_anything_was_tried_refutes_nothing() -> None:
    use = Use()

    for number in range(5):
        use.note_refused(FIRST_S + number, FIRST_S + number + 0.01)

    assert use.is_believed


def test_refusals_that_go_on_refute_also_what_was_seen() -> None:
    use = Use(shown_s=0.5, before_s=0.5, is_believed=False, answered=20)

    for number in range(4):
        use.note_refused(FIRST_S + number, FIRST_S + number + 0.01)

    assert use.shown_s == UNKNOWN_S


def test_where_the_shortest_is_refuted_what_was_seen_holds() -> None:
    use = Use(shown_s=0.25, before_s=0.5, tried_from_s=FIRST_S)

    for number in range(3):
        use.note_refused(FIRST_S + number, FIRST_S + number + 0.01)

    assert (use.shown_s, use.is_believed, use.refused) == (0.5, False, 0)
