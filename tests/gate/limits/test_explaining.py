"""Which window explains what was served and refused, as far as anything does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from evalve.gate.limits.explaining import Explained, explained
from evalve.gate.limits.trace import Trace
from evalve.gate.limits.window import Window


def traced(*runs: tuple[float, int], refused: Sequence[float]) -> Trace:
    """Each run is so many calls, 12 ms apart, from an instant on."""
    trace = Trace()
    events = [(at_s, True) for at_s in sent(*runs)]
    for at_s, is_served in sorted([*events, *((at_s, False) for at_s in refused)]):
        if is_served:
            trace.add(at_s)
        else:
            trace.refuse(at_s)
    return trace


def sent(*runs: tuple[float, int]) -> list[float]:
    return [from_s + 0.012 * number for from_s, calls in runs for number in range(calls)]


def told_by_a_window_that_slides(most: int, length_s: float, *runs: tuple[float, int]) -> Trace:
    trace = Trace()
    served: list[float] = []
    for at_s in sent(*runs):
        if sum(then_s > at_s - length_s for then_s in served) < most:
            served.append(at_s)
            trace.add(at_s)
        else:
            trace.refuse(at_s)
    return trace


def explanation(trace: Trace, now_s: float, *, told: tuple[float, float] | None = None) -> Explained | None:
    return explained(trace, now_s, told=told, unanswered_s=0.05)


def test_a_second_by_the_providers_clock_is_known_by_the_instant_that_cuts_what_was_served_equally() -> None:
    """Ten a second, which ends at .2: three of those served at 102.1 were of one second, ten of the next."""
    trace = traced((100.5, 10), (102.1, 3), (102.21, 10), refused=[100.63, 100.75, 100.98, 102.35])

    found = explanation(trace, 102.45)

    assert found is not None
    assert (found.length_s, found.most) == (1.0, 10.0)
    assert found.begins_s is not None
    assert 0.12 < found.begins_s % 1.0 < 0.24


def test_a_window_that_slides_is_told_from_one_that_ends_for_all_at_once() -> None:
    trace = told_by_a_window_that_slides(
        20, 1.0, (100.5, 23), (100.9, 1), (101.3, 1), (101.505, 3), (101.9, 25)
    )

    assert explanation(trace, 102.3) == Explained(1.0, 20.0, None)


def test_what_flows_back_in_evenly_is_no_window() -> None:
    """Ten a second, ten deep."""
    trace = traced((100.0, 11), (100.32, 1), (100.5, 1), (100.62, 1), refused=[100.14, 100.2, 100.4, 100.66])

    assert explanation(trace, 100.8) is None


def test_nothing_explains_refusals_that_came_by_chance() -> None:
    trace = Trace()
    for number in range(400):
        if number % 23 == 7:
            trace.refuse(100.0 + 0.05 * number)
        else:
            trace.add(100.0 + 0.05 * number)

    assert explanation(trace, 120.0) is None


def test_it_takes_two_refusals_with_calls_in_between_that_were_served() -> None:
    trace = traced((100.5, 10), (102.2, 10), refused=[100.63, 100.98, 102.1])

    assert explanation(trace, 102.4) is None

    trace.refuse(102.35)

    assert explanation(trace, 102.45) is not None


def test_of_several_lengths_the_one_is_believed_that_ends_when_calls_are_said_to_be_welcome() -> None:
    trace = traced((100.0, 35), (100.75, 35), refused=[100.5, 101.2])

    found = explanation(trace, 101.21, told=(110.6, 110.8))

    assert found is not None
    assert (found.length_s, found.most) == (10.0, 35.0)


def test_what_a_process_took_that_told_nobody_is_left_out() -> None:
    """Twenty in ten seconds. Of the first, five went out by a process that has ended."""
    trace = told_by_a_window_that_slides(
        20, 10.0, (100.0, 22), (106.0, 1), (110.02, 30), (116.0, 1), (120.3, 25), (126.0, 1)
    )
    first = trace.served[:3]
    trace.served = trace.served[3:]

    found = explanation(trace, 126.1)

    assert sum(amount for *_, amount in first) >= 5
    assert found is not None
    assert (found.length_s, found.most) == (10.0, 20.0)


@pytest.mark.parametrize(
    ("window", "is_same"),
    [
        (Window(100.0, 10.0, ends_s=205.0), True),
        (Window(100.5, 10.0, ends_s=195.4), True),
        (Window(102.0, 10.0, ends_s=205.0), False),
        (Window(100.0, 10.0, ends_s=208.0), False),
        (Window(100.0, 5.0, ends_s=205.0), False),
        (Window(120.0, 10.0, ends_s=205.0), False),
        (Window(100.0, 10.0), False),
    ],
)
def test_a_window_that_is_counted_already_is_not_news(window: Window, is_same: bool) -> None:
    assert Explained(10.0, 100.0, 115.0).is_as(window) is is_same


def test_the_window_that_was_just_full_opens_when_it_ends() -> None:
    trace = traced((100.21, 10), refused=[100.4])

    window = Explained(1.0, 10.0, 100.2).window(trace.served, 100.41, is_full=True)

    assert window.earliest_s(1.0) == pytest.approx(101.2, abs=0.03)


def test_what_was_served_since_a_window_began_is_taken_of_it() -> None:
    trace = traced((100.21, 4), refused=[])

    window = Explained(1.0, 10.0, 100.2).window(trace.served, 100.3, is_full=False)

    assert window.used(100.3) == 4.0
    assert window.earliest_s(1.0) <= 100.3


def test_no_window_holds_nothing() -> None:
    """A fuzz of short traces: whatever explains them serves a call."""
    draws = random.Random(4)
    for _ in range(300):
        trace = Trace()
        lasts_s = draws.choice([0.2, 1.0, 8.0])
        for at_s in sorted(draws.uniform(0.0, lasts_s) for _ in range(draws.randint(3, 30))):
            if draws.random() < 0.5:
                trace.add(at_s)
            else:
                trace.refuse(at_s)
        if trace.served:
            found = explanation(trace, lasts_s)
            assert found is None or found.most >= 1.0


def test_of_calls_that_are_known_only_together_no_short_window_is_believed() -> None:
    """A quarter of a second with 168 calls explained it, because nobody knew when exactly they were sent."""
    served = [
        [0.0, 0.72, 303.0],
        [22.017, 22.017, 1.0],
        [23.7595, 24.0268, 132.0],
        [24.0299, 24.2828, 110.0],
        [24.2845, 24.3657, 51.0],
        [24.3671, 24.4477, 7.0],
    ]
    trace = Trace(served, [0.74, 0.96, 2.1, 5.1, 10.1, 24.3657, 24.3671, 24.3685, 24.37, 24.3714])

    found = explanation(trace, 24.383)

    assert found is None or found.length_s > 0.5
