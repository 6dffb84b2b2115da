"""Looking after the cache: what is in it, clearing it, checking every entry."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evalve.errors import OptionError
from evalve.gate.cache.entries import COLUMNS, CorruptEntry, Row, entry_of
from evalve.gate.cache.file import CacheFile

_AT_ONCE = 500
_PAGES_AT_ONCE = 1000
_INCREMENTAL = 2
_REWRITTEN_UP_TO_BYTES = 64 * 2**20
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


@dataclass(frozen=True, slots=True)
class ModelShare:
    """What the cache has of one model."""

    provider: str
    model: str
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the cache has."""

    path: str
    entries: int
    size_bytes: int
    """Of the answers as they are stored."""
    file_bytes: int
    hits: int
    """Answers that did not have to be paid for again, ever since the file was made."""
    oldest_at: str | None
    newest_at: str | None
    models: Sequence[ModelShare] = ()


@dataclass(frozen=True, slots=True)
class Cleared:
    """What has been removed."""

    path: str
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check of every entry has found."""

    path: str
    checked: int
    corrupt: Sequence[str] = ()
    """Keys of the entries that were damaged, and have been removed."""
    file_damage: str | None = None
    """Why the file itself could not be read to its end; it is then moved aside."""


def parse_age_s(text: str) -> float:
    """Seconds in `7d`, `12h`, `30m`, `45s` or `2w`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise OptionError(f"--older-than: needs a number and a unit, as in 7d, 12h or 30m; got {text!r}")
    return float(match[1]) * _UNITS_S[match[2]]


def used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the file without what is free in it."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * page_bytes)


def stats(file: CacheFile) -> CacheStats:
    path = str(file.path)
    with file.reading() as connection:
        if connection is None:
            return CacheStats(path, 0, 0, 0, 0, None, None)
        groups = connection.execute(
            "SELECT provider, model, count(*), sum(size), min(created_at), max(created_at) FROM entries"
            " GROUP BY provider, model ORDER BY sum(size) DESC, provider, model"
        ).fetchall()
        (hits,) = connection.execute("SELECT hits FROM totals").fetchone()
    return CacheStats(
        path=path,
        entries=sum(group[2] for group in groups),
        size_bytes=sum(group[3] for group in groups),
        file_bytes=sum(_size_of(Path(f"{path}{suffix}")) for suffix in ("", "-wal")),
        hits=hits,
        oldest_at=_instant(min((group[4] for group in groups), default=None)),
        newest_at=_instant(max((group[5] for group in groups), default=None)),
        models=tuple(ModelShare(*group[:4]) for group in groups),
    )


def clear(
    file: CacheFile, *, model: str | None, created_before: float | None, experiment: str | None
) -> Cleared:
    """`model` is a model's name, or `provider/model`."""
    conditions = ["1"]
    values: list[object] = []
    if model is not None:
        conditions.append("(model = ? OR provider || '/' || model = ?)")
        values += [model, model]
    if created_before is not None:
        conditions.append("created_at < ?")
        values += [created_before]
    if experiment is not None:
        conditions.append("experiment = ?")
        values += [experiment]
    entries, size_bytes = _delete(file, " AND ".join(conditions), values)
    if not values:
        for kind in ("broken", "left"):
            for beside in file.path.parent.glob(f"{file.path.name}.{kind}-*"):
                beside.unlink(missing_ok=True)
    if entries:
        _give_room_back(file)
    return Cleared(str(file.path), entries, size_bytes)


def _delete(file: CacheFile, where: str, values: Sequence[object]) -> tuple[int, int]:
    """In small transactions, so that a running evaluation can write between them."""
    entries = size_bytes = 0
    while True:
        with file.writing(create=False) as connection:
            if connection is None:
                return entries, size_bytes
            found = connection.execute(
                f"SELECT id, size FROM entries INDEXED BY entries_by_origin WHERE {where} LIMIT {_AT_ONCE}",
                values,
            ).fetchall()
            connection.executemany("DELETE FROM entries WHERE id = ?", [(row[0],) for row in found])
        entries += len(found)
        size_bytes += sum(row[1] for row in found)
        if len(found) < _AT_ONCE:
            return entries, size_bytes


def _give_room_back(file: CacheFile) -> None:
    """In small steps, too. A file of an earlier version can only be written anew: it is if it is small."""
    try:
        with file.reading() as connection:
            if connection is None:
                return
            (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
            if mode == _INCREMENTAL:
                while connection.execute("PRAGMA freelist_count").fetchone()[0]:
                    connection.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
            elif used_bytes(connection) <= _REWRITTEN_UP_TO_BYTES:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        pass  # in use: the room is free inside the file, and used before it grows


def verify(file: CacheFile) -> Verified:
    """Nothing is written, and no other writer waited for, where nothing is damaged."""
    checked, last_id, corrupt = 0, 0, list[str]()
    try:
        while True:
            with file.reading() as connection:
                rows = _after(connection, last_id)
            if not rows:
                return Verified(str(file.path), checked, tuple(corrupt))
            damaged = [row for row in rows if _is_damaged(row[1:])]
            if damaged:
                _remove(file, damaged)
            corrupt += [_name(row[1]) for row in damaged]
            checked += len(rows)
            last_id = rows[-1][0]
    except sqlite3.OperationalError:
        raise  # locked, or not ours to write: that is no damage
    except sqlite3.DatabaseError as error:
        return Verified(str(file.path), checked, tuple(corrupt), file_damage=str(error))


def _remove(file: CacheFile, rows: Sequence[Row]) -> None:
    with file.writing(create=False) as connection:
        if connection is not None:
            connection.executemany("DELETE FROM entries WHERE id = ?", [(row[0],) for row in rows])


def _after(connection: sqlite3.Connection | None, last_id: int) -> list[Row]:
    if connection is None:
        return []
    return connection.execute(
        f"SELECT id, {COLUMNS} FROM entries WHERE id > ? ORDER BY id LIMIT 100", (last_id,)
    ).fetchall()


def _is_damaged(row: Row) -> bool:
    try:
        entry_of(row)
    except CorruptEntry:
        return True
    return False


def _name(raw_key: object) -> str:
    return raw_key.hex() if isinstance(raw_key, bytes) else repr(raw_key)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _instant(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
