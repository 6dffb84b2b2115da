"""One reading of the observations that counts all that is shown beside the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from evalve.contracts import Observation
from evalve.records import GROUPED_BY
from evalve.show.breakdown.groups import GroupCounting, Groups
from evalve.show.breakdown.misses import MissCounting, Misses
from evalve.show.breakdown.passes import PassCounting, Passes


class Breakdown:
    """Counts while others read the same observations; a second reading begins anew."""

    def __init__(self, read: Callable[[], Iterable[Observation]], by: Sequence[str] = GROUPED_BY) -> None:
        self._read = read
        self._by = by
        self._begin()

    def _begin(self) -> None:
        self._misses, self._groups, self._passes = MissCounting(), GroupCounting(self._by), PassCounting()

    def observations(self) -> Iterator[Observation]:
        self._begin()
        for observation in self._read():
            self._misses.add(observation)
            self._groups.add(observation)
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
