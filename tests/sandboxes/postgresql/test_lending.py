"""A database for each attempt: from a known state, reset by the cheapest way that is sure."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.sandbox.agents import AGENTS

import evalve
from evalve.contracts import SampleContext
from evalve.errors import DeclarationError, LenderError
from evalve.sandboxes.postgresql.lender import Postgres, postgres, tenancy_at
from fake_surroundings import FakeSurroundings
from postgres_server import Admin

Lending = Callable[..., Postgres]
Context = Callable[[], SampleContext]


async def names(connection: Any) -> list[str]:
    cursor = await connection.execute("SELECT name FROM clients ORDER BY name")
    return [name for (name,) in await cursor.fetchall()]


async def test_calls_in_savepoints_are_rolled_back_and_the_database_is_used_again(
    lending: Lending, context: Context
) -> None:
    lender = lending(size=1)
    told = context()
    async with lender.lend(told) as db:
        first = db.name
        before = await db.fingerprint()
        async with db.savepoint() as connection:
            await connection.execute("INSERT INTO notes (body) VALUES ('second call')")
            await connection.commit()  # as tools do that were written for a connection of their own
        async with db.savepoint() as connection:
            await connection.execute("TRUNCATE clients CASCADE; DROP VIEW customers")
        assert await db.fingerprint() != before

    async with lender.lend(context()) as db:
        assert db.name == first
        assert await db.fingerprint() == before
    assert told.lent == {"database": first, "reset": "rolled back"}


async def test_a_call_that_raises_is_undone_and_the_calls_before_it_stay(
    lending: Lending, context: Context
) -> None:
    async with lending().lend(context()) as db:
        async with db.savepoint() as connection:
            await connection.execute("INSERT INTO clients (name) VALUES ('Initech')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            async with db.savepoint() as connection:
                await connection.execute("DELETE FROM notes")
                await connection.execute("INSERT INTO clients (name) VALUES ('Acme')")
        with pytest.raises(ValueError, match="validation"):
            async with db.savepoint() as connection:
                await connection.execute("DELETE FROM notes")
                raise ValueError("validation")
        async with db.savepoint() as connection:
            assert await names(connection) == ["Acme", "Globex", "Initech"]
            cursor = await connection.execute("SELECT count(*) FROM notes")
            assert await cursor.fetchone() == (1,)


async def test_settings_that_a_tool_leaves_on_the_connection_are_gone_in_the_next_sample(
    lending: Lending, context: Context
) -> None:
    lender = lending(size=1)
    async with lender.lend(context()) as db, db.savepoint() as connection:
        await connection.execute("PREPARE mine AS SELECT 1; SET statement_timeout = 1000; LISTEN everything")
        await connection.execute("SELECT pg_advisory_lock(1)")
        connection.row_factory = psycopg.rows.dict_row
    async with lender.lend(context()) as db, db.savepoint() as connection:
        cursor = await connection.execute("SHOW statement_timeout")
        assert await cursor.fetchone() == ("30s",)
        cursor = await connection.execute(
            "SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_locks"
            " WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database"
            " WHERE datname = current_database()))"
        )
        assert await cursor.fetchone() == (0, 0)


async def test_waiting_for_a_database_is_parked(lending: Lending, context: Context) -> None:
    lender = lending(size=1)
    waits = context()
    waits.surroundings = surroundings = FakeSurroundings()
    async with lender.lend(context()):
        waiting = asyncio.create_task(_name(lender, waits))
        await asyncio.sleep(0)  # until it waits
    await waiting
    assert surroundings.waits == [("parked", "database")]


async def test_parallel_calls_take_turns(lending: Lending, context: Context) -> None:
    async with lending().lend(context()) as db:

        async def call(name: str) -> None:
            async with db.savepoint() as connection:
                await connection.execute("INSERT INTO clients (name) VALUES (%s)", (name,))

        await asyncio.gather(*(call(f"client {number}") for number in range(5)))
        async with db.savepoint() as connection:
            assert len(await names(connection)) == 7
            with pytest.raises(LenderError, match="inside"):
                async with db.savepoint():
                    pass


async def test_a_reader_with_the_address_hands_the_database_back_and_its_password_ends(
    lending: Lending, context: Context
) -> None:
    lender = lending(size=1)
    async with lender.lend(context()) as db:
        first, dsn = db.name, str(db.dsn)
        async with db.connect() as connection:
            assert await names(connection) == ["Acme", "Globex"]

    async with lender.lend(context()) as db:
        assert db.name == first
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(dsn)


async def test_where_agents_change_something_each_time_databases_are_looked_at_now_and_then(
    lending: Lending, context: Context
) -> None:
    lender = lending(size=1)
    names = []
    for number in range(10):
        async with lender.lend(context()) as db, db.connect() as connection:
            names.append(db.name)
            if number < 4:
                await connection.execute("INSERT INTO clients (name) VALUES ('Initech')")
    four_changed, not_looked_at, handed_back = names[:4], names[4:9], names[8:]
    assert len({*four_changed, *not_looked_at}) == 9
    assert len(set(handed_back)) == 1


async def test_locks_and_changes_that_an_agent_has_left_open_end_with_its_sample(
    lending: Lending, context: Context
) -> None:
    lender = lending(size=1)
    async with lender.lend(context()) as db:
        first = db.name
        await AGENTS["holds locks"](db)
    async with lender.lend(context()) as db:
        assert db.name == first
        async with db.savepoint() as connection:
            cursor = await connection.execute("SELECT count(*) FROM customers")
            assert await cursor.fetchone() == (1,)


async def test_who_waits_for_a_database_is_given_the_one_that_comes_back(
    lending: Lending, context: Context
) -> None:
    lender = lending(size=1)
    async with lender.lend(context()) as db:
        waiting = asyncio.create_task(_name(lender, context()))
        gives_up = asyncio.create_task(_name(lender, context()))
        await asyncio.sleep(0)
        gives_up.cancel()
        first = db.name
    assert await waiting == first
    with pytest.raises(asyncio.CancelledError):
        await gives_up


async def _name(lender: Postgres, context: SampleContext) -> str:
    async with lender.lend(context) as db:
        name: str = db.name
        return name


async def test_a_database_that_somebody_else_wrote_into_is_quarantined_and_the_sample_is_told(
    lending: Lending, context: Context, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    lender = lending(size=1)
    with pytest.raises(LenderError, match=r"table public\.notes differs"):
        async with lender.lend(context()) as db:
            first = db.name
            async with db.savepoint() as connection:
                await connection.execute("INSERT INTO clients (name) VALUES ('Initech')")
            admin.ask("INSERT INTO notes (body) VALUES ('from outside')", database=db.name)

    assert "taken out of use" in caplog.text
    async with lender.lend(context()) as db:
        assert db.name != first
        assert await db.diff({"notes": [{"body": "first call"}]}) == ""


async def test_after_the_server_was_left_a_lender_closes_its_own_connections(
    admin: Admin, lending: Lending, context: Context
) -> None:
    lender = lending(url=f"{admin.url}?connect_timeout=10")  # where no other test's lender is
    async with lender.lend(context()) as db, db.savepoint() as connection:
        await connection.execute("DELETE FROM notes")
    assert not connection.closed  # it is kept for the next sample
    tenancy_at(f"{admin.url}?connect_timeout=10").close()
    await asyncio.to_thread(lender.close)
    assert connection.closed


def test_sync_code_uses_the_same_names(lending: Lending, context: Context) -> None:
    lender = lending(size=1)

    def work(db: Any) -> None:
        before = db.fingerprint()
        with db.savepoint() as connection:
            connection.execute("DELETE FROM notes")
        assert db.diff(before) == "notes: missing: client_id clients 'Acme', body 'first call'"
        with db.connect() as connection:
            assert connection.execute("SELECT count(*) FROM notes").fetchone() == (1,)

    async def lend() -> None:
        async with lender.lend(context()) as db:
            await asyncio.to_thread(work, db)

    asyncio.run(lend())


async def test_in_another_process_it_connects_by_itself_and_counts_as_held(
    lending: Lending, context: Context
) -> None:
    def work(there: Any) -> None:
        with there.connect() as connection:
            connection.execute("DELETE FROM notes")
        assert there.diff({"notes": []}) == ""

    told = context()
    async with lending(size=1).lend(told) as db:
        await asyncio.to_thread(work, pickle.loads(pickle.dumps(db)))
    assert told.lent["reset"] == "handed back"


async def test_async_code_sees_what_its_tools_did_in_threads(lending: Lending, context: Context) -> None:
    def tool(db: Any) -> None:
        with db.savepoint() as connection:
            connection.execute("DELETE FROM notes")

    async with lending().lend(context()) as db:
        await asyncio.to_thread(tool, db)
        assert await db.diff({"notes": []}) == ""


# -- evaluations


def test_an_evaluation_is_lent_databases_and_says_that_none_is_left(
    lending: Lending, admin: Admin, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    @evalve.foreach("number", list(range(12)))
    async def eval_writes(number: int, db: Any) -> bool:
        async with db.connect() as connection:
            await connection.execute("INSERT INTO notes (body) VALUES ('x')")
            cursor = await connection.execute("SELECT count(*) FROM notes")
            return bool(await cursor.fetchone() == (2,))

    result = evalve.run(
        eval_writes,
        db=lending(size=3),
        storage=f"sqlite:///{tmp_path}/db",
        max_concurrency=6,
        progress="plain",
    )

    assert [record.scores[0].value for record in result] == [True] * 12
    assert (
        "postgres: 0 databases, 0 connections left (lent 12: 12 dropped and cloned anew)"
        in capfd.readouterr().err
    )
    assert [one for one in admin.databases() if not one.startswith("evalve_t_")] == []
    assert all(record.lent and record.lent["db"]["reset"] == "handed back" for record in result)


def test_a_sample_whose_database_was_written_into_runs_again(
    lending: Lending, admin: Admin, tmp_path: Path
) -> None:
    tries: list[str] = []

    @evalve.foreach("number", [1])
    async def eval_once(number: int, db: Any) -> bool:
        async with db.savepoint() as connection:
            await connection.execute("DELETE FROM notes")
        tries.append(db.name)
        if len(tries) == 1:
            admin.ask("UPDATE clients SET stage = 'lead'", database=db.name)
        return True

    [record] = evalve.run(eval_once, db=lending(), storage=f"sqlite:///{tmp_path}/db")

    assert record.status == "done"
    assert len(set(tries)) == record.tries == 2
    assert "table public.clients differs" in str(record.history[0].error)


# -- what can be told early


async def test_the_search_path_that_a_script_sets_is_that_of_every_database(
    admin: Admin, context: Context, tmp_path: Path
) -> None:
    (tmp_path / "schema.sql").write_text(
        "CREATE SCHEMA crm; SET search_path TO crm, public; CREATE TABLE clients (name text);"
    )
    lender = postgres(tmp_path / "schema.sql", size=1)
    for _ in range(2):  # of the second, somebody else has built the template
        async with lender.lend(context()) as db, db.savepoint() as connection:
            await connection.execute("INSERT INTO clients VALUES ('Acme')")
            assert await db.diff({"crm.clients": [{"name": "Acme"}]}) == ""
        lender.close()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "CREATE TABLE a (id int);\nCREATE TABLE b (id nonsense);",
            r'schema.sql:2: type "nonsense" does not exist',
        ),
        ("COPY a FROM stdin;\n1\n\\.\n", r"schema.sql:1: COPY … FROM stdin cannot be sent"),
        (
            "-- CREATE ROLE a\n\n create  user app;\n",
            r"schema.sql:3: databases and roles belong to the server",
        ),
        ('CREATE EXTENSION "uuid-ossp";', r"is not available; gen_random_uuid\(\) needs no.*with url="),
        ("CREATE TABLE a (id int);\n\\connect other\n", r"schema.sql:2: a command of psql cannot be sent"),
    ],
)
async def test_a_mistake_in_a_script_is_told_with_its_line(
    schema: str, message: str, admin: Admin, tmp_path: Path
) -> None:
    (tmp_path / "schema.sql").write_text(schema)
    before = admin.databases()
    with pytest.raises(DeclarationError, match=message):
        await postgres(tmp_path / "schema.sql").run_begins(4)
    assert admin.databases() == before


def test_a_file_that_is_not_there_is_told_where_it_is_declared() -> None:
    with pytest.raises(
        DeclarationError, match=r"test_lending.py:\d+: there is no file 'nowhere.sql'; looked in"
    ):
        evalve.sandboxes.postgres(schema="nowhere.sql")


def test_an_address_that_is_none_is_told_without_its_password(state: tuple[Path, Path]) -> None:
    with pytest.raises(DeclarationError, match="is not an address") as told:
        evalve.sandboxes.postgres(*state, url="mysql://me:hunter2@host/x")
    assert "hunter2" not in str(told.value)


async def test_a_server_that_is_not_there_is_told(state: tuple[Path, Path]) -> None:
    lender = postgres(*state, url="postgresql://me:hunter2@127.0.0.1:1/postgres")
    with pytest.raises(LenderError, match=r"PostgreSQL at 127\.0\.0\.1:1 cannot be reached") as told:
        await lender.run_begins(4)
    assert "hunter2" not in str(told.value)
