"""Finds records by sample and repeat without an index that every insert would have to pay for.

Sample ids are hashes, so each insert into an index lands on a page of its own: measured 10 of 14 µs per
record. Instead the keys of an evaluation's newest records are held in memory, and merged into the table
`record_keys` by the thousand, in order: 1 µs. `evaluations.merged_id` says how far the table reaches, so
that whoever comes next, after a crash or in another process, reads the rest from `records` itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

from evalve.errors import StorageError
from evalve.storage.schema import record_range

Key = tuple[str, int]
"""Sample id and repeat."""

_AT_ONCE = 500
_MERGE_AT = 16_384


@dataclass(slots=True)
class Tail:
    """The records of one evaluation that `record_keys` does not have yet."""

    merged_id: int
    last_id: int
    ids: dict[Key, int] = field(default_factory=dict)


class Keys:
    """What one connection's user knows of the tails. Each use must be inside one transaction."""

    def __init__(self, *, merge_at: int = _MERGE_AT) -> None:
        self._merge_at = merge_at
        self._tails: dict[int, Tail] = {}

    def find(
        self,
        connection: sqlite3.Connection,
        evaluation_id: int,
        keys: Sequence[Key],
        tail: Tail | None = None,
    ) -> dict[Key, int]:
        """The record ids of those keys that have a record; `tail` is that of this transaction, if at hand."""
        tail = tail or self.tail(connection, evaluation_id)
        found = {key: tail.ids[key] for key in keys if key in tail.ids}
        if tail.merged_id > record_range(evaluation_id)[0]:
            wanted = set(keys)
            for sample_id, repeat, record_id in _merged(connection, evaluation_id, keys):
                if (sample_id, repeat) in wanted:
                    found[sample_id, repeat] = record_id
        return found

    def tail(self, connection: sqlite3.Connection, evaluation_id: int) -> Tail:
        """The tail as it is now, with what other processes and threads have added."""
        first, last = record_range(evaluation_id)
        row = connection.execute(
            "SELECT max(merged_id, ?), (SELECT max(id) FROM records WHERE id BETWEEN ? AND ?)"
            " FROM evaluations WHERE id = ?",
            (first, first, last, evaluation_id),
        ).fetchone()
        if row is None:
            raise StorageError("the evaluation has been deleted from the store")
        merged_id, last_id = row
        tail = self._tails.get(evaluation_id)
        if tail is None or tail.merged_id != merged_id:
            tail = self._tails[evaluation_id] = Tail(merged_id, merged_id)
        if last_id is not None and last_id > tail.last_id:
            rows = connection.execute(
                "SELECT id, sample_id, repeat FROM records WHERE id BETWEEN ? AND ?",
                (tail.last_id + 1, last_id),
            )
            tail.ids.update(((sample_id, repeat), record_id) for record_id, sample_id, repeat in rows)
            tail.last_id = last_id
        return tail

    def short_tail(self, connection: sqlite3.Connection, evaluation_id: int) -> Tail:
        """The tail as it is now, merged first where it is long."""
        tail = self.tail(connection, evaluation_id)
        return self.merge(connection, evaluation_id, tail) if len(tail.ids) >= self._merge_at else tail

    def merge(self, connection: sqlite3.Connection, evaluation_id: int, tail: Tail | None = None) -> Tail:
        """Move the tail into the table, in the table's own order, so that each page is written once."""
        tail = tail or self.tail(connection, evaluation_id)
        connection.execute(
            "INSERT OR REPLACE INTO record_keys SELECT evaluation_id, sample_id, repeat, id FROM records"
            " WHERE id BETWEEN ? AND ? ORDER BY sample_id, repeat",
            (tail.merged_id + 1, tail.last_id),
        )
        connection.execute("UPDATE evaluations SET merged_id = ? WHERE id = ?", (tail.last_id, evaluation_id))
        merged = self._tails[evaluation_id] = Tail(tail.last_id, tail.last_id)
        return merged

    def clear(self) -> None:
        """Forget everything: a transaction was rolled back, and what it added is not there."""
        self._tails.clear()


def _merged(
    connection: sqlite3.Connection, evaluation_id: int, keys: Sequence[Key]
) -> list[tuple[str, int, int]]:
    sample_ids = list(dict.fromkeys(sample_id for sample_id, _ in keys))
    rows: list[tuple[str, int, int]] = []
    for start in range(0, len(sample_ids), _AT_ONCE):
        chunk = sample_ids[start : start + _AT_ONCE]
        rows += connection.execute(
            "SELECT sample_id, repeat, record_id FROM record_keys"
            f" WHERE evaluation_id = ? AND sample_id IN ({marks(len(chunk))})",
            (evaluation_id, *padded(chunk)),
        )
    return rows


def marks(count: int) -> str:
    """Question marks for at least `count` values: few different statements, which stay prepared."""
    return ",".join("?" * (1 << (count - 1).bit_length()))


def padded(values: Sequence[object]) -> list[object]:
    """As many values as `marks` has places."""
    size = 1 << (len(values) - 1).bit_length()
    return [*values, *[values[-1]] * (size - len(values))]
