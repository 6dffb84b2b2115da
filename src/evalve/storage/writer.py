"""Writes records in groups: whatever is queued goes into one transaction, and its sinks are told."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from evalve.contracts import CommitSink, LiveProgress, Placed, RecordDraft
from evalve.errors import StorageError
from evalve.storage.database import Database
from evalve.storage.inserts import Inserts, cleaned_draft
from evalve.storage.keys import Keys
from evalve.storage.live import write_progress

_LOG = logging.getLogger(__name__)
_AT_MOST = 500

_ABOUT_ONE_DRAFT = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    ValueError,  # UnicodeEncodeError among them
    TypeError,
    OverflowError,
)


class Writer(Protocol):
    """Takes what is to be written, in order."""

    def add(self, draft: RecordDraft, sink: CommitSink) -> None: ...
    def reindex(self, evaluation_id: int, places: Sequence[Placed]) -> None: ...
    def tell_progress(self, progress: LiveProgress) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class InlineWriter:
    """Writes at once, on the caller's thread: the sink has been told when `add` returns."""

    def __init__(self, database: Database) -> None:
        self._commits = _Commits(database)

    def add(self, draft: RecordDraft, sink: CommitSink) -> None:
        self._commits.add([(draft, sink)])

    def reindex(self, evaluation_id: int, places: Sequence[Placed]) -> None:
        self._commits.reindex(_Reindex(evaluation_id, places))

    def tell_progress(self, progress: LiveProgress) -> None:
        self._commits.tell_progress(progress)

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
        self._counting = threading.Lock()
        self._queued = 0
        self._served = _Served()

    def add(self, draft: RecordDraft, sink: CommitSink) -> None:
        self._put((draft, sink))

    def reindex(self, evaluation_id: int, places: Sequence[Placed]) -> None:
        self._put(_Reindex(evaluation_id, tuple(places)))

    def tell_progress(self, progress: LiveProgress) -> None:
        self._put(progress)

    def _put(self, order: _Order) -> None:
        if self._pid != os.getpid():
            self._start()
        with self._counting:
            self._queued += 1
        self._queue.put(order)

    def flush(self) -> None:
        """Return when everything that was queued before is committed or has failed.

        Mostly it is, because who has added it waited until the sink was told: then no thread is woken.
        """
        if self._pid != os.getpid() or self._thread is threading.current_thread():
            return
        if self._served.orders < self._queued:
            reached = threading.Event()
            self._put(_Flush(reached))
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
            self._counting, self._queued, self._served = threading.Lock(), 0, _Served()
            self._thread = threading.Thread(
                target=_serve,
                args=(self._queue, _Commits(self._database), self._served),
                name="evalve-writer",
                daemon=True,
            )
            self._thread.start()
            self._pid = os.getpid()


@dataclass(frozen=True, slots=True)
class _Reindex:
    evaluation_id: int
    places: Sequence[Placed]


@dataclass(frozen=True, slots=True)
class _Flush:
    reached: threading.Event


@dataclass(slots=True)
class _Served:
    """How many orders are done with; only the writer's thread counts."""

    orders: int = 0


_Addition = tuple[RecordDraft, CommitSink]
_Order = _Addition | _Reindex | LiveProgress | _Flush | None


def _serve(queue: SimpleQueue[_Order], commits: _Commits, served: _Served) -> None:
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
            commits.add(additions)
            served.orders += len(additions)
        if isinstance(order, _Reindex):
            commits.reindex(order)
        elif isinstance(order, LiveProgress):
            commits.tell_progress(order)
        elif isinstance(order, _Flush):
            order.reached.set()
        elif order is None:
            return
        served.orders += not isinstance(order, tuple)


class _Commits:
    """Transactions that never raise: those who wait for one are told of its failure."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._place = database.place
        self._inserts = Inserts(database, Keys())

    def add(self, additions: Sequence[_Addition]) -> None:
        """One transaction for all; where one draft is to blame, one for each."""
        try:
            self._inserts.write([draft for draft, _ in additions])
        except _ABOUT_ONE_DRAFT as error:
            if len(additions) == 1:
                self._add_cleaned(additions[0], error)
            else:
                for addition in additions:
                    self.add([addition])
        except Exception as error:  # the boundary of a transaction: the next one may succeed
            _tell(additions, self._explained(error))
        else:
            _tell(additions, None)

    def _add_cleaned(self, addition: _Addition, reason: Exception) -> None:
        """A second chance for text that UTF-8 has no bytes for."""
        problem: StorageError | None = None
        try:
            if not isinstance(reason, UnicodeEncodeError):
                raise reason
            self._inserts.write([cleaned_draft(addition[0])])
        except Exception as error:  # as above
            problem = self._explained(error)
        _tell([addition], problem)

    def reindex(self, order: _Reindex) -> None:
        try:
            self._inserts.reindex(order.evaluation_id, order.places)
        except Exception as error:  # as above; only the order in which records are shown suffers
            _LOG.warning("%s: new places of samples are not stored: %s", self._place, error)

    def tell_progress(self, progress: LiveProgress) -> None:
        try:
            with self._database.writing() as connection:
                write_progress(connection, progress)
        except Exception as error:  # as above; a second later it is told again
            _LOG.debug("%s: the progress of a run is not stored: %s", self._place, error)

    def _explained(self, error: Exception) -> StorageError:
        if isinstance(error, StorageError):
            return error
        explained = StorageError(
            f"{self._place}: a record cannot be written: {type(error).__name__}: {error}"
        )
        explained.__cause__ = error
        return explained


def _tell(additions: Sequence[_Addition], error: StorageError | None) -> None:
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
