"""What SQLite's errors mean to a person, and what to do about them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from evalve.errors import StorageError

BUSY_TIMEOUT_S = 30.0

_ELSEWHERE = "or name another file with --storage"
_REMEDIES = {
    "SQLITE_NOTADB": f"it is damaged or no database at all: move it aside or restore a copy, {_ELSEWHERE}",
    "SQLITE_CORRUPT": "it is damaged: move it aside or restore a copy (`sqlite3 FILE .recover` saves what can"
    f" still be read), {_ELSEWHERE}",
    "SQLITE_FULL": "the disk is full: make room, then run the same command again to resume",
    "SQLITE_READONLY": f"it cannot be written: check the permissions of file and directory, {_ELSEWHERE}",
    "SQLITE_CANTOPEN": f"it cannot be opened: check that it is a file that may be written, {_ELSEWHERE}",
    "SQLITE_BUSY": f"another process has kept it locked for {BUSY_TIMEOUT_S:.0f} s: see which one, then run"
    " the same command again to resume",
    "SQLITE_IOERR": "the disk reported an error: check it, then run the same command again to resume",
}


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Errors of the database become ours; errors about what was to be written stay as they are."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError):
        raise
    except (sqlite3.DatabaseError, OSError) as error:
        raise explanation(error, place) from error


def explanation(error: Exception, place: str) -> StorageError:
    if isinstance(error, OSError):
        return StorageError(f"{place}: {error.strerror or error}: check the path, {_ELSEWHERE}")
    for code, remedy in _REMEDIES.items():
        if sqlite_code(error).startswith(code):
            return StorageError(f"{place}: {remedy} ({error})")
    return StorageError(f"{place}: {error}")


def sqlite_code(error: Exception) -> str:
    """`SQLITE_BUSY` and the like; empty where the error did not come out of SQLite itself."""
    return str(getattr(error, "sqlite_errorname", ""))
