"""Records some at a time, found by where the last ones were: a page costs the same however many there are.

A search looks at a bounded number of records, then returns what it has and where to go on.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from evalve.contracts import EvaluationInfo, Page, RecordQuery
from evalve.errors import StorageError
from evalve.jsontext import from_json, to_json
from evalve.storage.matching import Candidate, looks_at_texts, looks_only_at_keys, matcher
from evalve.storage.rows import read_by_ids
from evalve.storage.schema import record_range

MOST_LOOKED_AT = 5_000
MOST_CHARACTERS = 8_000_000
"""What one search reads at most, so that nobody waits long: measured, 60 ms for the scores of so many."""
_AT_ONCE = 200

_PLACE = "(idx, sample_id, repeat)"
_BEFORE_ALL = (0, "", -1)

_Place = tuple[int, str, int]


class _Found(NamedTuple):
    """A record that was looked at, and where to go on after it."""

    record_id: int
    position: Any
    counts: bool
    """Whether its sample is still in the dataset."""
    candidate: Candidate


class _Search(NamedTuple):
    ids: list[int]
    position: Any
    """After the last record that was looked at."""
    is_over: bool


def read_page(
    connection: sqlite3.Connection,
    evaluation: EvaluationInfo,
    query: RecordQuery,
    after: str | None,
    limit: int,
) -> Page:
    """In dataset order. Must be inside one snapshot."""
    place = _BEFORE_ALL if after is None else _place(after)
    found = _search(_in_order(connection, evaluation.id, query, place, limit), query, place, limit)
    return Page(
        records=read_by_ids(connection, evaluation, found.ids, with_texts=query.with_texts),
        next=None if found.is_over else cursor_at(*found.position),
        ticket=_ticket(*_newest(connection, evaluation.id)),
    )


def read_changes(
    connection: sqlite3.Connection, evaluation: EvaluationInfo, query: RecordQuery, since: str, limit: int
) -> Page:
    """In the order of commits: new records, then those that were rewritten. Must be inside one snapshot."""
    seen = _seen(since)
    looked_at = chain(
        _new(connection, evaluation.id, query, seen), _rewritten(connection, evaluation.id, query, seen)
    )
    found = _search(looked_at, query, seen, limit)
    # one that is new and rewritten besides comes twice
    ids = list(dict.fromkeys(found.ids))
    ticket = _ticket(*(_newest(connection, evaluation.id) if found.is_over else found.position))
    return Page(
        records=read_by_ids(connection, evaluation, ids, with_texts=query.with_texts),
        next=None if found.is_over else ticket,
        ticket=ticket,
    )


def _search(looked_at: Iterator[_Found], query: RecordQuery, position: Any, limit: int) -> _Search:
    matches = matcher(query)
    ids: list[int] = []
    characters = 0
    for count, found in enumerate(looked_at):
        if len(ids) >= max(1, limit) or count >= MOST_LOOKED_AT or characters >= MOST_CHARACTERS:
            return _Search(ids, position, is_over=False)
        characters += sum(len(text) for text in found.candidate.texts if text is not None)
        if found.counts and matches(found.candidate):
            ids.append(found.record_id)
        position = found.position
    return _Search(ids, position, is_over=True)


# -- what is looked at, in order ---------------------------------------------------------------------


def _in_order(
    connection: sqlite3.Connection, evaluation_id: int, query: RecordQuery, place: _Place, limit: int
) -> Iterator[_Found]:
    is_not_done = query.status not in (None, "done") or query.failure_class is not None
    not_done = "AND status <> 'done'" if is_not_done else ""  # names the index that has only these
    statement = (
        f"SELECT id, idx, sample_id, repeat, {_looked_at(query)} FROM records WHERE evaluation_id = ?"
        f" AND {_PLACE} > (?, ?, ?) {not_done}"
        " ORDER BY idx, sample_id, repeat LIMIT ?"
    )
    at_once = min(max(1, limit) + 1, _AT_ONCE) if looks_only_at_keys(query) else _AT_ONCE

    def read(after: Any) -> list[_Found]:
        rows = connection.execute(statement, (evaluation_id, *after, at_once))
        return [
            _Found(record_id, (idx, sample_id, repeat), True, _candidate(texts))
            for record_id, idx, sample_id, repeat, *texts in rows
        ]

    return _chunks(read, place, at_once)


def _new(
    connection: sqlite3.Connection, evaluation_id: int, query: RecordQuery, seen: tuple[int, int]
) -> Iterator[_Found]:
    _, last = record_range(evaluation_id)
    statement = (
        f"SELECT id, idx, {_looked_at(query)} FROM records WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
    )

    def read(after: Any) -> list[_Found]:
        rows = connection.execute(statement, (after[0], last, _AT_ONCE))
        return [
            _Found(record_id, (record_id, after[1]), idx >= 0, _candidate(texts))
            for record_id, idx, *texts in rows
        ]

    return _chunks(read, seen, _AT_ONCE)


def _rewritten(
    connection: sqlite3.Connection, evaluation_id: int, query: RecordQuery, seen: tuple[int, int]
) -> Iterator[_Found]:
    _, last = record_range(evaluation_id)
    newest_id, _ = _newest(connection, evaluation_id)
    statement = (
        f"SELECT ticket, id, idx, {_looked_at(query)} FROM rewrites JOIN records ON id = record_id"
        " WHERE ticket > ? AND ticket <= ? ORDER BY ticket LIMIT ?"
    )

    def read(after: Any) -> list[_Found]:
        rows = connection.execute(statement, (after[1], last, _AT_ONCE))
        return [
            _Found(record_id, (newest_id, ticket), idx >= 0, _candidate(texts))
            for ticket, record_id, idx, *texts in rows
        ]

    return _chunks(read, seen, _AT_ONCE)


def _chunks(read: Callable[[Any], list[_Found]], position: Any, at_once: int) -> Iterator[_Found]:
    while True:
        chunk = read(position)
        yield from chunk
        if len(chunk) < at_once:
            return
        position = chunk[-1].position


def _looked_at(query: RecordQuery) -> str:
    texts = '"row", prompt, response, failure' if looks_at_texts(query) else "NULL, NULL, NULL, NULL"
    return f"status, failure_class, {'scores' if query.score is not None else 'NULL'}, {texts}"


def _candidate(columns: list[Any]) -> Candidate:
    status, failure_class, scores, *texts = columns
    return Candidate(status, failure_class, scores, texts[0], tuple(texts))


# -- where a reader is ---------------------------------------------------------------------------------


def _newest(connection: sqlite3.Connection, evaluation_id: int) -> tuple[int, int]:
    """The last record and the last rewriting."""
    first, last = record_range(evaluation_id)
    row = connection.execute(
        "SELECT coalesce((SELECT max(id) FROM records WHERE id BETWEEN ?1 AND ?2), ?1),"
        " coalesce((SELECT max(ticket) FROM rewrites WHERE ticket BETWEEN ?1 AND ?2), ?1)",
        (first, last),
    ).fetchone()
    return row[0], row[1]


def _ticket(record_id: int, rewriting: int) -> str:
    return f"{record_id:x}-{rewriting:x}"


def _seen(ticket: str) -> tuple[int, int]:
    try:
        record_id, rewriting = (int(part, 16) for part in ticket.split("-"))
    except ValueError:
        raise StorageError(f"{ticket!r} is not a ticket: take that of an earlier page") from None
    return record_id, rewriting


def cursor_at(idx: int, sample_id: str, repeat: int) -> str:
    return base64.urlsafe_b64encode(to_json([idx, sample_id, repeat]).encode()).decode().rstrip("=")


def _place(cursor: str) -> _Place:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        idx, sample_id, repeat = from_json(base64.urlsafe_b64decode(padded.encode()).decode())
        return int(idx), str(sample_id), int(repeat)
    except (binascii.Error, ValueError, TypeError):
        raise StorageError(f"{cursor!r} is not where a page ended: take `next` of an earlier page") from None
