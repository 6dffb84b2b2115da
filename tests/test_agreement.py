"""Cohen's kappa and its interval."""

from __future__ import annotations

import random

import pytest

from evalve.agreement import agreement, clustered_agreement
from evalve.metrics import kappa, weighted_kappa


def said(both_yes: int, only_judge: int, only_person: int, both_no: int) -> tuple[list[bool], list[bool]]:
    judged = [True] * (both_yes + only_judge) + [False] * (only_person + both_no)
    labels = [True] * both_yes + [False] * only_judge + [True] * only_person + [False] * both_no
    return judged, labels


def test_kappa_is_the_agreement_beyond_chance() -> None:
    # Cohen's own kind of example: 0.70 observed, 0.50 by chance
    found = agreement(*said(20, 5, 10, 15))

    assert found.observed == 0.7
    assert found.kappa == pytest.approx(0.4)
    assert found.pairs == 50


def test_its_interval_is_near_the_asymptotic_one() -> None:
    found = agreement(*said(200, 50, 100, 150))

    assert found.kappa == pytest.approx(0.4)
    assert found.interval is not None
    # the standard error of Fleiss, Cohen and Everitt is 0.0395 here
    assert found.interval.low == pytest.approx(0.4 - 1.96 * 0.0395, abs=0.01)
    assert found.interval.high == pytest.approx(0.4 + 1.96 * 0.0395, abs=0.01)


def test_a_judge_that_always_agrees_has_kappa_1_with_an_honest_lower_end() -> None:
    few, many = agreement(*said(5, 0, 0, 5)), agreement(*said(100, 0, 0, 100))

    assert (few.kappa, many.kappa) == (1.0, 1.0)
    assert few.interval is not None
    assert many.interval is not None
    assert (few.interval.high, many.interval.high) == (1.0, 1.0)
    assert few.interval.low == pytest.approx(1 - 0.2775 / 0.5, abs=0.001)  # Wilson's of 10 of 10 is 0.7225
    assert many.interval.low > 0.95


def test_a_judge_that_says_yes_to_everything_agrees_no_more_than_by_chance() -> None:
    assert agreement(*said(80, 20, 0, 0)).kappa == 0.0


def test_kappa_is_undefined_where_both_say_one_and_the_same_of_everything() -> None:
    found = agreement([True] * 5, [True] * 5)

    assert (found.kappa, found.interval, found.observed) == (None, None, 1.0)
    assert agreement([], []).kappa is None


def test_weights_forgive_near_misses() -> None:
    judged, near, far = [1, 2, 3, 4, 5], [2, 2, 3, 4, 5], [5, 2, 3, 4, 5]

    assert agreement(judged, near).kappa == pytest.approx(agreement(judged, far).kappa, abs=0.02)
    assert agreement(judged, near, weights="quadratic").kappa == pytest.approx(0.9412, abs=1e-4)
    assert agreement(judged, near, weights="linear").kappa == pytest.approx(0.8649, abs=1e-4)
    assert agreement(judged, far, weights="quadratic").kappa == pytest.approx(0.2, abs=1e-4)


def test_the_metrics_take_pairs() -> None:
    assert kappa([(True, True), (False, False), (True, False), (False, True)]) == 0.0
    assert weighted_kappa([(1, 2), (2, 2), (3, 3), (4, 4), (5, 5)]) == pytest.approx(0.9412, abs=1e-4)


def test_one_disagreement_of_twelve_does_not_make_the_low_end_worthless() -> None:
    labels = [True, False] * 6
    found = agreement([*labels[:-1], True], labels)

    assert found.kappa == pytest.approx(0.8333, abs=1e-4)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.2922, abs=1e-4)  # a jackknife alone says -0.53
    assert found.interval.high == pytest.approx(0.9819, abs=1e-4)


def test_repeats_of_a_sample_count_as_one_sample_in_the_interval() -> None:
    one = ((1.0, 1.0),), ((0.0, 0.0),), ((1.0, 0.0),), ((0.0, 1.0),)
    counts = (40, 40, 10, 10)
    single = clustered_agreement(dict(zip(one, counts, strict=True)))
    fourfold = clustered_agreement({pair * 4: times for pair, times in zip(one, counts, strict=True)})

    assert fourfold.kappa == pytest.approx(single.kappa)
    assert fourfold.pairs == 4 * single.pairs
    assert single.interval is not None
    assert fourfold.interval is not None
    assert fourfold.interval.low == pytest.approx(single.interval.low, abs=0.01)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    draws = random.Random(4711)
    truth = 0.8  # of labels that are fair coins, and a judge that errs in one of ten
    covered = 0
    for _ in range(300):
        labels = [draws.random() < 0.5 for _ in range(60)]
        judged = [label != (draws.random() < 0.1) for label in labels]
        interval = agreement(judged, labels).interval
        covered += interval is not None and interval.low <= truth <= interval.high

    assert 0.91 <= covered / 300 <= 0.99
