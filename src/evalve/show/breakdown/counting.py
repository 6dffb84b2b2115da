"""One reading of the observations that counts all that is shown beside the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from evalve.contracts import Observation
from evalve.records import GROUPED_BY
from evalve.show.breakdown.groups import GroupCounting, Groups
from evalve.show.breakdown.misses import MissCounting, Misses
from evalve.show.breakdown.passes import PassCounting, Passes


class Breakdown:
    """Counts while others read the same observations; a second reading begins anew.

    Without `repeats` nothing is counted about them.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Observation]],
        by: Sequence[str] = GROUPED_BY,
        *,
        repeats: int = 1,
    ) -> None:
        self._read = read
        self._by = by
        self._repeats = repeats
        self._begin()

    def _begin(self) -> None:
        self._misses, self._groups, self._passes = MissCounting(), GroupCounting(self._by), PassCounting()

    def observations(self) -> Iterator[Observation]:
        self._begin()
        evaluator, group = self._misses.evaluator, self._groups.add
        for observation in self._read():
            sample_id, _, scores = observation
            for score in scores:
                evaluator(score.name)
                if score.metadata:
                    self._misses.add(score)
                    group(sample_id, score)
            if self._repeats > 1:
                self._passes.add(observation)
            yield observation

    def read_all(self) -> Breakdown:
        """For whoever reads them for nothing else."""
        for _ in self.observations():
            pass
        return self

    @property
    def misses(self) -> Misses:
        return self._misses.misses()

    @property
    def groups(self) -> Groups:
        return self._groups.groups()

    @property
    def passes(self) -> Passes:
        return self._passes.passes()
