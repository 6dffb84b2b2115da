"""`export`: one row per sample and repeat, as JSON, JSONL, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from evalve.contracts import Store
from evalve.errors import NotFound, OptionError, StorageError
from evalve.jsontext import from_json, to_json
from evalve.records import Record
from evalve.show.finding import evaluations_of, experiment_named

Row = dict[str, Any]

KEYS = (
    "experiment",
    "evaluation",
    "sample_id",
    "index",
    "repeat",
    "status",
    "scores",
    "failure",
    "failure_class",
    "prompt",
    "response",
    "row",
    "wall_s",
    "working_s",
    "tries",
    "started_at",
    "calls",
    "lent",
)
# what differs between two equal runs: times, what the cache answered, and the name that the run was given
NOT_CANONICAL = frozenset({"experiment", "wall_s", "working_s", "started_at", "calls", "lent"})


def export(
    store: Store,
    name: str,
    *,
    path: Path,
    evaluation: str | None = None,
    canonical: bool = False,
    traces: bool = False,
) -> int:
    """Writes the file whole or not at all; its suffix says the format. Returns the number of rows."""
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        known = ", ".join(_WRITERS)
        raise OptionError(f"{path}: the format {path.suffix or '(no suffix)'!r} is not known; use {known}")
    rows = Rows(store, name, evaluation=evaluation, canonical=canonical, traces=traces)
    return _replacing(path, lambda file: write(rows, file))


def export_evaluations(store: Store, name: str, keys: Sequence[str], path: Path) -> int:
    """The same for some evaluations, one after another, as JSONL; nothing where nothing is recorded yet."""
    try:
        rows: Iterable[Row] = Rows(store, name, evaluation=None, canonical=False).only(keys)
    except NotFound:
        rows = ()
    return _replacing(path, lambda file: _write_jsonl(rows, file))


class Rows:
    """The rows of an export; each iteration reads them anew from the store."""

    def __init__(
        self, store: Store, name: str, *, evaluation: str | None, canonical: bool, traces: bool = False
    ) -> None:
        self._store = store
        self._experiment = experiment_named(store, name).name
        self._evaluations = evaluations_of(store, self._experiment, evaluation)
        self._canonical = canonical
        self._traces = traces
        self.keys = [key for key in KEYS if not (canonical and key in NOT_CANONICAL)]
        if traces:
            self.keys.append("trace")

    def only(self, keys: Sequence[str]) -> Rows:
        """Those of these evaluations, in this order."""
        by_key = {one.info.spec.key: one for one in self._evaluations}
        self._evaluations = [by_key[key] for key in keys if key in by_key]
        return self

    def __iter__(self) -> Iterator[Row]:
        rows = (
            self._row(record, one.label)
            for one in self._evaluations
            for record in self._store.records(one.info)
        )
        return _canonical(rows) if self._canonical else rows

    def _row(self, record: Record, label: str) -> Row:
        row = export_row(record, label)
        return {**row, "trace": self._store.trace(record.id)} if self._traces else row

    def score_names(self) -> list[str]:
        """Every score's name, in order of appearance."""
        return list(dict.fromkeys(score.name for score in self._scores()))

    def all_scores_are_numbers(self) -> bool:
        return all(isinstance(score.value, bool | int | float) for score in self._scores())

    def _scores(self) -> Iterator[Any]:
        for one in self._evaluations:
            for _, _, scores in self._store.observations(one.info.id):
                yield from scores


def export_row(record: Record, label: str) -> Row:
    failure = record.failure
    return {
        "experiment": record.experiment,
        "evaluation": label,
        "sample_id": record.sample_id,
        "index": record.index,
        "repeat": record.repeat,
        "status": record.status,
        "scores": [
            {"name": score.name, "value": score.value, "metadata": score.metadata} for score in record.scores
        ],
        "failure": failure
        and {"kind": failure.kind, "message": failure.message, "traceback": failure.traceback},
        "failure_class": record.failure_class,
        "prompt": record.prompt,
        "response": record.response,
        "row": record.row,
        "wall_s": record.wall_s,
        "working_s": record.working_s,
        "tries": record.tries,
        "started_at": record.started_at,
        "calls": record.calls,
        "lent": record.lent,
    }


def _canonical(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows without what differs between equal runs, sorted; a temporary file keeps memory flat."""
    with closing(sqlite3.connect("")) as sorter:  # the empty name is SQLite's temporary file
        sorter.execute("CREATE TABLE sorted_row (evaluation, sample_id, repeat, text)")
        sorter.executemany(
            "INSERT INTO sorted_row VALUES (?, ?, ?, ?)",
            (
                (
                    to_json(row["evaluation"]),
                    to_json(row["sample_id"]),
                    row["repeat"],
                    to_json(_equal_part(row)),
                )
                for row in rows
            ),
        )
        for (text,) in sorter.execute("SELECT text FROM sorted_row ORDER BY evaluation, sample_id, repeat"):
            yield from_json(text)


def _equal_part(row: Row) -> Row:
    kept = {key: value for key, value in row.items() if key not in NOT_CANONICAL}
    if kept["failure"]:
        # a traceback names directories and addresses
        kept["failure"] = {key: kept["failure"][key] for key in ("kind", "message")}
    return kept


def _replacing(path: Path, write: Callable[[IO[bytes]], int]) -> int:
    """Writes beside the path and renames, so that a reader never meets half a file."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            count = write(file)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return count


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def jsonl_lines(rows: Iterable[Row]) -> Iterator[str]:
    return (json.dumps(row) + "\n" for row in rows)


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """One array, a row on each line."""
    yield "["
    for number, row in enumerate(rows):
        yield (",\n" if number else "\n") + json.dumps(row)
    yield "\n]\n"


def _write_jsonl(rows: Iterable[Row], file: IO[bytes]) -> int:
    count = 0
    for line in jsonl_lines(rows):
        file.write(line.encode())
        count += 1
    return count


def _write_json(rows: Rows, file: IO[bytes]) -> int:
    count = -2  # the brackets
    for text in json_lines(rows):
        file.write(text.encode())
        count += 1
    return count


def _write_csv(rows: Rows, file: IO[bytes]) -> int:
    """Scores as one column each; `scores` keeps their metadata; what is no plain value is JSON."""
    # a lone surrogate from a model cannot be written as UTF-8: it is written out
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    score_names = rows.score_names()
    writer = csv.writer(text)
    writer.writerow([*rows.keys, *map(_no_formula, score_columns(score_names, rows.keys))])
    count = 0
    for row in rows:
        flat = flat_scores(row["scores"], score_names)
        writer.writerow([*(_csv_cell(row[key]) for key in rows.keys), *map(_csv_cell, flat)])
        count += 1
    text.detach()  # flushes, and leaves the file to its owner
    return count


def score_columns(score_names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """A score's column is its name, or `score.NAME` where a key of the row has that name."""
    reserved = set(taken)
    return [f"score.{name}" if name in reserved else name for name in score_names]


def flat_scores(scores: Sequence[Row], score_names: Sequence[str]) -> list[Any]:
    """The value of each named score; a list where a sample has several of one name."""
    values: dict[str, list[Any]] = {}
    for score in scores:
        values.setdefault(score["name"], []).append(score["value"])
    found = (values.get(name, []) for name in score_names)
    return [None if not several else several[0] if len(several) == 1 else several for several in found]


def _csv_cell(content: Any) -> str:
    if content is None or isinstance(content, str):
        return _no_formula(content or "")
    return to_json(content)


def _no_formula(text: str) -> str:
    """The text with an apostrophe ahead where a spreadsheet would run it: a response may be `=cmd|…`."""
    if text.startswith(_BEGINS_FORMULA) and not re.fullmatch(r"[+-]?\d[\d.,]*(e[+-]?\d+)?%?", text, re.I):
        return "'" + text
    return text


_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _write_parquet(rows: Rows, file: IO[bytes]) -> int:
    from evalve.show.exports.parquet import write_parquet

    return write_parquet(rows, rows.keys, file, numbers=rows.all_scores_are_numbers())


_WRITERS: dict[str, Callable[[Rows, IO[bytes]], int]] = {
    ".json": _write_json,
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
