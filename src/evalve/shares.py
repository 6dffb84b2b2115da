"""Shares of observations of which some samples have more than others: of a run, and between two runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evalve.distributions import t_quantile
from evalve.statistics import LEVEL, Interval, leaning_spread, score_interval, t_interval, wilson_interval


class PooledSums:
    """The share over all observations, each weighing the same, with an interval that knows of their clusters.

    Where `ClusteredSums` asks how well samples do, this asks how often a thing is right that some samples
    have more of than others, such as the calls of one tool. The error is that of a ratio: of what a
    cluster is off from the share, for as many observations as it has.
    """

    __slots__ = ("_counts", "_products", "_totals", "clusters", "count", "total")

    def __init__(self) -> None:
        self.clusters = 0
        self.count = 0
        self.total = 0.0
        self._counts = self._products = self._totals = 0.0
        """Sums of squares of the clusters' counts and totals, and of the products of both."""

    def add(self, total: float, count: int) -> None:
        """One cluster: the sum of its observations and how many they are."""
        self.clusters += 1
        self.count += count
        self.total += total
        self._counts += count * count
        self._totals += total * total
        self._products += total * count

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def standard_error(self) -> float | None:
        mean, size = self.mean, self.clusters
        if mean is None or size < 2:
            return None
        off = self._totals - 2 * mean * self._products + mean * mean * self._counts
        return math.sqrt(max(0.0, off) * size / (size - 1)) / self.count

    def interval(self, level: float = LEVEL) -> Interval | None:
        """Student's interval of the mean, for values of any size."""
        mean, error = self.mean, self.standard_error
        return None if mean is None or error is None else t_interval(mean, error, self.clusters - 1, level)

    def proportion_interval(self, level: float = LEVEL) -> Interval | None:
        """The interval of a share of yes or no: Wilson's, for as many as the clusters are worth."""
        share, error = self.mean, self.standard_error
        if share is None:
            return None
        if self.clusters == self.count:
            return wilson_interval(self.total, self.count, level)
        if error is None:
            return None
        per_cluster = self._counts / self.count
        at_most = share * (1 - share) * per_cluster / self.count
        seen = error * error / at_most if at_most > 0 else 0.0
        lost = self.clusters * min(share, 1 - share)
        spread = leaning_spread(seen, lost, per_cluster)
        quantile = t_quantile((1 + level) / 2, self.clusters - 1)
        return score_interval(share, self.count / per_cluster / spread, quantile)


class PairedCounts(NamedTuple):
    """One sample in both runs: the sums of its observations, and how many they are."""

    total_a: float
    count_a: int
    total_b: float
    count_b: int


@dataclass(frozen=True, slots=True)
class ShareDifference:
    """How the shares of two runs differ on the samples that both have."""

    share_a: float
    share_b: float
    difference: float
    """b − a."""
    interval: Interval | None
    """`None` where too few samples differ to say."""


def share_difference(samples: Sequence[PairedCounts], level: float = LEVEL) -> ShareDifference | None:
    """The difference of the shares over all observations, with Student's interval over samples.

    A sample's part in the error is what it is off in b less what it is off in a: samples that are hard in
    both widen nothing.
    """
    count_a, count_b = sum(one.count_a for one in samples), sum(one.count_b for one in samples)
    if not count_a or not count_b:
        return None
    share_a = sum(one.total_a for one in samples) / count_a
    share_b = sum(one.total_b for one in samples) / count_b
    off = [
        (one.total_b - share_b * one.count_b) / count_b - (one.total_a - share_a * one.count_a) / count_a
        for one in samples
    ]
    size, difference = len(samples), share_b - share_a
    squares = sum(each * each for each in off)
    error = math.sqrt(squares * size / (size - 1)) if size > 1 and squares > 1e-24 else 0.0
    interval = t_interval(difference, error, size - 1, level)
    if interval is not None and _are_shares(samples):
        interval = interval.clipped(-1.0, 1.0)
    return ShareDifference(share_a, share_b, difference, interval)


def _are_shares(samples: Sequence[PairedCounts]) -> bool:
    return all(0 <= one.total_a <= one.count_a and 0 <= one.total_b <= one.count_b for one in samples)
