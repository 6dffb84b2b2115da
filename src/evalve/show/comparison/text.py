"""What `compare` found, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from evalve.comparison import Comparison
from evalve.contracts import EvaluationInfo
from evalve.records import classes_in_words
from evalve.show import figures
from evalve.show.breakdown.differences import differences_plain, differences_text
from evalve.show.breakdown.roles import roles_plain, roles_text
from evalve.show.comparison.comparing import ComparedEvaluation, ComparedExperiments
from evalve.show.comparison.regressions import Check
from evalve.show.overview import time_line
from evalve.show.tables import Column, table, visible


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


def check_text(check: Check) -> Iterator[str]:
    yield ""
    yield f"regression check: {check.outcome}"
    for reason in check.reasons:
        yield f"  {visible(reason)}"


def _evaluation_text(one: ComparedEvaluation, *, limit: int | None, width: int | None) -> Iterator[str]:
    yield visible(one.label)
    if one.changed_code:
        yield f"  its code differs: {visible(', '.join(one.changed_code))}"
    if one.is_left_out:
        yield "  left out; --accept-changes compares it all the same"
        return
    if one.changed_rows:
        rows = figures.plural(len(one.changed_rows), "row")
        yield f"  {rows} changed under the same id, left out: {_some(one.changed_rows, limit)}"
    if one.scores:
        yield from _differences_table(one.scores, width)
    for each in one.scores:
        yield ""
        yield from _changes_text(each, limit=limit)
    yield ""
    yield from differences_text(one.groups, width=width, full=limit is None)
    if one.usage:
        yield from _differences_table(one.usage, width)
    answered = figures.plural(one.cached, "sample")
    if one.cached and one.usage:
        yield f"  without {answered} that the cache answered"
    elif one.cached:
        yield f"  time, tokens and cost are not compared: the cache answered {answered}"
    if one.cached or one.usage:
        yield ""
    if roles := roles_text(one.roles_a, one.roles_b):
        yield from roles
        yield ""
    for letter, info in (("A", one.a), ("B", one.b)):
        failed = f"{info.failed} of {figures.plural(info.done + info.failed, 'sample')} failed"
        classes = f" ({classes_in_words(info.failures)})" if info.failed and info.failures else ""
        skipped = f", {info.skipped} skipped" if info.skipped else ""
        yield f"  {letter}: {failed}{classes}{skipped}; {time_line(info)}"


def _differences_table(compared: Sequence[Comparison], width: int | None) -> list[str]:
    several = any(one.judged_with > 1 for one in compared)
    columns = [
        Column("less is better" if compared[0].kind == "usage" else "evaluator"),
        Column("A", align="right"),
        Column("B", align="right"),
        Column("B - A [95% interval]"),
        Column("p", align="right"),
        *([Column("Holm p", align="right")] if several else []),
        Column("test", optional=True),
        Column("pairs", align="right"),
    ]
    rows = [
        [
            one.evaluator,
            figures.value(one.mean_a),
            figures.value(one.mean_b),
            _difference(one),
            _chance(one.p_value),
            *([_chance(one.p_adjusted)] if several else []),
            one.test or "–",
            str(one.n_paired),
        ]
        for one in compared
    ]
    return table(columns, rows, width=width, indent="  ")


def _difference(one: Comparison) -> str:
    ends = figures.interval_of_difference(one.interval.low, one.interval.high) if one.interval else ""
    return f"{figures.signed(one.difference)} {ends}".rstrip()


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _changes_text(one: Comparison, *, limit: int | None) -> Iterator[str]:
    alone = "".join(
        f", {count} scored only in {letter}"
        for letter, count in (("A", one.only_in_a), ("B", one.only_in_b))
        if count and one.kind == "score"
    )
    better, worse = _words(one)
    less = ", less is better" if one.kind == "score" and not one.higher_is_better else ""
    counted = f"{len(one.fixed)} {better}, {len(one.broken)} {worse}"
    yield visible(f"  {one.evaluator}: {counted}{alone}{less}")
    for word, sample_ids in ((better, one.fixed), (worse, one.broken)):
        if sample_ids:
            yield f"    {word:6}  {_some(sample_ids, limit)}"
    if one.is_regression:
        yield "    B is worse than A, and chance does not explain it"
    if one.n_paired and one.kind == "score":
        yield f"    {_detectable(one)}"


def _words(one: Comparison) -> tuple[str, str]:
    """For samples that are better in B, and for those that are worse."""
    if not one.is_of_numbers:
        return ("mended", "failing") if one.kind == "failures" else ("fixed", "broken")
    return ("higher", "lower") if one.higher_is_better else ("lower", "higher")


def _detectable(one: Comparison) -> str:
    if not one.can_show:
        return "too few pairs: no difference could be shown, even if all of them changed"
    if one.minimum_detectable_effect is None:
        same = "all differ by the same" if one.fixed or one.broken else "nothing differs"
        return f"{same}, so that nothing is known about which difference would be found"
    smallest = figures.value(one.minimum_detectable_effect)
    return f"differences smaller than {smallest} would likely be missed with so many pairs"


def _some(sample_ids: Sequence[str], limit: int | None) -> str:
    shown = [visible(sample_id) for sample_id in sample_ids[:limit]]
    left_out = len(sample_ids) - len(shown)
    return ", ".join([*shown, *([f"… and {left_out} more (--full)"] if left_out else [])])


def comparison_json(compared: Sequence[ComparedExperiments], check: Check) -> str:
    """One object; for several pairs of variants, `comparisons` holds one for each."""
    verdict = {"outcome": check.outcome, "reasons": list(check.reasons)}
    if len(compared) == 1:
        return json.dumps({**_experiments(compared[0]), **verdict}, indent=2)
    return json.dumps({"comparisons": [_experiments(one) for one in compared], **verdict}, indent=2)


def _experiments(compared: ComparedExperiments) -> dict[str, Any]:
    return {
        "a": compared.a,
        "b": compared.b,
        "evaluations": [_evaluation(one) for one in compared.evaluations],
        "only_in_a": list(compared.only_in_a),
        "only_in_b": list(compared.only_in_b),
    }


def _evaluation(one: ComparedEvaluation) -> dict[str, Any]:
    failures = [_comparison(each) for each in one.scores if each.kind == "failures"]
    return {
        "evaluation": one.label,
        "a": _side(one.a),
        "b": _side(one.b),
        "left_out": one.is_left_out,
        "changed_code": list(one.changed_code),
        "changed_rows": list(one.changed_rows),
        "evaluators": [_comparison(each) for each in one.evaluators],
        "failures": failures[0] if failures else None,
        "usage": [_comparison(each) for each in one.usage],
        "cached": one.cached,
        "groups": differences_plain(one.groups),
        "roles": roles_plain({"a": one.roles_a, "b": one.roles_b}),
    }


def _comparison(one: Comparison) -> dict[str, Any]:
    return {**asdict(one), "regression": one.is_regression}


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
