"""How drafts become rows: new ones in few large statements, those that replace an earlier try one by one."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from evalve.contracts import Placed, RecordDraft
from evalve.jsontext import from_json, to_json
from evalve.storage.counting import Change, give_up, has_left_out
from evalve.storage.database import Database
from evalve.storage.keys import Keys
from evalve.storage.schema import NOWHERE, UPDATE_RECORD, insert_records, record_range

_ROWS_PER_STATEMENT = (64, 16, 4, 1)
"""Fixed sizes, so that statements stay prepared. Each statement is one step: the interpreter lock is
given away and fought for once per statement, which is what makes `executemany` slow beside a busy loop."""

_COMPRESSED_FROM_CHARACTERS = 32_768
"""Measured: 0.3 ms for 33,000 characters, which become 14,000 bytes. A shorter trace is stored as it is."""

_NOTE_REWRITE = """
INSERT OR REPLACE INTO rewrites VALUES (
    coalesce((SELECT max(ticket) FROM rewrites WHERE ticket BETWEEN ?1 AND ?2), ?1) + 1, ?3
)
"""

_Text = TypeVar("_Text", str, str | None)


class Inserts:
    """Writes the records of one database, for one thread."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys

    def write(self, drafts: Sequence[RecordDraft]) -> None:
        """All or none, in one transaction."""
        by_evaluation: dict[int, list[RecordDraft]] = {}
        for draft in drafts:
            by_evaluation.setdefault(draft.evaluation_id, []).append(draft)
        try:
            with self._database.writing() as connection:
                for evaluation_id, group in by_evaluation.items():
                    self._write(connection, evaluation_id, group)
        except BaseException:
            self._keys.clear()
            raise
        for draft in drafts:
            if draft.artefacts:
                self._database.artefacts.committed(draft.artefacts)

    def reindex(self, evaluation_id: int, places: Sequence[Placed]) -> None:
        """Give samples, with all their repeats, their new places; what another row gave loses its own."""
        try:
            with self._database.writing() as connection:
                self._keys.merge(connection, evaluation_id)
                had_left_out = has_left_out(connection, evaluation_id)
                connection.executemany(
                    f"UPDATE records SET idx = CASE WHEN row_hash <> ? THEN {NOWHERE} ELSE ? END WHERE id IN"
                    " (SELECT record_id FROM record_keys WHERE evaluation_id = ? AND sample_id = ?)",
                    [
                        (placed.row_hash, placed.place, evaluation_id, cleaned(placed.sample_id))
                        for placed in places
                    ],
                )
                if had_left_out or has_left_out(connection, evaluation_id):
                    give_up(connection, evaluation_id)
        except BaseException:
            self._keys.clear()
            raise

    def _write(
        self, connection: sqlite3.Connection, evaluation_id: int, drafts: Sequence[RecordDraft]
    ) -> None:
        tail = self._keys.short_tail(connection, evaluation_id)
        keys = [(draft.sample.id, draft.repeat) for draft in drafts]
        there = self._keys.find(connection, evaluation_id, keys, tail)
        first_id = tail.last_id + 1
        new: list[RecordDraft] = []
        replacing: list[tuple[int, RecordDraft]] = []
        for key, draft in zip(keys, drafts, strict=True):
            record_id = there.get(key)
            if record_id is None:
                tail.last_id += 1
                there[key] = tail.ids[key] = tail.last_id
                new.append(draft)
            else:
                replacing.append((record_id, draft))
        change = Change()
        _insert(connection, first_id, new)
        for draft in new:
            change.add(draft.status, draft.failure_class, draft.sample.index, draft.working_s)
        for record_id, draft in replacing:
            _replace(connection, record_id, draft, change)
        change.write(connection, evaluation_id)


def _insert(connection: sqlite3.Connection, first_id: int, drafts: Sequence[RecordDraft]) -> None:
    start = 0
    for count in _ROWS_PER_STATEMENT:
        while len(drafts) - start >= count:
            values: list[object] = []
            for record_id, draft in enumerate(drafts[start : start + count], first_id + start):
                sample = draft.sample
                values += (record_id, draft.evaluation_id, sample.id, draft.repeat)
                values += _values(draft)
            connection.execute(insert_records(count), values)
            start += count
    for record_id, draft in enumerate(drafts, first_id):
        if draft.trace_json is not None or draft.artefacts:
            _write_what_it_left(connection, record_id, draft)


def _replace(connection: sqlite3.Connection, record_id: int, draft: RecordDraft, change: Change) -> None:
    """Put a new attempt in the place of an earlier one, and keep every try of both."""
    tries, status, failure_class, place, working_s, *earlier = connection.execute(
        "SELECT tries, status, failure_class, idx, working_s, history, started_at, wall_s, failure, run_id"
        " FROM records WHERE id = ?",
        (record_id,),
    ).fetchone()
    change.add(status, failure_class, place, working_s, -1)
    change.add(draft.status, draft.failure_class, draft.sample.index, draft.working_s)
    history = _tries(status, *earlier) + _tries(
        draft.status, draft.history_json, draft.started_at, draft.wall_s, draft.failure_json, draft.run_id
    )
    together = replace(draft, tries=tries + draft.tries, history_json=to_json(history))
    connection.execute(UPDATE_RECORD, (*_values(together), record_id))
    connection.execute(_NOTE_REWRITE, (*record_range(draft.evaluation_id), record_id))
    connection.execute("DELETE FROM traces WHERE record_id = ?", (record_id,))
    connection.execute("DELETE FROM artefacts WHERE record_id = ?", (record_id,))
    _write_what_it_left(connection, record_id, draft)


def _write_what_it_left(connection: sqlite3.Connection, record_id: int, draft: RecordDraft) -> None:
    if draft.trace_json is not None:
        connection.execute("INSERT INTO traces VALUES (?, ?)", (record_id, _packed(draft.trace_json)))
    for hash in dict.fromkeys(draft.artefacts):
        connection.execute("INSERT INTO artefacts VALUES (?, ?)", (record_id, hash))


def _packed(text: str) -> str | bytes:
    if len(text) < _COMPRESSED_FROM_CHARACTERS:
        return text
    return zlib.compress(text.encode(), level=1)


def read_trace(connection: sqlite3.Connection, record_id: int) -> list[dict[str, Any]]:
    row = connection.execute("SELECT events FROM traces WHERE record_id = ?", (record_id,)).fetchone()
    if row is None:
        return []
    (packed,) = row
    events: list[dict[str, Any]] = from_json(
        packed if isinstance(packed, str) else zlib.decompress(packed).decode()
    )
    return events


def _values(draft: RecordDraft) -> tuple[object, ...]:
    """In the order of `schema.VALUE_COLUMNS`."""
    sample = draft.sample
    return (
        sample.index,
        draft.status,
        draft.working_s,
        draft.wall_s,
        draft.started_at,
        draft.tries,
        draft.run_id,
        sample.row_hash,
        draft.failure_class,
        draft.scores_json,
        draft.failure_json,
        draft.history_json,
        draft.prompt_json,
        draft.response_json,
        sample.row_json,
        draft.calls_json,
        draft.lent_json,
    )


def _tries(
    status: str, history: str | None, started_at: str, wall_s: float, failure: str | None, run_id: str
) -> list[dict[str, Any]]:
    """The kept history; where there is none, the one try that the record itself tells of.

    What is answered and not scored is in the middle of a try, of which its record will tell.
    """
    try:
        kept: list[dict[str, Any]] = from_json(history) if history else []
        broke = from_json(failure) if failure else None
    except ValueError:  # a damaged record is what a new attempt is good for
        kept, broke = [], {"kind": "DamagedRecord", "message": "it could not be read"}
    if kept or status == "answered":
        return kept
    error = f"{broke['kind']}: {broke['message']}" if broke else None
    return [{"started_at": started_at, "wall_s": wall_s, "error": error, "run": run_id}]


def cleaned(text: _Text) -> _Text:
    """The text, with lone surrogates written as `\\udc80`: UTF-8 has no bytes for them."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def cleaned_draft(draft: RecordDraft) -> RecordDraft:
    sample = draft.sample
    return replace(
        draft,
        sample=replace(sample, id=cleaned(sample.id), row_json=cleaned(sample.row_json)),
        scores_json=cleaned(draft.scores_json),
        failure_json=cleaned(draft.failure_json),
        history_json=cleaned(draft.history_json),
        prompt_json=cleaned(draft.prompt_json),
        response_json=cleaned(draft.response_json),
        calls_json=cleaned(draft.calls_json),
        lent_json=cleaned(draft.lent_json),
        trace_json=cleaned(draft.trace_json),
        started_at=cleaned(draft.started_at),
        run_id=cleaned(draft.run_id),
    )
