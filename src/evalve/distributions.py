"""Quantiles of the normal and of Student's t distribution, in plain Python."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist


@lru_cache(maxsize=64)
def normal_quantile(p: float) -> float:
    return NormalDist().inv_cdf(p)


@lru_cache(maxsize=4096)
def t_quantile(p: float, degrees_of_freedom: float) -> float:
    """The value that a Student t variable stays below with probability p."""
    if not 0 < p < 1 or not degrees_of_freedom > 0:
        raise ValueError(f"needs 0 < p < 1 and degrees of freedom above 0; got {p}, {degrees_of_freedom}")
    if p < 0.5:
        return -t_quantile(1 - p, degrees_of_freedom)
    if degrees_of_freedom > 1000:
        return _t_quantile_of_many(normal_quantile(p), degrees_of_freedom)
    low, high = 0.0, 1.0
    while _t_tail(high, degrees_of_freedom) > 1 - p:
        low, high = high, high * 2
    while low < (middle := (low + high) / 2) < high:
        if _t_tail(middle, degrees_of_freedom) > 1 - p:
            low = middle
        else:
            high = middle
    return high if low else 0.0


def _t_quantile_of_many(z: float, df: float) -> float:
    """Fisher's expansion about the normal quantile, exact to ten digits above 1000 degrees of freedom."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / df + second / df**2 + third / df**3


def _t_tail(t: float, df: float) -> float:
    return regularised_incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2


def regularised_incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), by its continued fraction from the side where that converges fast."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - regularised_incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a / _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + ...)), by Lentz's method."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, 100_000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + term * d) or tiny)
        c = (1 + term / c) or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value
