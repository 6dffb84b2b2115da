"""The file of the response cache: connections to it, its tables, and what happens when it is damaged.

A cache must never fail a run. A damaged file is moved aside and begun anew; a file that cannot be used
at all (a full disk, another program's) is done without, and one warning says so.

SQLite deletes a database's `-wal` by its name when the last connection closes. A file that others have
open must therefore not be replaced under them, or they would delete the new one's: whoever has
connections holds a shared `flock` on `responses.db.lock`, and only who gets it alone may move the file.
Until then a process that has seen the damage goes without a cache.

A file that somebody removes is begun anew. What was open of it is never closed, for the same reason.

SQLite remembers per process which locks it holds on a file, and a forked child would inherit that
memory, not the locks. So nothing is open at the moment of a fork: parent and child both open anew.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evalve.clock import LOOP_CLOCK, Clock
from evalve.filesystems import journal_for, taking_turns, use_journal
from evalve.gate.cache.schema import make_tables, version_of
from evalve.gate.private_files import make_private

_LOG = logging.getLogger(__name__)
_NAME = "responses.db"
_WRITE_WITHIN_S = 5.0
_READ_WITHIN_S = 0.25  # on the caller's loop; readers wait for nobody, except on a network
_READ_AGAIN_AFTER_S = 5.0
"""After it could not be read for another program's lock, so long no reader waits: a loop may stand still."""
_WRITE_WITHIN_S_WHEN_LOCKED = 0.05
_WRITE_WITHIN_S_AT_THE_END = 1.0
LOCKED_FOR_S = 30.0
"""After it could not be written for another program's lock, so long nobody waits for that lock again."""
_CACHE_KIB = 4096
_CHECKPOINT_PAGES = 4000
_WAL_BYTES = 64 * 2**20
_REST_S = 2.0


class _Connection(sqlite3.Connection):
    generation = 0
    waits_s = 0.0

    def wait_at_most(self, seconds: float) -> None:
        if self.waits_s != seconds:
            self.waits_s = seconds
            self.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")


class CacheFile:
    """`responses.db` in a directory. Any thread may use it: each use borrows a connection."""

    def __init__(self, directory: Path, *, clock: Clock = LOOP_CLOCK) -> None:
        self.path = directory / _NAME
        self._clock = clock
        self._lock = threading.Condition(threading.Lock())
        self._idle: list[_Connection] = []
        self._open = 0
        self._generation = 0
        self._in_use: int | None = None
        self._damaged_inode: int | None = None
        self._inode = 0
        """Of the file that is open."""
        self._removed: set[int] = set()
        """Generations of connections whose file somebody has removed."""
        self._locked_until_s = 0.0
        """By another program, as far as is known."""
        self._unread_until_s = 0.0
        self._is_in_a_hurry = False
        self._warned: set[str] = set()
        self._closed = False
        self._resting = False
        _files_at_rest_when_forking().add(self)

    @contextmanager
    def reading(self, *, create: bool = False) -> Iterator[sqlite3.Connection | None]:
        """A connection, or `None` where there is no file yet, or none that can be used."""
        connection = self._borrowed(create)
        if connection is None:
            yield None
            return
        try:
            connection.wait_at_most(self._write_within_s() if create else self._read_within_s())
            yield connection
        except sqlite3.DatabaseError as error:
            self._judge(error, connection.generation, is_writing=create)
            raise
        finally:
            self._give_back(connection)

    def row(self, statement: str, values: tuple[object, ...]) -> Any:
        """The first row of a query; `None` also where there is no file. In the way of every call."""
        connection = self._borrowed(create=False)
        if connection is None:
            return None
        try:
            connection.wait_at_most(self._read_within_s())
            return connection.execute(statement, values).fetchone()
        except sqlite3.DatabaseError as error:
            self._judge(error, connection.generation, is_writing=False)
            raise
        finally:
            self._give_back(connection)

    @contextmanager
    def writing(self, *, create: bool = True) -> Iterator[sqlite3.Connection | None]:
        """A transaction, committed at the end of the block; the file is made where there is none."""
        self._notice_removal()
        with self.reading(create=create) as connection:
            if connection is None:
                yield None
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite itself rolls back when the disk is full
                    connection.execute("ROLLBACK")
                raise

    def warn(self, about: str, message: str) -> None:
        """Once for each thing to warn about."""
        if about not in self._warned:
            self._warned.add(about)
            _LOG.warning("%s: %s", self.path, message)

    def warn_of_waiting(self) -> None:
        """Nobody waits any longer for what is still being written."""
        self._warn_of_use("nothing could be written for a second")

    def _warn_of_use(self, why: Exception | str) -> None:
        self.warn(
            "use",
            f"the response cache cannot be used ({why}): answers are held in memory until it can. See"
            " whether the disk is full, the file is yours to write, and no other program keeps it; or name"
            " another folder with EVALVE_CACHE_DIR",
        )

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """In the block, another program's lock is not waited for long: the process is about to end."""
        self._is_in_a_hurry = True
        try:
            yield
        finally:
            self._is_in_a_hurry = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()

    # -- connections

    def _borrowed(self, create: bool) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        # a writer's patience comes in small pieces: who opens holds up whoever else wants a connection
        tries = int(self._write_within_s() / _READ_WITHIN_S) if create else 0
        while True:
            try:
                with self._lock:
                    self._lock.wait_for(lambda: not self._resting)
                    return None if self._closed else self._opened(create)
            except (sqlite3.Error, OSError) as error:
                tries -= 1
                if tries < 0 or not _is_locked(error):
                    self._note_lock(error, is_writing=create)
                    self._warn_of_use(error)
                    return None

    def _read_within_s(self) -> float:
        is_locked = self._unread_until_s and self._unread_until_s > self._now_s()
        return 0.0 if is_locked else _READ_WITHIN_S

    def _write_within_s(self) -> float:
        if self._is_locked():
            return _WRITE_WITHIN_S_WHEN_LOCKED
        return _WRITE_WITHIN_S_AT_THE_END if self._is_in_a_hurry else _WRITE_WITHIN_S

    def _is_locked(self) -> bool:
        return self._locked_until_s > self._now_s()

    def _now_s(self) -> float:
        return self._clock.utc_now().timestamp()

    def _notice_removal(self) -> None:
        """Somebody may remove the file, or put another in its place, while it is open."""
        if not self._inode:
            return
        try:
            is_there = self.path.stat().st_ino == self._inode
        except OSError:
            is_there = False
        if is_there:
            return
        with self._lock:
            self.warn("removal", "the response cache was removed; it is begun anew")
            self._removed.add(self._generation)
            self._generation += 1
            self._inode = 0
            self._open -= len(self._idle)
            while self._idle:
                _never_close(self._idle.pop())
            if self._in_use is not None:
                os.close(self._in_use)
                self._in_use = None

    def _give_back(self, connection: _Connection) -> None:
        with self._lock:
            if connection.generation == self._generation and not self._closed and not self._resting:
                self._idle.append(connection)
            else:
                if connection.generation in self._removed:
                    _never_close(connection)
                else:
                    connection.close()
                self._open -= 1
                if self._closed:
                    self._let_go()
                self._lock.notify_all()

    def _opened(self, create: bool) -> _Connection | None:
        """The second try is for a file whose damage shows when it is opened."""
        for _ in range(2):
            if self._damaged_inode is not None and not self._moved_aside():
                return None
            if not create and _is_blank(self.path):
                return None
            try:
                connection = self._connected(_READ_WITHIN_S if create else self._read_within_s())
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    self._let_go()  # what it was opened in may have been removed: the next begins anew
                    raise
                self._end_generation(error)
            else:
                self._open += 1
                return connection
        return None

    def _connected(self, within_s: float) -> _Connection:
        if self._is_at_rest_and_not_ours_to_write():
            return self._connection("mode=ro&immutable=1", within_s)
        if self._in_use is None:
            make_private(self.path)
            self._in_use = self._locked(fcntl.LOCK_SH)
        connection = self._connection("mode=rwc", within_s)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            journal = journal_for(self.path.parent)
            if version_of(connection) == 0:
                connection.wait_at_most(_WRITE_WITHIN_S)
                make_tables(connection, self.path.parent)
            elif journal != "wal":  # it may have been made on a disk, and copied
                with taking_turns(self.path.parent):
                    use_journal(connection, journal)
            self._inode = self.path.stat().st_ino
        except BaseException:
            connection.close()
            raise
        return connection

    def _connection(self, how: str, within_s: float) -> _Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?{how}",
            uri=True,
            timeout=within_s,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        connection.generation, connection.waits_s = self._generation, within_s
        return connection

    def _is_at_rest_and_not_ours_to_write(self) -> bool:
        """As where a CI's cache was restored for another user: what was kept can be read all the same."""
        return (
            self.path.is_file()
            and not (os.access(self.path.parent, os.W_OK) and os.access(self.path, os.W_OK))
            and not Path(f"{self.path}-wal").exists()
        )

    # -- damage

    def _note_lock(self, error: Exception, *, is_writing: bool) -> None:
        if not _is_locked(error):
            return
        if is_writing:
            self._locked_until_s = self._now_s() + LOCKED_FOR_S
        else:
            self._unread_until_s = self._now_s() + _READ_AGAIN_AFTER_S

    def _judge(self, error: sqlite3.DatabaseError, generation: int, *, is_writing: bool) -> None:
        self._note_lock(error, is_writing=is_writing)
        if not _is_damage(error):
            self._warn_of_use(error)
            return
        with self._lock:
            if generation == self._generation:  # else another thread has seen it already
                self._end_generation(error)

    def _end_generation(self, error: sqlite3.DatabaseError) -> None:
        self.warn("damage", f"the response cache is damaged ({error}); it is moved aside and begun anew")
        with suppress(FileNotFoundError):
            self._damaged_inode = self.path.stat().st_ino
        self._generation += 1
        self._inode = 0
        self._let_go()

    def _let_go(self) -> None:
        while self._idle:
            self._idle.pop().close()
            self._open -= 1
        if self._in_use is not None and self._open == 0:
            os.close(self._in_use)
            self._in_use = None

    def _moved_aside(self) -> bool:
        """Whether the damaged file is out of the way; it is not while somebody has it open."""
        self._let_go()
        if self._open:
            return False
        try:
            alone = self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            with suppress(FileNotFoundError):
                if self.path.stat().st_ino == self._damaged_inode:  # else another process was first
                    self._rename()
        finally:
            os.close(alone)
        self._damaged_inode = None
        return True

    def _rename(self) -> None:
        aside = f"{self.path}.broken-{self._clock.utc_now():%Y%m%dT%H%M%S}-{os.getpid()}"
        self.path.rename(aside)
        with suppress(FileNotFoundError):
            Path(f"{self.path}-wal").rename(f"{aside}-wal")
        Path(f"{self.path}-shm").unlink(missing_ok=True)

    def _locked(self, how: int) -> int:
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, how)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    # -- forks

    def rest(self) -> None:
        """Close everything, and open nothing before `wake`."""
        self._lock.acquire()
        self._resting = True
        self._lock.wait_for(self._is_at_rest, timeout=_REST_S)

    def wake(self) -> None:
        self._resting = False
        self._lock.notify_all()
        self._lock.release()

    def wake_in_child(self) -> None:
        self._resting = False
        self._open, self._in_use = 0, None  # whatever was open then is the parent's
        self._lock = threading.Condition(threading.Lock())

    def _is_at_rest(self) -> bool:
        self._let_go()
        return self._open == 0


@cache
def _files_at_rest_when_forking() -> weakref.WeakSet[CacheFile]:
    files: weakref.WeakSet[CacheFile] = weakref.WeakSet()
    resting: list[CacheFile] = []

    def rest() -> None:
        resting.extend(files)
        for file in resting:
            file.rest()

    def wake(*, in_child: bool) -> None:
        while resting:
            file = resting.pop()
            if in_child:
                file.wake_in_child()
            else:
                file.wake()

    os.register_at_fork(
        before=rest,
        after_in_parent=lambda: wake(in_child=False),
        after_in_child=lambda: wake(in_child=True),
    )
    return files


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _is_locked(error: Exception) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _never_close(connection: _Connection) -> None:
    """Not even when the interpreter ends, which drops what nothing refers to."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _is_blank(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True
