"""Two runs on the same samples."""

from __future__ import annotations

import random

import pytest
from scipy import stats

from evalve.comparison import compare, compare_each, judged, scored
from evalve.metrics import mean
from evalve.paired import mcnemar_effect, mean_effect, paired_proportion_interval
from evalve.records import Score


def right(**values: bool) -> dict[str, dict[str, list[float]]]:
    return {sample_id: {"exact_match": [float(value)]} for sample_id, value in values.items()}


def rated(**values: float) -> dict[str, dict[str, list[float]]]:
    return {sample_id: {"quality": [value]} for sample_id, value in values.items()}


def test_yes_or_no_on_shared_samples_is_tested_with_mcnemar() -> None:
    a = right(q1=True, q2=False, q3=False, q4=False, q5=True, q6=True)
    b = right(q1=True, q2=True, q3=True, q4=True, q5=False, q7=True)

    (result,) = compare(a, b)

    assert (result.evaluator, result.test) == ("exact_match", "exact McNemar")
    assert (result.n_paired, result.only_in_a, result.only_in_b) == (5, 1, 1)
    assert (result.mean_a, result.mean_b, result.difference) == (0.4, 0.8, 0.4)
    assert (result.fixed, result.broken) == (("q2", "q3", "q4"), ("q5",))
    assert result.p_value == pytest.approx(stats.binomtest(1, 4).pvalue)
    assert result.interval == paired_proportion_interval(3, 1, 5)
    # of five pairs nothing can be shown, even if all of them changed
    assert (result.minimum_detectable_effect, result.can_show) == (None, False)


def test_numbers_on_shared_samples_are_tested_by_flipping_signs() -> None:
    a = rated(q1=0.1, q2=0.5, q3=0.4)
    b = rated(q1=0.4, q2=0.7, q3=0.4)

    (result,) = compare(a, b)

    assert result.test == "sign-flip"
    assert result.p_value == 0.5
    assert result.difference == pytest.approx(1 / 6)
    assert (result.fixed, result.broken) == (("q1", "q2"), ())


def test_numbers_that_changed_most_come_first() -> None:
    a = rated(q1=0.5, q2=0.5, q3=0.5, q4=0.5, q5=0.5)
    b = rated(q1=0.6, q2=0.9, q3=0.4, q4=0.1, q5=0.9)

    (result,) = compare(a, b)

    assert (result.fixed, result.broken) == (("q2", "q5", "q1"), ("q4", "q3"))
    assert result.is_of_numbers


def test_ones_and_zeros_are_right_and_wrong_as_true_and_false_are() -> None:
    a = scored([("q1", 0, [Score("x", True)]), ("q2", 0, [Score("x", 0)])])
    b = scored([("q1", 0, [Score("x", 1)]), ("q2", 0, [Score("x", True)])])

    (result,) = compare(a.values, b.values)

    assert (result.test, result.fixed, result.is_of_numbers) == ("exact McNemar", ("q2",), False)


def test_repeated_yes_or_no_is_tested_by_flipping_signs() -> None:
    a = {"q1": {"x": [1.0] * 3}, "q2": {"x": [0.0] * 3}}
    b = {"q1": {"x": [1.0] * 3}, "q2": {"x": [1.0] * 3}}

    assert compare(a, b)[0].test == "sign-flip"


def test_a_run_compared_with_itself_differs_in_nothing() -> None:
    a = right(**{f"q{number}": number % 2 == 0 for number in range(100)})

    (result,) = compare(a, a)

    assert (result.difference, result.p_value, result.fixed, result.broken) == (0.0, 1.0, (), ())
    # that nothing changed in 100 pairs does not say that nothing ever would
    assert result.interval == paired_proportion_interval(0, 0, 100)
    assert result.minimum_detectable_effect == mcnemar_effect(0, 100)


def test_runs_without_a_shared_sample_are_not_compared() -> None:
    (result,) = compare(right(q1=True, q2=True), right(q3=True))

    assert (result.n_paired, result.only_in_a, result.only_in_b) == (0, 2, 1)
    assert (result.mean_a, result.mean_b, result.difference, result.interval) == (None, None, None, None)
    assert (result.p_value, result.p_adjusted, result.test) == (None, None, None)
    assert result.minimum_detectable_effect is None


def test_one_pair_has_a_difference_and_a_wide_interval() -> None:
    (result,) = compare(right(q1=False), right(q1=True))

    assert (result.difference, result.p_value) == (1.0, 1.0)
    assert result.interval is not None
    assert result.interval.low < 0 < result.interval.high == 1.0


def test_two_empty_runs_have_nothing_to_compare() -> None:
    assert compare({}, {}) == []


def test_an_evaluator_that_only_one_run_has_is_shown_without_pairs() -> None:
    results = compare(right(q1=True), rated(q1=0.5))

    assert [(r.evaluator, r.n_paired, r.only_in_a, r.only_in_b) for r in results] == [
        ("exact_match", 0, 1, 0),
        ("quality", 0, 0, 1),
    ]


def test_p_values_of_several_evaluators_are_adjusted() -> None:
    ids = [f"q{index}" for index in range(6)]
    a = {i: {"first": [0.0], "second": [0.0]} for i in ids}
    b = {i: {"first": [1.0], "second": [0.1]} for i in ids}

    first, second = compare(a, b)

    assert (first.p_value, second.p_value) == (0.03125, 0.03125)
    assert (first.p_adjusted, second.p_adjusted) == (0.0625, 0.0625)


def test_the_same_seed_gives_the_same_p() -> None:
    draw = random.Random(0)
    a = rated(**{f"q{index}": draw.random() for index in range(50)})
    b = rated(**{f"q{index}": draw.random() for index in range(50)})

    assert compare(a, b, seed=7) == compare(a, b, seed=7)


def test_observations_are_kept_by_sample_and_evaluator() -> None:
    observations = [
        ("a", 0, [Score("exact_match", True), Score("quality", 0.2)]),
        ("a", 1, [Score("exact_match", False), Score("quality", 0.4)]),
        ("b", 0, [Score("exact_match", True), Score("quality", None)]),
        ("c", 0, [Score("mixed", True), Score("mixed", 3)]),
        ("d", 0, []),
    ]

    assert scored(observations).values == {
        "a": {"exact_match": [1.0, 0.0], "quality": [0.2, 0.4]},
        "b": {"exact_match": [1.0]},
        "c": {"mixed": [1.0, 3.0]},
    }


def test_means_that_differ_only_by_rounding_are_equal() -> None:
    a = {"a": {"x": [0.1, 0.2, 0.3]}}
    b = {"a": {"x": [0.3, 0.2, 0.1]}}

    (result,) = compare(a, b)

    assert (result.fixed, result.broken, result.difference) == ((), (), 0.0)


# -- another number of repeats -------------------------------------------------------------------------


def repeated(share: float, repeats: int, seed: int) -> dict[str, dict[str, list[float]]]:
    draw = random.Random(seed)
    return {
        f"q{number}": {"x": [float(draw.random() < share) for _ in range(repeats)]} for number in range(20)
    }


def test_another_number_of_repeats_invents_no_regression() -> None:
    """Flipping the signs of the differences alone flags a third of these, all of them as worse."""
    flagged = 0
    for seed in range(100):
        a, b = repeated(0.95, 1, seed), repeated(0.95, 10, seed + 1_000)
        (result,) = judged(compare_each(a, b, resamples=199))
        assert result.test == "permutation"
        flagged += result.is_regression

    assert flagged <= 5


def test_a_real_regression_is_found_with_another_number_of_repeats() -> None:
    (result,) = compare(repeated(0.95, 3, 1), repeated(0.5, 10, 2))

    assert result.is_regression
    assert result.interval is not None and result.interval.high < 0


def test_two_runs_that_are_right_on_other_samples_and_equally_good_are_no_difference() -> None:
    a = {f"q{number}": {"x": [float(number % 2)] * 10} for number in range(40)}
    b = {f"q{number}": {"x": [float(number % 2 == 0 or number == 1)] * 3} for number in range(40)}

    (result,) = compare(a, b)

    assert result.p_value is not None and result.p_value > 0.5


def test_the_interval_of_repeated_runs_near_1_holds_what_was_hardly_seen() -> None:
    """The truths are 0.95 and 0.85; before both runs' own intervals counted, 79 of 100 held them."""
    held = 0
    for seed in range(100):
        a, b = repeated(0.95, 5, seed), repeated(0.85, 1, seed + 1_000)
        ten = [f"q{number}" for number in range(10)]
        (result,) = compare_each({i: a[i] for i in ten}, {i: b[i] for i in ten}, resamples=199)
        assert result.interval is not None and result.p_value is not None
        held += result.interval.low <= -0.1 <= result.interval.high
        assert (result.interval.low <= 0 <= result.interval.high) == (result.p_value >= 0.05)

    assert held >= 90


def test_the_interval_of_numbers_reaches_further_where_most_are_alike_and_the_others_higher() -> None:
    """One in five is higher, by 1 in the mean: without the longer side 79 of 100 held the truth."""
    draw, held = random.Random(1), 0
    for _ in range(100):
        higher = [draw.expovariate(1.0) if draw.random() < 0.2 else 0.0 for _ in range(20)]
        a = {f"q{number}": {"x": [3.0]} for number in range(20)}
        b = {f"q{number}": {"x": [3.0 + more]} for number, more in enumerate(higher)}
        (result,) = compare_each(a, b, resamples=199)
        held += result.interval is not None and result.interval.low <= 0.2 <= result.interval.high

    assert held >= 88


# -- direction -----------------------------------------------------------------------------------------


def test_of_what_is_better_the_less_there_is_of_it_more_is_worse() -> None:
    a = {f"q{number}": {"latency": [6.0 + number / 10]} for number in range(8)}
    b = {f"q{number}": {"latency": [1.5 + number / 20]} for number in range(8)}

    (faster,) = judged(compare_each(a, b, lower_is_better={"latency"}))
    (slower,) = judged(compare_each(b, a, lower_is_better={"latency"}))

    assert (faster.is_worse, faster.is_regression, len(faster.fixed)) == (False, False, 8)
    assert (slower.is_worse, slower.is_regression, len(slower.broken)) == (True, True, 8)


def test_the_direction_is_that_of_the_evaluators_first_metric() -> None:
    lower = mean(higher_is_better=False)
    scores = [Score("latency", 1.0, (lower,)), Score("toxic", True, ("accuracy:lower", "count"))]
    scores += [Score("match", True, ("accuracy",)), Score("plain", 1)]

    assert scored([("a", 0, scores)]).lower_is_better == {"latency", "toxic"}


# -- what is left out, and what is missing ---------------------------------------------------------------


def test_samples_that_have_changed_are_no_pairs() -> None:
    a, b = right(q1=True, q2=True, q3=False), right(q1=False, q2=True, q3=False)

    (result,) = compare_each(a, b, changed={"q1"})

    assert (result.n_paired, result.broken, result.only_in_a, result.only_in_b) == (2, (), 0, 0)


@pytest.mark.parametrize(("missing", "hides"), [(5, False), (6, True)])
def test_missing_samples_could_hide_a_regression_where_all_of_them_being_wrong_would_be_one(
    missing: int, hides: bool
) -> None:
    a = right(**{f"q{number}": True for number in range(40)})
    b = right(**{f"q{number}": True for number in range(missing, 40)})

    (result,) = compare(a, b)

    assert (result.only_in_a, result.lost_could_hide) == (missing, hides)


def test_missing_samples_that_were_wrong_anyway_hide_nothing() -> None:
    a = right(**{f"q{number}": number >= 20 for number in range(40)})
    b = right(**{f"q{number}": True for number in range(20, 40)})

    assert not compare(a, b)[0].lost_could_hide


@pytest.mark.parametrize(("missing", "hides"), [(2, False), (3, True)])
def test_of_numbers_more_than_one_in_twenty_missing_could_hide_a_regression(
    missing: int, hides: bool
) -> None:
    a = rated(**{f"q{number}": number / 7 for number in range(40)})
    b = rated(**{f"q{number}": number / 7 for number in range(missing, 40)})

    assert compare(a, b)[0].lost_could_hide is hides


# -- many at once ----------------------------------------------------------------------------------------


def test_so_few_pairs_that_not_even_all_of_them_could_show_anything_among_so_many() -> None:
    a, b = right(**dict.fromkeys("abcdef", True)), right(**dict.fromkeys("abcdef", False))
    (one,) = compare_each(a, b)

    alone, *_ = judged([one])
    among_two, *_ = judged([one, one])

    assert (alone.can_show, alone.is_regression) == (True, True)
    assert (among_two.can_show, among_two.is_regression) == (False, False)
    assert among_two.minimum_detectable_effect is None


def test_where_few_samples_change_their_number_limits_what_is_found() -> None:
    a = {f"q{number}": {"x": [3.0]} for number in range(100)}
    b = a | {f"q{number}": {"x": [2.0]} for number in range(3)}

    (result,) = compare(a, b)

    assert result.minimum_detectable_effect == mcnemar_effect(3, 100)


def test_what_only_rounding_makes_is_no_difference() -> None:
    """0.2 - 0.3 + 0.1 is not quite 0: it was shown as +2.22e-17, and as -2.22e-17 B was worse."""
    a, b = rated(x=0.0, y=0.3, z=0.0), rated(x=0.2, y=0.0, z=0.1)

    (there,), (back,) = compare(a, b), compare(b, a)

    assert (there.difference, there.is_worse) == (0.0, False)
    assert (back.difference, back.is_worse) == (0.0, False)


def test_changes_that_a_found_difference_explains_hide_no_other_difference() -> None:
    """Else a difference of 0.4 that was found stood beside *smaller ones than 0.31 would be missed*."""
    a = right(**{f"q{number}": number >= 1 for number in range(60)})
    b = right(**{f"q{number}": number == 0 or number >= 25 for number in range(60)})

    (result,) = compare(a, b)

    assert (len(result.fixed), len(result.broken), result.is_found) == (1, 24, True)
    assert result.minimum_detectable_effect == mcnemar_effect(2, 60)


@pytest.mark.parametrize(("share", "in_a", "in_b"), [(0.98, 5, 1), (0.9, 1, 5), (0.98, 3, 3)])
def test_repeated_runs_show_the_effect_that_is_told(share: float, in_a: int, in_b: int) -> None:
    """A share that falls from near 1 spreads more: without that, 15 to 50 of 100 were found."""
    found = 0
    for seed in range(100):
        same = compare(repeated(share, in_a, seed), repeated(share, in_b, seed + 1_000))
        effect = same[0].minimum_detectable_effect
        assert effect is not None
        fallen = repeated(share - effect, in_b, seed + 2_000)
        (result,) = compare_each(repeated(share, in_a, seed + 3_000), fallen, resamples=199)
        found += result.p_value is not None and result.p_value < 0.05

    assert 65 <= found <= 99


def test_repeated_runs_without_any_change_tell_what_they_would_have_shown() -> None:
    a = {f"q{number}": {"x": [1.0, 1.0, 1.0]} for number in range(20)}

    assert compare(a, a)[0].minimum_detectable_effect == pytest.approx(0.17, abs=0.02)


@pytest.mark.parametrize("right", [8, 10, 18])
def test_repeats_that_always_agree_show_no_more_than_single_runs(right: int) -> None:
    a = {f"q{number}": {"x": [float(number < right)] * 3} for number in range(20)}

    assert compare(a, a)[0].minimum_detectable_effect == mcnemar_effect(0, 20)


def test_numbers_of_which_all_change_are_limited_by_their_spread() -> None:
    draw = random.Random(1)
    a = rated(**{f"q{number}": draw.gauss(0, 1) for number in range(30)})
    b = rated(**{f"q{number}": draw.gauss(0, 1) for number in range(30)})

    (result,) = compare(a, b)

    assert result.standard_deviation is not None
    assert result.minimum_detectable_effect == mean_effect(result.standard_deviation, 30)
