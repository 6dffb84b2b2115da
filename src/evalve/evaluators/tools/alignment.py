"""Which call answers which expected one: the best assignment of all, not the first that fits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Weights = Sequence[Sequence[int | None]]
"""How well the expected call (row) and the made one (column) go together; `None` where they do not."""
Pairs = list[tuple[int, int]]
"""Rows and columns that belong together, by row."""


def best_assignment(weights: Weights) -> Pairs:
    """The pairs, one to one, of the largest total weight. Weights are above zero.

    This is the assignment problem, solved row by row with shortest augmenting paths over reduced costs
    (Kuhn and Munkres): n² · m steps for n rows and m columns. A greedy choice takes the first call that fits,
    and leaves none for the next one that fits only that.
    """
    if not weights or not weights[0]:
        return []
    if len(weights) > len(weights[0]):
        turned = [[row[column] for row in weights] for column in range(len(weights[0]))]
        return sorted((row, column) for column, row in best_assignment(turned))
    costs = [[-(weight or 0) for weight in row] for row in weights]
    row_of = _assigned(costs)
    return sorted(
        (row, column) for column, row in enumerate(row_of) if row is not None and weights[row][column]
    )


def best_assignment_of(
    weights: Mapping[tuple[int, int], int], rows: Sequence[int], columns: Sequence[int]
) -> Pairs:
    """The same for some rows and columns, by their own numbers."""
    found = best_assignment([[weights.get((row, column)) for column in columns] for row in rows])
    return [(rows[row], columns[column]) for row, column in found]


def _assigned(costs: Sequence[Sequence[int]]) -> list[int | None]:
    """For each column the row that has it in an assignment of least cost; no more rows than columns."""
    columns = len(costs[0])
    row_price, column_price = [0] * len(costs), [0] * columns
    row_of: list[int | None] = [None] * columns
    for first in range(len(costs)):
        distance: list[int | None] = [None] * columns
        before: list[int | None] = [None] * columns
        done = [False] * columns
        row, column = first, -1
        while True:
            for each in range(columns):
                if done[each]:
                    continue
                reduced = costs[row][each] - row_price[row] - column_price[each]
                known = distance[each]
                if known is None or reduced < known:
                    distance[each], before[each] = reduced, (column if column >= 0 else None)
            column = min((each for each in range(columns) if not done[each]), key=lambda c: distance[c] or 0)
            step = distance[column] or 0
            row_price[first] += step
            for each in range(columns):
                if done[each]:
                    column_price[each] -= step
                    row_price[_known(row_of[each])] += step
                else:
                    distance[each] = (distance[each] or 0) - step
            done[column] = True
            holder = row_of[column]
            if holder is None:
                break
            row = holder
        _hand_over(row_of, before, column, first)
    return row_of


def _known(row: int | None) -> int:
    assert row is not None  # a column that was passed is held by a row
    return row


def _hand_over(row_of: list[int | None], before: Sequence[int | None], column: int, first: int) -> None:
    """Each row on the path takes the next column, and the new row the first."""
    while (previous := before[column]) is not None:
        row_of[column] = row_of[previous]
        column = previous
    row_of[column] = first


def best_in_order(weights: Weights) -> Pairs:
    """The same where pairs may not cross: both sides are read from left to right."""
    rows, columns = len(weights), len(weights[0]) if weights else 0
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in reversed(range(rows)):
        for column in reversed(range(columns)):
            weight = weights[row][column]
            together = best[row + 1][column + 1] + weight if weight else 0
            best[row][column] = max(together, best[row + 1][column], best[row][column + 1])
    pairs, row, column = [], 0, 0
    while row < rows and column < columns:
        weight = weights[row][column]
        if weight and best[row][column] == best[row + 1][column + 1] + weight:
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs


def out_of_order(pairs: Pairs) -> Pairs:
    """The fewest pairs without which no two of the others cross."""
    longest: list[
        tuple[int, int]
    ] = []  # for each pair: length of the run that ends with it, and its pair before
    for place, (_, column) in enumerate(pairs):
        ended = [(longest[one][0], one) for one in range(place) if pairs[one][1] < column]
        length, before = max(ended, default=(0, -1), key=lambda item: (item[0], -item[1]))
        longest.append((length + 1, before))
    if not longest:
        return []
    place = max(range(len(longest)), key=lambda one: (longest[one][0], -one))
    kept = set()
    while place >= 0:
        kept.add(place)
        place = longest[place][1]
    return [pair for place, pair in enumerate(pairs) if place not in kept]
