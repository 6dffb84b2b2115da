"""Whether an evaluation passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from evalve.contracts import EvaluationInfo, EvaluationSpec, Runnable
from evalve.options import Options, Threshold, Tolerance
from evalve.runner.verdict import problems
from evalve.tallies import MetricValue

METRICS = [
    MetricValue("match", "accuracy", 0.8),
    MetricValue("match", "count", 10.0),
    MetricValue("grade", "mean", 3.5),
    MetricValue("grade", "pass@3", None),
]


def _problems(
    *,
    done: int = 10,
    failed: int = 0,
    skipped: int = 0,
    failures: Mapping[str, int] | None = None,
    metrics: Sequence[MetricValue] = METRICS,
    require: Sequence[Threshold] = (),
    **options: Any,
) -> list[str]:
    spec = EvaluationSpec("exp", "eval_x.py::eval_x", "eval_x")
    total = done + failed + skipped
    info = EvaluationInfo(
        1, spec, total, done, failed, None, None, 0.0, 0.0, skipped=skipped, failures=failures or {}
    )
    evaluation = Runnable(
        spec=spec,
        function=print,
        call=print,
        is_async=False,
        rows=lambda: pytest.fail("a verdict reads no rows"),
        options=Options(**options),
        require=tuple(require),
    )
    return problems(info, metrics, evaluation)


def test_no_failures_and_no_gates_pass() -> None:
    assert _problems() == []


def test_a_failure_is_a_problem() -> None:
    assert _problems(done=9, failed=1) == ["1 of 10 samples failed"]


def test_a_problem_says_whose_the_failures_are() -> None:
    classes = {"infrastructure": 1, "provider": 3, "timeout": 1}

    assert _problems(done=35, failed=5, failures=classes, allow_failures=Tolerance(count=2)) == [
        "5 of 40 samples failed (3 provider, 1 infrastructure, 1 timeout), and 2 may"
    ]


def test_skipped_samples_are_neither_failed_nor_a_part_of_the_whole() -> None:
    assert _problems(done=1, skipped=98, failed=1, allow_failures=Tolerance(share=0.1)) == [
        "1 of 2 samples failed, and 10% may"
    ]
    assert _problems(done=0, skipped=3) == []


def test_failures_within_the_tolerance_pass() -> None:
    assert _problems(done=9, failed=1, allow_failures=Tolerance(share=0.1)) == []


def test_more_failures_than_tolerated_say_how_many_may() -> None:
    assert _problems(done=8, failed=2, allow_failures=Tolerance(share=0.1)) == [
        "2 of 10 samples failed, and 10% may"
    ]


@pytest.mark.parametrize("name", ["accuracy", "match", "match.accuracy"])
def test_a_gate_is_named_by_metric_evaluator_or_both(name: str) -> None:
    assert _problems(fail_under=(Threshold(name, 0.9),)) == ["match.accuracy is 0.8, below the required 0.9"]


def test_a_gate_that_is_just_reached_passes() -> None:
    assert _problems(fail_under=(Threshold("accuracy", 0.8),)) == []


def test_every_missed_gate_is_told() -> None:
    assert _problems(fail_under=(Threshold("accuracy", 0.9), Threshold("mean", 4.0))) == [
        "match.accuracy is 0.8, below the required 0.9",
        "grade.mean is 3.5, below the required 4",
    ]


def test_an_undefined_value_misses_its_gate() -> None:
    assert _problems(require=[Threshold("pass@3", 0.0)]) == [
        "insufficient: grade.pass@3 is undefined, and required to reach 0"
    ]


def test_a_value_that_is_missing_for_a_reason_misses_its_gate_and_says_why() -> None:
    metrics = [MetricValue("grade", "spread", None, note="ValueError: no values")]

    assert _problems(metrics=metrics, require=[Threshold("grade", 0.0)]) == [
        "insufficient: grade.spread is undefined (ValueError: no values), and required to reach 0"
    ]


def test_a_gate_on_an_evaluator_looks_at_its_first_metric() -> None:
    metrics = [MetricValue("match", "accuracy", 0.8), MetricValue("match", "sum", 0.1)]

    assert _problems(metrics=metrics, fail_under=(Threshold("match", 0.9),)) == [
        "match.accuracy is 0.8, below the required 0.9"
    ]


def test_a_gate_that_nothing_answers_to_says_what_there_is() -> None:
    assert _problems(metrics=METRICS[:1], require=[Threshold("acuracy", 0.9)]) == [
        "acuracy is required to reach 0.9, but there is only match.accuracy"
    ]


def test_without_any_score_a_gate_is_missed() -> None:
    assert _problems(metrics=[], require=[Threshold("accuracy", 0.9)]) == [
        "accuracy is required to reach 0.9, but nothing was scored"
    ]


def test_the_asked_gate_stands_in_for_the_declared_one_of_its_name() -> None:
    assert _problems(fail_under=(Threshold("accuracy", 0.5),), require=[Threshold("accuracy", 0.9)]) == []


def test_declared_gates_of_other_names_stay() -> None:
    assert _problems(fail_under=(Threshold("accuracy", 0.5),), require=[Threshold("mean", 4.0)]) == [
        "grade.mean is 3.5, below the required 4"
    ]


def test_a_value_that_is_reached_but_for_rounding_passes() -> None:
    metrics = [MetricValue("match", "accuracy", 0.95 - 1e-16)]

    assert _problems(metrics=metrics, fail_under=(Threshold("accuracy", 0.95),)) == []


@pytest.mark.parametrize(
    ("value", "bound", "told"),
    [
        (0.949997, 0.95, "0.949997, below the required 0.95"),
        (2 / 3, 0.66666667, "0.666666667, below the required 0.66666667"),
        (0.9, 0.90000001, "0.9, below the required 0.90000001"),
    ],
)
def test_a_value_just_below_is_told_with_enough_digits(value: float, bound: float, told: str) -> None:
    metrics = [MetricValue("match", "accuracy", value)]

    assert _problems(metrics=metrics, fail_under=(Threshold("accuracy", bound),)) == [
        f"match.accuracy is {told}"
    ]


# -- from above ----------------------------------------------------------------------------------------


def test_a_gate_from_above_holds_a_value_down() -> None:
    metrics = [MetricValue("toxic", "accuracy", 0.2)]

    assert _problems(metrics=metrics, fail_under=(Threshold("toxic", 0.1, from_above=True),)) == [
        "toxic.accuracy is 0.2, above the allowed 0.1"
    ]
    assert _problems(metrics=metrics, fail_under=(Threshold("toxic", 0.2, from_above=True),)) == []


def test_a_gate_from_below_on_what_is_better_the_less_there_is_of_it_says_what_to_write() -> None:
    metrics = [MetricValue("latency", "mean", 6.0, higher_is_better=False)]

    assert _problems(metrics=metrics, fail_under=(Threshold("latency", 2.0),)) == [
        "less of latency.mean is better, so that latency=2 says nothing: write latency.mean<=2"
    ]


def test_a_gate_from_below_on_the_bound_of_such_a_value_is_told_the_other_bound() -> None:
    metrics = [MetricValue("toxic", "accuracy", 0.1, low=0.0, high=0.3, higher_is_better=False)]

    assert _problems(metrics=metrics, fail_under=(Threshold("accuracy.low", 0.2),)) == [
        "less of toxic.accuracy is better, so that accuracy.low=0.2 says nothing: "
        "write toxic.accuracy.high<=0.2"
    ]


def test_a_declared_gate_from_above_stays_beside_an_asked_one_from_below() -> None:
    metrics = [MetricValue("length", "mean", 9.0)]
    declared = [Threshold("length", 8.0, from_above=True)]

    assert _problems(metrics=metrics, fail_under=(Threshold("length", 1.0),), require=declared) == [
        "length.mean is 9, above the allowed 8"
    ]


# -- the interval --------------------------------------------------------------------------------------


BOUNDED = [MetricValue("match", "accuracy", 0.9, low=0.6, high=0.98, observations=10, samples=10)]


@pytest.mark.parametrize("name", ["accuracy.low", "match.low", "match.accuracy.low"])
def test_a_gate_may_be_on_the_low_end_of_the_interval(name: str) -> None:
    assert _problems(metrics=BOUNDED, fail_under=(Threshold(name, 0.5),)) == []
    assert _problems(metrics=BOUNDED, fail_under=(Threshold(name, 0.85),)) == [
        "insufficient: match.accuracy is 0.9, but the low end of its interval is 0.6, "
        "below the required 0.85 (10 samples)"
    ]


def test_a_value_that_misses_the_bound_itself_is_a_miss_and_not_a_lack_of_samples() -> None:
    assert _problems(metrics=BOUNDED, fail_under=(Threshold("accuracy.low", 0.95),)) == [
        "match.accuracy is 0.9, below the required 0.95"
    ]


def test_the_high_end_is_gated_from_above() -> None:
    gate = Threshold("accuracy.high", 0.95, from_above=True)

    assert _problems(metrics=BOUNDED, fail_under=(gate,)) == [
        "insufficient: match.accuracy is 0.9, but the high end of its interval is 0.98, "
        "above the allowed 0.95 (10 samples)"
    ]


def test_a_value_without_an_interval_cannot_reach_a_bound() -> None:
    metrics = [MetricValue("match", "worst", 0.9)]

    assert _problems(metrics=metrics, fail_under=(Threshold("worst.low", 0.5),)) == [
        "insufficient: match.worst has no interval, and its low end is required to reach 0.5"
    ]


def test_an_evaluator_whose_own_name_ends_so_is_meant_first() -> None:
    metrics = [MetricValue("risk.low", "accuracy", 0.9, low=0.1, high=1.0)]

    assert _problems(metrics=metrics, fail_under=(Threshold("risk.low", 0.8),)) == []


# -- too few samples -----------------------------------------------------------------------------------


def test_a_value_of_too_few_samples_is_insufficient_though_it_reaches_its_gate() -> None:
    assert _problems(metrics=BOUNDED, fail_under=(Threshold("accuracy", 0.9),), min_samples=11) == [
        "insufficient: match.accuracy is of 10 samples, and 11 are required"
    ]
    assert _problems(metrics=BOUNDED, fail_under=(Threshold("accuracy", 0.9),), min_samples=10) == []


def test_without_a_gate_every_evaluator_needs_so_many_samples() -> None:
    metrics = [
        *BOUNDED,
        MetricValue("match", "count", 10.0, samples=10),
        MetricValue("grade", "mean", 1.0, samples=3),
    ]

    assert _problems(metrics=metrics, min_samples=5) == [
        "insufficient: grade.mean is of 3 samples, and 5 are required"
    ]


def test_nothing_scored_is_too_few() -> None:
    assert _problems(metrics=[], done=0, min_samples=5) == [
        "insufficient: nothing was scored, and 5 samples are required"
    ]


def test_many_tolerated_failures_leave_too_few_samples() -> None:
    metrics = [MetricValue("match", "accuracy", 1.0, samples=1)]
    tolerant = Tolerance(share=0.99)

    assert _problems(done=1, failed=99, metrics=metrics, allow_failures=tolerant, min_samples=50) == [
        "insufficient: match.accuracy is of 1 sample, and 50 are required"
    ]
