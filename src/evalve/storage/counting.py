"""Running counts of records, so that nobody has to count a million of them to show how many there are.

They are changed in the transaction that changes the records. Where samples lose or regain their places, they
are given up, and counted anew when the run ends; until then, whoever asks counts.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from evalve.contracts import Counts
from evalve.storage.schema import COUNT_RECORDS, record_range

_ADD = """
INSERT INTO tallies VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, working_s = working_s + excluded.working_s
"""

_READ = """
SELECT v.tallied, t.status, t.failure_class, t.count, t.working_s,
       (SELECT count(DISTINCT sample_id) FROM records WHERE evaluation_id = ?1 AND idx < 0)
FROM evaluations v LEFT JOIN tallies t ON t.evaluation_id = v.id WHERE v.id = ?1
"""


class Tallied(NamedTuple):
    """What the records of an evaluation come to."""

    counts: Counts
    failures: dict[str, int]
    """By failure class."""
    working_s: float
    left_out: int
    """Samples that count no more."""


class Change:
    """What a transaction adds to the counts of one evaluation, and takes away."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str | None], list[float]] = {}

    def add(
        self, status: str, failure_class: str | None, place: int, working_s: float, sign: int = 1
    ) -> None:
        kind = self._by_kind.get((status, failure_class))
        if kind is None:
            kind = self._by_kind[status, failure_class] = [0, 0.0]
        if place >= 0:
            kind[0] += sign
        kind[1] += sign * working_s

    def write(self, connection: sqlite3.Connection, evaluation_id: int) -> None:
        for (status, failure_class), (count, working_s) in self._by_kind.items():
            of_class = failure_class or "code" if status == "failed" else ""
            connection.execute(_ADD, (evaluation_id, status, of_class, count, working_s))


def give_up(connection: sqlite3.Connection, evaluation_id: int) -> None:
    connection.execute("UPDATE evaluations SET tallied = 0 WHERE id = ?", (evaluation_id,))


def count_if_given_up(connection: sqlite3.Connection, evaluation_id: int) -> None:
    if _is_tallied(connection, evaluation_id):
        return
    connection.execute("DELETE FROM tallies WHERE evaluation_id = ?", (evaluation_id,))
    connection.execute(f"INSERT INTO tallies {COUNT_RECORDS}", record_range(evaluation_id))
    connection.execute("UPDATE evaluations SET tallied = 1 WHERE id = ?", (evaluation_id,))


def has_left_out(connection: sqlite3.Connection, evaluation_id: int) -> bool:
    found = connection.execute(
        "SELECT 1 FROM records WHERE evaluation_id = ? AND idx < 0 LIMIT 1", (evaluation_id,)
    )
    return found.fetchone() is not None


def read_tallied(connection: sqlite3.Connection, evaluation_id: int) -> Tallied:
    """One statement where the counts are at hand; else two, which only inside a snapshot see one moment."""
    found = connection.execute(_READ, (evaluation_id,)).fetchall()
    left_out = found[0][5] if found else 0
    if not found or found[0][0]:
        rows = [row[1:5] for row in found if row[1] is not None]
    else:
        rows = [row[1:] for row in connection.execute(COUNT_RECORDS, record_range(evaluation_id))]
    by_status: dict[str, int] = {}
    for status, _, count, _ in rows:
        by_status[status] = by_status.get(status, 0) + count
    return Tallied(
        Counts(by_status.get("done", 0), by_status.get("failed", 0), by_status.get("skipped", 0)),
        {failure_class: count for _, failure_class, count, _ in rows if failure_class and count},
        sum(working_s for _, _, _, working_s in rows),
        left_out,
    )


def _is_tallied(connection: sqlite3.Connection, evaluation_id: int) -> bool:
    row = connection.execute("SELECT tallied FROM evaluations WHERE id = ?", (evaluation_id,)).fetchone()
    return row is None or bool(row[0])
