"""The batches of a person on this machine, in one small SQLite database: what is promised, and to whom."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from evalve.errors import StorageError
from evalve.filesystems import journal_for, taking_turns, use_journal
from evalve.gate.batches.shapes import Kind, Lane
from evalve.gate.limits.holders import is_alive, name_of_this_process
from evalve.gate.private_files import make_private

State = Literal["intent", "sending", "submitted", "ended", "collected"]
OPEN: tuple[State, ...] = ("intent", "sending", "submitted", "ended")
_BUSY_S = 30.0
_FORM = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    intent TEXT PRIMARY KEY, lane TEXT NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL,
    name TEXT NOT NULL, digest TEXT NOT NULL, created_s REAL NOT NULL, file_id TEXT NOT NULL DEFAULT '',
    provider_id TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT '', sending_s REAL, submitted_s REAL,
    ended_s REAL, collected_s REAL, expires_s REAL, cost_usd REAL, told TEXT NOT NULL DEFAULT '',
    holder TEXT NOT NULL DEFAULT '', heard_s REAL NOT NULL DEFAULT 0, is_cancelled INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS requests (
    intent TEXT NOT NULL, number INTEGER NOT NULL, key BLOB NOT NULL, model TEXT NOT NULL,
    custom_id TEXT NOT NULL, attempt TEXT NOT NULL, place INTEGER NOT NULL, kind TEXT,
    status INTEGER NOT NULL DEFAULT 0, told TEXT, delivered INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (intent, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_key ON requests (key);
DROP INDEX IF EXISTS requests_by_attempt;
CREATE INDEX IF NOT EXISTS unrecorded ON requests (attempt, place) WHERE delivered < 2;
"""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as it is stored."""

    intent: str
    lane: Lane
    state: State
    count: int
    name: str
    """Of the experiment, or what a person called it."""
    digest: str
    """Of all its requests, where a person submitted them at once."""
    created_s: float
    file_id: str = ""
    provider_id: str = ""
    status: str = ""
    """In the provider's word, as it was last seen."""
    sending_s: float | None = None
    submitted_s: float | None = None
    ended_s: float | None = None
    collected_s: float | None = None
    expires_s: float | None = None
    cost_usd: float | None = None
    told: str = ""
    """What holds it up."""
    holder: str = ""
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request of a batch."""

    number: int
    key: str
    model: str
    custom_id: str = ""
    """What a person called it; at the provider, it is the intent and the number."""
    attempt: str = ""
    place: int = 0
    kind: Kind | None = None
    """`None` until its result is there."""
    status: int = 0
    told: str | None = None
    """The error as the provider words it."""


_COLUMNS = ", ".join(field.name for field in fields(BatchRow))
_REQUEST = "number, key, model, custom_id, attempt, place, kind, status, told"


class BatchStore:
    """Any thread may use it. A transaction is short; the file appears with the first batch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def body_path(self, intent: str) -> Path:
        """Where its requests are, until they are collected."""
        return self.path.parent / "batches" / f"{intent}.body"

    def draft_path(self, intent: str) -> Path:
        return self.path.parent / "batches" / f"{intent}.draft"

    # -- writing

    def add(self, batch: BatchRow, requests: Sequence[RequestRow]) -> None:
        """Return when the intent is on disk: what follows may be paid for."""
        values = [_plain(getattr(batch, field.name)) for field in fields(BatchRow)]
        with self._transaction() as connection:
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO batches ({_COLUMNS}) VALUES ({marks})", values)
            connection.executemany(
                "INSERT INTO requests (intent, number, key, model, custom_id, attempt, place, kind)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        batch.intent,
                        one.number,
                        bytes.fromhex(one.key),
                        one.model,
                        one.custom_id,
                        one.attempt,
                        one.place,
                        one.kind,
                    )
                    for one in requests
                ],
            )

    def mark(self, intent: str, **changed: Any) -> None:
        names = ", ".join(f"{name} = ?" for name in changed)
        with self._transaction() as connection:
            connection.execute(f"UPDATE batches SET {names} WHERE intent = ?", [*changed.values(), intent])

    def note_results(self, intent: str, results: Sequence[tuple[int, Kind, int, str | None]]) -> None:
        """By number: what it came to, the status and the error's words."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE requests SET kind = ?, status = ?, told = ? WHERE intent = ? AND number = ?",
                [(kind, status, told, intent, number) for number, kind, status, told in results],
            )

    def note_missing(self, intent: str) -> int:
        with self._transaction() as connection:
            done = connection.execute(
                "UPDATE requests SET kind = 'missing' WHERE intent = ? AND kind IS NULL", (intent,)
            )
            return done.rowcount

    def note_counted(self, keys: Sequence[str]) -> None:
        """A run has given them to samples, and counts what they cost; the samples may have to be replayed."""
        self._delivered(keys, 1)

    def note_recorded(self, keys: Sequence[str]) -> None:
        """The samples that asked for them are recorded, or will never ask for them again."""
        self._delivered(keys, 2)

    def _delivered(self, keys: Sequence[str], level: int) -> None:
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE requests SET delivered = ? WHERE key = ? AND delivered < ?",
                [(level, bytes.fromhex(key), level) for key in keys],
            )

    def note_cancelled(self, intent: str) -> None:
        """It was never sent, and never will be."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE requests SET kind = 'canceled' WHERE intent = ? AND kind IS NULL", (intent,)
            )
            connection.execute(
                "UPDATE batches SET state = 'collected', is_cancelled = 1, collected_s = ? WHERE intent = ?",
                (time.time(), intent),
            )

    def hold(self, intent: str) -> bool:
        """Whether this process looks after the batch now; another that lives keeps it."""
        me = name_of_this_process()
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT holder, heard_s FROM batches WHERE intent = ?", (intent,)
            ).fetchone()
            if row is None:
                return False
            now_s, (holder, heard_s) = time.time(), row
            if holder not in ("", me) and is_alive(holder, unheard_s=max(0.0, now_s - heard_s)):
                return False
            connection.execute(
                "UPDATE batches SET holder = ?, heard_s = ? WHERE intent = ?", (me, now_s, intent)
            )
            return True

    def release(self, intent: str) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE batches SET holder = '' WHERE intent = ? AND holder = ?",
                (intent, name_of_this_process()),
            )

    def forget_older_than(self, age_s: float) -> None:
        """Drop what was collected so long ago that nobody can fetch it any more."""
        if not self.exists:
            return
        before_s = time.time() - age_s
        with self._transaction() as connection:
            old = "SELECT intent FROM batches WHERE state = 'collected' AND created_s < ?"
            connection.execute(f"DELETE FROM requests WHERE intent IN ({old})", (before_s,))
            connection.execute("DELETE FROM batches WHERE state = 'collected' AND created_s < ?", (before_s,))

    # -- reading

    def batch(self, intent: str) -> BatchRow | None:
        rows = self._read(f"SELECT {_COLUMNS} FROM batches WHERE intent = ?", (intent,))
        return _batch(rows[0]) if rows else None

    def batches(self) -> list[BatchRow]:
        """The newest first."""
        return [_batch(row) for row in self._read(f"SELECT {_COLUMNS} FROM batches ORDER BY created_s DESC")]

    def where(self, key: str) -> tuple[str | None, bool]:
        """The batch that is not collected and has this request; else whether one that is has answered it."""
        rows = self._read(
            "SELECT r.intent, b.state, r.kind FROM requests r JOIN batches b ON b.intent = r.intent"
            " WHERE r.key = ?",
            (bytes.fromhex(key),),
        )
        is_open = next((intent for intent, state, _ in rows if state != "collected"), None)
        return is_open, any(kind == "succeeded" for _, _, kind in rows)

    def times_batched(self, key: str) -> int:
        return len(self._read("SELECT intent FROM requests WHERE key = ?", (bytes.fromhex(key),)))

    def unrecorded(self) -> dict[tuple[str, int], tuple[str, bool]]:
        """What attempts without a record asked for, by attempt and place; whether a run has counted it."""
        rows = self._read(
            "SELECT attempt, place, key, delivered FROM requests WHERE delivered < 2 AND attempt != ''"
            " AND (kind IS NULL OR kind = 'succeeded')"
        )
        return {
            (attempt, place): (bytes(key).hex(), delivered > 0) for attempt, place, key, delivered in rows
        }

    def requests(self, intent: str) -> Iterator[RequestRow]:
        """In the order in which they were asked."""
        after = -1
        while rows := self._read(
            f"SELECT {_REQUEST} FROM requests WHERE intent = ? AND number > ? ORDER BY number LIMIT 1000",
            (intent, after),
        ):
            after = rows[-1][0]
            for number, key, *rest in rows:
                yield RequestRow(number, bytes(key).hex(), *rest)

    def request(self, intent: str, key: str) -> RequestRow | None:
        rows = self._read(
            f"SELECT {_REQUEST} FROM requests WHERE intent = ? AND key = ?", (intent, bytes.fromhex(key))
        )
        return RequestRow(rows[0][0], key, *rows[0][2:]) if rows else None

    def counts(self, intent: str) -> dict[str, int]:
        """How many requests came to what; those without a result are `waiting`."""
        rows = self._read(
            "SELECT COALESCE(kind, 'waiting'), COUNT(*) FROM requests WHERE intent = ? GROUP BY 1", (intent,)
        )
        return {str(kind): int(count) for kind, count in rows}

    # -- the file

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        if self._connection is None and not self.exists:
            return []
        with self._told_as_ours(), self._lock:
            return self._connected().execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._told_as_ours(), self._lock:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None or self._pid != os.getpid():
            self._connection, self._pid = self._opened(), os.getpid()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        make_private(self.path)
        (self.path.parent / "batches").mkdir(mode=0o700, exist_ok=True)
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        with taking_turns(self.path.parent):
            use_journal(connection, journal_for(self.path.parent))
            (form,) = connection.execute("PRAGMA user_version").fetchone()
            if form > _FORM:
                connection.close()
                raise StorageError(
                    f"{self.path} is of a newer evalve: use that one, or another state directory"
                )
            connection.executescript(_TABLES + f"PRAGMA user_version = {_FORM};")
        return connection

    @contextmanager
    def _told_as_ours(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"{self.path} cannot be used ({error}): without it nobody would know which batches are paid"
                " for. Make room or mend its permissions, or run without --batch"
            ) from error

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None


def _plain(value: Any) -> Any:
    if isinstance(value, Lane):
        return json.dumps([value.dialect, value.url, value.headers, value.key_hash, value.model])
    return int(value) if isinstance(value, bool) else value


def _batch(row: Sequence[Any]) -> BatchRow:
    values = dict(zip((field.name for field in fields(BatchRow)), row, strict=True))
    dialect, url, headers, key_hash, model = json.loads(values["lane"])
    values["lane"] = Lane(dialect, url, tuple((name, value) for name, value in headers), key_hash, model)
    values["is_cancelled"] = bool(values["is_cancelled"])
    return BatchRow(**values)
