"""Shares of observations of which some samples have more than others."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from evalve.shares import PairedCounts, PooledSums, share_difference
from evalve.statistics import wilson_interval


def pooled(*clusters: tuple[float, int]) -> PooledSums:
    sums = PooledSums()
    for total, count in clusters:
        sums.add(total, count)
    return sums


def test_in_a_pooled_share_every_observation_weighs_the_same() -> None:
    sums = pooled((1, 1), (2, 8), (0, 1))

    assert sums.mean == 0.3
    off = np.array([1 - 0.3 * 1, 2 - 0.3 * 8, 0 - 0.3 * 1])
    assert sums.standard_error == pytest.approx(math.sqrt(3 / 2 * np.sum(off**2)) / 10)


def test_a_pooled_share_of_single_observations_has_wilsons_interval() -> None:
    assert pooled((1, 1), (1, 1), (0, 1)).proportion_interval() == wilson_interval(2, 3)


def test_a_pooled_share_of_whole_clusters_is_worth_the_clusters() -> None:
    interval = pooled(*[(4, 4), (0, 4)] * 10).proportion_interval()

    quantile = stats.t.ppf(0.975, 19)
    half = quantile / (1 + quantile**2 / 20) * math.sqrt(0.25 / 20 + quantile**2 / 1600)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_the_interval_of_a_pooled_share_holds_the_truth_about_as_often_as_it_says() -> None:
    """Forty samples with one to eight calls of a tool, alike within a sample."""
    dice, held = random.Random(5), 0
    for _ in range(300):
        sums = PooledSums()
        for _ in range(40):
            chance, count = dice.betavariate(0.9 * 2, 0.1 * 2), dice.choice([1, 2, 8])
            sums.add(sum(dice.random() < chance for _ in range(count)), count)
        interval = sums.proportion_interval()
        held += interval is not None and interval.low <= 0.9 <= interval.high
    assert held >= 0.93 * 300


def test_the_difference_of_shares_counts_observations_and_its_error_samples() -> None:
    found = share_difference([PairedCounts(1, 2, 2, 2), PairedCounts(4, 4, 4, 4), PairedCounts(0, 2, 1, 2)])

    assert found is not None
    assert (found.share_a, found.share_b, found.difference) == (0.625, 0.875, 0.25)
    off_a = np.array([1 - 0.625 * 2, 4 - 0.625 * 4, 0 - 0.625 * 2]) / 8
    off_b = np.array([2 - 0.875 * 2, 4 - 0.875 * 4, 1 - 0.875 * 2]) / 8
    half = stats.t.ppf(0.975, 2) * math.sqrt(3 / 2 * np.sum((off_b - off_a) ** 2))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((0.25 - half, 1.0))


def test_shares_differ_by_one_at_most() -> None:
    found = share_difference([PairedCounts(0, 3, 3, 3), PairedCounts(1, 1, 1, 1)])

    assert found is not None
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (-1.0, 1.0)


def test_where_nothing_differs_there_is_no_interval_rather_than_one_without_width() -> None:
    found = share_difference([PairedCounts(1, 3, 1, 3), PairedCounts(2, 2, 2, 2)])

    assert found is not None
    assert (found.difference, found.interval) == (0.0, None)


def test_samples_without_observations_have_no_difference() -> None:
    assert share_difference([PairedCounts(0, 0, 1, 1)]) is None
