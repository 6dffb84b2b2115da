"""Nothing is left of a process that was killed, and a lost server costs samples nothing but time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

import evalve
from evalve.contracts import SampleContext
from evalve.errors import LenderError
from evalve.sandboxes.postgresql import embedded
from evalve.sandboxes.postgresql.lender import Postgres, close_all, postgres
from postgres_server import Admin, joining, private_place

RUNS = """
import asyncio, sys
from evalve.contracts import SampleContext
from evalve.sandboxes.postgresql.lender import postgres, tenancy_at

async def main():
    lender = postgres(sys.argv[1], sys.argv[2], url=sys.argv[3], size=3)
    async with lender.lend(SampleContext("e", "f", "1", 0, 1)) as db, db.connect() as connection:
        await connection.execute("LOCK TABLE clients")
        print(tenancy_at(sys.argv[3]).run, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def running(state: tuple[Path, Path], url: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS, *map(str, state), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_the_next_start_drops_what_a_killed_process_has_left_and_nothing_of_one_that_lives(
    state: tuple[Path, Path], admin: Admin
) -> None:
    killed, dead = running(state, admin.url)
    living, alive = running(state, admin.url.removesuffix("postgres") + "template1")
    killed.kill()
    killed.communicate()
    admin.ask(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE %s",
        f"evalve {dead}%",  # as the server itself does when it notices that its client is gone
    )
    assert admin.databases(dead)

    third, run = running(state, admin.url)

    assert admin.databases(dead) == []
    assert admin.ask("SELECT rolname FROM pg_roles WHERE rolname LIKE %s", f"evalve_{dead}%") == []
    assert admin.databases(alive)
    for process in (living, third):
        process.communicate()
    assert admin.databases(alive) == admin.databases(run) == []


def test_a_process_that_ends_leaves_no_template_that_nobody_else_uses(
    state: tuple[Path, Path], admin: Admin
) -> None:
    close_all()
    first, _ = running(state, admin.url)
    second, _ = running(state, admin.url)
    assert len(admin.databases("t_")) == 1  # built once
    first.communicate()
    assert len(admin.databases("t_")) == 1
    second.communicate()
    assert admin.databases() == []
    assert admin.ask("SELECT rolname FROM pg_roles WHERE rolname LIKE 'evalve%'") == []


async def test_a_template_that_was_not_finished_is_built_again(
    lending: Callable[..., Postgres], context: Callable[[], SampleContext], admin: Admin
) -> None:
    lender = lending()
    async with lender.lend(context()):
        [template] = admin.databases("t_")
    lender.close()
    close_all()
    admin.ask(f"CREATE DATABASE {template}")  # its builder was killed before it was marked
    async with lender.lend(context()) as db:
        assert await db.diff({"notes": [{"body": "first call"}]}) == ""


def test_samples_whose_server_was_lost_run_again(
    state: tuple[Path, Path], admin: Admin, tmp_path: Path
) -> None:
    close_all()
    tries: list[str] = []

    @evalve.foreach("number", [1, 2])
    async def eval_lost(number: int, db: Any) -> bool:
        async with db.savepoint() as connection:
            await connection.execute("DELETE FROM notes")
        tries.append(db.name)
        if len(tries) == 1:
            admin.ask(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE application_name LIKE 'evalve%' AND pid <> pg_backend_pid()"
            )
        async with db.savepoint() as connection:
            cursor = await connection.execute("SELECT count(*) FROM notes")
            return bool(await cursor.fetchone() == (0,))

    result = evalve.run(
        eval_lost, db=postgres(*state, url=admin.url), storage=f"sqlite:///{tmp_path}/db", max_concurrency=1
    )

    assert [record.status for record in result] == ["done", "done"]
    assert [record.scores[0].value for record in result] == [True, True]
    assert "the server was lost" in str(next(iter(result)).history[0].error)
    close_all()
    assert admin.databases() == []


def test_samples_whose_embedded_server_was_killed_run_again_on_another(
    state: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_all()
    tries: list[str] = []

    @evalve.foreach("number", [1])
    async def eval_killed(number: int, db: Any) -> bool:
        tries.append(db.name)
        if len(tries) == 1:
            postmaster = psutil.Process(json.loads((place / "server.json").read_text())["pid"])
            postmaster.kill()
            psutil.wait_procs([postmaster])
        with suppress(psycopg.OperationalError):  # as agents do, which go on whatever a tool answers
            async with db.savepoint() as connection:
                await connection.execute("DELETE FROM notes")
        return len(tries) == 2

    with private_place() as place:
        monkeypatch.setattr(embedded, "join", joining(place))
        result = evalve.run(eval_killed, db=postgres(*state), storage=f"sqlite:///{tmp_path}/db")
        close_all()

    [record] = result
    assert (record.status, record.scores[0].value) == ("done", True)
    assert [one.error for one in record.history if one.error] == [
        "LenderError: the server was lost while the sample had a database of it"
    ]


async def test_a_sample_that_was_left_behind_keeps_no_database(
    lending: Callable[..., Postgres], context: Callable[[], SampleContext], admin: Admin
) -> None:
    lender = lending(size=1)
    await lender.run_begins(1)
    loan = lender.lend(context())
    db = await loan.__aenter__()
    assert (await lender.run_ends()).startswith("postgres: 0 databases, 0 connections left")
    assert db.name not in admin.databases()
    await loan.__aexit__(None, None, None)


async def test_a_pool_that_closes_tells_who_waits(
    lending: Callable[..., Postgres], context: Callable[[], SampleContext]
) -> None:
    lender = lending(size=1)
    async with lender.lend(context()):
        assert lender._pool is not None
        waiting = lender._pool.take()
        lender._pool.close()
        for asked in (waiting, lender._pool.take()):
            with pytest.raises(LenderError, match="the run is over"):
                asked.result()


def test_the_driver_is_named_where_it_is_missing() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import evalve\n"
        "try: evalve.sandboxes.postgres('schema.sql')\n"
        "except ImportError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'evalve[postgres]'" in told.stdout
