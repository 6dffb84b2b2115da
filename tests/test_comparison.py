"""Two runs on the same samples."""

from __future__ import annotations

import random

import pytest
from scipy import stats

from evalve.comparison import SampleValue, compare, sample_values
from evalve.records import Score


def right(**values: bool) -> dict[str, dict[str, SampleValue]]:
    return {sample_id: {"exact_match": SampleValue(float(value))} for sample_id, value in values.items()}


def rated(**values: float) -> dict[str, dict[str, SampleValue]]:
    return {sample_id: {"quality": SampleValue(value)} for sample_id, value in values.items()}


def test_yes_or_no_on_shared_samples_is_tested_with_mcnemar() -> None:
    a = right(q1=True, q2=False, q3=False, q4=False, q5=True, q6=True)
    b = right(q1=True, q2=True, q3=True, q4=True, q5=False, q7=True)

    (result,) = compare(a, b)

    assert (result.evaluator, result.test) == ("exact_match", "exact McNemar")
    assert (result.n_paired, result.only_in_a, result.only_in_b) == (5, 1, 1)
    assert (result.mean_a, result.mean_b, result.difference) == (0.4, 0.8, 0.4)
    assert (result.fixed, result.broken) == (("q2", "q3", "q4"), ("q5",))
    assert result.p_value == pytest.approx(stats.binomtest(1, 4).pvalue)
    expected = stats.ttest_1samp([0, 1, 1, 1, -1], 0).confidence_interval(0.95)
    assert result.interval is not None
    # yes and no differ by one at the most, however wide the interval of so few
    assert (result.interval.low, result.interval.high) == pytest.approx((expected.low, 1.0))
    # (1.959964 + 0.841621) * sd 0.894427 / sqrt(5)
    assert result.minimum_detectable_effect == pytest.approx(1.1206341, abs=1e-6)


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
    a = sample_values([("q1", 0, [Score("x", True)]), ("q2", 0, [Score("x", 0)])])
    b = sample_values([("q1", 0, [Score("x", 1)]), ("q2", 0, [Score("x", True)])])

    (result,) = compare(a, b)

    assert (result.test, result.fixed, result.is_of_numbers) == ("exact McNemar", ("q2",), False)


def test_repeated_yes_or_no_is_tested_by_flipping_signs() -> None:
    a = {"q1": {"x": SampleValue(1.0, 3)}, "q2": {"x": SampleValue(0.0, 3)}}
    b = {"q1": {"x": SampleValue(1.0, 3)}, "q2": {"x": SampleValue(1.0, 3)}}

    assert compare(a, b)[0].test == "sign-flip"


def test_a_run_compared_with_itself_differs_in_nothing() -> None:
    a = right(q1=True, q2=False, q3=True)

    (result,) = compare(a, a)

    assert (result.difference, result.p_value, result.fixed, result.broken) == (0.0, 1.0, (), ())
    assert result.interval is None
    assert result.minimum_detectable_effect is None


def test_runs_without_a_shared_sample_are_not_compared() -> None:
    (result,) = compare(right(q1=True, q2=True), right(q3=True))

    assert (result.n_paired, result.only_in_a, result.only_in_b) == (0, 2, 1)
    assert (result.mean_a, result.mean_b, result.difference, result.interval) == (None, None, None, None)
    assert (result.p_value, result.p_adjusted, result.test) == (None, None, None)
    assert result.minimum_detectable_effect is None


def test_one_pair_has_a_difference_and_no_interval() -> None:
    (result,) = compare(right(q1=False), right(q1=True))

    assert (result.difference, result.interval, result.p_value) == (1.0, None, 1.0)


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
    a = {i: {"first": SampleValue(0.0), "second": SampleValue(0.0)} for i in ids}
    b = {i: {"first": SampleValue(1.0), "second": SampleValue(0.1)} for i in ids}

    first, second = compare(a, b)

    assert (first.p_value, second.p_value) == (0.03125, 0.03125)
    assert (first.p_adjusted, second.p_adjusted) == (0.0625, 0.0625)


def test_pairs_are_accepted_instead_of_mappings() -> None:
    a, b = right(q1=True, q2=False), right(q1=True, q2=True)

    assert compare(iter(a.items()), iter(b.items())) == compare(a, b)


def test_the_same_seed_gives_the_same_p() -> None:
    draw = random.Random(0)
    a = rated(**{f"q{index}": draw.random() for index in range(50)})
    b = rated(**{f"q{index}": draw.random() for index in range(50)})

    assert compare(a, b, seed=7) == compare(a, b, seed=7)


def test_observations_become_one_mean_per_sample_and_evaluator() -> None:
    observations = [
        ("a", 0, [Score("exact_match", True), Score("quality", 0.2)]),
        ("a", 1, [Score("exact_match", False), Score("quality", 0.4)]),
        ("b", 0, [Score("exact_match", True), Score("quality", None)]),
        ("c", 0, [Score("mixed", True), Score("mixed", 3)]),
        ("d", 0, []),
    ]

    assert sample_values(observations) == {
        "a": {
            "exact_match": SampleValue(0.5, 2),
            "quality": SampleValue(pytest.approx(0.3), 2),  # type: ignore[arg-type]  # approx is a float here
        },
        "b": {"exact_match": SampleValue(1.0, 1)},
        "c": {"mixed": SampleValue(2.0, 2)},
    }


def test_means_that_differ_only_by_rounding_are_equal() -> None:
    forwards = sample_values([("a", 0, [Score("x", value) for value in (0.1, 0.2, 0.3)])])
    backwards = sample_values([("a", 0, [Score("x", value) for value in (0.3, 0.2, 0.1)])])

    (result,) = compare(forwards, backwards)

    assert forwards != backwards
    assert (result.fixed, result.broken, result.difference) == ((), (), 0.0)
