"""What `show` and `list` tell of experiments, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from evalve.contracts import ExperimentInfo, RunInfo, Store, split_roles
from evalve.records import Record, classes_in_words
from evalve.show import figures
from evalve.show.breakdown.groups import Groups, groups_plain, groups_text
from evalve.show.breakdown.misses import misses_text
from evalve.show.breakdown.passes import passes_plain, passes_text
from evalve.show.exports.exporting import export_row
from evalve.show.finding import evaluations_of, experiment_named
from evalve.show.overview import (
    Overview,
    agents_run,
    bounds,
    calls_made,
    decisions_of,
    metric_text,
    overviews,
    samples_line,
    status_of_experiment,
    status_text,
    time_line,
)
from evalve.show.samples import Choice, chosen, samples_text
from evalve.show.side_by_side import side_by_side_text
from evalve.show.tables import Column, shortened, table, visible
from evalve.tallies import MetricValue

_REASONS_SHOWN = 5
_REASON_WIDTH = 60
_SEEN = 0.005
"""A difference that shows in two digits."""


def list_text(experiments: Sequence[ExperimentInfo], *, width: int | None) -> list[str]:
    if not experiments:
        return ["no experiments yet; `evalve init` writes a first evaluation"]
    classes, skips = any(one.failures for one in experiments), any(one.skipped for one in experiments)
    columns = [
        Column("experiment"),
        Column("status"),
        Column("done", align="right"),
        Column("failed", align="right"),
        *([Column("skipped", align="right")] if skips else []),
        Column("evaluations", align="right", optional=True),
        Column("last written", optional=True),
        *([Column("failures", optional=True)] if classes else []),
    ]
    rows = [
        [
            one.name,
            status_text(one),
            figures.out_of(one.done, one.total),
            str(one.failed),
            *([str(one.skipped)] if skips else []),
            str(one.evaluations),
            figures.when(one.updated_at),
            *([classes_in_words(one.failures) or "–"] if classes else []),
        ]
        for one in experiments
    ]
    return table(columns, rows, width=width)


def list_json(experiments: Sequence[ExperimentInfo]) -> str:
    rows = [{**asdict(one), "status": status_of_experiment(one)} for one in experiments]
    return json.dumps(rows, indent=2)


def show_text(
    store: Store,
    name: str,
    *,
    evaluation: str | None,
    choice: Choice,
    width: int | None,
    by: Sequence[str] | None = None,
) -> Iterator[str]:
    """The experiment line by line: each evaluation's scores first, then its samples."""
    experiment = experiment_named(store, name)
    found = overviews(store, experiment, evaluations_of(store, experiment.name, evaluation), by)
    status, written = status_text(experiment), figures.when(experiment.updated_at)
    yield f"{visible(experiment.name)} · {status} · {written}"
    yield from side_by_side_text(found, width=width, full=choice.full)
    for one in found:
        yield ""
        yield from overview_text(one, full=choice.full, width=width)
        yield ""
        yield from samples_text(store, one.info, choice, width=width)


def overview_text(one: Overview, *, full: bool = False, width: int | None = None) -> Iterator[str]:
    yield visible(one.label)
    yield f"  status    {visible(one.status)}"
    yield f"  samples   {samples_line(one.info)}{_asked_for(one.runs)}"
    if one.info.left_out:
        yield f"  left out  {figures.left_out(one.info.left_out)}"
    yield f"  time      {time_line(one.info)}"
    for who, made in figures.calls_by_role(calls_made(one.runs)):
        yield f"  {who:<9} {made}"
    if agents := agents_run(one.runs):
        yield f"  agents    {figures.agents(agents)}"
    if one.failure_kinds:
        kinds = ", ".join(f"{visible(kind)} {count}" for kind, count in one.failure_kinds.items())
        yield f"  failures  {kinds}"
    if one.skip_reasons:
        reasons = ", ".join(
            f"{shortened(visible(reason), _REASON_WIDTH)} {count}"
            for reason, count in islice(one.skip_reasons.items(), _REASONS_SHOWN)
        )
        more = len(one.skip_reasons) - _REASONS_SHOWN
        yield f"  skipped   {reasons}" + (
            f", … and {figures.plural(more, 'reason')} more" if more > 0 else ""
        )
    if one.runs:
        yield from _decisions(one.runs[-1], full=full)
    if one.metrics:
        yield ""
        yield from metrics_text(one.metrics)
    if one.info.failed:
        yield from failures_text(one)
    yield from passes_text(one.passes, one.info, width=width)
    if one.misses:
        yield ""
        yield from misses_text(one.misses)
    yield from groups_text(one.groups, width=width, full=full)
    if any(_weighs_samples(metric, one.groups) for metric in one.metrics):
        yield "  These tables count every score alike; metrics above are means over samples of their means."


def metrics_text(metrics: Sequence[MetricValue]) -> list[str]:
    columns = [Column("evaluator"), Column("metric"), Column("value [95% interval]"), Column("n")]
    rows = [
        [
            metric.evaluator,
            metric.metric,
            metric_text(metric),
            _counted(metric),
        ]
        for metric in metrics
    ]
    return table(columns, rows, indent="  ")


def _weighs_samples(metric: MetricValue, groups: Groups) -> bool:
    """Whether a table has another figure for it, because some samples have more scores of it than others."""
    shares = [share for each in groups if (share := each.all.get(metric.evaluator)) is not None]
    if metric.value is None or metric.metric not in ("accuracy", "mean"):
        return False
    return any(abs(share.mean - metric.value) >= _SEEN for share in shares)


def _counted(metric: MetricValue) -> str:
    if metric.observations == metric.samples:
        return str(metric.samples)
    return f"{metric.observations} in {figures.plural(metric.samples, 'sample')}"


def failures_text(one: Overview) -> Iterator[str]:
    """Failures beside the scores: what they would make of each proportion at worst and at best."""
    counted = one.info.done + one.info.failed
    noun = "sample" if counted == 1 else "samples"
    sentence = f"  {one.info.failed} of {counted} {noun} failed: not counted above"
    bounded = [(metric, each) for metric in one.metrics if (each := bounds(metric, one.info)) is not None]
    once = [each for each in bounded if each[0].observations <= one.info.done]
    bounded = once or bounded  # of scores about parts of a sample, only where there are no others
    if len(bounded) == 1:
        yield f"{sentence}; {_worst_and_best(*bounded[0][1])}"
        return
    yield sentence
    for metric, each in bounded:
        yield f"    {visible(f'{metric.evaluator} {metric.metric}')}: {_worst_and_best(*each)}"


def _worst_and_best(worst: float, best: float) -> str:
    return f"{worst:.2f} if all wrong … {best:.2f} if all right"


def _asked_for(runs: Sequence[RunInfo]) -> str:
    samples = runs[-1].options.get("samples") if runs and not runs[-1].fingerprint.get("is_whole") else None
    return f"; asked for: {figures.first_rows(samples, None)}" if samples is not None else ""


def _decisions(run: RunInfo, *, full: bool) -> Iterator[str]:
    decisions = decisions_of(run)
    if not decisions:
        return
    limits = [str(decisions[0].get("from", "?")), *(str(one.get("to", "?")) for one in decisions)]
    if len(limits) > 9 and not full:
        limits = [*limits[:4], "…", *limits[-4:]]
    last = visible(str(decisions[-1].get("reason", "no reason")))
    yield (
        f"  adapted   {' → '.join(limits)} at once, {figures.plural(len(decisions), 'decision')};"
        f" the last: {last}"
    )
    for one in decisions if full else ():
        change = f"{one.get('from', '?')} → {one.get('to', '?')}"
        side = f" ({one['side']})" if "side" in one else ""
        yield visible(
            f"            after {one.get('at_s', '?')} s: {change}, {one.get('reason', 'no reason')}{side}"
        )


def show_json(
    store: Store, name: str, *, evaluation: str | None, choice: Choice, by: Sequence[str] | None = None
) -> Iterator[str]:
    """The same for machines, in pieces, so that an experiment of any size is written in little memory."""
    experiment = experiment_named(store, name)
    found = overviews(store, experiment, evaluations_of(store, experiment.name, evaluation), by)
    head = {**asdict(experiment), "experiment": experiment.name, "status": status_of_experiment(experiment)}
    for key in ("name", "evaluations"):
        del head[key]
    yield json.dumps(head)[:-1] + ', "evaluations": ['
    for place, one in enumerate(found):
        yield ("," if place else "") + json.dumps(_as_plain(one))[:-1]
        yield ', "samples": ['
        records = islice(chosen(store, one.info, choice), choice.limit)
        for number, record in enumerate(records):
            yield ("," if number else "") + json.dumps(_sample(record, one))
        yield "]}"
    yield "]}\n"


def _as_plain(one: Overview) -> dict[str, Any]:
    info = one.info
    return {
        "evaluation": one.label,
        "key": info.spec.key,
        "status": one.status,
        "total": info.total,
        "done": info.done,
        "failed": info.failed,
        "failures": dict(info.failures),
        "skipped": info.skipped,
        "left_out": info.left_out,
        "started_at": info.first_started_at,
        "ended_at": info.last_ended_at,
        "wall_s": info.wall_s,
        "working_s": info.working_s,
        "speed_up": one.speed_up,
        "metrics": [_metric(metric, one) for metric in one.metrics],
        "failure_kinds": dict(one.failure_kinds),
        "skip_reasons": dict(one.skip_reasons),
        "misses": {name: dict(counts) for name, counts in one.misses.items()},
        "calls": {role or "own": made for role, made in split_roles(calls_made(one.runs)).items() if made},
        "groups": groups_plain(one.groups),
        "passes": passes_plain(one.passes, one.info),
        "runs": [_run(run) for run in one.runs],
    }


def _metric(metric: MetricValue, one: Overview) -> dict[str, Any]:
    worst_and_best = bounds(metric, one.info)
    return {
        "evaluator": metric.evaluator,
        "metric": metric.metric,
        "value": metric.value,
        "low": metric.low,
        "high": metric.high,
        "observations": metric.observations,
        "samples": metric.samples,
        "unscored": metric.unscored,
        "note": metric.note,
        "if_failed_were_wrong": worst_and_best[0] if worst_and_best else None,
        "if_failed_were_right": worst_and_best[1] if worst_and_best else None,
    }


def _run(run: RunInfo) -> dict[str, Any]:
    report = dict(run.report)
    return {
        "id": run.id,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "status": run.status,
        "options": dict(run.options),
        "versions": dict(run.versions),
        "git_commit": run.git_commit,
        "cpu_s": report.get("cpu_s"),
        "peak_memory_bytes": report.get("peak_memory_bytes"),
        "fingerprint": dict(run.fingerprint),
        "report": report,
    }


def _sample(record: Record, one: Overview) -> Mapping[str, Any]:
    history = [asdict(each) for each in record.history]
    return {**export_row(record, one.label), "history": history}
