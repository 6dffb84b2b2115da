"""Whether B is worse than A: pass, fail, or insufficient where the records cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from evalve.comparison import Comparison
from evalve.show import figures
from evalve.show.comparison.comparing import ComparedEvaluation, ComparedExperiments

Outcome = Literal["pass", "fail", "insufficient"]


@dataclass(frozen=True, slots=True)
class Check:
    """An outcome with its reasons."""

    outcome: Outcome
    reasons: Sequence[str]


def regression_check(compared: Sequence[ComparedExperiments], *, usage_counts: bool = False) -> Check:
    """`fail` where B is worse beyond chance; else `insufficient` where something is missing or too few."""
    worse = [text for each in compared for text in _worse(each, usage_counts)]
    if worse:
        return Check("fail", worse)
    missing = [text for each in compared for text in _missing(each, usage_counts)]
    if not missing and not any(one.can_show for one in _evaluators(compared)):
        missing = [f"too few pairs: {_so_few(one)}" for one in _evaluators(compared)]
    return Check("insufficient", missing) if missing else Check("pass", ())


def _evaluators(compared: Sequence[ComparedExperiments]) -> list[Comparison]:
    return [one for each in compared for evaluation in each.evaluations for one in evaluation.evaluators]


def _so_few(one: Comparison) -> str:
    among = f" among {one.judged_with} comparisons" if one.judged_with > 1 else ""
    pairs = figures.plural(one.n_paired, "pair")
    return f"{pairs} of {one.evaluator} could show no difference{among}, even if all of them changed"


def _worse(compared: ComparedExperiments, usage_counts: bool) -> Iterator[str]:
    for evaluation in compared.evaluations:
        for one in (*evaluation.scores, *(evaluation.usage if usage_counts else ())):
            if one.is_regression:
                yield f"{evaluation.label}: {_worse_text(one)}"


def _worse_text(one: Comparison) -> str:
    if one.kind == "failures":
        return f"B breaks on {figures.plural(len(one.broken), 'sample')} that A completed"
    return f"{one.evaluator} is worse in B by {figures.value(abs(one.difference or 0.0))}"


def _missing(compared: ComparedExperiments, usage_counts: bool) -> Iterator[str]:
    for label in compared.only_in_a:
        yield f"{label} is missing in B"
    for evaluation in compared.evaluations:
        for text in (*_missing_in(evaluation), *(_missing_usage(evaluation) if usage_counts else ())):
            yield f"{evaluation.label}: {text}"
    if not compared.evaluations and not compared.only_in_a:
        yield "there is nothing to compare"


def _missing_in(evaluation: ComparedEvaluation) -> Iterator[str]:
    if evaluation.is_left_out:
        yield "left out, because its code differs"
        return
    if not evaluation.evaluators:
        yield "nothing was scored"
    for one in evaluation.evaluators:
        if not one.n_paired + one.lost:
            continue  # a new evaluator has nothing to be worse than
        if not one.n_paired:
            yield _without_pairs(one)
        elif not one.can_show and one.is_worse:
            yield f"{one.evaluator} is worse in B, but {_so_few(one)}"
        elif one.lost_could_hide or (one.lost and not one.can_show):
            yield (
                f"{one.evaluator} lacks {one.lost} of {one.n_paired + one.lost} samples in B, "
                "which could hide that it is worse"
            )


def _missing_usage(evaluation: ComparedEvaluation) -> Iterator[str]:
    if evaluation.cached and not any(one.can_show for one in evaluation.usage):
        answered = figures.plural(evaluation.cached, "sample")
        yield f"time, tokens and cost have too few pairs, because the cache answered {answered}"
        return
    for one in evaluation.usage:
        if one.lost and not one.n_paired:
            yield _without_pairs(one)


def _without_pairs(one: Comparison) -> str:
    if one.lost > one.only_in_a:
        return f"{one.evaluator} has no pairs, because its rows have changed"
    return f"{one.evaluator} has no pairs" if one.only_in_b else f"{one.evaluator} is missing in B"
