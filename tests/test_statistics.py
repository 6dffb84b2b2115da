"""The arithmetic, held against scipy and against figures worked out by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from evalve.distributions import normal_quantile, regularised_incomplete_beta, t_quantile
from evalve.statistics import (
    ClusteredSums,
    Interval,
    clustered_mean,
    clustered_proportion,
    pass_at_k,
    pass_hat_k,
    t_interval,
    wilson_interval,
)


def values_of(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return (interval.low, interval.high)


# -- proportions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "n"),
    [(0, 1), (1, 1), (0, 20), (20, 20), (1, 2), (7, 10), (45, 100), (995, 1000), (123_456, 1_000_000)],
)
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_wilson_agrees_with_scipy(successes: int, n: int, level: float) -> None:
    expected = stats.binomtest(successes, n).proportion_ci(confidence_level=level, method="wilson")

    interval = wilson_interval(successes, n, level)

    assert values_of(interval) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-15)


def test_wilson_has_width_where_everything_is_right() -> None:
    assert values_of(wilson_interval(20, 20)) == pytest.approx((0.838875, 1.0), abs=1e-6)


@pytest.mark.parametrize(("wrong", "n"), [(1, 5), (1, 12), (2, 10), (3, 40)])
def test_next_to_0_and_1_wilsons_interval_ends_as_that_of_a_rare_event(wrong: int, n: int) -> None:
    wilson = stats.binomtest(n - wrong, n).proportion_ci(method="wilson")
    rare = stats.chi2.ppf(0.05, 2 * wrong) / 2 / n

    assert values_of(wilson_interval(n - wrong, n)) == pytest.approx((wilson.low, 1 - rare))
    assert values_of(wilson_interval(wrong, n)) == pytest.approx((rare, 1 - wilson.low))


@pytest.mark.parametrize("n", [5, 7, 10, 20, 50])
def test_a_proportion_is_covered_wherever_it_lies(n: int) -> None:
    ends = [values_of(wilson_interval(right, n)) for right in range(n + 1)]
    for share in np.linspace(0.002, 0.998, 499):
        held = [right for right, (low, high) in enumerate(ends) if low <= share <= high]
        assert float(np.sum(stats.binom.pmf(held, n, share))) > 0.89


def test_wilson_of_nothing_is_unknown() -> None:
    assert wilson_interval(0, 0) is None


# -- Student's t -------------------------------------------------------------------------------------


@pytest.mark.parametrize("df", [1, 2, 3, 5, 9, 30, 99.5, 1000, 1001, 5000, 1_000_000])
@pytest.mark.parametrize("p", [0.0001, 0.025, 0.3, 0.55, 0.9, 0.975, 0.995, 0.99999])
def test_t_quantiles_agree_with_scipy(p: float, df: float) -> None:
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9)


def test_the_t_quantile_of_one_half_is_zero() -> None:
    assert t_quantile(0.5, 7) == pytest.approx(0.0, abs=1e-12)
    assert t_quantile(0.5, 7000) == 0.0


@pytest.mark.parametrize(("p", "df"), [(0.0, 5), (1.0, 5), (0.5, 0), (0.5, -1)])
def test_a_t_quantile_outside_its_range_is_refused(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="needs 0 < p < 1"):
        t_quantile(p, df)


@pytest.mark.parametrize(
    ("a", "b", "x"),
    [(1, 1, 0.3), (0.5, 0.5, 0.01), (2, 30, 0.9), (50, 0.5, 0.99), (300, 400, 0.5), (5, 2, 0), (5, 2, 1)],
)
def test_the_incomplete_beta_function_agrees_with_scipy(a: float, b: float, x: float) -> None:
    assert regularised_incomplete_beta(a, b, x) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-11)


@pytest.mark.parametrize("p", [1e-9, 0.025, 0.5, 0.8, 0.975])
def test_normal_quantiles_agree_with_scipy(p: float) -> None:
    assert normal_quantile(p) == pytest.approx(stats.norm.ppf(p), rel=1e-12, abs=1e-15)


def test_the_t_interval_of_a_mean_agrees_with_scipy() -> None:
    values = [2.1, 2.5, 1.9, 3.0, 2.2]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)

    interval = t_interval(float(np.mean(values)), float(stats.sem(values)), 4)

    assert values_of(interval) == pytest.approx((expected.low, expected.high), rel=1e-12)


@pytest.mark.parametrize(("error", "df"), [(0.1, 0), (0.0, 9), (math.nan, 9), (math.inf, 9)])
def test_a_t_interval_without_spread_or_freedom_is_unknown(error: float, df: int) -> None:
    assert t_interval(0.5, error, df) is None


# -- clustered means ---------------------------------------------------------------------------------


def by_the_book(clusters: list[list[float]]) -> tuple[float, float]:
    """Mean and error over the clusters' means, from the formula and not from running sums."""
    means = [float(np.mean(cluster)) for cluster in clusters]
    return float(np.mean(means)), float(stats.sem(means))


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_the_error_is_that_of_the_clusters_means(offset: float) -> None:
    draw = random.Random(1)
    clusters = [[offset + draw.gauss(0, 1) for _ in range(draw.randint(1, 5))] for _ in range(40)]
    mean, error = by_the_book(clusters)

    estimate = clustered_mean((sum(cluster), len(cluster)) for cluster in clusters)

    assert estimate.mean == pytest.approx(mean, rel=1e-12)
    assert estimate.standard_error == pytest.approx(error, rel=1e-6)
    half = stats.t.ppf(0.975, 39) * error
    low, high = values_of(estimate.interval)
    assert max(mean - low, high - mean) < 1.1 * half
    assert min(mean - low, high - mean) == pytest.approx(half, rel=1e-6)
    assert estimate.clusters == 40


def test_clusters_of_one_give_the_ordinary_standard_error_and_interval() -> None:
    values = [1.1, 1.4, 1.8, 2.2, 2.6, 2.9]  # with no tail on either side
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)

    estimate = clustered_mean((value, 1) for value in values)

    assert estimate.standard_error == pytest.approx(stats.sem(values), rel=1e-12)
    assert values_of(estimate.interval) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_the_interval_is_longer_on_the_side_of_the_tail() -> None:
    values = [0.0] * 16 + [0.3, 0.8, 1.5, 2.4]
    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = stats.t.ppf(0.975, 19) * error
    third = 20 / (19 * 18) * float(np.sum((np.array(values) - mean) ** 3))
    lean = 1.5 * third / float(np.var(values, ddof=1))

    low, high = values_of(clustered_mean((value, 1) for value in values).interval)

    # the end is where (high - mean)^2 = t^2 / n (variance + lean (high - mean))
    t_squared = stats.t.ppf(0.975, 19) ** 2
    assert (high - mean) ** 2 == pytest.approx(half**2 + t_squared / 20 * lean * (high - mean))
    assert low == pytest.approx(mean - half)
    mirrored = values_of(clustered_mean((-value, 1) for value in values).interval)
    assert mirrored == pytest.approx((-high, -low))


def test_the_tail_of_values_far_from_zero_loses_no_digits() -> None:
    values = [0.0] * 16 + [0.3, 0.8, 1.5, 2.4]

    near = values_of(clustered_mean((value, 1) for value in values).interval)
    far = values_of(clustered_mean((value + 1e6, 1) for value in values).interval)

    assert far == pytest.approx((near[0] + 1e6, near[1] + 1e6), rel=1e-12)


@pytest.mark.parametrize("values", [[1e200, -1e200, 3e200], [1e-200, 2e-200, 5e-200], [1e150, 2e150, 9e150]])
def test_very_large_and_very_small_values_raise_nothing(values: list[float]) -> None:
    clustered_mean((value, 1) for value in values)


# -- grades ------------------------------------------------------------------------------------------


def graded(*values: float) -> Interval | None:
    sums = ClusteredSums()
    for value in values:
        sums.add(value)
    return sums.graded_interval()


def test_grades_that_pile_up_near_1_leave_room_for_a_low_one_that_was_not_seen() -> None:
    low, high = values_of(graded(*[1.0] * 8, 0.99, 0.98))

    assert low < 0.92
    assert high == 1.0


def test_grades_that_lie_apart_from_the_ends_have_the_interval_of_numbers() -> None:
    values = [0.62, 0.7, 0.71, 0.74, 0.8, 0.85]

    assert graded(*values) == clustered_mean((value, 1) for value in values).interval


def test_small_numbers_such_as_dollars_are_no_grades_near_0() -> None:
    low, high = values_of(graded(0.002, 0.004, 0.003, 0.006, 0.004))

    assert (low > 0.0, high < 0.01) == (True, True)


def test_the_mean_of_grades_lies_between_0_and_1() -> None:
    assert values_of(graded(0.0, 1.0, 0.5, 1.0)) == (0.0, 1.0)


def test_equal_repeats_do_not_narrow_the_interval() -> None:
    once = clustered_mean([(1, 1), (0, 1), (1, 1), (1, 1)])
    five_times = clustered_mean([(5, 5), (0, 5), (5, 5), (5, 5)])

    assert values_of(five_times.interval) == pytest.approx(values_of(once.interval), rel=1e-12)


def test_no_cluster_has_no_mean() -> None:
    estimate = clustered_mean([])

    assert (estimate.mean, estimate.standard_error, estimate.interval) == (None, None, None)


def test_one_cluster_has_a_mean_and_no_interval() -> None:
    estimate = clustered_mean([(6.0, 4)])

    assert (estimate.mean, estimate.standard_error, estimate.interval) == (1.5, None, None)


def test_values_that_are_all_the_same_have_no_interval_rather_than_one_without_width() -> None:
    estimate = clustered_mean([(sum([0.1] * 10), 10)] * 50)

    assert estimate.mean == pytest.approx(0.1, rel=1e-15)
    assert estimate.standard_error == 0.0
    assert estimate.interval is None


def test_the_sum_of_ten_tenths_is_one() -> None:
    sums = ClusteredSums()
    for _ in range(10):
        sums.add(0.1)

    assert sums.total == 1.0
    assert sums.mean == 0.1


def test_a_cluster_without_observations_does_not_count() -> None:
    assert clustered_mean([(0.0, 0), (3.0, 1), (5.0, 1)]).clusters == 2


def test_a_proportion_with_one_observation_each_has_wilsons_interval() -> None:
    estimate = clustered_proportion([(1, 1), (1, 1), (0, 1), (1, 1)])

    assert estimate.mean == 0.75
    assert estimate.interval == wilson_interval(3, 4)


def test_a_cluster_weighs_the_same_however_many_observations_it_has() -> None:
    estimate = clustered_mean([(3.0, 3), (0.0, 1)])

    assert (estimate.mean, estimate.observations, estimate.clusters) == (0.5, 4, 2)


def test_a_proportion_with_repeats_has_a_score_interval_for_what_its_clusters_are_worth() -> None:
    estimate = clustered_proportion([(3, 3), (3, 3), (2, 3), (3, 3)])

    # a third of a cluster was lost: the spread seen, 1/11, and the prior of 7/9 make
    # (1/3 * 1/11 + 1.5 * 7/9) / (1/3 + 1.5) = 0.653, so that four clusters are worth 6.13
    expected = by_scores(11 / 12, 4 / ((1 / 3 / 11 * 4 + 1.5 * 7 / 9) / (1 / 3 + 1.5)), stats.t.ppf(0.975, 3))
    assert estimate.mean == pytest.approx(11 / 12)
    assert values_of(estimate.interval) == pytest.approx(expected, abs=1e-3)


def by_scores(share: float, n: float, z: float) -> tuple[float, float]:
    """Wilson's interval as the roots of (p - share)^2 = z^2 p (1 - p) / n."""
    ends = np.roots([1 + z * z / n, -(2 * share + z * z / n), share * share])
    return (float(min(ends)), float(max(ends)))


def test_a_proportion_that_is_whole_has_width() -> None:
    all_right, all_wrong = clustered_proportion([(10, 10)] * 20), clustered_proportion([(0, 10)] * 20)

    assert values_of(all_right.interval) == pytest.approx((0.867, 1.0), abs=1e-3)
    assert values_of(all_wrong.interval) == pytest.approx((0.0, 0.133), abs=1e-3)


@pytest.mark.parametrize(("clusters", "repeats"), [(20, 10), (20, 3), (50, 5), (8, 4)])
def test_the_interval_does_not_widen_when_a_wrong_answer_becomes_right(clusters: int, repeats: int) -> None:
    lows = []
    for wrong in range(min(clusters, 12), -1, -1):
        each = [(repeats - 1, repeats)] * wrong + [(repeats, repeats)] * (clusters - wrong)
        lows.append(values_of(clustered_proportion(each).interval)[0])

    assert lows == sorted(lows)


@pytest.mark.parametrize(("clusters", "repeats"), [(20, 10), (20, 3), (50, 5), (8, 4)])
def test_the_interval_does_not_widen_when_the_last_wrong_sample_improves(clusters: int, repeats: int) -> None:
    lows = [
        values_of(clustered_proportion([(right, repeats)] + [(repeats, repeats)] * (clusters - 1)).interval)[
            0
        ]
        for right in range(repeats + 1)
    ]

    assert lows == sorted(lows)


def test_one_sample_repeated_says_nothing_about_others() -> None:
    assert clustered_proportion([(3, 4)]).interval is None


# -- repeated runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "c", "k", "at_least_one", "all_of_them"),
    [
        (1, 1, 1, 1.0, 1.0),
        (1, 0, 1, 0.0, 0.0),
        (4, 1, 2, 0.5, 0.0),
        (4, 3, 2, 1.0, 0.5),
        (10, 3, 5, 11 / 12, 0.0),
        (10, 8, 3, 1.0, 7 / 15),
    ],
)
def test_pass_at_k_and_pass_hat_k(n: int, c: int, k: int, at_least_one: float, all_of_them: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(at_least_one)
    assert pass_hat_k(n, c, k) == pytest.approx(all_of_them)


def test_fewer_runs_than_k_say_nothing() -> None:
    assert pass_at_k(2, 2, 3) is None
    assert pass_hat_k(2, 2, 3) is None
    assert pass_at_k(0, 0, 1) is None


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_runs_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="needs k of 1 or more"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match="needs k of 1 or more"):
        pass_hat_k(n, c, k)
