"""Whether an evaluation passes: failures within tolerance, and every gate reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalve.contracts import INSUFFICIENT, EvaluationInfo, Runnable
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
    for name, unscored in {value.evaluator: value.unscored for value in metrics if value.unscored}.items():
        if not tolerance.allows(unscored, ran):
            said = "no value in 1 sample" if unscored == 1 else f"no value in {unscored} samples"
            again = "running it again scores them again, and " if evaluation.scores_answers else ""
            found.append(f"{INSUFFICIENT}{name} has {said} of {ran} ({again}--allow-failures accepts that)")
    # the command line's gate of a name stands in for the decorator's
    given = {(threshold.name, threshold.from_above) for threshold in asked.fail_under or ()}
    declared = [one for one in evaluation.require if (one.name, one.from_above) not in given]
    gates = (*(asked.fail_under or ()), *declared)
    for threshold in gates:
        found.extend(_misses(threshold, metrics))
    found.extend(_too_few(asked.min_samples, metrics, gates))
    return found


def _misses(threshold: Threshold, metrics: Sequence[MetricValue]) -> Iterator[str]:
    values, bound = _meant(threshold, metrics)
    if not values:
        known = ", ".join(dict.fromkeys(f"{v.evaluator}.{v.metric}" for v in metrics))
        instead = f"there is only {known}" if known else "nothing was scored"
        yield f"{threshold.name} is required to {threshold.in_words}, but {instead}"
    for value in values:
        text = _missed(threshold, value, bound)
        if text is not None:
            yield text


def _meant(threshold: Threshold, metrics: Sequence[MetricValue]) -> tuple[list[MetricValue], str | None]:
    """The values that the gate's name means, and which end of their interval, if it names one."""
    values = find(metrics, threshold.name)
    name, _, bound = threshold.name.rpartition(".")
    if values or bound not in ("low", "high"):
        return values, None
    return find(metrics, name), bound


def _missed(threshold: Threshold, value: MetricValue, bound: str | None) -> str | None:
    """Why the value does not pass the gate, or `None`; a bound that is missed by a value that is not is
    a matter of too few samples."""
    name = f"{value.evaluator}.{value.metric}"
    if value.value is None:
        undefined = f"undefined ({value.note})" if value.note else "undefined"
        return f"{INSUFFICIENT}{name} is {undefined}, and required to {threshold.in_words}"
    if not value.higher_is_better and not threshold.from_above:
        meant = f"{name}.high" if bound else name
        return (
            f"less of {name} is better, so that {threshold} says nothing: "
            f"write {meant}<={threshold.bound:.12g}"
        )
    if not threshold.admits(value.value):
        return f"{name} is {_told_apart(value.value, threshold)}"
    if bound is None:
        return None
    end = value.low if bound == "low" else value.high
    if end is None:
        return (
            f"{INSUFFICIENT}{name} has no interval, and its {bound} end is required to {threshold.in_words}"
        )
    if threshold.admits(end):
        return None
    return (
        f"{INSUFFICIENT}{name} is {value.value:.4g}, but the {bound} end of its interval is "
        f"{_told_apart(end, threshold)} ({_samples(value.samples)})"
    )


def _told_apart(number: float, threshold: Threshold) -> str:
    """`0.94996, below the required 0.95`: with as many digits as put the two in their order."""
    texts = [f"{number:.{digits}g}" for digits in range(4, 18)]
    told = next((text for text in texts if not threshold.admits(float(text))), texts[-1])
    side = "above the allowed" if threshold.from_above else "below the required"
    return f"{told}, {side} {threshold.bound:.12g}"


def _too_few(least: int | None, metrics: Sequence[MetricValue], gates: Sequence[Threshold]) -> Iterator[str]:
    """The values of fewer samples than asked for: those with gates, or all where there is none."""
    if not least:
        return
    gated = [value for threshold in gates for value in _meant(threshold, metrics)[0]]
    firsts = list({value.evaluator: value for value in reversed(metrics)}.values())[::-1]
    values = gated or firsts
    if not values:
        required = f"{_samples(least)} {'is' if least == 1 else 'are'} required"
        yield f"{INSUFFICIENT}nothing was scored, and {required}"
    for value in dict.fromkeys(values):
        if value.samples < least:
            name = f"{value.evaluator}.{value.metric}"
            yield f"{INSUFFICIENT}{name} is of {_samples(value.samples)}, and {least} are required"


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"
