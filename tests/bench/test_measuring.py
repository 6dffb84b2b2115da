"""The arithmetic behind the benchmarks' figures, with values that were worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench.measuring import Figure, alternating, bound_s, in_order_s


def test_a_figure_at_its_target_is_not_missed() -> None:
    assert not Figure("x", 4.0, target=4.0).is_missed


def test_a_figure_above_its_target_is_missed() -> None:
    assert Figure("x", 4.01, target=4.0).is_missed


def test_a_figure_that_is_no_number_is_missed() -> None:
    assert Figure("x", float("nan"), target=4.0).is_missed


def test_a_figure_without_a_target_is_only_told() -> None:
    assert not Figure("x", 1e9).is_missed


def test_sides_take_turns_and_another_one_begins_each_round() -> None:
    order: list[str] = []

    def side(name: str, value: float) -> Callable[[], float]:
        def measured() -> float:
            order.append(name)
            return value

        return measured

    measured = alternating({"ours": side("ours", 2.0), "bare": side("bare", 1.0)}, rounds=3)

    assert order == ["ours", "bare", "bare", "ours", "ours", "bare"]
    assert measured == {"ours": [2.0, 2.0, 2.0], "bare": [1.0, 1.0, 1.0]}


def test_in_order_the_slot_that_falls_free_first_takes_the_next() -> None:
    # two slots: one runs 3, the other 1, 1 and then 4
    assert in_order_s([3.0, 1.0, 1.0, 4.0], window=2) == 6.0


def test_in_order_a_long_one_at_the_end_is_left_alone() -> None:
    assert in_order_s([1.0, 1.0, 1.0, 1.0, 5.0], window=2) == 7.0


def test_longest_first_the_same_work_ends_earlier() -> None:
    assert in_order_s([5.0, 1.0, 1.0, 1.0, 1.0], window=2) == 5.0


def test_nothing_to_do_takes_no_time() -> None:
    assert in_order_s([], window=3) == 0.0


def test_equal_durations_run_in_full_rounds() -> None:
    assert in_order_s([0.2] * 2_000, window=100) == pytest.approx(4.0)


def test_no_schedule_beats_an_even_share() -> None:
    assert bound_s([3.0, 3.0, 3.0, 3.0], window=2) == 6.0


def test_no_schedule_beats_the_longest() -> None:
    assert bound_s([1.0, 1.0, 9.0], window=3) == 9.0
