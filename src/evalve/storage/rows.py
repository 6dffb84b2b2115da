"""Stored records, read back in dataset order, a few at a time however many there are."""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from evalve.contracts import Answered, EvaluationInfo, Known, Measured
from evalve.jsontext import from_json
from evalve.records import Failure, Record, Score, Status, Try
from evalve.storage.inserts import cleaned, read_trace
from evalve.storage.keys import Key, Keys, marks, padded
from evalve.storage.schema import ROOM_PER_EVALUATION, record_range

_AT_ONCE = 500
_EARLIER_RUNS = 5
_MEMO_ENTRIES = 1024
_MEMO_TEXT = 1000

_LOG = logging.getLogger(__name__)
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError)
"""What reading raises where something else stands than what was written."""

_FACTS: dict[str, type] = {
    "id": int,
    "sample_id": str,
    "repeat": int,
    "idx": int,
    "status": str,
    "working_s": float,
    "wall_s": float,
    "started_at": str,
    "tries": int,
}
"""The columns before the texts, with what stands in them."""
_COLUMNS = """
id, sample_id, repeat, idx, status, working_s, wall_s, started_at, tries,
scores, failure, history, prompt, response, "row", calls, lent
"""
_COLUMNS_WITHOUT_TEXTS = """
id, sample_id, repeat, idx, status, working_s, wall_s, started_at, tries,
scores, failure, NULL, NULL, NULL, NULL, calls, lent
"""
_KNOWN = (
    "SELECT id, status, idx, working_s, row_hash, CASE status WHEN 'failed' THEN calls END,"
    " CASE status WHEN 'failed' THEN response IS NOT NULL WHEN 'answered' THEN 1"
    """ WHEN 'done' THEN CASE WHEN scores = '[]' OR instr(scores, '"value":null') THEN scores END END"""
    " FROM records WHERE id IN ({})"
)


def read_records(
    connection: sqlite3.Connection, evaluation: EvaluationInfo, status: Status | None
) -> Iterator[Record]:
    # sorted by an index: a sort of whole rows would copy every prompt and response to a temporary file
    asked = "" if status is None else "AND status = :status"
    not_done = "" if status in (None, "done") else "AND status <> 'done'"  # has an index of its own
    ids = connection.execute(
        f"SELECT id FROM records WHERE evaluation_id = :id AND idx >= 0 {asked} {not_done}"
        " ORDER BY idx, sample_id, repeat",
        {"id": evaluation.id, "status": status},
    )
    while chunk := [row[0] for row in ids.fetchmany(_AT_ONCE)]:
        yield from read_by_ids(connection, evaluation, chunk)


def read_by_ids(
    connection: sqlite3.Connection, evaluation: EvaluationInfo, ids: Sequence[int], *, with_texts: bool = True
) -> list[Record]:
    """The records in the order of the ids."""
    spec = evaluation.spec
    by_id: dict[int, Record] = {}
    for start in range(0, len(ids), _AT_ONCE):
        chunk = ids[start : start + _AT_ONCE]
        columns = _COLUMNS if with_texts else _COLUMNS_WITHOUT_TEXTS
        statement = f"SELECT {columns} FROM records WHERE id IN ({marks(len(chunk))})"
        for row in connection.execute(statement, padded(chunk)):
            by_id[row[0]] = _record(spec.experiment, spec.name, row)
    return [by_id[record_id] for record_id in ids]


def read_record(connection: sqlite3.Connection, record_id: int) -> Record | None:
    names = connection.execute(
        "SELECT x.name, v.name FROM evaluations v JOIN experiments x ON x.id = v.experiment_id"
        " WHERE v.id = ?",
        (record_id // ROOM_PER_EVALUATION,),
    ).fetchone()
    row = connection.execute(f"SELECT {_COLUMNS} FROM records WHERE id = ?", (record_id,)).fetchone()
    return None if names is None or row is None else _record(names[0], names[1], row)


def find_record(
    connection: sqlite3.Connection, evaluation_id: int, sample_id: str, repeat: int, index: Keys
) -> Record | None:
    key = (cleaned(sample_id), repeat)
    found = index.find(connection, evaluation_id, [key])
    return read_record(connection, found[key]) if key in found else None


def read_observations(
    connection: sqlite3.Connection, evaluation_id: int
) -> Iterator[tuple[str, int, list[Score]]]:
    rows = connection.execute(
        "SELECT sample_id, repeat, scores FROM records WHERE id BETWEEN ? AND ? AND idx >= 0"
        " AND status = 'done'"
        " ORDER BY idx, sample_id, repeat",
        record_range(evaluation_id),
    )
    memo: dict[str, list[Score]] = {}
    for sample_id, repeat, text in rows:
        scores = memo.get(text)
        if scores is None:
            try:
                scores = _scores(text)
            except _DAMAGED:
                _LOG.warning("sample %r: its recorded scores cannot be read, and are left out", sample_id)
                continue
            if len(text) <= _MEMO_TEXT:
                if len(memo) == _MEMO_ENTRIES:
                    memo.clear()
                memo[text] = scores
        yield sample_id, repeat, scores.copy()


def read_measures(connection: sqlite3.Connection, evaluation_id: int) -> Iterator[Measured]:
    rows = connection.execute(
        "SELECT sample_id, repeat, status, row_hash, working_s, calls FROM records"
        " WHERE id BETWEEN ? AND ? AND idx >= 0 ORDER BY idx, sample_id, repeat",
        record_range(evaluation_id),
    )
    for sample_id, repeat, status, row_hash, working_s, calls in rows:
        made = _figures(None if calls is None else _readable(calls))
        measured_s = working_s if _is_sound(working_s, float) else 0.0
        yield Measured(sample_id, repeat, status, row_hash, measured_s, made)


def _figures(calls: Any) -> dict[str, Any] | None:
    """What calls came to; which questions a failed sample asked is for the next run alone."""
    if not isinstance(calls, dict):
        return None
    return {name: figure for name, figure in calls.items() if not isinstance(figure, dict)}


def read_sample_ids(connection: sqlite3.Connection, evaluation_id: int) -> Iterator[list[str]]:
    rows = connection.execute(
        "SELECT sample_id FROM records WHERE id BETWEEN ? AND ? AND idx >= 0", record_range(evaluation_id)
    )
    while chunk := [sample_id for (sample_id,) in rows.fetchmany(_AT_ONCE)]:
        yield chunk


def read_known(
    connection: sqlite3.Connection, evaluation_id: int, keys: Sequence[Key], index: Keys
) -> dict[Key, Known]:
    asked = {(cleaned(key[0]), key[1]): key for key in keys}
    key_of = {
        record_id: asked[key] for key, record_id in index.find(connection, evaluation_id, [*asked]).items()
    }
    ids = list(key_of)
    found: dict[Key, Known] = {}
    for start in range(0, len(ids), _AT_ONCE):
        chunk = ids[start : start + _AT_ONCE]
        rows = connection.execute(_KNOWN.format(marks(len(chunk))), padded(chunk))
        for record_id, status, place, working_s, row_hash, calls, lacking in rows:
            is_answered = bool(lacking) and _lacks_scores(lacking)
            found[key_of[record_id]] = Known(status, place, working_s, row_hash, calls, is_answered)
    return found


def _lacks_scores(lacking: int | str) -> bool:
    """Asked of what looks like it: a failure with an answer, or scores in which `null` stands somewhere."""
    if isinstance(lacking, int):
        return True
    try:
        scores = _scores(lacking)
    except _DAMAGED:
        return False
    return not scores or any(score.value is None for score in scores)


def read_answered(
    connection: sqlite3.Connection, evaluation_id: int, sample_id: str, repeat: int, index: Keys
) -> Answered | None:
    key = (cleaned(sample_id), repeat)
    record_id = index.find(connection, evaluation_id, [key]).get(key)
    row = connection.execute(
        "SELECT response, working_s, calls, lent FROM records WHERE id = ?", (record_id,)
    ).fetchone()
    answer = None if row is None or row[0] is None else _readable(row[0])
    if answer is None or record_id is None:
        return None
    _, working_s, calls, lent = row
    hashes = connection.execute("SELECT hash FROM artefacts WHERE record_id = ?", (record_id,))
    try:
        events = read_trace(connection, record_id)
    except (*_DAMAGED, zlib.error):
        events = []
    return Answered(
        answer,
        working_s,
        calls if calls is not None and isinstance(_readable(calls), dict) else None,
        (None if lent is None else _readable(lent)) or {},
        events,
        tuple(hash for (hash,) in hashes),
    )


def read_durations(
    connection: sqlite3.Connection, key: str, sample_ids: Sequence[str], index: Keys
) -> dict[str, float]:
    evaluations = connection.execute(
        "SELECT id FROM evaluations WHERE key = ? ORDER BY id DESC LIMIT ?", (key, _EARLIER_RUNS)
    ).fetchall()
    durations: dict[str, float] = {}
    wanted = list(sample_ids)
    for (evaluation_id,) in evaluations:
        known = read_known(connection, evaluation_id, [(sample_id, 0) for sample_id in wanted], index)
        for (sample_id, _), found in known.items():
            if found.status == "done":  # a failure may have come early, and says little
                durations[sample_id] = found.working_s
        wanted = [sample_id for sample_id in wanted if sample_id not in durations]
        if not wanted:
            break
    return durations


def _record(experiment: str, evaluation: str, row: tuple[Any, ...]) -> Record:
    """One that cannot be read as a whole must not hide the others: what can be read of it stays."""
    try:
        return _whole(experiment, evaluation, row)
    except _DAMAGED:
        *found, scores, failure, history, prompt, response, values, calls, lent = row
        facts = [
            fact if _is_sound(fact, kind) else kind()
            for fact, kind in zip(found, _FACTS.values(), strict=True)
        ]
        texts = {
            "failure": failure,
            "history": history,
            "prompt": prompt,
            "response": response,
            "row": values,
            "calls": calls,
            "lent": lent,
        }
        damaged = [name for name, text in texts.items() if text is not None and _readable(text) is None]
        kept = [None if name in damaged else text for name, text in texts.items()]
        try:
            record = _whole(experiment, evaluation, (*facts, scores, *kept))
        except _DAMAGED:
            record = _whole(experiment, evaluation, (*facts, "[]", None, None, *kept[2:]))
            damaged.append("scores")
        damaged += [
            name for name, fact in zip(_FACTS, found, strict=True) if not _is_sound(fact, _FACTS[name])
        ]
        said = f"what is stored of this sample cannot be read as a whole: {', '.join(damaged)}"
        failure = Failure("DamagedRecord", f"{said}; --fresh runs it again", failure_class="infrastructure")
        status = "failed" if "scores" in damaged else record.status
        return replace(record, status=status, failure=failure)


def _is_sound(fact: object, kind: type) -> bool:
    """SQLite keeps any text in a column of numbers."""
    return isinstance(fact, int | float) if kind is float else isinstance(fact, kind)


def _whole(experiment: str, evaluation: str, row: tuple[Any, ...]) -> Record:
    if not all(map(_is_sound, row, _FACTS.values())):
        raise ValueError("something else than a number stands where one was written")
    record_id, sample_id, repeat, index, status, working_s, wall_s, started_at, tries, *texts = row
    scores, failure, history, prompt, response, values, calls, lent = texts
    return Record(
        experiment=experiment,
        evaluation=evaluation,
        sample_id=sample_id,
        index=index,
        repeat=repeat,
        status=status,
        scores=_scores(scores),
        failure=None if failure is None else Failure(**from_json(failure)),
        prompt=None if prompt is None else from_json(prompt),
        response=None if response is None else from_json(response),
        row=None if values is None else from_json(values),
        started_at=started_at,
        wall_s=wall_s,
        working_s=working_s,
        tries=tries,
        history=[] if history is None else [Try(**entry) for entry in from_json(history)],
        calls=_figures(None if calls is None else from_json(calls)),
        lent=None if lent is None else from_json(lent),
        id=record_id,
    )


def _readable(text: str) -> Any:
    try:
        return from_json(text)
    except _DAMAGED:
        return None


def _scores(text: str) -> list[Score]:
    return [
        Score(score["name"], score["value"], tuple(score.get("metrics", ())), score.get("metadata"))
        for score in from_json(text)
    ]
