"""What is known of an evaluation beside its samples: status, metrics, failures, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from evalve.contracts import AgentTotals, EvaluationInfo, ExperimentInfo, RunInfo, Store
from evalve.errors import NotFound
from evalve.options import suggestion
from evalve.records import GROUPED_BY, Record
from evalve.show import figures
from evalve.show.breakdown.counting import Breakdown
from evalve.show.breakdown.groups import Groups
from evalve.show.breakdown.misses import Misses
from evalve.show.breakdown.passes import Passes
from evalve.show.finding import Labelled
from evalve.summary import summarise
from evalve.tallies import MetricValue

# a mean of right and wrong: what a failed sample could have made of it is known
_PROPORTIONS = frozenset({"accuracy"})
_SUGGESTED_FROM = 1000


@dataclass(frozen=True, slots=True)
class Overview:
    """One evaluation as `show` tells of it."""

    label: str
    info: EvaluationInfo
    status: str
    metrics: Sequence[MetricValue]
    failure_kinds: Mapping[str, int]
    skip_reasons: Mapping[str, int]
    runs: Sequence[RunInfo]
    misses: Misses = field(default_factory=dict)
    groups: Groups = ()
    passes: Passes = field(default_factory=Passes)

    @property
    def speed_up(self) -> float | None:
        return speed_up(self.info)


def overviews(
    store: Store, experiment: ExperimentInfo, evaluations: Sequence[Labelled], by: Sequence[str] | None = None
) -> list[Overview]:
    """One for each evaluation; `by` says by which keys of their metadata scores are grouped."""
    found = [overview(store, experiment, one, by=by or GROUPED_BY) for one in evaluations]
    for key in by or ():
        if not any(grouping.key == key for one in found for grouping in one.groups):
            known = _metadata_keys(store, evaluations)
            hint = suggestion(key, known) or (f"; they have: {', '.join(known)}" if known else "")
            raise NotFound(f"no score of experiment {experiment.name!r} has {key!r} in its metadata{hint}")
    return found


def _metadata_keys(store: Store, evaluations: Sequence[Labelled]) -> list[str]:
    first = (islice(store.observations(one.info.id), _SUGGESTED_FROM) for one in evaluations)
    scores = (score for observations in first for _, _, several in observations for score in several)
    return list(dict.fromkeys(str(key) for score in scores for key in score.metadata))


def overview(
    store: Store, experiment: ExperimentInfo, one: Labelled, *, by: Sequence[str] = GROUPED_BY
) -> Overview:
    runs = store.runs(one.info.id)
    breakdown = Breakdown(partial(store.observations, one.info.id), by, repeats=repeats_of(runs))
    return Overview(
        label=one.label,
        info=one.info,
        status=status_of(one.info, runs, experiment.running),
        metrics=summarise(breakdown.observations, stored=one.info.metrics),
        failure_kinds=failure_kinds(store, one.info),
        skip_reasons=skip_reasons(store, one.info),
        runs=runs,
        misses=breakdown.misses,
        groups=breakdown.groups,
        passes=breakdown.passes,
    )


def repeats_of(runs: Sequence[RunInfo]) -> int:
    return max((run.options.get("repeat") or 1 for run in runs), default=1)


def status_of(info: EvaluationInfo, runs: Sequence[RunInfo], running: str | None) -> str:
    """complete, partial, interrupted or `running by …`; a dead process leaves `running` in its last run."""
    last = runs[-1].status if runs else "complete"
    if last == "running" and running is not None:
        return f"running by {running}"
    if info.total is not None and info.done + info.failed + info.skipped >= info.total:
        return "complete"
    return "partial" if last == "complete" else "interrupted"


def agents_run(runs: Sequence[RunInfo]) -> AgentTotals | None:
    """What agents came to over all runs; `None` without any."""
    totals = AgentTotals()
    for run in runs:
        told = run.report.get("agents")
        if isinstance(told, Mapping):
            totals.add(AgentTotals(**told))
    return totals if totals.runs else None


def status_of_experiment(experiment: ExperimentInfo) -> str:
    if experiment.running is not None:
        return "running"
    counted = experiment.done + experiment.failed + experiment.skipped
    return "complete" if experiment.total is not None and counted >= experiment.total else "partial"


def status_text(experiment: ExperimentInfo) -> str:
    """`complete (first 2 rows)` where not all rows were asked for."""
    status = status_of_experiment(experiment)
    if experiment.first_rows is None:
        return status
    return f"{status} (first {figures.plural(experiment.first_rows, 'row')})"


def failure_kinds(store: Store, info: EvaluationInfo) -> dict[str, int]:
    """How many samples failed with what, the most frequent first."""
    if not info.failed:
        return {}
    kinds = Counter(
        record.failure.kind if record.failure else "unknown"
        for record in store.records(info, status="failed")
    )
    return _most_frequent_first(kinds)


def skip_reasons(store: Store, info: EvaluationInfo) -> dict[str, int]:
    """How many samples were skipped for what, the most frequent first."""
    if not info.skipped:
        return {}
    return _most_frequent_first(Counter(map(skip_reason, store.records(info, status="skipped"))))


def skip_reason(record: Record) -> str:
    return (record.failure.message if record.failure else "") or "no reason given"


def _most_frequent_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def speed_up(info: EvaluationInfo) -> float | None:
    """Summed working time over the time that a person waited."""
    return info.working_s / info.wall_s if info.wall_s > 0 and info.working_s > 0 else None


def bounds(metric: MetricValue, info: EvaluationInfo) -> tuple[float, float] | None:
    """The proportion if every failed sample had been wrong, and if every one had been right.

    Wrong is what lowers it; where less is better, what raises it.
    """
    if metric.metric not in _PROPORTIONS or metric.value is None or not 0 <= metric.value <= 1:
        return None
    if not info.failed:
        return None
    # a failed sample weighs as much as one that was scored, however many scores that one has
    scored = min(metric.observations, info.done)
    true = metric.value * scored
    low, high = true / (scored + info.failed), (true + info.failed) / (scored + info.failed)
    return (low, high) if metric.higher_is_better else (high, low)


def metric_text(metric: MetricValue) -> str:
    """`0.875 [0.53, 0.98]`, then why the value is missing or old, where that is so."""
    number = metric.value
    whole = metric.metric in ("count", "sum") and number is not None and number.is_integer()
    text = figures.with_interval(
        int(number) if whole and number is not None else number, metric.low, metric.high
    )
    notes = [metric.note] if metric.note else []
    if metric.unscored:
        notes.append(f"{metric.unscored} unscored")
    return f"{text} ({'; '.join(notes)})" if notes else text


def samples_line(info: EvaluationInfo) -> str:
    share = figures.percent(info.done, info.total)
    done = f"{figures.out_of(info.done, info.total)} done"
    rest = figures.failed_and_skipped(info.failed, info.failures, info.skipped)
    return ", ".join([f"{done} ({share})" if share else done, *rest])


def time_line(info: EvaluationInfo) -> str:
    faster = speed_up(info)
    times = f"{figures.duration(info.wall_s)} wall, {figures.duration(info.working_s)} working"
    return f"{times}, speed-up ×{faster:.1f}" if faster is not None else times


def decisions_of(run: RunInfo) -> list[Mapping[str, Any]]:
    """What an adaptive strategy decided, as it was reported."""
    decisions = run.report.get("decisions")
    return [one for one in decisions if isinstance(one, Mapping)] if isinstance(decisions, list) else []


def calls_made(runs: Sequence[RunInfo]) -> dict[str, float]:
    """What calls to models came to over all runs; empty without any."""
    made: Counter[str] = Counter()
    for run in runs:
        made.update(run.report.get("calls") or {})
    return dict(made)
