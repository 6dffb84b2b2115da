"""Whatever agents, servers and other people do: no sample begins with what another one left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.sandbox.agents import AGENTS, began_clean, began_clean_in_call
from bench.sandbox.mutations import leaks_found, lender_in, sabotages_found
from bench.sandbox.server import PersonsServer, persons_server

import evalve
from evalve.contracts import SampleContext
from evalve.errors import LenderError
from evalve.sandboxes.postgresql import copies, loan
from evalve.sandboxes.postgresql.checksums import Parts, reset_and_check
from evalve.sandboxes.postgresql.lender import Postgres, close_all
from evalve.sandboxes.postgresql.sessions import Session
from evalve.sandboxes.postgresql.steps import Steps

Context = Callable[[], SampleContext]


@pytest.fixture(scope="module")
def server() -> Iterator[PersonsServer]:
    with persons_server(max_prepared_transactions="10") as started:
        yield started
        close_all()


@pytest.fixture(scope="module")
def lender(server: PersonsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One database at a time: the next sample has the same one, or one that was made in its place."""
    made = lender_in(tmp_path_factory.mktemp("state"), server.url, size=1, lock_timeout_s=2)
    yield made
    made.close()


@pytest.mark.parametrize("agent", AGENTS)
async def test_nothing_that_an_agent_does_reaches_the_next_sample(
    agent: str, lender: Postgres, context: Context
) -> None:
    try:
        async with lender.lend(context()) as db:
            await AGENTS[agent](db)
    except ValueError:
        pass  # of the agent that raises

    async with lender.lend(context()) as db:
        assert await began_clean_in_call(db) == []
    async with lender.lend(context()) as db:
        assert await began_clean(db) == []


async def test_without_a_reset_the_proof_would_find_every_leak(server: PersonsServer) -> None:
    made, found = await leaks_found(server.url)
    assert (made, found) == (15, 15)


def test_every_write_of_somebody_else_is_found_and_costs_no_score(server: PersonsServer) -> None:
    assert sabotages_found(server) == (12, 12, 0)


async def test_a_transaction_that_was_not_rolled_back_is_found(
    server: PersonsServer, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(Session):
        def end(self, expected: Parts) -> Steps[list[str] | None]:
            self.is_open = False
            yield "COMMIT"
            return (yield from reset_and_check(expected))

    monkeypatch.setattr(loan, "Session", Forgetful)
    lender = lender_in(tmp_path, server.url, size=1)
    with pytest.raises(LenderError, match="was not what it had been"):
        async with lender.lend(context()) as db, db.savepoint() as connection:
            await connection.execute("UPDATE clients SET stage = stage")
    lender.close()


async def test_a_copy_that_is_not_what_its_template_is_is_never_lent(
    server: PersonsServer, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy = copies.make_copy

    def written_into(*arguments: Any) -> copies.Copy:
        copy = make_copy(*arguments)
        server.ask("DELETE FROM notes", copy.name)
        return copy

    monkeypatch.setattr(copies, "make_copy", written_into)
    lender = lender_in(tmp_path, server.url, size=1)
    with pytest.raises(
        LenderError, match=r"a fresh copy is not what its template .* table public.notes differs"
    ):
        async with lender.lend(context()):
            pass
    lender.close()


def test_samples_wait_for_a_server_that_is_restarted(server: PersonsServer, tmp_path: Path) -> None:
    restarted: list[int] = []

    @evalve.foreach("number", range(4))
    async def eval_restarted(number: int, db: Any) -> bool:
        wrong = await began_clean(db)
        async with db.connect() as connection:
            await connection.execute("DELETE FROM notes")
        if not restarted:
            restarted.append(number)
            server.stop()
            asyncio.get_running_loop().call_later(0.3, server.start)
        return not wrong

    result = evalve.run(
        eval_restarted,
        db=lender_in(tmp_path, server.url, size=2),
        storage=f"sqlite:///{tmp_path}/db",
        max_concurrency=2,
        progress="off",
    )

    assert [record.status for record in result] == ["done"] * 4
    assert all(record.scores[0].value for record in result)
    assert "postgres: 0 databases, 0 connections left" in result.report["notes"][-1]


def test_a_server_that_is_gone_in_the_end_costs_no_result(server: PersonsServer, tmp_path: Path) -> None:
    @evalve.foreach("number", [1])
    async def eval_gone(number: int, db: Any) -> bool:
        async with db.savepoint() as connection:
            await connection.execute("SELECT 1")
        return True

    lender = lender_in(tmp_path, server.url, size=1)
    give_back = lender.run_ends

    async def stopped_before() -> str:
        server.stop()
        return await give_back()

    lender.run_ends = stopped_before  # type: ignore[method-assign]  # the moment is what the test is about
    result = evalve.run(eval_gone, db=lender, storage=f"sqlite:///{tmp_path}/db", progress="off")
    server.start()

    assert [record.status for record in result] == ["done"]
    assert "postgres: nobody knows what is left: " in result.report["notes"][-1]


def test_no_function_of_an_agent_runs_with_the_rights_of_an_administrator(
    server: PersonsServer, context: Context, tmp_path: Path
) -> None:
    """To read a state, rows are turned into JSON; a cast may say how."""
    lender = lender_in(tmp_path, server.url, size=1)

    async def reads() -> Any:
        async with lender.lend(context()) as db:
            async with db.connect() as connection:
                await connection.execute(
                    "CREATE FUNCTION told(stage) RETURNS json LANGUAGE plpgsql AS $$ BEGIN"
                    f"  RESET ROLE; EXECUTE 'ALTER ROLE {db.name} SUPERUSER'; RETURN '1'; END $$;"
                    "CREATE CAST (stage AS json) WITH FUNCTION told(stage)"
                )
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await db.fingerprint()
            return server.ask(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{db.name}'")

    assert asyncio.run(reads()) == [(False,)]
    lender.close()


@pytest.mark.parametrize("agent", ["opens ten connections", "prepares a transaction", "holds locks"])
async def test_who_is_no_superuser_reads_states_and_resets_them_too(
    agent: str, server: PersonsServer, context: Context, tmp_path: Path
) -> None:
    server.ask(
        "DO $$ BEGIN CREATE ROLE maker LOGIN CREATEDB CREATEROLE PASSWORD 'of-the-maker';"
        " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    url = f"postgresql://maker:of-the-maker@127.0.0.1:{server.port}/postgres"
    lender = lender_in(tmp_path, url, size=1)
    async with lender.lend(context()) as db:
        before = await db.fingerprint()
        await AGENTS[agent](db)
        assert await db.fingerprint() == before  # nothing of it was committed
    async with lender.lend(context()) as db:
        assert await began_clean(db) == []
    await asyncio.to_thread(lender.close)


def test_nothing_is_left_of_all_this(server: PersonsServer, lender: Postgres) -> None:
    lender.close()
    close_all()
    assert server.left() == 0
