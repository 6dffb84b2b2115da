"""`compare`: two experiments on the samples that they share, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evalve.comparison import Comparison, compare, sample_values
from evalve.contracts import EvaluationInfo, Store
from evalve.errors import NotFound
from evalve.records import classes_in_words
from evalve.show import figures
from evalve.show.finding import Labelled, evaluations_of, experiment_named
from evalve.show.overview import time_line
from evalve.show.tables import Column, table, visible

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class ComparedEvaluation:
    """One evaluation in both experiments."""

    label: str
    a: EvaluationInfo
    b: EvaluationInfo
    evaluators: Sequence[Comparison]


@dataclass(frozen=True, slots=True)
class ComparedExperiments:
    """Two experiments, their common evaluations, and those that only one of them has."""

    a: str
    b: str
    evaluations: Sequence[ComparedEvaluation]
    only_in_a: Sequence[str]
    only_in_b: Sequence[str]

    @property
    def regressions(self) -> list[tuple[str, str]]:
        """Evaluation and evaluator where B is worse than chance explains."""
        return [
            (evaluation.label, one.evaluator)
            for evaluation in self.evaluations
            for one in evaluation.evaluators
            if is_regression(one)
        ]


def is_regression(one: Comparison) -> bool:
    """Lower in B, with a p below 0.05 among all evaluators of the evaluation. Failures are not wrong."""
    lower = one.difference is not None and one.difference < 0
    return lower and one.p_adjusted is not None and one.p_adjusted < SIGNIFICANT


def compare_experiments(
    store: Store, a: str, b: str, *, evaluation: str | None = None
) -> ComparedExperiments:
    """Pairs evaluations by key, else by name; an error where no sample was scored in both."""
    name_a, name_b = experiment_named(store, a).name, experiment_named(store, b).name
    of_a, of_b = evaluations_of(store, name_a, evaluation), evaluations_of(store, name_b, evaluation)
    pairs = paired_evaluations(of_a, of_b)
    compared = [
        ComparedEvaluation(
            one.label,
            one.info,
            other.info,
            compare(
                sample_values(store.observations(one.info.id)),
                sample_values(store.observations(other.info.id)),
            ),
        )
        for one, other in pairs
    ]
    if not any(each.n_paired for evaluated in compared for each in evaluated.evaluators):
        raise NotFound(_nothing_shared(name_a, name_b, of_a, of_b, pairs))
    in_pairs = {each.info.id for pair in pairs for each in pair}
    return ComparedExperiments(
        name_a,
        name_b,
        compared,
        only_in_a=[one.label for one in of_a if one.info.id not in in_pairs],
        only_in_b=[one.label for one in of_b if one.info.id not in in_pairs],
    )


def paired_evaluations(of_a: Sequence[Labelled], of_b: Sequence[Labelled]) -> list[tuple[Labelled, Labelled]]:
    """The same file, function and variant; where a file was moved, the same name if only one has it."""
    by_key = {one.info.spec.key: one for one in of_b}
    same_key = {one.info.spec.key for one in of_a} & by_key.keys()
    pairs = []
    for one in of_a:
        if one.info.spec.key in same_key:
            pairs.append((one, by_key[one.info.spec.key]))
            continue
        name = one.info.spec.name
        moved = [two for two in of_b if two.info.spec.name == name and two.info.spec.key not in same_key]
        rivals = [two for two in of_a if two.info.spec.name == name and two.info.spec.key not in same_key]
        if len(moved) == len(rivals) == 1:
            pairs.append((one, moved[0]))
    return pairs


def _nothing_shared(
    a: str,
    b: str,
    of_a: Sequence[Labelled],
    of_b: Sequence[Labelled],
    pairs: Sequence[tuple[Labelled, Labelled]],
) -> str:
    if pairs:
        return f"nothing to compare: no sample was scored in both {a!r} and {b!r}"
    return (
        f"nothing to compare: {a!r} has {', '.join(one.label for one in of_a) or 'no evaluation'}, "
        f"{b!r} has {', '.join(one.label for one in of_b) or 'no evaluation'}"
    )


def comparison_text(
    compared: ComparedExperiments, *, limit: int | None, width: int | None = None
) -> Iterator[str]:
    yield f"A  {visible(compared.a)}"
    yield f"B  {visible(compared.b)}"
    for evaluation in compared.evaluations:
        yield ""
        yield from _evaluation_text(evaluation, limit=limit, width=width)
    for letter, labels in (("A", compared.only_in_a), ("B", compared.only_in_b)):
        if labels:
            yield ""
            yield visible(f"only in {letter}: {', '.join(labels)}")


def _evaluation_text(one: ComparedEvaluation, *, limit: int | None, width: int | None) -> Iterator[str]:
    yield visible(one.label)
    yield from _differences_table(one.evaluators, width)
    for each in one.evaluators:
        yield ""
        yield from _changes_text(each, limit=limit)
    yield ""
    for letter, info in (("A", one.a), ("B", one.b)):
        failed = f"{info.failed} of {figures.plural(info.done + info.failed, 'sample')} failed"
        classes = f" ({classes_in_words(info.failures)})" if info.failed and info.failures else ""
        skipped = f", {info.skipped} skipped" if info.skipped else ""
        yield f"  {letter}: {failed}{classes}{skipped}; {time_line(info)}"


def _differences_table(evaluators: Sequence[Comparison], width: int | None) -> list[str]:
    columns = [
        Column("evaluator"),
        Column("A", align="right"),
        Column("B", align="right"),
        Column("B - A [95% interval]"),
        Column("p", align="right"),
        *([Column("Holm p", align="right")] if len(evaluators) > 1 else []),
        Column("test"),
        Column("pairs", align="right"),
    ]
    rows = [
        [
            one.evaluator,
            figures.value(one.mean_a),
            figures.value(one.mean_b),
            _difference(one),
            _chance(one.p_value),
            *([_chance(one.p_adjusted)] if len(evaluators) > 1 else []),
            one.test or "–",
            str(one.n_paired),
        ]
        for one in evaluators
    ]
    return table(columns, rows, width=width, indent="  ")


def _difference(one: Comparison) -> str:
    ends = figures.interval(one.interval.low, one.interval.high) if one.interval else ""
    return f"{figures.signed(one.difference)} {ends}".rstrip()


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _changes_text(one: Comparison, *, limit: int | None) -> Iterator[str]:
    alone = "".join(
        f", {count} scored only in {letter}"
        for letter, count in (("A", one.only_in_a), ("B", one.only_in_b))
        if count
    )
    better, worse = ("higher", "lower") if one.is_of_numbers else ("fixed", "broken")
    yield visible(f"  {one.evaluator}: {len(one.fixed)} {better}, {len(one.broken)} {worse}{alone}")
    for word, sample_ids in ((better, one.fixed), (worse, one.broken)):
        if sample_ids:
            yield f"    {word:6}  {_some(sample_ids, limit)}"
    if is_regression(one):
        yield "    B is worse than A, and chance does not explain it"
    if one.minimum_detectable_effect is not None:
        smallest = figures.value(one.minimum_detectable_effect)
        yield f"    differences smaller than {smallest} would likely be missed with so many pairs"


def _some(sample_ids: Sequence[str], limit: int | None) -> str:
    shown = [visible(sample_id) for sample_id in sample_ids[:limit]]
    left_out = len(sample_ids) - len(shown)
    return ", ".join([*shown, *([f"… and {left_out} more (--full)"] if left_out else [])])


def comparison_json(compared: ComparedExperiments) -> str:
    plain: dict[str, Any] = {
        "a": compared.a,
        "b": compared.b,
        "evaluations": [
            {
                "evaluation": one.label,
                "a": _side(one.a),
                "b": _side(one.b),
                "evaluators": [
                    {**asdict(each), "regression": is_regression(each)} for each in one.evaluators
                ],
            }
            for one in compared.evaluations
        ],
        "only_in_a": list(compared.only_in_a),
        "only_in_b": list(compared.only_in_b),
    }
    return json.dumps(plain, indent=2)


def _side(info: EvaluationInfo) -> dict[str, Any]:
    return {
        "key": info.spec.key,
        "done": info.done,
        "failed": info.failed,
        "failures": dict(info.failures),
        "skipped": info.skipped,
        "total": info.total,
        "wall_s": info.wall_s,
        "working_s": info.working_s,
    }
