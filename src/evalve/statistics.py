"""The arithmetic of uncertainty: intervals, tests and power, in plain Python and from running sums."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalve.distributions import normal_quantile, regularised_incomplete_beta, t_quantile

LEVEL = 0.95
"""How much of an interval's promise is kept, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value lies, with the confidence that was asked for."""

    low: float
    high: float

    def clipped(self, low: float, high: float) -> Interval:
        return Interval(max(low, self.low), min(high, self.high))


# -- proportions and means ---------------------------------------------------------------------------


def wilson_interval(successes: float, n: int, level: float = LEVEL) -> Interval | None:
    """Wilson's score interval of a proportion: honest at 0 of n and n of n, where others have no width."""
    if n == 0:
        return None
    z = normal_quantile((1 + level) / 2)
    share = successes / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(
        0.0 if successes == 0 else max(0.0, centre - half),
        1.0 if successes == n else min(1.0, centre + half),
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


class ClusteredSums:
    """Mean, error and interval of clustered observations, from running sums: memory stays flat.

    The sums of squares are taken about the first cluster's mean, so that a large mean with a small
    spread loses no digits, and the total is compensated, so that ten times 0.1 is 1.
    """

    __slots__ = ("_cross", "_lost", "_offsets", "_origin", "_sizes", "_squares", "_sum", "clusters", "count")

    def __init__(self) -> None:
        self.clusters = 0
        self.count = 0
        """Observations in all clusters."""
        self._origin = 0.0
        self._sum = 0.0
        self._lost = 0.0
        self._offsets = 0.0
        self._squares = 0.0
        self._cross = 0.0
        self._sizes = 0

    def add(self, total: float, count: int = 1) -> None:
        """One cluster: the sum of its observations and how many they are."""
        if not self.clusters:
            self._origin = total / count
        self.clusters += 1
        self.count += count
        before = self._sum
        self._sum = after = before + total
        self._lost += (before - after) + total if abs(before) >= abs(total) else (total - after) + before
        offset = total - self._origin * count
        self._offsets += offset
        self._squares += offset * offset
        self._cross += offset * count
        self._sizes += count * count

    @property
    def total(self) -> float:
        return self._sum + self._lost

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def standard_error(self) -> float | None:
        """sqrt(sum over clusters of (sum of deviations)^2) / n, times sqrt(C / (C - 1))."""
        if self.clusters < 2:
            return None
        drift = self._offsets / self.count
        spread = self._squares - 2 * drift * self._cross + drift * drift * self._sizes
        error = math.sqrt(max(0.0, spread) * self.clusters / (self.clusters - 1)) / self.count
        rounding = 1e-14 * abs(self.total / self.count)
        return 0.0 if error <= rounding else error

    def interval(self, level: float = LEVEL) -> Interval | None:
        """Student's interval of the mean with one degree of freedom less than clusters."""
        mean, error = self.mean, self.standard_error
        if mean is None or error is None:
            return None
        return t_interval(mean, error, self.clusters - 1, level)

    def proportion_interval(self, *, binary: bool = True, level: float = LEVEL) -> Interval | None:
        """The interval of a mean of values between 0 and 1; `binary` says that they are only 0 or 1.

        Wilson's where each cluster is one yes or no; else the clustered t interval within [0, 1]. Where
        clusters do not differ at all, Wilson's again, with clusters as the observations.
        """
        mean, error = self.mean, self.standard_error
        if mean is None:
            return None
        if binary and self.clusters == self.count:
            return wilson_interval(self.total, self.count, level)
        if error is None:
            return None
        if error == 0:
            return wilson_interval(mean * self.clusters, self.clusters, level)
        interval = t_interval(mean, error, self.clusters - 1, level)
        return interval.clipped(0.0, 1.0) if interval else None


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


# -- comparing two runs on the same samples ----------------------------------------------------------

EXACT_UP_TO = 16
"""Differences whose 2^n sign patterns are all tried."""
NORMAL_ABOVE = 10_000
"""Differences above which the sum over sign patterns is normal for all that a p-value shows."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of differences between pairs; everything but `n` may be unknown."""

    mean: float | None
    standard_error: float | None
    standard_deviation: float | None
    interval: Interval | None
    n: int


def paired_difference(differences: Iterable[float], level: float = LEVEL) -> PairedDifference:
    sums = _summed((difference, 1) for difference in differences)
    error = sums.standard_error
    deviation = None if error is None else error * math.sqrt(sums.count)
    return PairedDifference(sums.mean, error, deviation, sums.interval(level), sums.count)


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided p of b pairs changed one way and c the other, if both ways were equally likely."""
    if b == c:
        return 1.0
    fewer, changed = min(b, c), b + c
    if changed <= 1000:
        return sum(math.comb(changed, i) for i in range(fewer + 1)) / (1 << (changed - 1))
    return min(1.0, 2 * regularised_incomplete_beta(changed - fewer, fewer + 1, 0.5))


def sign_flip_test(differences: Iterable[float], seed: int = 0, resamples: int = 9_999) -> float:
    """Two-sided p of the mean difference, if every difference could as well have had the other sign.

    All sign patterns up to 16 differences that are not zero; above, `resamples` seeded ones, counting
    the observed one too; above 10,000 the normal limit, which costs no drawing.
    """
    sizes = [difference for difference in differences if difference]
    if not sizes:
        return 1.0
    observed = abs(math.fsum(sizes)) * (1 - 1e-12)  # so that rounding does not break ties
    if len(sizes) <= EXACT_UP_TO:
        sums = _signed_sums(sizes)
        return sum(abs(value) >= observed for value in sums) / len(sums)
    if len(sizes) > NORMAL_ABOVE:
        return math.erfc(observed / math.sqrt(2 * math.fsum(size * size for size in sizes)))
    return (1 + _drawn_as_far(sizes, observed, seed, resamples)) / (1 + resamples)


def _signed_sums(sizes: Sequence[float]) -> list[float]:
    """The sum under every pattern of signs."""
    sums = [0.0]
    for size in sizes:
        sums = [value + size for value in sums] + [value - size for value in sums]
    return sums


def _drawn_as_far(sizes: Sequence[float], observed: float, seed: int, resamples: int) -> int:
    """How many random sign patterns sum to at least `observed`.

    Eight signs are one random byte that looks up their sum: 20 times faster than drawing signs.
    """
    tables = [_signed_sums(sizes[start : start + 8]) for start in range(0, len(sizes), 8)]
    full = [table if len(table) == 256 else table * (256 // len(table)) for table in tables]
    draw = random.Random(seed).randbytes
    far = 0
    for _ in range(resamples):
        patterns = draw(len(full))
        far += abs(sum(map(list.__getitem__, full, patterns))) >= observed
    return far


def minimum_detectable_effect(
    sd_of_differences: float, n: int, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """The smallest true difference that n pairs would show with the given power."""
    if n < 1:
        return None
    return (normal_quantile(1 - alpha / 2) + normal_quantile(power)) * sd_of_differences / math.sqrt(n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: what each is worth among so many."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
