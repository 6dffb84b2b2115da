"""The arithmetic of two runs on the same samples: tests, intervals that agree with them, and power."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, combinations
from operator import add
from typing import Any, NamedTuple

from evalve.distributions import normal_quantile, regularised_incomplete_beta, t_quantile
from evalve.statistics import FAINTLY_ALIKE, LEVEL, ClusteredSums, Interval

ALPHA = 0.05
"""Below this, a p-value says that chance does not explain a difference."""
POWER = 0.8
"""How often a difference of the minimum detectable size is found."""
RESAMPLES = 9_999


# -- right and wrong, once per sample: exact McNemar ----------------------------------------------------


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided p of b pairs changed one way and c the other, if both ways were equally likely."""
    if b == c:
        return 1.0
    fewer, changed = min(b, c), b + c
    if changed <= 1000:
        return sum(math.comb(changed, i) for i in range(fewer + 1)) / (1 << (changed - 1))
    return min(1.0, 2 * regularised_incomplete_beta(changed - fewer, fewer + 1, 0.5))


def paired_proportion_interval(fixed: int, broken: int, n: int, level: float = LEVEL) -> Interval:
    """Tango's score interval of the difference of two proportions of the same n samples.

    With the continuity correction, which makes it the inverse of the exact test rather than of the
    normal one; where the two still differ, the test is right. It has a width also where nothing changed.
    """
    z = normal_quantile((1 + level) / 2)
    interval = Interval(
        -_highest_difference(broken, fixed, n, z),
        _highest_difference(fixed, broken, n, z),
    )
    return agreeing(interval, (fixed - broken) / n, mcnemar_exact(fixed, broken), 1 - level)


def _highest_difference(up: int, down: int, n: int, z: float) -> float:
    """The largest difference that the score test with continuity correction does not refuse."""
    low, high = (up - down) / n, 1.0
    if _score(up, down, n, high) <= z:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if _score(up, down, n, middle) > z:
            high = middle
        else:
            low = middle
    return high


def _score(up: int, down: int, n: int, difference: float) -> float:
    """How many standard errors the true difference lies above the one seen, if it were `difference`."""
    linear = (2 * n - up + down) * difference - up - down
    product = -down * difference * (1 - difference)
    down_share = (math.sqrt(max(0.0, linear * linear - 8 * n * product)) - linear) / (4 * n)
    variance = n * (2 * down_share + difference * (1 - difference))
    beyond = n * difference - (up - down) - 1
    if variance <= 0:
        return math.inf if beyond > 0 else 0.0
    return beyond / math.sqrt(variance)


def agreeing(interval: Interval, difference: float, p_value: float, alpha: float = ALPHA) -> Interval:
    """The interval with zero in it exactly where the test does not refuse zero."""
    a_hair = 1e-9
    low, high = interval.low, interval.high
    if p_value >= alpha:
        return Interval(min(low, 0.0), max(high, 0.0))
    if difference > 0:
        return Interval(low if low > 0 else min(a_hair, difference), high)
    return Interval(low, high if high < 0 else max(-a_hair, difference))


@lru_cache(maxsize=4096)
def mcnemar_effect(changed: int, n: int, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest true difference that exact McNemar finds in n pairs with the given power.

    As many pairs are taken to change by chance as did, and those that make the difference to come on top.
    `None` where no difference could be found: six changed pairs are the least that show anything at the
    5 % level.
    """
    if n < 1 or _power_of_mcnemar(n, 1.0, 1.0, alpha) < power:
        return None
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if _power_of_mcnemar(n, min(1.0, changed / n + middle), middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def _power_of_mcnemar(n: int, changed_share: float, difference: float, alpha: float) -> float:
    """The chance that the test finds the difference among n pairs, a share of which changes."""
    up_share = (1 + difference / changed_share) / 2
    expected = n * changed_share
    if expected > 300:
        error = math.sqrt(max(1e-300, changed_share - difference * difference) / n)
        reached = normal_quantile(1 - alpha / 2) * math.sqrt(changed_share / n) + 1 / n
        return math.erfc((reached - difference) / error / math.sqrt(2)) / 2
    spread = 8 * math.sqrt(expected * (1 - changed_share)) + 8
    found = 0.0
    for changed in range(max(0, math.floor(expected - spread)), min(n, math.ceil(expected + spread)) + 1):
        fewer = _most_against(changed, alpha)
        if fewer is not None:
            share = _binomial_at_most(fewer, changed, 1 - up_share)
            share += _binomial_at_most(fewer, changed, up_share)
            found += _binomial(changed, n, changed_share) * share
    return found


@lru_cache(maxsize=65_536)
def _most_against(changed: int, alpha: float) -> int | None:
    """Of so many changed pairs, how many may have changed the other way for the test to find anything."""
    if mcnemar_exact(0, changed) >= alpha:
        return None
    before = _most_against(changed - 1, alpha)
    fewer = -1 if before is None else before
    while 2 * (fewer + 1) < changed and mcnemar_exact(fewer + 1, changed - fewer - 1) < alpha:
        fewer += 1
    return fewer


def _binomial(k: int, n: int, p: float) -> float:
    if p in (0.0, 1.0):
        return float(k == (n if p else 0))
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))


def _binomial_at_most(k: int, n: int, p: float) -> float:
    return 1.0 if k >= n else regularised_incomplete_beta(n - k, k + 1, 1 - p)


# -- numbers, and repeats ----------------------------------------------------------------------------

Observations = Sequence[float]
"""The repeats of one sample in one run."""

EXACT_UP_TO = 16
"""Differences whose 2^n sign patterns are all tried."""
NORMAL_ABOVE = 1_000
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
    """With Student's interval, longer in the tail."""
    sums = ClusteredSums()
    for difference in differences:
        sums.add(difference)
    error = sums.standard_error
    deviation = None if error is None else error * math.sqrt(sums.count)
    return PairedDifference(sums.mean, error, deviation, sums.interval(level), sums.count)


def sign_flip_test(differences: Iterable[float], seed: int = 0, resamples: int = RESAMPLES) -> float:
    """Two-sided p of the mean difference, if every difference could as well have had the other sign.

    All sign patterns up to 16 differences that are not zero; above, `resamples` seeded ones, counting
    the observed one too; above 1,000 the normal limit, which costs no drawing.
    """
    sizes = [difference for difference in differences if difference]
    observed = beyond_rounding(sizes)
    if observed <= 0:
        return 1.0
    if len(sizes) <= EXACT_UP_TO:
        sums = _sums_of_subsets(sizes)
        whole = math.fsum(sizes)
        return sum(abs(whole - 2 * value) >= observed for value in sums) / len(sums)
    if len(sizes) > NORMAL_ABOVE:
        return math.erfc(observed / math.sqrt(2 * math.fsum(size * size for size in sizes)))
    whole = math.fsum(sizes)
    drawn = _drawn_subsets(sizes, seed, resamples)
    return (1 + sum(abs(whole - 2 * value) >= observed for value, _ in drawn)) / (1 + resamples)


def beyond_rounding(sizes: Sequence[float]) -> float:
    """The size of the sum, less what rounding may have made of it, so that it does not break ties."""
    return abs(math.fsum(sizes)) - 1e-12 * math.fsum(map(abs, sizes))


def sign_flip_interval(
    differences: Sequence[float], level: float = LEVEL, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """Which mean differences the sign-flip test does not refuse.

    Its ends are the means of subsets of the differences: of all of them, or of a fixed random choice.
    Student's interval where five or fewer differences refuse nothing, and above 1,000; `None` where
    all are alike, for which an interval of width zero would claim certainty.
    """
    n = len(differences)
    if n < 2 or max(differences) - min(differences) <= 1e-12 * max(map(abs, differences)):
        return None
    outside = math.floor((1 - level) / 2 * (2**n if n <= EXACT_UP_TO else resamples + 1))
    if outside < 1 or n > NORMAL_ABOVE:
        return paired_difference(differences, level).interval
    if n <= EXACT_UP_TO:
        sums, counts = _sums_of_subsets(differences), _sums_of_subsets([1] * n)
        means = sorted(total / count for total, count in zip(sums, counts, strict=True) if count)
    else:
        drawn = _drawn_subsets(differences, seed, resamples)
        means = sorted(total / count for total, count in drawn if count)
    return Interval(means[outside - 1], means[-outside])


def share_difference_interval(
    pairs: Sequence[tuple[Observations, Observations]], level: float = LEVEL
) -> Interval | None:
    """The interval of the difference of two means of values between 0 and 1, from those of the two runs.

    Newcombe's way: the distances to the ends of both intervals are added as errors are. So it has a width
    where few samples differ and both runs could have more that are wrong than were seen.
    """
    runs = _OwnInterval.of([a for a, _ in pairs], level), _OwnInterval.of([b for _, b in pairs], level)
    a, b = runs
    if a is None or b is None:
        return None
    correlation = _correlation([(_mean(a), _mean(b)) for a, b in pairs])
    difference = b.mean - a.mean
    return Interval(
        difference - _added(b.mean - b.low, a.high - a.mean, correlation),
        difference + _added(b.high - b.mean, a.mean - a.low, correlation),
    )


class _OwnInterval(NamedTuple):
    """The mean of one run with its interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[Observations], level: float) -> _OwnInterval | None:
        sums = _summed(samples)
        is_binary = all(value in (0.0, 1.0) for values in samples for value in values)
        interval = (
            sums.proportion_interval(alike=FAINTLY_ALIKE, level=level)
            if is_binary
            else sums.graded_interval(level)
        )
        mean = sums.mean
        return None if mean is None or interval is None else cls(mean, interval.low, interval.high)


def _summed(samples: Iterable[Observations]) -> ClusteredSums:
    sums = ClusteredSums()
    for values in samples:
        sums.add(math.fsum(values), len(values))
    return sums


def _added(first: float, second: float, correlation: float) -> float:
    return math.sqrt(max(0.0, first * first + second * second - 2 * correlation * first * second))


def _correlation(means: Sequence[tuple[float, float]]) -> float:
    """How much the same samples are hard in both runs, at least 0."""
    a, b = (_mean(each) for each in zip(*means, strict=True))
    together = math.fsum((x - a) * (y - b) for x, y in means)
    apart = math.fsum((x - a) ** 2 for x, _ in means) * math.fsum((y - b) ** 2 for _, y in means)
    return max(0.0, together / math.sqrt(apart)) if apart > 0 else 0.0


def _sums_of_subsets(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums += [value + size for value in sums]
    return sums


def _drawn_subsets(sizes: Sequence[float], seed: int, resamples: int) -> list[tuple[float, int]]:
    """The sum and the size of random subsets.

    Eight members are one random byte that looks up their sum: 20 times faster than drawing each.
    """
    parts = [sizes[start : start + 8] for start in range(0, len(sizes), 8)]
    sums = [_full(_sums_of_subsets(part)) for part in parts]
    counts = [_full([pattern.bit_count() for pattern in range(1 << len(part))]) for part in parts]
    draw = random.Random(seed).randbytes
    drawn = []
    for _ in range(resamples):
        patterns = draw(len(parts))
        drawn.append(
            (sum(map(list.__getitem__, sums, patterns)), sum(map(list.__getitem__, counts, patterns)))
        )
    return drawn


def _full(table: list[Any]) -> list[Any]:
    return table if len(table) == 256 else table * (256 // len(table))


# -- another number of repeats: observations permuted within samples -----------------------------------

SPLITS = 1_000
"""Ways to split a sample's observations that are all listed; of more, so many random ones stand for all."""
DRAWN_UP_TO = 500
"""Samples above which the sum over permutations is normal for all that a p-value shows."""


def permutation_test(
    pairs: Iterable[tuple[Observations, Observations]], seed: int = 0, resamples: int = RESAMPLES
) -> float:
    """Two-sided p of the mean difference, if within a sample each observation could be of either run.

    For another number of repeats in A than in B: the differences of means are then lopsided, and to
    flip their signs would call that a difference.
    """
    varied = [(a, b) for a, b in pairs if min(*a, *b) != max(*a, *b)]
    observed = beyond_rounding([_mean(b) - _mean(a) for a, b in varied])
    if observed <= 0:
        return 1.0
    if len(varied) > DRAWN_UP_TO:
        return math.erfc(observed / math.sqrt(2 * math.fsum(map(_variance_of_splits, varied))))
    draw = random.Random(seed)
    totals = [0.0] * resamples
    for a, b in varied:
        differences, weights = _splits(a, b, draw)
        totals = list(
            map(add, totals, draw.choices(differences, cum_weights=list(accumulate(weights)), k=resamples))
        )
    return (1 + sum(abs(total) >= observed for total in totals)) / (1 + resamples)


def _splits(a: Observations, b: Observations, draw: random.Random) -> tuple[list[float], list[int]]:
    """The differences of means that permuting gives, and in how many ways each."""
    pooled = [*a, *b]
    taken = min(len(a), len(b))
    highest = max(pooled)
    others = {value for value in pooled if value != highest}
    weights: list[int]
    if len(others) == 1:
        (lowest,) = others
        high = pooled.count(highest)
        shares = range(max(0, taken - len(pooled) + high), min(taken, high) + 1)
        sums = [share * highest + (taken - share) * lowest for share in shares]
        weights = [math.comb(high, share) * math.comb(len(pooled) - high, taken - share) for share in shares]
    elif math.comb(len(pooled), taken) <= SPLITS:
        sums = [math.fsum(chosen) for chosen in combinations(pooled, taken)]
        weights = [1] * len(sums)
    else:
        sums = [math.fsum(draw.sample(pooled, taken)) for _ in range(SPLITS)]
        drift = math.fsum(sums) / SPLITS - taken * _mean(pooled)
        sums = [value - drift for value in sums]  # their mean is known, and need not be left to chance
        weights = [1] * SPLITS
    whole, rest, sign = math.fsum(pooled), len(pooled) - taken, 1 if len(b) <= len(a) else -1
    return [sign * (value / taken - (whole - value) / rest) for value in sums], weights


def _variance_of_splits(pair: tuple[Observations, Observations]) -> float:
    a, b = pair
    pooled = [*a, *b]
    mean = _mean(pooled)
    spread = math.fsum((value - mean) ** 2 for value in pooled) / (len(pooled) - 1)
    return spread * len(pooled) / (len(a) * len(b))


def _mean(values: Observations) -> float:
    return math.fsum(values) / len(values)


# -- power, and many comparisons -----------------------------------------------------------------------


class Growth(NamedTuple):
    """How the variance of differences grows with the difference d: by `slope` d − `bend` d²."""

    slope: float = 0.0
    bend: float = 0.0


NO_GROWTH = Growth()


def mean_effect(
    sd_of_differences: float,
    n: int,
    alpha: float = ALPHA,
    power: float = POWER,
    growth: Growth = NO_GROWTH,
) -> float | None:
    """The smallest true mean difference that n pairs show with the given power.

    `None` where flipping the signs of so few could show nothing, or where nothing is known of the spread.
    """
    if least_p_value(n) >= alpha:
        return None
    quantiles = t_quantile(1 - alpha / 2, n - 1) + t_quantile(power, n - 1)
    per_variance = quantiles * quantiles / n
    # the difference whose square is `per_variance` times the variance that comes with it
    half = per_variance * growth.slope / 2
    whole = 1 + per_variance * growth.bend
    by_spread = math.sqrt(per_variance) * sd_of_differences
    effect = max(by_spread, (half + math.hypot(half, math.sqrt(whole) * by_spread)) / whole)
    return effect if effect > 0 else None


def growth_of_shares(pairs: Sequence[tuple[Observations, Observations]]) -> Growth:
    """Of right and wrong, repeated: a share that moves away from 0 or 1 spreads more, p (1 − p)."""
    runs = [_summed(a for a, _ in pairs), _summed(b for _, b in pairs)]
    spread = max(run.spread(alike=FAINTLY_ALIKE) for run in runs)
    share = math.fsum(run.mean or 0.0 for run in runs) / 2
    return Growth(spread * abs(1 - 2 * share), spread)


def growth_of_numbers(differences: Sequence[float]) -> Growth:
    """A larger difference comes by more changes of the size seen, among the samples that did not change."""
    sizes = math.fsum(map(abs, differences))
    if not sizes:
        return NO_GROWTH
    unchanged = sum(not each for each in differences) / len(differences)
    return Growth(unchanged * math.fsum(each * each for each in differences) / sizes)


def least_p_value(n: int) -> float:
    """The smallest p that n pairs can have, where all of them change, and all in one way."""
    return 1.0 if n < 1 else 2.0 ** (1 - n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: what each is worth among so many."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
