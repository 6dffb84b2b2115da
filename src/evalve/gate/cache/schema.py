"""The tables of the response cache."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from evalve.filesystems import journal_for, taking_turns, use_journal

_APPLICATION_ID = 0x65766331  # tells a cache from another program's database
_VERSION = 1

_TABLES = (
    # `body` comes last, so that a look at the other columns does not walk through it
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        experiment TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        last_used_at INTEGER NOT NULL,
        size INTEGER NOT NULL,
        status INTEGER NOT NULL,
        input_tokens INTEGER,
        output_tokens INTEGER,
        cache_read_tokens INTEGER,
        cache_write_tokens INTEGER,
        packing INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        headers BLOB NOT NULL,
        body BLOB NOT NULL
    )""",
    "CREATE INDEX entries_by_use ON entries (last_used_at)",
    # everything that is summed up or cleared by, so that no body is read for it
    "CREATE INDEX entries_by_origin ON entries (provider, model, experiment, created_at, size)",
    """CREATE TABLE leases (
        key BLOB PRIMARY KEY,
        token TEXT NOT NULL,
        pid INTEGER NOT NULL,
        pid_started REAL NOT NULL,
        host TEXT NOT NULL,
        expires_at REAL NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE totals (hits INTEGER NOT NULL)",
    "INSERT INTO totals VALUES (0)",
)


class ForeignDatabase(sqlite3.OperationalError):
    """A database that is whole, and not ours to write into."""


def version_of(connection: sqlite3.Connection) -> int:
    """0 where there are no tables yet."""
    # the tables first: another process may be making them, all in one transaction
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not tables:
        return 0
    if application != _APPLICATION_ID or version != _VERSION:
        raise ForeignDatabase("it belongs to another program or to another version of evalve")
    return int(version)


def make_tables(connection: sqlite3.Connection, directory: Path) -> None:
    """Of several processes that try at once, one does."""
    with taking_turns(directory):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that room can be given back in steps
        use_journal(connection, journal_for(directory))
        connection.execute("BEGIN IMMEDIATE")
        if version_of(connection) == 0:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
