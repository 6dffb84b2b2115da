"""Writes records in groups: whatever is queued goes into one transaction, and its sinks are told."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from evalve.contracts import CommitSink, RecordDraft
from evalve.errors import StorageError
from evalve.storage.database import Database
from evalve.storage.schema import insert_records, record_range

_LOG = logging.getLogger(__name__)
_AT_MOST = 500

_ABOUT_ONE_DRAFT = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    ValueError,
    TypeError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class _Reindex:
    evaluation_id: int
    places: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Flush:
    reached: threading.Event


_Addition = tuple[RecordDraft, CommitSink]
_Order = _Addition | _Reindex | _Flush | None
_Text = TypeVar("_Text", str, str | None)


class Writer(Protocol):
    """Takes what is to be written, in order."""

    def add(self, draft: RecordDraft, sink: CommitSink) -> None: ...
    def reindex(self, evaluation_id: int, places: Sequence[tuple[str, int]]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class InlineWriter:
    """Writes at once, on the caller's thread: the sink has been told when `add` returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, draft: RecordDraft, sink: CommitSink) -> None:
        _commit(self._database, [(draft, sink)])

    def reindex(self, evaluation_id: int, places: Sequence[tuple[str, int]]) -> None:
        _reindex(self._database, _Reindex(evaluation_id, places))

    def flush(self) -> None:
        """Nothing is ever waiting."""

    def close(self) -> None:
        """Nothing is ever waiting."""


class ThreadWriter:
    """Writes on one thread of its own, which starts with the first order."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._starting = threading.Lock()
        self._queue: SimpleQueue[_Order] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False

    def add(self, draft: RecordDraft, sink: CommitSink) -> None:
        if self._pid != os.getpid():
            self._start()
        self._queue.put((draft, sink))

    def reindex(self, evaluation_id: int, places: Sequence[tuple[str, int]]) -> None:
        if self._pid != os.getpid():
            self._start()
        self._queue.put(_Reindex(evaluation_id, tuple(places)))

    def flush(self) -> None:
        """Return when everything that was queued before is committed or has failed."""
        if self._pid == os.getpid() and self._thread is not threading.current_thread():
            reached = threading.Event()
            self._queue.put(_Flush(reached))
            reached.wait()

    def close(self) -> None:
        with self._starting:
            self._closed = True
            if self._pid == os.getpid() and self._thread is not None:
                self._queue.put(None)
                self._thread.join()
            self._pid = 0

    def _start(self) -> None:
        with self._starting:
            if self._closed:
                raise StorageError(f"{self._database.place}: this store has been closed")
            if self._pid == os.getpid():
                return
            self._queue = SimpleQueue()  # a forked child must not write what its parent has queued
            self._thread = threading.Thread(
                target=_serve, args=(self._database, self._queue), name="evalve-writer", daemon=True
            )
            self._thread.start()
            self._pid = os.getpid()


def _serve(database: Database, queue: SimpleQueue[_Order]) -> None:
    while (order := queue.get()) is not None:
        additions: list[_Addition] = []
        while isinstance(order, tuple):
            additions.append(order)
            if len(additions) == _AT_MOST:
                break
            try:
                order = queue.get_nowait()
            except Empty:
                break
        if additions:
            _commit(database, additions)
        if isinstance(order, _Reindex):
            _reindex(database, order)
        elif isinstance(order, _Flush):
            order.reached.set()
        elif order is None:
            return


def _commit(database: Database, additions: Sequence[_Addition]) -> None:
    """Write all in one transaction and tell every sink; one bad draft does not take others with it."""
    drafts = [draft for draft, _ in additions]
    try:
        _insert(database, drafts)
    except _ABOUT_ONE_DRAFT as error:
        if len(additions) > 1:
            for addition in additions:
                _commit(database, [addition])
        else:
            _commit_cleaned(database, *additions[0], error)
    except Exception as error:  # the boundary of a transaction: the thread goes on with the next one
        _tell(additions, _as_storage_error(error, database))
    else:
        _tell(additions, None)


def _commit_cleaned(database: Database, draft: RecordDraft, sink: CommitSink, reason: Exception) -> None:
    """Second chance for a draft that SQLite refused: text that UTF-8 has no bytes for is escaped."""
    problem: Exception | None = None
    try:
        if not isinstance(reason, UnicodeEncodeError):
            raise reason
        _insert(database, [_cleaned(draft)])
    except Exception as error:  # as above
        problem = _as_storage_error(error, database)
    _tell([(draft, sink)], problem)


def _as_storage_error(error: Exception, database: Database) -> StorageError:
    if isinstance(error, StorageError):
        return error
    failed = StorageError(f"{database.place}: a record could not be written: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def _tell(additions: Sequence[_Addition], error: Exception | None) -> None:
    groups: dict[int, tuple[CommitSink, list[RecordDraft]]] = {}
    for draft, sink in additions:
        group = groups.get(id(sink))
        if group is None:
            groups[id(sink)] = (sink, [draft])
        else:
            group[1].append(draft)
    for sink, drafts in groups.values():
        try:
            sink.committed(drafts, error)
        except Exception:  # a listener's mistake must not stop the writing for all others
            _LOG.exception("a listener failed when it was told of %d records", len(drafts))
