"""How often samples missed in which way: what evaluators noted by kind, counted over all samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from evalve.records import MISS_COUNTS, Score
from evalve.show.tables import Column, table

Misses = Mapping[str, Mapping[str, int]]
"""Counts by kind, by evaluator; the most frequent kind first."""


class MissCounting:
    """Takes scores, one after another."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def evaluator(self, name: str) -> None:
        """There is one of that name: evaluators keep their order, also those without misses."""
        if name not in self._counts:
            self._counts[name] = Counter()

    def add(self, score: Score) -> None:
        counts = score.metadata.get(MISS_COUNTS)
        if isinstance(counts, Mapping):
            said = {str(kind): n for kind, n in counts.items() if isinstance(n, int)}
            self._counts[score.name].update(said)

    def misses(self) -> dict[str, dict[str, int]]:
        return {name: dict(_most_first(counts)) for name, counts in self._counts.items() if counts}


def _most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def miss_rows(misses: Misses) -> list[list[str]]:
    """For each kind, how often each evaluator met it."""
    together: Counter[str] = Counter()
    for counts in misses.values():
        for kind, count in counts.items():
            together[kind] = max(together[kind], count)
    return [
        [kind, *(str(counts[kind]) if kind in counts else "–" for counts in misses.values())]
        for kind, _ in _most_first(together)
    ]


def misses_text(misses: Misses) -> list[str]:
    """A line for each kind, a column for each evaluator."""
    columns = [Column("miss"), *(Column(name, align="right") for name in misses)]
    return table(columns, miss_rows(misses), indent="  ")
