"""The best assignment, against all there are; pairs in order; the fewest that are out of it."""

from __future__ import annotations

import random
from itertools import combinations, permutations

import pytest

from evalve.evaluators.tools.alignment import Weights, best_assignment, best_in_order, out_of_order


def total(weights: Weights, pairs: list[tuple[int, int]]) -> int:
    return sum(weights[row][column] or 0 for row, column in pairs)


def test_a_call_that_fits_two_is_left_to_the_one_that_fits_only_it() -> None:
    weights: Weights = [[10, 9], [9, None]]
    assert best_assignment(weights) == [(0, 1), (1, 0)]


def test_more_expected_than_made_leaves_the_worst_out() -> None:
    assert best_assignment([[3], [5], [4]]) == [(1, 0)]


def test_nothing_to_assign() -> None:
    assert best_assignment([]) == []
    assert best_assignment([[], []]) == []
    assert best_assignment([[None, None]]) == []


@pytest.mark.parametrize("seed", range(40))
def test_no_other_assignment_is_better(seed: int) -> None:
    chance = random.Random(seed)
    rows, columns = chance.randint(1, 5), chance.randint(1, 5)
    weights = [[chance.choice([None, *range(1, 12)]) for _ in range(columns)] for _ in range(rows)]
    found = best_assignment(weights)
    assert len({row for row, _ in found}) == len({column for _, column in found}) == len(found)
    assert total(weights, found) == _largest_total(weights)


def _largest_total(weights: list[list[int | None]]) -> int:
    rows, columns = len(weights), len(weights[0])
    most = 0
    for count in range(1, min(rows, columns) + 1):
        for chosen in combinations(range(rows), count):
            for taken in permutations(range(columns), count):
                most = max(most, total(weights, list(zip(chosen, taken, strict=True))))
    return most


@pytest.mark.parametrize("seed", range(40))
def test_no_other_pairs_in_order_are_better(seed: int) -> None:
    chance = random.Random(seed)
    rows, columns = chance.randint(1, 5), chance.randint(1, 5)
    weights = [[chance.choice([None, *range(1, 12)]) for _ in range(columns)] for _ in range(rows)]
    found = best_in_order(weights)
    assert out_of_order(found) == []
    most = 0
    for count in range(1, min(rows, columns) + 1):
        for chosen in combinations(range(rows), count):
            for taken in combinations(range(columns), count):
                most = max(most, total(weights, list(zip(chosen, taken, strict=True))))
    assert total(weights, found) == most


def test_one_call_that_moved_is_one_out_of_order() -> None:
    assert out_of_order([(0, 3), (1, 0), (2, 1), (3, 2)]) == [(0, 3)]
    assert out_of_order([(0, 0), (1, 1)]) == []
    assert len(out_of_order([(0, 2), (1, 1), (2, 0)])) == 2


def test_a_hundred_equal_calls_are_assigned_at_once() -> None:
    weights = [[100 * 100 - (row - column) ** 2 for column in range(100)] for row in range(100)]
    assert best_assignment(weights) == [(place, place) for place in range(100)]
