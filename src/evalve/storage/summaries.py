"""What is stored of experiments, evaluations and runs, with their tallies."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from evalve.contracts import Counts, EvaluationInfo, EvaluationSpec, ExperimentInfo, RunInfo
from evalve.jsontext import from_json
from evalve.storage.locks import Locks
from evalve.storage.schema import record_range


def read_experiments(connection: sqlite3.Connection, locks: Locks) -> list[ExperimentInfo]:
    found: list[ExperimentInfo] = []
    rows = connection.execute("SELECT name, created_at FROM experiments ORDER BY id DESC").fetchall()
    for name, created_at in rows:
        evaluations = read_evaluations(connection, name)
        holder = locks.live_holder(connection, name)
        found.append(
            ExperimentInfo(
                name=name,
                created_at=created_at,
                updated_at=max([created_at, *_instants(evaluations)]),
                evaluations=len(evaluations),
                done=sum(evaluation.done for evaluation in evaluations),
                failed=sum(evaluation.failed for evaluation in evaluations),
                skipped=sum(evaluation.skipped for evaluation in evaluations),
                failures=_added(evaluation.failures for evaluation in evaluations),
                total=_sum_if_known([evaluation.total for evaluation in evaluations]),
                running=None if holder is None else str(holder),
            )
        )
    return sorted(found, key=lambda experiment: experiment.updated_at, reverse=True)


def read_evaluations(connection: sqlite3.Connection, experiment: str) -> list[EvaluationInfo]:
    rows = connection.execute(
        "SELECT v.id, v.key, v.name, v.columns, v.fingerprint, v.total, v.metrics FROM evaluations v"
        " JOIN experiments x ON x.id = v.experiment_id WHERE x.name = ? ORDER BY v.id",
        (experiment,),
    ).fetchall()
    return [_evaluation(connection, experiment, row) for row in rows]


def _evaluation(connection: sqlite3.Connection, experiment: str, row: tuple[Any, ...]) -> EvaluationInfo:
    evaluation_id, key, name, columns, fingerprint, total, metrics = row
    counts = read_tallied(connection, evaluation_id)
    spans = [_span(connection, run) for run in read_runs(connection, evaluation_id)]
    ends = [ended_at for _, ended_at, _ in spans if ended_at is not None]
    return EvaluationInfo(
        id=evaluation_id,
        spec=EvaluationSpec(
            experiment=experiment,
            key=key,
            name=name,
            columns=tuple(from_json(columns)),
            fingerprint=from_json(fingerprint),
        ),
        # a total that an earlier run with fewer samples left behind is no total any more
        total=total if total is not None and total >= sum(counts.counts) else None,
        done=counts.counts.done,
        failed=counts.counts.failed,
        first_started_at=min((started_at for started_at, _, _ in spans), default=None),
        last_ended_at=max(ends, default=None),
        wall_s=sum(wall_s for _, _, wall_s in spans),
        working_s=counts.working_s,
        metrics=from_json(metrics),
        left_out=counts.left_out,
        skipped=counts.counts.skipped,
        failures=counts.failures,
    )


class Tallied(NamedTuple):
    """What the records of an evaluation come to."""

    counts: Counts
    failures: dict[str, int]
    """By failure class."""
    working_s: float
    left_out: int
    """Samples that count no more."""


def read_tallied(connection: sqlite3.Connection, evaluation_id: int) -> Tallied:
    rows = connection.execute(
        "SELECT status, CASE status WHEN 'failed' THEN coalesce(failure_class, 'code') END,"
        " sum(idx >= 0), total(working_s)"
        " FROM records WHERE id BETWEEN ? AND ? GROUP BY 1, 2",
        record_range(evaluation_id),
    ).fetchall()
    (left_out,) = connection.execute(
        "SELECT count(DISTINCT sample_id) FROM records WHERE id BETWEEN ? AND ? AND idx < 0",
        record_range(evaluation_id),
    ).fetchone()
    by_status: dict[str, int] = {}
    for status, _, count, _ in rows:
        by_status[status] = by_status.get(status, 0) + count
    return Tallied(
        Counts(by_status.get("done", 0), by_status.get("failed", 0), by_status.get("skipped", 0)),
        {failure_class: count for _, failure_class, count, _ in rows if failure_class and count},
        sum(working_s for _, _, _, working_s in rows),
        left_out,
    )


def read_runs(connection: sqlite3.Connection, evaluation_id: int) -> list[RunInfo]:
    rows = connection.execute(
        "SELECT id, evaluation_id, started_at, ended_at, status, options, versions, git_commit,"
        " fingerprint, report FROM runs WHERE evaluation_id = ? ORDER BY started_at, rowid",
        (evaluation_id,),
    )
    return [
        RunInfo(
            id=run_id,
            evaluation_id=owner,
            started_at=started_at,
            ended_at=ended_at,
            status=status,
            options=from_json(options),
            versions=from_json(versions),
            git_commit=git_commit,
            fingerprint=from_json(fingerprint),
            report=from_json(report),
        )
        for (
            run_id,
            owner,
            started_at,
            ended_at,
            status,
            options,
            versions,
            git_commit,
            fingerprint,
            report,
        ) in rows
    ]


def _span(connection: sqlite3.Connection, run: RunInfo) -> tuple[str, str | None, float]:
    """When a run started and ended, and how long it took; of a killed one, as its records tell."""
    if run.ended_at is not None:
        return run.started_at, run.ended_at, float(run.report.get("wall_s", 0.0))
    (ended_at,) = connection.execute(
        "SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', max(julianday(started_at) + wall_s / 86400.0))"
        " FROM records WHERE id BETWEEN ? AND ? AND run_id = ?",
        (*record_range(run.evaluation_id), run.id),
    ).fetchone()
    if ended_at is None:
        return run.started_at, None, 0.0
    lasted = datetime.fromisoformat(ended_at) - datetime.fromisoformat(run.started_at)
    return run.started_at, ended_at, max(0.0, lasted.total_seconds())


def _instants(evaluations: Sequence[EvaluationInfo]) -> list[str]:
    """ISO texts in UTC sort as the instants do."""
    return [
        instant
        for evaluation in evaluations
        for instant in (evaluation.first_started_at, evaluation.last_ended_at)
        if instant is not None
    ]


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    added: Counter[str] = Counter()
    for some in counts:
        added.update(some)
    return dict(added)


def _sum_if_known(totals: Sequence[int | None]) -> int | None:
    known = [total for total in totals if total is not None]
    return sum(known) if len(known) == len(totals) else None
