"""How far runs are, told by their processes about once a second and read by others."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import asdict
from datetime import datetime

from evalve import processes
from evalve.contracts import LiveProgress
from evalve.jsontext import from_json, to_json
from evalve.storage.locks import process_lives

_COLUMNS_OF_THEIR_OWN = ("run_id", "evaluation_id", "updated_at", "is_alive")


def write_progress(connection: sqlite3.Connection, progress: LiveProgress) -> None:
    told = {name: value for name, value in asdict(progress).items() if name not in _COLUMNS_OF_THEIR_OWN}
    connection.execute(
        "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            progress.run_id,
            progress.evaluation_id,
            progress.updated_at,
            os.getpid(),
            processes.own_start(),
            processes.here(),
            to_json(told),
        ),
    )


def read_progress(connection: sqlite3.Connection, experiment: str, *, now_s: float) -> list[LiveProgress]:
    rows = connection.execute(
        "SELECT p.run_id, p.evaluation_id, p.updated_at, p.pid, p.pid_started, p.host, p.told FROM progress p"
        " JOIN evaluations v ON v.id = p.evaluation_id JOIN experiments x ON x.id = v.experiment_id"
        " WHERE x.name = ? ORDER BY v.id",
        (experiment,),
    ).fetchall()
    here = processes.here()
    return [
        LiveProgress(
            run_id=run_id,
            evaluation_id=evaluation_id,
            updated_at=updated_at,
            is_alive=process_lives(
                pid,
                pid_started,
                on_this_machine=host == here,
                silent_s=now_s - datetime.fromisoformat(updated_at).timestamp(),
            ),
            **from_json(told),
        )
        for run_id, evaluation_id, updated_at, pid, pid_started, host, told in rows
    ]
