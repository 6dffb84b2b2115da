"""Whether an evaluation passes: failures within tolerance, and every gate reached."""

from __future__ import annotations

from collections.abc import Sequence

from evalve.contracts import EvaluationInfo, Runnable
from evalve.options import Threshold, Tolerance
from evalve.records import classes_in_words
from evalve.summary import find
from evalve.tallies import MetricValue

NO_FAILURES = Tolerance(count=0)


def problems(info: EvaluationInfo, metrics: Sequence[MetricValue], evaluation: Runnable) -> list[str]:
    """Each reason in words; none means that the evaluation passes."""
    asked = evaluation.options
    found = []
    ran = info.done + info.failed  # a skipped sample is neither right nor wrong, and stands for nothing
    tolerance = asked.allow_failures or NO_FAILURES
    if not tolerance.allows(info.failed, ran):
        allowed = f", and {tolerance} may" if asked.allow_failures else ""
        classes = classes_in_words(info.failures)
        whose = f" ({classes})" if classes else ""
        found.append(f"{info.failed} of {ran} samples failed{whose}{allowed}")
    # the command line's gate of a name stands in for the decorator's
    asked_names = {threshold.name for threshold in asked.fail_under or ()}
    declared = [threshold for threshold in evaluation.require if threshold.name not in asked_names]
    for threshold in (*(asked.fail_under or ()), *declared):
        found.extend(_misses(threshold, metrics))
    return found


def _misses(threshold: Threshold, metrics: Sequence[MetricValue]) -> list[str]:
    values = find(metrics, threshold.name)
    if not values:
        known = ", ".join(dict.fromkeys(f"{v.evaluator}.{v.metric}" for v in metrics))
        instead = f"there is only {known}" if known else "nothing was scored"
        return [f"{threshold.name} is required to reach {threshold.minimum:g}, but {instead}"]
    return [
        f"{value.evaluator}.{value.metric} is {_shown(value)}, below the required {threshold.minimum:g}"
        for value in values
        if value.value is None or value.value < threshold.minimum
    ]


def _shown(value: MetricValue) -> str:
    if value.value is not None:
        return f"{value.value:.4g}"
    return f"undefined ({value.note})" if value.note else "undefined"
