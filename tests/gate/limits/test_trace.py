"""What was served and what was refused, as it is kept."""

from __future__ import annotations

from evalve.gate.limits.history import History
from evalve.gate.limits.trace import MOST_PARTS, MOST_REFUSED, Trace


def test_calls_that_follow_each_other_are_one_part_unless_one_was_refused_in_between() -> None:
    trace = Trace()
    for at_s in (1.0, 1.005, 1.01):
        trace.add(at_s)
    trace.refuse(1.012)
    trace.add(1.015)

    assert trace.served == [[1.0, 1.01, 3.0], [1.015, 1.015, 1.0]]


def test_a_call_that_was_refused_after_all_was_not_served() -> None:
    trace = Trace()
    trace.add(1.0)
    trace.add(1.01)

    assert trace.take_back(1.005)
    assert trace.take_back(1.01)
    assert not trace.take_back(1.01)
    assert trace.served == []


def test_calls_are_kept_in_order_whoever_booked_them_first() -> None:
    trace = Trace()
    trace.add(2.0)
    trace.add(1.0)

    assert trace.served == [[1.0, 1.0, 1.0], [2.0, 2.0, 1.0]]
    assert trace.until(1.5).served == [[1.0, 1.0, 1.0]]


def test_what_processes_sent_before_is_put_together() -> None:
    mine, theirs = History(), History()
    for at_s in (1.0, 1.5):
        mine.add(1, at_s)
    theirs.add(1, 1.2)
    trace = Trace()

    trace.add_unheld([mine, theirs])

    assert [(last_s, amount) for _, last_s, amount in trace.served] == [(1.0, 1), (1.2, 1), (1.5, 1)]


def test_it_stays_small_and_counts_every_call_of_the_last_two_minutes() -> None:
    trace = Trace()
    for number in range(5000):
        if number % 25 == 0:
            trace.refuse(number * 0.02)
        else:
            trace.add(number * 0.02)

    assert len(trace.served) <= MOST_PARTS
    assert len(trace.refused) <= MOST_REFUSED
    since_s = trace.served[0][0]
    sent = sum(number % 25 != 0 for number in range(5000) if number * 0.02 >= since_s - 1e-9)
    assert sum(amount for _, _, amount in trace.served) == sent


def test_for_how_long_nothing_was_served_counts_while_calls_try() -> None:
    trace = Trace()
    for at_s in (1.0, 3.0):
        trace.add(at_s)
    for at_s in (1.1, 1.4, 2.6, 3.1):
        trace.refuse(at_s)

    assert trace.longest_blocked_s() == 1.5
    assert trace.blocked_s(5.0) == 1.9
    assert Trace().blocked_s(5.0) == 0.0
    assert trace.resumed() == [3.0]
