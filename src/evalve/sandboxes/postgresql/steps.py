"""Questions to a database, written once for sync and async code: generators that yield SQL and take rows.

Of several statements at once, the rows are those of the last one that has any.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, TypeVar, cast

import psycopg
from psycopg.rows import tuple_row

_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Steps = Generator[str, Rows, T]


def drive(connection: psycopg.Connection[Any], steps: Steps[T]) -> T:
    try:
        sql = next(steps)
        while True:
            cursor = connection.cursor(row_factory=tuple_row).execute(sql)
            rows: Rows = []
            while True:
                rows = cursor.fetchall() if cursor.description is not None else rows
                if not cursor.nextset():
                    break
            sql = steps.send(rows)
    except StopIteration as end:
        return cast(T, end.value)


async def drive_async(connection: psycopg.AsyncConnection[Any], steps: Steps[T]) -> T:
    try:
        sql = next(steps)
        while True:
            cursor = await connection.cursor(row_factory=tuple_row).execute(sql)
            rows: Rows = []
            while True:
                rows = await cursor.fetchall() if cursor.description is not None else rows
                if not cursor.nextset():
                    break
            sql = steps.send(rows)
    except StopIteration as end:
        return cast(T, end.value)


def ending_connections_of(role: str) -> Steps[None]:
    """Of all, and return when they have ended. (`pg_terminate_backend` itself looks every 100 ms only.)"""
    yield f"""
        DO $evalve$
        DECLARE
            ending int[] := ARRAY(
                SELECT pid FROM pg_stat_activity WHERE usename = {quoted(role)} AND pid <> pg_backend_pid());
        BEGIN
            PERFORM pg_terminate_backend(pid) FROM unnest(ending) pid;
            FOR times IN 1..2500 LOOP
                PERFORM pg_stat_clear_snapshot();
                EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ANY (ending));
                PERFORM pg_sleep(0.002);
            END LOOP;
        END
        $evalve$"""


def rolling_back_prepared() -> Steps[None]:
    """Transactions of the database that is asked, which only who has prepared them may end."""
    prepared = yield "SELECT gid, owner FROM pg_prepared_xacts WHERE database = current_database()"
    for gid, owner in prepared:
        yield f'SET ROLE "{owner}"'
        yield f"ROLLBACK PREPARED {quoted(gid)}"
        yield "RESET ROLE"


def unquoted(name: str) -> str:
    """A name as people write it, where SQL needs quotes: a table `order`."""
    return _QUOTED.sub(lambda found: found[1].replace('""', '"'), name)


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
