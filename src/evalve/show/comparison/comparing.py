"""`compare`: two experiments, or the variants inside one, on the samples that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from evalve.comparison import Comparison, compare_each, judged, scored
from evalve.contracts import EvaluationInfo, Measured, Store, split_roles
from evalve.errors import NotFound
from evalve.records import GROUPED_BY
from evalve.show.breakdown.differences import GroupDifferences, GroupedCounts, group_differences
from evalve.show.breakdown.roles import ByRole, taken_by_role
from evalve.show.comparison.pairing import Pair, pair_across, pair_up
from evalve.show.finding import evaluations_of, experiment_named

USAGE = ("time_s", "tokens", "cost_usd")
"""What samples take, beside their scores: the less the better."""


@dataclass(frozen=True, slots=True)
class ComparedEvaluation:
    """One evaluation in both experiments."""

    label: str
    a: EvaluationInfo
    b: EvaluationInfo
    scores: Sequence[Comparison] = ()
    """The evaluators, then the failures, where there are any."""
    usage: Sequence[Comparison] = ()
    changed_rows: Sequence[str] = ()
    """Samples whose rows have another content in B: left out."""
    changed_code: Sequence[str] = ()
    """Parts of the evaluation that are others in B."""
    is_left_out: bool = False
    """Whether nothing is compared, because the code differs."""
    cached: int = 0
    """Samples that the cache answered in either: their time and cost say nothing."""
    groups: Sequence[GroupDifferences] = ()
    """By what scores are about; told, and not judged."""
    roles_a: ByRole = field(default_factory=dict)
    """What calls take a sample, by who makes them, on the samples that `usage` is about."""
    roles_b: ByRole = field(default_factory=dict)

    @property
    def leaves_out(self) -> bool:
        """Whether there is something to say of what is not compared."""
        return self.is_left_out or bool(self.changed_rows)

    @property
    def evaluators(self) -> list[Comparison]:
        return [one for one in self.scores if one.kind == "score"]


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
            for one in evaluation.scores
            if one.is_regression
        ]

    @property
    def has_pairs(self) -> bool:
        return any(one.n_paired for evaluation in self.evaluations for one in evaluation.scores)


def compare_experiments(
    store: Store,
    a: str,
    b: str,
    *,
    evaluation: str | None = None,
    accept_changes: bool = False,
    usage_counts: bool = False,
    by: Sequence[str] = GROUPED_BY,
) -> ComparedExperiments:
    """Everything that both have, judged together; `usage_counts` says that time and cost are judged too."""
    name_a, name_b = experiment_named(store, a).name, experiment_named(store, b).name
    of_a, of_b = evaluations_of(store, name_a, evaluation), evaluations_of(store, name_b, evaluation)
    pairs = pair_up(of_a, of_b, partial(_parameters, store))
    in_pairs = {each.info.id for pair in pairs for each in (pair.a, pair.b)}
    compared = ComparedExperiments(
        name_a,
        name_b,
        [_compared(store, pair, accept_changes=accept_changes, by=by) for pair in pairs],
        only_in_a=[one.label for one in of_a if one.info.id not in in_pairs],
        only_in_b=[one.label for one in of_b if one.info.id not in in_pairs],
    )
    return _judged([compared], usage_counts=usage_counts)[0]


def compare_across(
    store: Store,
    experiment: str,
    name: str,
    *,
    evaluation: str | None = None,
    accept_changes: bool = False,
    usage_counts: bool = False,
    by: Sequence[str] = GROUPED_BY,
) -> list[ComparedExperiments]:
    """The variants by one parameter inside an experiment: the first value beside each of the others."""
    found = experiment_named(store, experiment).name
    sides = pair_across(evaluations_of(store, found, evaluation), name, partial(_parameters, store))
    compared = [
        ComparedExperiments(
            f"{found}, {name}={side.value_a}",
            f"{found}, {name}={side.value_b}",
            [_compared(store, pair, accept_changes=accept_changes, by=by) for pair in side.pairs],
            only_in_a=side.unpaired_a,
            only_in_b=side.unpaired_b,
        )
        for side in sides
    ]
    return _judged(compared, usage_counts=usage_counts)


def expect_pairs(compared: Sequence[ComparedExperiments]) -> None:
    """An error where no sample was scored on both sides, that says what each has."""
    if any(one.has_pairs or one.evaluations for one in compared):
        if any(one.has_pairs or any(each.leaves_out for each in one.evaluations) for one in compared):
            return
        one = compared[0]
        raise NotFound(f"nothing to compare: no sample was scored in both {one.a!r} and {one.b!r}")
    one = compared[0]
    raise NotFound(
        f"nothing to compare: {one.a!r} has {', '.join(one.only_in_a) or 'no evaluation'}, "
        f"{one.b!r} has {', '.join(one.only_in_b) or 'no evaluation'}"
    )


def expect_groups(compared: Sequence[ComparedExperiments], keys: Sequence[str]) -> None:
    """An error where nothing is compared by a key that was asked for."""
    found = {group.key for one in compared for evaluation in one.evaluations for group in evaluation.groups}
    for key in keys:
        if key not in found:
            raise NotFound(f"nothing to compare by {key!r}: no score has it in its metadata on both sides")


def _parameters(store: Store, info: EvaluationInfo) -> Mapping[str, str]:
    runs = store.runs(info.id)
    variant = runs[-1].options.get("variant") if runs else None
    return variant if isinstance(variant, Mapping) else {}


# -- one evaluation ------------------------------------------------------------------------------------


def _compared(store: Store, pair: Pair, *, accept_changes: bool, by: Sequence[str]) -> ComparedEvaluation:
    a, b = pair.a.info, pair.b.info
    changed_code = _changed_code(a, b)
    if changed_code and not accept_changes:
        return ComparedEvaluation(pair.label, a, b, changed_code=changed_code, is_left_out=True)
    measures_a, measures_b = list(store.measures(a.id)), list(store.measures(b.id))
    changed = _changed_rows(measures_a, measures_b)
    counts_a, counts_b = (GroupedCounts(partial(store.observations, one.id), by) for one in (a, b))
    scores_a, scores_b = scored(counts_a.observations()), scored(counts_b.observations())
    compared = partial(compare_each, changed=frozenset(changed))
    cached = {one.sample_id for one in (*measures_a, *measures_b) if (one.calls or {}).get("cached")}
    left_out = {*changed, *cached}
    in_both = _ended_well(measures_a) & _ended_well(measures_b)
    return ComparedEvaluation(
        pair.label,
        a,
        b,
        scores=[
            *compared(
                scores_a.values,
                scores_b.values,
                lower_is_better=scores_a.lower_is_better | scores_b.lower_is_better,
            ),
            *_compared_failures(measures_a, measures_b, compared),
        ],
        usage=compared(
            _usage(measures_a, without=cached),
            _usage(measures_b, without=cached),
            kind="usage",
            lower_is_better=USAGE,
        ),
        changed_rows=changed,
        changed_code=changed_code,
        cached=len(cached),
        groups=group_differences(counts_a, counts_b, changed=changed),
        roles_a=taken_by_role(measures_a, only=in_both, without=left_out),
        roles_b=taken_by_role(measures_b, only=in_both, without=left_out),
    )


def _ended_well(measures: Iterable[Measured]) -> set[str]:
    return {one.sample_id for one in measures if one.status == "done"}


def _changed_code(a: EvaluationInfo, b: EvaluationInfo) -> list[str]:
    """Parts of the fingerprint that differ; between two variants, what they are given may."""
    old, new = a.spec.fingerprint, b.spec.fingerprint
    if not old or not new or old.get("method") != new.get("method"):
        return []  # made in another way: they cannot be compared
    differing = sorted(part for part in {*old, *new} if old.get(part) != new.get(part))
    if a.spec.key == b.spec.key:
        return differing
    return [part for part in differing if not part.startswith(("captured ", "lender ", "script "))]


def _changed_rows(a: Iterable[Measured], b: Iterable[Measured]) -> list[str]:
    of_a = {one.sample_id: one.row_hash for one in a}
    of_b = {one.sample_id: one.row_hash for one in b}
    return [
        sample_id
        for sample_id, row_hash in of_a.items()
        if row_hash is not None and of_b.get(sample_id) not in (None, row_hash)
    ]


def _compared_failures(
    a: Sequence[Measured], b: Sequence[Measured], compared: Callable[..., list[Comparison]]
) -> list[Comparison]:
    """Whether samples break more often in B; nothing where the same ones broke, for then nothing changed."""
    found = compared(_failed(a), _failed(b), kind="failures", lower_is_better=("failures",))
    return [one for one in found if one.fixed or one.broken]


def _failed(measures: Iterable[Measured]) -> dict[str, dict[str, list[float]]]:
    values: dict[str, dict[str, list[float]]] = {}
    for one in measures:
        if one.status in ("done", "failed"):
            of_sample = values.setdefault(one.sample_id, {"failures": []})
            of_sample["failures"].append(float(one.status == "failed"))
    return values


def _usage(measures: Iterable[Measured], *, without: set[str]) -> dict[str, dict[str, list[float]]]:
    """Of samples that ended well: another failure takes another time."""
    values: dict[str, dict[str, list[float]]] = {}
    for one in measures:
        if one.status != "done" or one.sample_id in without:
            continue
        of_sample = values.setdefault(one.sample_id, {})
        for name, amount in _taken(one):
            of_sample.setdefault(name, []).append(amount)
    return values


def _taken(one: Measured) -> Iterable[tuple[str, float]]:
    yield "time_s", one.working_s
    if one.calls:  # what a judge took is not the sample's
        own = split_roles(one.calls)[""]
        yield "tokens", float(sum(amount for name, amount in own.items() if name.endswith("_tokens")))
        if not own.get("unpriced"):
            yield "cost_usd", float(own.get("cost_usd", 0.0))


# -- all of them together --------------------------------------------------------------------------------


def _judged(compared: Sequence[ComparedExperiments], *, usage_counts: bool) -> list[ComparedExperiments]:
    """Holm's p over everything that is judged: all scores and failures; usage too, or by itself."""
    evaluations = [one for each in compared for one in each.evaluations]
    scores = [one for each in evaluations for one in each.scores]
    usage = [one for each in evaluations for one in each.usage]
    if usage_counts:
        together = judged([*scores, *usage])
        scores, usage = together[: len(scores)], together[len(scores) :]
    else:
        scores, usage = judged(scores), judged(usage)
    next_scores, next_usage = iter(scores), iter(usage)
    return [
        replace(
            each,
            evaluations=[
                replace(
                    one,
                    scores=[next(next_scores) for _ in one.scores],
                    usage=[next(next_usage) for _ in one.usage],
                )
                for one in each.evaluations
            ],
        )
        for each in compared
    ]
