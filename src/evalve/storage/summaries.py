"""What is stored of experiments, evaluations and runs, with their tallies."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from evalve.contracts import EvaluationInfo, EvaluationSpec, ExperimentInfo, RunInfo
from evalve.jsontext import from_json
from evalve.storage.counting import read_tallied
from evalve.storage.locks import Locks
from evalve.storage.schema import LATEST_END, record_range


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
                first_rows=min((one.first_rows for one in evaluations if one.first_rows), default=None),
            )
        )
    return sorted(found, key=lambda experiment: experiment.updated_at, reverse=True)


def read_evaluations(
    connection: sqlite3.Connection, experiment: str, *, key: str | None = None
) -> list[EvaluationInfo]:
    """All of an experiment, or only that of the key."""
    of_key = "" if key is None else "AND v.key = :key"
    rows = connection.execute(
        "SELECT v.id, v.key, v.name, v.columns, v.fingerprint, v.total, v.metrics FROM evaluations v"
        f" JOIN experiments x ON x.id = v.experiment_id WHERE x.name = :experiment {of_key} ORDER BY v.id",
        {"experiment": experiment, "key": key},
    ).fetchall()
    return [_evaluation(connection, experiment, row) for row in rows]


def _evaluation(connection: sqlite3.Connection, experiment: str, row: tuple[Any, ...]) -> EvaluationInfo:
    evaluation_id, key, name, columns, fingerprint, total, metrics = row
    counts = read_tallied(connection, evaluation_id)
    runs = connection.execute(
        "SELECT id, started_at, ended_at, status, report, options, fingerprint FROM runs"
        " WHERE evaluation_id = ? ORDER BY started_at, rowid",
        (evaluation_id,),
    ).fetchall()
    spans = [_span(connection, evaluation_id, *run[:5]) for run in runs]
    ends = [ended_at for _, ended_at, _ in spans if ended_at is not None]
    # a total that an earlier run with fewer samples left behind is no total any more
    total = total if total is not None and total >= sum(counts.counts) else None
    return EvaluationInfo(
        id=evaluation_id,
        spec=EvaluationSpec(
            experiment=experiment,
            key=key,
            name=name,
            columns=tuple(from_json(columns)),
            fingerprint=from_json(fingerprint),
        ),
        total=total,
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
        last_run=runs[-1][3] if runs else None,
        first_rows=_first_rows(from_json(runs[-1][5]), from_json(runs[-1][6]), total) if runs else None,
    )


def _first_rows(options: Mapping[str, Any], fingerprint: Mapping[str, Any], total: int | None) -> int | None:
    """How many the last run was asked for, where the total counts these, and there are more."""
    samples = options.get("samples")
    if samples is None or fingerprint.get("is_whole"):
        return None
    return samples if total == samples * (options.get("repeat") or 1) else None


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


def _span(
    connection: sqlite3.Connection,
    evaluation_id: int,
    run_id: str,
    started_at: str,
    ended_at: str | None,
    _status: str,
    report: str,
) -> tuple[str, str | None, float]:
    """When a run started and ended, and how long it took; of a killed one, as its records tell."""
    if ended_at is not None and "wall_s" in (told := from_json(report)):
        return started_at, ended_at, float(told["wall_s"])
    ended_at = ended_at or read_latest_end(connection, evaluation_id, run_id)
    if ended_at is None:
        return started_at, None, 0.0
    lasted = datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)
    return started_at, ended_at, max(0.0, lasted.total_seconds())


def read_latest_end(connection: sqlite3.Connection, evaluation_id: int, run_id: str) -> str | None:
    """When the last record of a run ended that has not told its end, and no later run has begun."""
    (ended_at,) = connection.execute(LATEST_END, (*record_range(evaluation_id), run_id)).fetchone()
    return None if ended_at is None else str(ended_at)


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
