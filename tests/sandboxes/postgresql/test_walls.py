"""What an agent with an address can reach of a server, and take of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import evalve
from evalve.contracts import SampleContext
from evalve.errors import OptionError
from evalve.sandboxes.postgresql.lender import Postgres, close_all, postgres, tenancy_at
from postgres_server import Admin

Lending = Callable[..., Postgres]
Context = Callable[[], SampleContext]


@pytest.fixture
def maker(admin: Admin) -> Iterator[str]:
    """The address of a user who may make databases and roles, and nothing else."""
    admin.ask("CREATE ROLE maker LOGIN CREATEDB CREATEROLE PASSWORD 'of-the-maker'")
    admin.ask("CREATE DATABASE makers OWNER maker")
    place = admin.url.rpartition("@")[2].removesuffix("postgres") + "makers"
    yield f"postgresql://maker:of-the-maker@{place}"
    close_all()
    admin.ask("DROP DATABASE makers WITH (FORCE)")
    admin.ask("DROP ROLE maker")


async def test_a_user_who_may_make_nothing_is_told_what_is_missing(
    lending: Lending, context: Context, admin: Admin, maker: str
) -> None:
    admin.ask("ALTER ROLE maker NOCREATEDB")
    with pytest.raises(
        OptionError, match=r"'maker' may not make databases and roles at .*ALTER ROLE \"maker\""
    ):
        async with lending(url=maker).lend(context()):
            pass


async def test_a_role_reaches_its_own_database_only(lending: Lending, context: Context, admin: Admin) -> None:
    lender = lending(size=2)
    async with lender.lend(context()) as one, lender.lend(context()) as other:
        for database in ("postgres", "template1", other.name):
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(one.dsn, dbname=database)
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(one.dsn, dbname="postgres", options="-c session_preload_libraries=plpgsql")
        with psycopg.connect(one.dsn, autocommit=True) as connection:
            for statement in (
                "CREATE DATABASE mine",
                "CREATE ROLE friend",
                f'DROP DATABASE "{other.name}"',
                f"ALTER ROLE \"{other.name}\" PASSWORD 'x'",
                f'GRANT CONNECT ON DATABASE "{other.name}" TO current_user',
                "ALTER ROLE current_user RESET session_preload_libraries",
                "SELECT pg_read_file('postgresql.conf')",
                "COPY clients TO PROGRAM 'cat'",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())


async def test_who_may_make_databases_but_is_no_superuser_builds_the_same_walls_but_one(
    state: tuple[Path, Path], maker: str, context: Context, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    lender = postgres(*state, url=maker, size=2)
    admin.ask("CREATE DATABASE evalve_0badcafe_1")  # another run's, whose walls are not up yet
    try:
        with caplog.at_level(logging.WARNING):
            await lender.run_begins(2)
    finally:
        admin.ask("DROP DATABASE IF EXISTS evalve_0badcafe_1")
    async with lender.lend(context()) as one, lender.lend(context()) as other:
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(one.dsn, dbname=other.name)
        with psycopg.connect(one.dsn) as connection:
            connection.execute("DROP TABLE notes")
    assert await lender.run_ends() == (
        "postgres: 0 databases, 0 connections left (lent 2: 1 unchanged, 1 dropped and cloned anew)"
    )
    assert "may connect to makers, postgres, template1 too" in caplog.text
    assert "REVOKE CONNECT ON DATABASE makers, postgres, template1 FROM PUBLIC" in caplog.text


async def test_connections_statements_and_locks_have_limits(lending: Lending, context: Context) -> None:
    lender = lending(connections=3, statement_timeout_s=0.2, lock_timeout_s=0.1)
    async with lender.lend(context()) as db:
        opened = [await db.connect() for _ in range(3)]
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            await db.connect()
        with pytest.raises(psycopg.errors.QueryCanceled):
            await opened[0].execute("SELECT pg_sleep(5)")
        await opened[1].execute("LOCK TABLE clients")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await opened[2].execute("SELECT * FROM clients")
        assert (await db.fingerprint()).tables.keys() == {"clients", "notes"}


async def test_connections_are_named_by_run_and_sample(
    lending: Lending, context: Context, admin: Admin
) -> None:
    told = context()
    async with lending().lend(told) as db, db.connect():
        [(name,)] = admin.ask("SELECT application_name FROM pg_stat_activity WHERE datname = %s", db.name)
    assert name == f"evalve {tenancy_at(None).run} {told.sample_id}"


async def test_the_connection_that_serves_the_next_sample_has_its_name(
    lending: Lending, context: Context
) -> None:
    lender = lending(size=1)
    told: list[Any] = []
    samples = [context(), context()]
    for sample in samples:
        async with lender.lend(sample) as db, db.savepoint() as connection:
            cursor = await connection.execute("SELECT current_setting('application_name'), pg_backend_pid()")
            told.append(await cursor.fetchone())
    (first, process), (second, same) = told
    assert process == same
    assert [first, second] == [f"evalve {tenancy_at(None).run} {one.sample_id}" for one in samples]


async def test_where_nobody_is_told_the_address_one_connection_of_each_database_counts(
    lending: Lending, admin: Admin
) -> None:
    lender = lending(size=90, connections=5)
    lender.keeps_addresses()
    await lender.run_begins(1)
    reserved = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'evalve % reserves 97'"
    assert admin.ask(reserved) == [(1,)]
    assert (await lender.run_ends()).startswith("postgres: 0 databases, 0 connections left")


async def test_too_few_connections_are_told_before_anything_runs(
    lending: Lending, admin: Admin, tmp_path: Path
) -> None:
    ran: list[int] = []

    @evalve.foreach("number", [1])
    async def eval_never(number: int, db: object = lending(size=90, connections=5)) -> bool:
        ran.append(number)
        return True

    with pytest.raises(
        OptionError,
        match=r"the embedded PostgreSQL has too few connections: 90 databases with 5 each, and 7 of"
        r" evalve's own,"
        r" are 457, and \d+ are free \(max_connections is 400; 3 are kept for superusers, \d+ are in use by"
        r" others.*\); lower size= or connections=, or raise max_connections",
    ):
        await eval_never(storage=f"sqlite:///{tmp_path}/db")
    assert ran == []


async def test_what_other_runs_may_use_is_not_given_away_twice(
    lending: Lending, state: tuple[Path, Path], admin: Admin
) -> None:
    lender = lending(size=60)
    await lender.run_begins(1)
    other = postgres(*state, url=admin.url, size=60)
    with pytest.raises(OptionError, match="307 are promised to other runs of evalve"):
        await other.run_begins(1)
    await lender.run_ends()


async def test_nobody_sees_a_password(
    lending: Lending, context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lender = lending(size=1)
    told = context()
    async with lender.lend(told) as db:
        password = db.dsn.partition("@")[0].rpartition(":")[2]
        assert password not in f"{db!r} {db.dsn!r} {vars(lender)!r}"
        assert f"{db.dsn}" == str(db.dsn)  # whoever hands it to a program hands over the password
    assert password not in f"{told.lent} {caplog.text}"


async def test_the_password_of_the_server_is_not_shown_either(state: tuple[Path, Path], admin: Admin) -> None:
    lender = postgres(*state, url=admin.url, size=1)
    await lender.run_begins(1)
    server = tenancy_at(admin.url).server
    password = admin.url.partition("@")[0].rpartition(":")[2]
    assert password not in f"{vars(lender)!r} {vars(server)!r} {server.shown}"
    await lender.run_ends()


async def test_a_transaction_of_evalves_own_may_stand_idle_while_a_model_is_asked(
    lending: Lending, context: Context
) -> None:
    async def idle_timeout(connection: psycopg.AsyncConnection[tuple[str]]) -> tuple[str] | None:
        cursor = await connection.execute("SHOW idle_in_transaction_session_timeout")
        return await cursor.fetchone()

    async with lending().lend(context()) as db:
        async with db.savepoint() as connection:
            assert await idle_timeout(connection) == ("0",)
        async with db.connect() as connection:
            assert await idle_timeout(connection) == ("10min",)
