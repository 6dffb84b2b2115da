"""Connections to one SQLite database, in a file or in memory."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

from evalve.errors import NotFound, StorageError
from evalve.filesystems import journal_for, taking_turns, use_journal
from evalve.storage import schema
from evalve.storage.artefacts import Artefacts, FolderFiles, MemoryFiles
from evalve.storage.explanations import BUSY_TIMEOUT_S, explained, sqlite_code
from evalve.storage.in_flight import Flights
from evalve.storage.spending import SpendingNotes

_CACHE_KIB = 4096  # per connection; 8192 took 9 MB more over 200,000 records, for the same CPU time
_CHECKPOINT_PAGES = 4000
_inherited: list[sqlite3.Connection] = []  # a forked child may neither use nor close its parent's

T = TypeVar("T")


class Database(Protocol):
    """Where a store's tables are."""

    url: str
    place: str
    """What an error message calls it."""
    artefacts: Artefacts
    """The files that belong to its records."""
    flights: Flights | None
    spending: SpendingNotes | None
    """`None` where they would die with the process."""

    def reading(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that is committed at the end of the block, rolled back if it raises."""

    def iterate(self, read: Callable[[sqlite3.Connection], Iterator[T]]) -> Iterator[T]:
        """What `read` yields, on a snapshot, undisturbed by what is written meanwhile."""

    def close(self) -> None: ...


class MemoryDatabase:
    """Private to this object; gone with it."""

    url = "memory://"
    place = "memory://"
    flights: Flights | None = None
    spending: SpendingNotes | None = None

    def __init__(self) -> None:
        self.artefacts = Artefacts(MemoryFiles(), self.place)
        self._lock = threading.RLock()
        self._closed = False
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _bring_up_to_date(self._connection, self.place)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, explained(self.place):
            if self._closed:
                raise StorageError(f"{self.place}: this store has been closed")
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with self.reading() as connection, _transaction(connection):
            yield connection

    def iterate(self, read: Callable[[sqlite3.Connection], Iterator[T]]) -> Iterator[T]:
        with self.reading() as connection:
            items = list(read(connection))
        yield from items

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()


class FileDatabase:
    """A file that appears with the first write. Any thread may use it: each use borrows a connection."""

    def __init__(self, path: Path, *, url: str, sync: str = "normal", create: bool = True) -> None:
        self.url = url
        self.place = str(path)
        # named after the file, because another one in the same directory has its own
        self.artefacts = Artefacts(FolderFiles(path.with_name(f"{path.name}-artefacts")), self.place)
        beside = path.with_name(f"{path.name}-in-flight")
        self.flights: Flights | None = Flights(beside)
        self.spending: SpendingNotes | None = SpendingNotes(beside)
        self._path = path
        self._sync = sync
        self._create = create
        self._idle: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._closed = False
        self._journal = journal_for(path.parent)
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file that the connections have open."""
        self._stale = 0
        """How often it was found to be gone: connections from before are not used again."""
        if not create and _is_blank(path):
            raise self._nothing_recorded()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        if self._create and not self._idle and _is_blank(self._path):
            with closing(MemoryDatabase()) as nothing_yet, nothing_yet.reading() as connection:
                yield connection
        else:
            with explained(self.place), self._borrowed() as connection:
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with explained(self.place), self._borrowed() as connection, _transaction(connection):
            self._refuse_if_gone()
            yield connection

    def _refuse_if_gone(self) -> None:
        """A file that was deleted or replaced takes what is written to it, and nobody finds it any more."""
        if self._identity is None or _identity(self._path) == self._identity:
            return
        self._identity = None
        while self._idle:
            self._idle.pop().close()
        self._stale += 1
        raise StorageError(
            f"{self.place}: the file was deleted or replaced while it was in use, so what was recorded in it"
            " is gone; run again, and it is made anew"
        )

    def iterate(self, read: Callable[[sqlite3.Connection], Iterator[T]]) -> Iterator[T]:
        # a connection of its own while it lasts: with a cursor open, everything else on the
        # connection would see the cursor's snapshot, and a write would be refused as out of date
        with self.reading() as connection:
            # without a write-ahead log nobody can write while somebody reads
            yield from read(connection) if self._journal == "wal" else list(read(connection))

    def close(self) -> None:
        self._closed = True
        while self._idle and self._pid == os.getpid():
            self._idle.pop().close()

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise StorageError(f"{self.place}: this store has been closed")
        if self._pid != os.getpid():
            _inherited.extend(self._idle)
            self._idle, self._pid = [], os.getpid()
        connection: sqlite3.Connection | None = None
        with suppress(IndexError):
            connection = self._idle.pop()
        if connection is None:
            connection = self._open()
            self._identity = self._identity or _identity(self._path)
        opened_before = self._stale
        try:
            yield connection
        finally:
            if self._stale == opened_before:
                self._give_back(connection)
            else:
                connection.close()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _open(self) -> sqlite3.Connection:
        if self._create and _is_blank(self._path):
            self._make()
        try:
            connection = self._connect("mode=rw")
        except sqlite3.OperationalError as error:
            if sqlite_code(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) and self._is_at_rest():
                return self._open_at_rest()  # a directory where no `-shm` file can be made
            raise
        version = _version(connection, self.place)
        if version == 0 and not self._create:  # the file is made and its tables are not, or not yet
            connection.close()
            raise self._nothing_recorded()
        if version < schema.VERSION:
            self._make()
        elif self._journal != "wal":  # it may have been made on a disk, and copied
            with taking_turns(self._path.parent):
                use_journal(connection, self._journal)
        return connection

    def _open_at_rest(self) -> sqlite3.Connection:
        connection = self._connect("mode=ro&immutable=1")
        if (version := _version(connection, self.place)) < schema.VERSION:
            connection.close()
            raise StorageError(
                f"{self.place}: written by an earlier evalve (format {version}), and it cannot be brought"
                " up to date where it is: copy it to a directory that may be written"
            )
        return connection

    def _make(self) -> None:
        """Create directory, file and tables; of several processes that try at once, one does."""
        _make_directory(self._path.parent)
        with taking_turns(self._path.parent), closing(self._connect("mode=rwc")) as connection:
            if _version(connection, self.place) < schema.VERSION:
                use_journal(connection, self._journal)
                _bring_up_to_date(connection, self.place)

    def _connect(self, how: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(self.place)}?{how}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.text_factory = _text
            connection.execute(f"PRAGMA synchronous = {self._sync}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            _version(connection, self.place)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_at_rest(self) -> bool:
        return self._path.is_file() and not Path(f"{self.place}-wal").exists()

    def _nothing_recorded(self) -> NotFound:
        return NotFound(f"{self.place}: nothing has been recorded here yet; run an evaluation, or say where")


def _text(stored: bytes) -> str:
    """Bytes that are no UTF-8 any more must not hide the other records."""
    return stored.decode(errors="replace")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_blank(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True
    except OSError:
        return False  # opening it will say what is wrong


def _make_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    directory.mkdir(parents=True, exist_ok=True)
    if directory.name == ".evalve":
        (directory / ".gitignore").write_text("*\n", encoding="utf-8")


def _version(connection: sqlite3.Connection, place: str) -> int:
    """The version of the tables, 0 where there are none yet; a foreign or newer database is refused."""
    # tables first: where another process has just made them, what is read afterwards belongs to them
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and application != schema.APPLICATION_ID:
        raise StorageError(
            f"{place}: this is a database of another program; name another file with --storage"
        )
    if version > schema.VERSION:
        raise StorageError(
            f"{place}: written by a newer evalve (format {version}; this one knows {schema.VERSION});"
            " upgrade evalve"
        )
    return int(version)


def _bring_up_to_date(connection: sqlite3.Connection, place: str) -> None:
    """Make the tables, or change those of an earlier version."""
    with _transaction(connection):
        version = _version(connection, place)
        if version == 0:
            for statement in schema.TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        for earlier in range(version, schema.VERSION) if version else ():
            for statement in schema.MIGRATIONS[earlier]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {schema.VERSION}")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads that see the database at one moment."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            connection.execute("ROLLBACK")
        raise
