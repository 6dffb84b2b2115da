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
        "grade.pass@3 is undefined, below the required 0"
    ]


def test_a_value_that_is_missing_for_a_reason_misses_its_gate_and_says_why() -> None:
    metrics = [MetricValue("grade", "spread", None, note="ValueError: no values")]

    assert _problems(metrics=metrics, require=[Threshold("grade", 0.0)]) == [
        "grade.spread is undefined (ValueError: no values), below the required 0"
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
