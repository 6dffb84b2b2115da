"""Agents that misbehave in a database that they were lent: what they leave must reach no other sample."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import psycopg

SCHEMA = """\
CREATE TYPE stage AS ENUM ('lead', 'customer');
CREATE TABLE clients (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL UNIQUE,
    stage stage NOT NULL DEFAULT 'lead',
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE notes (id serial PRIMARY KEY, client_id uuid REFERENCES clients (id), body text NOT NULL);
CREATE SEQUENCE numbers;
ALTER SEQUENCE numbers RESTART WITH 1000;
CREATE SEQUENCE untouched;
"""
SEED = """\
INSERT INTO clients (name, stage) VALUES ('Acme', 'customer'), ('Globex', 'lead');
INSERT INTO notes (client_id, body) SELECT id, 'first call' FROM clients WHERE name = 'Acme';
"""

WORLD = {
    "SELECT string_agg(name || ' ' || stage, ', ' ORDER BY name) FROM clients": "Acme customer, Globex lead",
    "SELECT string_agg(id || ' ' || body, ', ' ORDER BY id) FROM notes": "1 first call",
    "SELECT last_value || ' ' || is_called FROM notes_id_seq": "1 true",
    "SELECT last_value || ' ' || is_called FROM numbers": "1000 false",
    "SELECT last_value || ' ' || is_called FROM untouched": "1 false",
    "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE oid >= 16384"
    " AND relkind IN ('r', 'S') AND relpersistence <> 't'": "clients notes notes_id_seq numbers untouched",
    "SELECT count(*) FROM pg_class WHERE relpersistence = 't'": 0,
    "SELECT count(*) FROM pg_publication": 0,
    "SELECT count(*) FROM pg_largeobject_metadata": 0,
    "SELECT count(*) FROM pg_prepared_statements": 0,
    "SELECT count(*) FROM pg_cursors WHERE is_holdable": 0,
    "SELECT count(*) FROM pg_listening_channels()": 0,
    "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()": 0,
    "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE locktype = 'advisory'"
    " AND datname = current_database()": 0,
    "SELECT current_setting('search_path')": '"$user", public',
    "SELECT current_setting('statement_timeout')": "30s",
    "SELECT current_user = session_user AND current_user = current_database()": True,
}
"""What every sample begins with, in SQL that evalve has no part in."""


async def found_wrong(connection: Any) -> list[str]:
    """What of the world is not as it must be."""
    wrong = []
    for question, expected in WORLD.items():
        [found] = await (await connection.execute(question)).fetchone()
        if found != expected:
            wrong.append(f"{question}: {found!r}")
    if not await _is_alone(connection):
        wrong.append("somebody else is connected")
    return wrong


async def _is_alone(connection: Any) -> bool:
    """Asked again for a while: a connection that was closed is seen a little longer."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()"
    for _ in range(50):
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        if await (await connection.execute(others)).fetchone() == (0,):
            return True
        await asyncio.sleep(0.02)
    return False


Agent = Callable[[Any], Awaitable[None]]


def _executes(statement: str) -> Agent:
    async def agent(db: Any) -> None:
        async with db.connect(autocommit=True) as connection:
            await connection.execute(statement)

    return agent


def _executes_in_call(statement: str) -> Agent:
    async def agent(db: Any) -> None:
        async with db.savepoint() as connection:
            await connection.execute(statement)

    return agent


async def _holds_locks(db: Any) -> None:
    connection = await db.connect()
    await connection.execute("LOCK TABLE clients IN ACCESS EXCLUSIVE MODE; UPDATE clients SET stage = 'lead'")


async def _opens_ten_connections(db: Any) -> None:
    for number in range(10):
        with suppress(psycopg.OperationalError):  # five are allowed
            connection = await db.connect(autocommit=True)
            await connection.execute(f"CREATE TEMP TABLE mine_{number} (id int)")


async def _kills_its_own_backend(db: Any) -> None:
    connection = await db.connect(autocommit=True)
    await connection.execute("DELETE FROM notes")
    with suppress(psycopg.OperationalError):
        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def _leaves_a_session_open(db: Any) -> None:
    connection = await db.connect(autocommit=True)
    await connection.execute("LISTEN news; SELECT pg_advisory_lock(7); CREATE TEMP TABLE mine (id int)")
    await connection.execute("PREPARE asked AS SELECT 1; SET search_path = nowhere")


async def _prepares_a_transaction(db: Any) -> None:
    async with db.connect(autocommit=True) as connection:
        with suppress(psycopg.errors.ObjectNotInPrerequisiteState):  # a server may forbid it
            await connection.execute(  # names of such transactions are the whole server's
                f"BEGIN; DELETE FROM notes; LOCK TABLE clients; PREPARE TRANSACTION '{db.name} never ended'"
            )


async def _prepares_a_transaction_in_a_call(db: Any) -> None:
    with suppress(psycopg.Error):  # `savepoint()` cannot release what is not there any more
        async with db.savepoint() as connection:
            await connection.execute(f"DELETE FROM notes; PREPARE TRANSACTION '{db.name} of a call'")


async def _connects_again_and_again(db: Any) -> None:
    """As a connection pool does in a program that was left running."""
    address = str(db.dsn)
    connected = threading.Event()

    def connect_again() -> None:
        while True:
            try:
                connection = psycopg.connect(address, autocommit=True)
            except psycopg.OperationalError:
                return  # it does not get in any more
            connected.set()
            with suppress(psycopg.OperationalError), connection:
                while True:
                    connection.execute("SELECT 1")

    threading.Thread(target=connect_again, daemon=True).start()
    await asyncio.to_thread(connected.wait)


async def _commits_between_calls(db: Any) -> None:
    async with db.savepoint() as connection:
        await connection.execute("INSERT INTO clients (name) VALUES ('Initech')")
        await connection.execute("COMMIT")
    async with db.savepoint() as connection:
        await connection.execute("INSERT INTO clients (name) VALUES ('Hooli')")


async def _ends_evalves_session(db: Any) -> None:
    with suppress(psycopg.OperationalError):
        async with db.savepoint() as connection:
            await connection.execute("DELETE FROM notes")
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def _raises(db: Any) -> None:
    async with db.connect(autocommit=True) as connection:
        await connection.execute("DELETE FROM notes")
    raise ValueError("an agent's own")


WRITERS: dict[str, Agent] = {
    "commits": _executes("INSERT INTO clients (name) VALUES ('Initech')"),
    "puts back what it deleted": _executes(
        "CREATE TEMP TABLE t AS SELECT * FROM notes; DELETE FROM notes; INSERT INTO notes SELECT * FROM t"
    ),
    "truncates": _executes("TRUNCATE clients, notes RESTART IDENTITY"),
    "drops tables": _executes("DROP TABLE notes; ALTER TABLE clients ADD COLUMN age int"),
    "adds objects": _executes("CREATE SCHEMA more; CREATE TABLE more.things (id int)"),
    "replaces a function": _executes("CREATE FUNCTION now() RETURNS int LANGUAGE sql AS 'SELECT 1'"),
    "publishes": _executes("CREATE PUBLICATION news"),
    "orders a table": _executes("ALTER TABLE notes CLUSTER ON notes_pkey"),
    "takes a number": _executes("SELECT nextval('notes_id_seq')"),
    "sets a number": _executes("SELECT setval('untouched', 500, false)"),
    "sets a number back": _executes("SELECT setval('numbers', 1, false)"),
    "stores a large object": _executes("SELECT lo_from_bytea(0, 'secret')"),
    "alters its role": _executes("ALTER ROLE current_user SET search_path = nowhere"),
    "alters its role elsewhere": _executes(
        "ALTER ROLE current_user IN DATABASE postgres SET work_mem = '1MB'"
    ),
    "kills its own backend": _kills_its_own_backend,
}
"""Who commits a change that stays in the database."""

OTHERS: dict[str, Agent] = {
    "holds locks": _holds_locks,
    "opens ten connections": _opens_ten_connections,
    "leaves a session open": _leaves_a_session_open,
    "prepares a transaction": _prepares_a_transaction,
    "prepares a transaction in a call": _prepares_a_transaction_in_a_call,
    "connects again and again": _connects_again_and_again,
    "changes its password": _executes("ALTER ROLE current_user PASSWORD 'mine'"),
    "becomes the owner": _executes("ALTER ROLE current_user SET role = 'postgres'"),
    "drops what it owns": _executes("DROP OWNED BY current_user"),
    "reads": _executes("SELECT * FROM clients"),
    "raises": _raises,
    "writes in a call": _executes_in_call("TRUNCATE notes; INSERT INTO notes (body) VALUES ('second')"),
    "takes numbers in a call": _executes_in_call(
        "SELECT nextval('notes_id_seq'), nextval('numbers'), setval('untouched', 9, false)"
    ),
    "leaves things in evalve's session": _executes_in_call(
        "LISTEN news; SELECT pg_advisory_lock(7); CREATE TEMP TABLE mine (id int); PREPARE asked AS SELECT 1;"
        "SET search_path = nowhere; SET statement_timeout = 1000; DECLARE c CURSOR WITH HOLD FOR SELECT 1"
    ),
    "commits between calls": _commits_between_calls,
    "commits in a call and hides it": _executes_in_call(
        "DELETE FROM notes; COMMIT; BEGIN; SAVEPOINT evalve_call"
    ),
    "ends evalve's session": _ends_evalves_session,
}
AGENTS = {**WRITERS, **OTHERS}


async def began_clean(db: Any) -> list[str]:
    """Asked over a connection of the sample's own, or over evalve's: what agents leave is in either."""
    async with db.connect() as connection:
        return await found_wrong(connection)


async def began_clean_in_call(db: Any) -> list[str]:
    async with db.savepoint() as connection:
        return await found_wrong(connection)
