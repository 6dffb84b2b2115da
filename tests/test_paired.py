"""The arithmetic of two runs, held against scipy and against figures worked out by hand."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from evalve.paired import (
    agreeing,
    holm,
    least_p_value,
    mcnemar_effect,
    mcnemar_exact,
    mean_effect,
    paired_difference,
    paired_proportion_interval,
    permutation_test,
    share_difference_interval,
    sign_flip_interval,
    sign_flip_test,
)
from evalve.statistics import Interval, wilson_interval


def values_of(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return (interval.low, interval.high)


# -- tests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("b", "c"), [(0, 1), (0, 6), (3, 3), (3, 10), (10, 3), (50, 90), (500, 620), (0, 400), (100_000, 100_500)]
)
def test_mcnemar_agrees_with_scipys_binomial_test(b: int, c: int) -> None:
    assert mcnemar_exact(b, c) == pytest.approx(stats.binomtest(b, b + c, 0.5).pvalue, rel=1e-8)


def test_mcnemar_without_any_change_is_one() -> None:
    assert mcnemar_exact(0, 0) == 1.0


def test_mcnemar_of_six_changes_all_one_way_is_two_in_64() -> None:
    assert mcnemar_exact(0, 6) == mcnemar_exact(6, 0) == 0.03125


@pytest.mark.parametrize(
    "differences",
    [
        [0.5, -0.2],
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        [1, 1, 1, -1, 1, 1, -1, 1],
        [0.3, -0.1, 0.25, 0.4, -0.35, 0.15, 0.2, 0.7, 0.1, -0.05, 0.6],
    ],
)
def test_few_differences_are_tested_exactly_as_scipy_does(differences: list[float]) -> None:
    expected = stats.permutation_test((np.array(differences),), np.mean, permutation_type="samples").pvalue

    assert sign_flip_test(differences) == pytest.approx(expected, rel=1e-12)


def test_differences_of_zero_do_not_change_the_test() -> None:
    assert sign_flip_test([0.5, 0.0, 0.25, 0.0, 0.0]) == sign_flip_test([0.5, 0.25]) == 0.5


def test_no_difference_at_all_is_no_evidence() -> None:
    assert sign_flip_test([]) == 1.0
    assert sign_flip_test([0.0, 0.0]) == 1.0
    assert sign_flip_test([1.0]) == 1.0


@pytest.mark.parametrize("n", [17, 24, 63, 400])
def test_many_differences_are_drawn_and_come_close_to_scipy(n: int) -> None:
    draw = random.Random(n)
    differences = [draw.gauss(0.25, 1) for _ in range(n)]
    expected = stats.permutation_test(
        (np.array(differences),), np.mean, permutation_type="samples", n_resamples=20_000, rng=1
    ).pvalue

    assert sign_flip_test(differences) == pytest.approx(expected, abs=0.015)


def test_a_drawn_p_value_is_the_same_for_the_same_seed_and_never_zero() -> None:
    assert sign_flip_test([1.0] * 40, seed=3) == 1 / 10_000
    draw = random.Random(0)
    differences = [draw.gauss(0.2, 1) for _ in range(30)]
    assert sign_flip_test(differences, seed=3) == sign_flip_test(differences, seed=3)


def test_very_many_differences_use_the_normal_limit() -> None:
    draw = random.Random(5)
    differences = [draw.gauss(0.01, 1) for _ in range(30_000)]

    assert sign_flip_test(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=0.01)


def test_the_paired_difference_agrees_with_scipys_paired_t_test() -> None:
    a = [0.2, 0.5, 0.9, 0.4, 0.7]
    b = [0.4, 0.5, 1.0, 0.3, 0.9]
    expected = stats.ttest_rel(b, a).confidence_interval(0.95)

    paired = paired_difference(y - x for x, y in zip(a, b, strict=True))

    assert paired.n == 5
    assert paired.mean == pytest.approx(0.08)
    assert paired.standard_deviation == pytest.approx(np.std(np.subtract(b, a), ddof=1))
    low, high = values_of(paired.interval)
    assert high == pytest.approx(expected.high, rel=1e-9)
    assert low < expected.low  # where the differences have a tail


def test_the_paired_difference_of_none_or_one_pair_has_no_interval() -> None:
    assert paired_difference([]).mean is None
    assert paired_difference([0.5]).mean == 0.5
    assert paired_difference([0.5]).interval is None


def test_differences_whose_sum_is_zero_but_for_rounding_are_no_evidence() -> None:
    assert sign_flip_test([-1 / 3, -2 / 3, 1]) == 1.0
    assert sign_flip_test([0.1] * 30 + [-0.3] * 10) == 1.0


# -- another number of repeats -------------------------------------------------------------------------


def test_observations_are_permuted_within_samples_as_scipy_would_in_one_sample() -> None:
    a, b = [1.0, 2.0, 2.5], [2.0, 4.0, 3.5, 5.0]
    expected = stats.permutation_test(
        (np.array(a), np.array(b)),
        lambda x, y: abs(np.mean(y) - np.mean(x)),
        permutation_type="independent",
        alternative="greater",
    ).pvalue

    assert permutation_test([(a, b)]) == pytest.approx(expected, abs=0.01)


def test_several_samples_are_permuted_each_by_itself() -> None:
    pairs = [([1.0], [0.0, 0.0, 1.0]), ([0.0], [1.0, 1.0])]
    observed = 1 / 3 - 1 + 1
    totals = [
        first + second
        for first in (1 / 3 - 1, 1 / 3 - 1, 2 / 3, 2 / 3)  # whichever of the four is A's
        for second in (1.0, -0.5, -0.5)
    ]
    expected = np.mean([abs(total) >= observed - 1e-9 for total in totals])

    assert permutation_test(pairs) == pytest.approx(expected, abs=0.02)


def test_samples_without_any_spread_do_not_change_the_permutation_test() -> None:
    pairs = [([1.0], [0.0, 0.0, 1.0]), ([0.0], [1.0, 1.0])]

    assert permutation_test([*pairs, ([1.0], [1.0] * 5)]) == permutation_test(pairs)
    assert permutation_test([([1.0], [1.0, 1.0])]) == 1.0


def test_a_split_of_many_different_numbers_is_drawn() -> None:
    draw = random.Random(2)
    a, b = [draw.gauss(0, 1) for _ in range(10)], [draw.gauss(0.8, 1) for _ in range(12)]
    expected = stats.ttest_ind(a, b).pvalue

    assert permutation_test([(a, b)]) == pytest.approx(expected, abs=0.03)


def test_very_many_samples_use_the_normal_limit() -> None:
    draw = random.Random(3)
    pairs = [([draw.gauss(0, 1)], [draw.gauss(0.05, 1) for _ in range(3)]) for _ in range(1_500)]
    differences = [float(np.mean(b) - np.mean(a)) for a, b in pairs]

    assert permutation_test(pairs) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.02)


# -- intervals that agree ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fixed", "broken", "n", "low", "high"),
    [(0, 5, 100, -0.1248, 0.0064), (0, 6, 100, -0.1375, -0.0032), (0, 0, 100, -0.0545, 0.0545)],
)
def test_the_interval_of_paired_proportions(fixed: int, broken: int, n: int, low: float, high: float) -> None:
    assert values_of(paired_proportion_interval(fixed, broken, n)) == pytest.approx((low, high), abs=1e-4)


def test_the_ends_of_the_interval_are_where_the_corrected_score_test_begins_to_refuse() -> None:
    low, high = values_of(paired_proportion_interval(12, 4, 60))

    assert refused_by(12, 4, 60, high) == pytest.approx(1.959964, abs=1e-5)
    assert refused_by(4, 12, 60, -low) == pytest.approx(1.959964, abs=1e-5)


def refused_by(up: int, down: int, n: int, difference: float) -> float:
    """The score statistic with the restricted likelihood found by search instead of by formula."""

    def likelihood(down_share: float) -> float:
        up_share = down_share + difference
        rest = 1 - up_share - down_share
        return up * math.log(up_share) + down * math.log(down_share) + (n - up - down) * math.log(rest)

    grid = np.linspace(max(0.0, -difference) + 1e-9, (1 - difference) / 2 - 1e-9, 200_001)
    best = max(grid, key=likelihood)
    variance = n * (2 * best + difference * (1 - difference))
    return float((n * difference - (up - down) - 1) / math.sqrt(variance))


def test_zero_is_in_the_interval_exactly_where_the_exact_test_does_not_refuse_it() -> None:
    for n, changed in itertools.product((6, 10, 50, 400), range(7)):
        for fixed in range(changed + 1):
            if changed <= n:
                low, high = values_of(paired_proportion_interval(fixed, changed - fixed, n))
                assert (low <= 0 <= high) == (mcnemar_exact(fixed, changed - fixed) >= 0.05)


def test_an_interval_is_made_to_agree_with_its_test() -> None:
    assert agreeing(Interval(0.1, 0.4), 0.2, 0.06) == Interval(0.0, 0.4)
    assert agreeing(Interval(-0.4, -0.1), -0.2, 0.06) == Interval(-0.4, 0.0)
    assert agreeing(Interval(-0.1, 0.4), 0.2, 0.04) == Interval(1e-9, 0.4)
    assert agreeing(Interval(-0.4, 0.1), -0.2, 0.04) == Interval(-0.4, -1e-9)


@pytest.mark.parametrize("n", [6, 9, 12, 40])
def test_the_sign_flip_interval_ends_where_the_sign_flip_test_begins_to_refuse(n: int) -> None:
    draw = random.Random(n)
    differences = [draw.gauss(0.5, 1) for _ in range(n)]
    low, high = values_of(sign_flip_interval(differences))

    for end, outwards in ((low, -0.02), (high, 0.02)):
        assert sign_flip_test([each - end - outwards for each in differences]) < 0.055
        assert sign_flip_test([each - end + outwards for each in differences]) > 0.045


def test_the_sign_flip_interval_is_near_students() -> None:
    draw = random.Random(4)
    differences = [draw.gauss(0.5, 1) for _ in range(200)]

    expected = values_of(paired_difference(differences).interval)

    assert values_of(sign_flip_interval(differences)) == pytest.approx(expected, abs=0.02)


def test_five_differences_or_fewer_have_students_interval() -> None:
    differences = [0.1, 0.4, 0.3, 0.2, 0.6]

    assert sign_flip_interval(differences) == paired_difference(differences).interval


def test_differences_that_are_all_alike_have_no_interval() -> None:
    assert sign_flip_interval([0.5] * 8) is None
    assert sign_flip_interval([0.5]) is None


def test_the_difference_of_shares_has_a_width_where_few_samples_differ() -> None:
    """B has been asked once and got all right; a truth of 0.9 would not have surprised."""
    pairs = [([1.0] * 5, [1.0])] * 9 + [([1.0] * 4 + [0.0], [1.0])]

    low, high = values_of(share_difference_interval(pairs))

    assert low < -0.15
    assert 0.02 < high < 0.3


def test_the_distances_to_the_ends_of_two_intervals_are_added_as_errors_are() -> None:
    pairs = [([float(number < 14)], [float(number < 12)]) for number in range(20)]
    a, b = values_of(wilson_interval(14, 20)), values_of(wilson_interval(12, 20))
    alike = float(np.corrcoef([x for (x,), _ in pairs], [y for _, (y,) in pairs])[0, 1])

    low, high = values_of(share_difference_interval(pairs))

    down, up = 0.6 - b[0], a[1] - 0.7
    assert low == pytest.approx(-0.1 - math.sqrt(down**2 + up**2 - 2 * alike * down * up))
    up, down = b[1] - 0.6, 0.7 - a[0]
    assert high == pytest.approx(-0.1 + math.sqrt(up**2 + down**2 - 2 * alike * up * down))


# -- power -------------------------------------------------------------------------------------------


def power(n: int, changed_share: float, difference: float) -> float:
    """That of exact McNemar, by adding up all that can happen, with scipy."""
    up_share = (1 + difference / changed_share) / 2
    found = 0.0
    for changed in range(n + 1):
        refused = [up for up in range(changed + 1) if mcnemar_exact(up, changed - up) < 0.05]
        share = float(sum(stats.binom.pmf(refused, changed, up_share))) if refused else 0.0
        found += float(stats.binom.pmf(changed, n, changed_share)) * share
    return found


@pytest.mark.parametrize(("changed", "n"), [(0, 100), (2, 100), (5, 100), (20, 100), (3, 8), (60, 120)])
def test_exact_mcnemar_finds_the_effect_that_is_told_four_times_in_five(changed: int, n: int) -> None:
    effect = mcnemar_effect(changed, n)

    assert effect is not None
    assert power(n, min(1.0, changed / n + effect), effect) == pytest.approx(0.8, abs=1e-4)


def test_many_changes_use_the_normal_limit() -> None:
    effect = mcnemar_effect(400, 1_000)

    assert effect is not None
    draw = np.random.default_rng(1)
    changed = draw.binomial(1_000, 0.4 + effect, 20_000)
    up = draw.binomial(changed, (1 + effect / (0.4 + effect)) / 2)
    found = np.abs(2 * up - changed) - 1 > 1.959964 * np.sqrt(changed)  # with so many, the exact test
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_below_six_pairs_no_effect_can_be_found() -> None:
    assert mcnemar_effect(5, 5) is None
    assert mcnemar_effect(0, 0) is None
    assert mean_effect(1.0, 5) is None
    assert least_p_value(5) == 0.0625
    assert least_p_value(0) == 1.0


def test_among_many_comparisons_an_effect_must_be_larger() -> None:
    alone, among_ten = mcnemar_effect(10, 100), mcnemar_effect(10, 100, alpha=0.005)

    assert alone is not None and among_ten is not None
    assert among_ten > alone


def test_the_effect_of_numbers_takes_students_quantiles() -> None:
    # (2.262157 + 0.883404) * 0.5 / sqrt(10)
    assert mean_effect(0.5, 10) == pytest.approx(0.4973566, abs=1e-6)
    assert mean_effect(0.0, 100) is None


# -- many comparisons ----------------------------------------------------------------------------------


def test_holm_multiplies_the_smallest_most_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
