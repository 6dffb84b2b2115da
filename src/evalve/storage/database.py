"""Connections to one SQLite database, in a file or in memory, and what its errors mean to a person."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

from evalve.errors import NotFound, StorageError
from evalve.storage import schema

_BUSY_TIMEOUT_S = 30.0
_CACHE_KIB = 8192
_CHECKPOINT_PAGES = 4000
_inherited: list[sqlite3.Connection] = []  # a forked child may neither use nor close its parent's

T = TypeVar("T")


class Database(Protocol):
    """Where a store's tables are."""

    url: str
    place: str
    """What an error message calls it."""

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

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _create_tables(self._connection, self.place)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explained(self.place):
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
            self._connection.close()


class FileDatabase:
    """A file that appears with the first write. Any thread may use it: each use borrows a connection."""

    def __init__(self, path: Path, *, url: str, sync: str = "normal", create: bool = True) -> None:
        self.url = url
        self.place = str(path)
        self._path = path
        self._sync = sync
        self._create = create
        self._idle: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._closed = False
        if not create and _is_blank(path):
            raise self._nothing_recorded()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        if self._create and not self._idle and _is_blank(self._path):
            with closing(MemoryDatabase()) as nothing_yet, nothing_yet.reading() as connection:
                yield connection
        else:
            with _explained(self.place), self._borrowed() as connection:
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with _explained(self.place), self._borrowed() as connection, _transaction(connection):
            yield connection

    def iterate(self, read: Callable[[sqlite3.Connection], Iterator[T]]) -> Iterator[T]:
        # a connection of its own while it lasts: with a cursor open, everything else on the
        # connection would see the cursor's snapshot, and a write would be refused as out of date
        with self.reading() as connection:
            yield from read(connection)

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
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            yield connection
        finally:
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)

    def _open(self) -> sqlite3.Connection:
        if self._create and _is_blank(self._path):
            self._make()
        connection = self._connect("mode=rw")
        try:
            version = _version(connection, self.place)
            if version == 0 and self._create:  # another process is between making the file and its tables
                self._make()
        except sqlite3.OperationalError as error:
            connection.close()
            if _code(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) and self._is_at_rest():
                return self._connect("mode=ro&immutable=1")  # a directory where no `-shm` file can be made
            raise
        except BaseException:
            connection.close()
            raise
        if version == 0 and not self._create:
            connection.close()
            raise self._nothing_recorded()
        return connection

    def _make(self) -> None:
        """Create directory, file and tables; of several processes that try at once, one does."""
        _make_directory(self._path.parent)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            # SQLite does not wait when two connections switch to WAL at once, so take turns outside it
            fcntl.flock(directory, fcntl.LOCK_EX)
            with closing(self._connect("mode=rwc")) as connection:
                if _version(connection, self.place) == 0:
                    connection.execute("PRAGMA journal_mode = WAL")
                    _create_tables(connection, self.place)
        finally:
            os.close(directory)

    def _connect(self, how: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(self.place)}?{how}",
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute(f"PRAGMA synchronous = {self._sync}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        return connection

    def _is_at_rest(self) -> bool:
        return self._path.is_file() and not Path(f"{self.place}-wal").exists()

    def _nothing_recorded(self) -> NotFound:
        return NotFound(f"{self.place}: nothing has been recorded here yet; run an evaluation, or say where")


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
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != schema.APPLICATION_ID:
        raise StorageError(
            f"{place}: this is a database of another program; name another file with --storage"
        )
    if version > schema.VERSION:
        raise StorageError(
            f"{place}: written by a newer evalve (format {version}, this one knows {schema.VERSION}); upgrade evalve"
        )
    return int(version)


def _create_tables(connection: sqlite3.Connection, place: str) -> None:
    with _transaction(connection):
        if _version(connection, place) == 0:
            for statement in schema.TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {schema.VERSION}")


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


@contextmanager
def _explained(place: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.NotSupportedError):
        raise  # about what was written, not about the database
    except (sqlite3.DatabaseError, OSError) as error:
        raise explanation(error, place) from error


_REMEDIES = {
    "SQLITE_NOTADB": "it is damaged, or no database: move it aside, restore a copy, or name another with --storage",
    "SQLITE_CORRUPT": "it is damaged: move it aside or restore a copy (`sqlite3 FILE .recover` saves what can be"
    " read), or name another file with --storage",
    "SQLITE_FULL": "the disk is full: make room, then run the same command again to resume",
    "SQLITE_READONLY": "it cannot be written: check the permissions of file and directory, or name another file"
    " with --storage",
    "SQLITE_CANTOPEN": "it cannot be opened: check that the directory exists and may be written, or name another"
    " file with --storage",
    "SQLITE_BUSY": f"another process kept it locked for more than {_BUSY_TIMEOUT_S:.0f} s; see what holds it, then"
    " run the same command again to resume",
    "SQLITE_IOERR": "the disk reported an error: check it, then run the same command again to resume",
}


def explanation(error: Exception, place: str) -> StorageError:
    """What a foreign error means for the database at `place`, and what to do about it."""
    if isinstance(error, OSError):
        return StorageError(
            f"{place}: {error.strerror or error}; check the path and its permissions,"
            " or name another file with --storage"
        )
    for code, remedy in _REMEDIES.items():
        if _code(error).startswith(code):
            return StorageError(f"{place}: {remedy} ({error})")
    return StorageError(f"{place}: {error}")


def _code(error: Exception) -> str:
    """`SQLITE_BUSY` and the like; empty where the error did not come out of SQLite itself."""
    return str(getattr(error, "sqlite_errorname", ""))
