"""The arithmetic of uncertainty of one run: intervals in plain Python and from running sums."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from evalve.distributions import normal_quantile, t_quantile

LEVEL = 0.95
"""How much of an interval's promise is kept, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value lies, with the confidence that was asked for."""

    low: float
    high: float

    def clipped(self, low: float, high: float) -> Interval:
        return Interval(max(low, self.low), min(high, self.high))

    def widened(self, other: Interval | None) -> Interval:
        """So far that the other is in it."""
        if other is None:
            return self
        return Interval(min(self.low, other.low), max(self.high, other.high))


# -- proportions and means ---------------------------------------------------------------------------


RARE_UP_TO, RARE_SHARE = 3, 0.2
"""Up to so many right or wrong, and one in five, Wilson's interval ends too far from 0 or 1."""


def wilson_interval(successes: float, n: int, level: float = LEVEL) -> Interval | None:
    """Wilson's score interval of a proportion: honest at 0 of n and n of n, where others have no width.

    Next to them, the end towards 0 or 1 is that of a rare event, as Brown, Cai and DasGupta propose (2001):
    without that, truths near 0 and 1 are covered in as few as 83 of 100 runs.
    """
    if n == 0:
        return None
    interval = score_interval(successes / n, n, normal_quantile((1 + level) / 2))
    return Interval(
        min(interval.low, _least_share(successes, n, level)),
        max(interval.high, 1 - _least_share(n - successes, n, level)),
    )


def _least_share(events: float, n: int, level: float) -> float:
    """The least share of which so few would not be too many; 1 where they are not rare."""
    if not 1 <= events <= min(RARE_UP_TO, RARE_SHARE * n):
        return 1.0
    return _least_rate(round(events), level) / n


@lru_cache(maxsize=64)
def _least_rate(events: int, level: float) -> float:
    """How many events must be expected for so many, or more, not to surprise: by Poisson's distribution."""
    low, high = 0.0, float(events)
    for _ in range(60):
        middle = (low + high) / 2
        fewer = math.exp(-middle) * math.fsum(middle**k / math.factorial(k) for k in range(events))
        if fewer > level:
            low = middle
        else:
            high = middle
    return low


def score_interval(share: float, n: float, z: float) -> Interval:
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(
        0.0 if share == 0 else max(0.0, centre - half),
        1.0 if share == 1 else min(1.0, centre + half),
    )


def t_interval(
    mean: float, standard_error: float, degrees_of_freedom: float, level: float = LEVEL
) -> Interval | None:
    """Student's interval of a mean.

    `None` where the data cannot say: no degree of freedom, or no spread, for which an interval of
    width zero would claim certainty.
    """
    if degrees_of_freedom < 1 or not standard_error > 0 or not math.isfinite(standard_error):
        return None
    half = t_quantile((1 + level) / 2, degrees_of_freedom) * standard_error
    return Interval(mean - half, mean + half)


TAIL = 1.5
"""By how much the tail of few values is taken to be longer than it was seen: mostly its far end was not
among them. Found by simulation; twice this widens the intervals of values without a tail by a tenth."""

TAIL_FROM = 5
"""Of fewer values the one that is furthest off says more of chance than of a tail."""


def skewed_interval(
    mean: float, standard_error: float, lean: float, n: int, level: float = LEVEL
) -> Interval | None:
    """Student's interval of the mean of n values, with a longer side where their tail is.

    `lean` is their third moment over their second. As Wilson's does for proportions, this asks of each mean
    whether what was seen would surprise if it were the true one: a mean further out in the tail comes with a
    larger spread, by `lean` for each unit (as where all values are weighted up towards the tail). The short
    side stays Student's.
    """
    interval = t_interval(mean, standard_error, n - 1, level)
    if interval is None:
        return None
    half = interval.high - mean
    shift = TAIL * lean / 2 * (half / standard_error) ** 2 / n
    reach = math.hypot(shift, half)
    return Interval(mean - max(half, reach - shift), mean + max(half, reach + shift))


PRIOR_CORRELATION = 2 / 3
"""How alike the observations of a cluster are taken to be where the data do not say."""
PRIOR_CLUSTERS = 1.5
"""How many lost clusters that opinion is worth. Found by simulation (`python -m bench statistics`): with
less, an interval at 0 or 1 misses the truth, or widens when the last wrong answer becomes a right one."""
FAINTLY_ALIKE = 0.2
"""The same opinion where another interval holds too, and the wider one counts: of grades, and of the
difference of two runs. With half of it the mean of grades misses the truth where one in fifty is low; with
more, intervals widen and cover no better."""
NEAR = 0.05
"""How near to 0 or 1 a grade lies at that end."""


class ClusteredSums:
    """Mean, error and interval of observations that come in clusters, from running sums: memory stays flat.

    Every cluster weighs the same, however many observations it has: a sample of which two repeats broke
    is still one sample. The sums of squares are taken about the first cluster's mean, so that a large
    mean with a small spread loses no digits, and sums are compensated, so that ten times 0.1 is 1.
    """

    __slots__ = (
        "_at_bottom",
        "_at_top",
        "_cubes",
        "_highest",
        "_lost",
        "_offsets",
        "_offsets_lost",
        "_origin",
        "_squares",
        "_sum",
        "clusters",
        "count",
    )

    def __init__(self) -> None:
        self.clusters = 0
        self.count = 0
        """Observations in all clusters."""
        self._origin = 0.0
        self._sum = self._lost = 0.0
        self._offsets = self._offsets_lost = 0.0
        self._squares = self._cubes = 0.0
        self._at_top = self._at_bottom = 0
        self._highest = -math.inf

    def add(self, total: float, count: int = 1) -> None:
        """One cluster: the sum of its observations and how many they are."""
        mean = total / count if count > 1 else total
        if not self.clusters:
            self._origin = mean
        self._at_top += mean >= 1 - NEAR
        self._at_bottom += mean <= NEAR
        if mean > self._highest:
            self._highest = mean
        self.clusters += 1
        self.count += count
        before = self._sum
        self._sum = after = before + total
        self._lost += (before - after) + total if abs(before) >= abs(total) else (total - after) + before
        offset = mean - self._origin
        before = self._offsets
        self._offsets = after = before + offset
        self._offsets_lost += (
            (before - after) + offset if abs(before) >= abs(offset) else (offset - after) + before
        )
        square = offset * offset
        self._squares += square
        self._cubes += square * offset

    @property
    def total(self) -> float:
        return self._sum + self._lost

    @property
    def mean(self) -> float | None:
        if not self.clusters:
            return None
        if self.count == self.clusters:
            return self.total / self.count
        return self._origin + (self._offsets + self._offsets_lost) / self.clusters

    @property
    def standard_error(self) -> float | None:
        """The standard deviation of the clusters' means over the root of how many they are."""
        mean, size = self.mean, self.clusters
        if mean is None or size < 2:
            return None
        drift = (self._offsets + self._offsets_lost) / size
        spread = self._squares - size * drift * drift
        error = math.sqrt(max(0.0, spread) / (size - 1) / size)
        rounding = 1e-14 * abs(mean)
        return 0.0 if error <= rounding else error

    @property
    def lean(self) -> float:
        """The third moment of the clusters' means over their second; 0 where too few could say."""
        size, error = self.clusters, self.standard_error
        if size < TAIL_FROM or not error:
            return 0.0
        drift = (self._offsets + self._offsets_lost) / size
        cubes = self._cubes - 3 * drift * self._squares + 2 * size * drift * drift * drift
        lean = cubes / error / error / ((size - 1) * (size - 2))
        return lean if math.isfinite(lean) else 0.0

    def interval(self, level: float = LEVEL) -> Interval | None:
        """Student's, with one degree of freedom less than clusters, and longer where the tail is."""
        mean, error = self.mean, self.standard_error
        if mean is None or error is None:
            return None
        return skewed_interval(mean, error, self.lean, self.clusters, level)

    def graded_interval(self, level: float = LEVEL) -> Interval | None:
        """The interval of a mean of numbers that all lie between 0 and 1.

        Where they pile up at one end, a rare one at the other end may not have been seen: then it is no
        narrower than that of a proportion.
        """
        interval = self.interval(level)
        if interval is None:
            return None
        if self._piles_up:
            interval = interval.widened(
                self.proportion_interval(binary=False, alike=FAINTLY_ALIKE, level=level)
            )
        return interval.clipped(0.0, 1.0)

    @property
    def _piles_up(self) -> bool:
        """Whether half or more lie at one end of a scale from 0 to 1. Numbers that are all small, as dollars
        may be, are on no such scale."""
        is_scale = self._highest >= 2 * NEAR
        return 2 * self._at_top >= self.clusters or (is_scale and 2 * self._at_bottom >= self.clusters)

    def spread(self, *, binary: bool = True, alike: float = PRIOR_CORRELATION) -> float:
        """The variance of the clusters' means over that of single yes-or-no values, leaning on the prior."""
        mean, error = self.mean or 0.0, self.standard_error or 0.0
        per_cluster = self.count / self.clusters if binary else math.inf
        return _spread_of_clusters(mean, error, self.clusters, per_cluster, alike)

    def proportion_interval(
        self, *, binary: bool = True, alike: float = PRIOR_CORRELATION, level: float = LEVEL
    ) -> Interval | None:
        """The interval of a mean of values between 0 and 1; `binary` says that they are only 0 or 1.

        Wilson's where each cluster is one yes or no; else Wilson's with as many observations as the
        clusters are worth, and as `alike` as the prior opinion says where little was seen.
        """
        mean, error = self.mean, self.standard_error
        if mean is None:
            return None
        if binary and self.clusters == self.count:
            return wilson_interval(self.total, self.count, level)
        if error is None:
            return None
        spread = self.spread(binary=binary, alike=alike)
        quantile = t_quantile((1 + level) / 2, self.clusters - 1)
        return score_interval(min(max(mean, 0.0), 1.0), self.clusters / spread, quantile)


def _spread_of_clusters(mean: float, error: float, clusters: int, per_cluster: float, alike: float) -> float:
    """The variance of the clusters' means over that of single yes-or-no values: 1 if clusters are whole.

    Near 0 and 1 few clusters tell: the estimate leans on the prior opinion as long as few were lost.
    It is never below what independent observations have, nor below what was seen.
    """
    at_most = mean * (1 - mean)
    seen = error * error * clusters / at_most if at_most > 0 else 0.0
    return leaning_spread(seen, clusters * min(mean, 1 - mean), per_cluster, alike)


def leaning_spread(seen: float, lost: float, per_cluster: float, alike: float = PRIOR_CORRELATION) -> float:
    """What was seen of the variance, between that of whole clusters, 1, and that of single observations."""
    prior = alike + (1 - alike) / per_cluster
    leaning = (lost * seen + PRIOR_CLUSTERS * prior) / (lost + PRIOR_CLUSTERS)
    return min(1.0, max(seen, leaning, 1 / per_cluster))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with what is known about its error."""

    mean: float | None
    standard_error: float | None
    interval: Interval | None
    observations: int
    clusters: int


def clustered_mean(clusters: Iterable[tuple[float, int]], level: float = LEVEL) -> Estimate:
    """The mean over observations that come in clusters, each given as (sum, count)."""
    sums = _summed(clusters)
    return Estimate(sums.mean, sums.standard_error, sums.interval(level), sums.count, sums.clusters)


def clustered_proportion(clusters: Iterable[tuple[float, int]], level: float = LEVEL) -> Estimate:
    """The share of true among yes-or-no observations, each cluster given as (true ones, count)."""
    sums = _summed(clusters)
    interval = sums.proportion_interval(binary=True, level=level)
    return Estimate(sums.mean, sums.standard_error, interval, sums.count, sums.clusters)


def _summed(clusters: Iterable[tuple[float, int]]) -> ClusteredSums:
    sums = ClusteredSums()
    for total, count in clusters:
        if count:
            sums.add(total, count)
    return sums


# -- repeated runs -----------------------------------------------------------------------------------


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """The chance that at least one of k runs is correct, from c correct of n; `None` with fewer than k."""
    _check_runs(n, c, k)
    return 1 - math.comb(n - c, k) / math.comb(n, k) if n >= k else None


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """The chance that all of k runs are correct, from c correct of n; `None` with fewer than k."""
    _check_runs(n, c, k)
    return math.comb(c, k) / math.comb(n, k) if n >= k else None


def _check_runs(n: int, c: int, k: int) -> None:
    if k < 1 or not 0 <= c <= n:
        raise ValueError(f"needs k of 1 or more and 0 <= c <= n; got n={n}, c={c}, k={k}")
