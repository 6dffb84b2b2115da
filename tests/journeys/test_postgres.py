"""Databases that samples are lent, seen from outside: under pytest, with workers, in YAML, after kill -9."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from project import Project

from postgres_server import Admin, private_server

SCHEMA = "CREATE TABLE clients (id serial PRIMARY KEY, name text UNIQUE);"
SEED = "INSERT INTO clients (name) VALUES ('Acme');"
WRITES = """
    import os
    from evalve import foreach

    @foreach("name", ["a", "b", "c", "d"])
    async def eval_writes(name, postgres_sandbox):
        async with postgres_sandbox.connect() as connection:
            await connection.execute("INSERT INTO clients (name) VALUES ('Initech')")
            cursor = await connection.execute("SELECT count(*) FROM clients")
            count = await cursor.fetchone()
        open(f"started-{name}", "w").close()
        while os.environ.get("HANGS"):
            await __import__("asyncio").sleep(0.01)
        return count == (2,)

    @foreach("name", ["a", "b", "c", "d"])
    def eval_reads(name, postgres_sandbox):
        with postgres_sandbox.savepoint() as connection:
            return connection.execute("SELECT name FROM clients").fetchall() == [("Acme",)]
"""
LEFT = re.compile(r"postgres: (\d+) databases, (\d+) connections left \(lent (\d+)")


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with private_server() as (_, asked):
        yield asked


@pytest.fixture
def crm(project: Project) -> Project:
    project.write("schema.sql", SCHEMA)
    project.write("seed.sql", SEED)
    project.write(
        "evalve.yaml", "sandboxes: {postgres: {schema: schema.sql, seed: seed.sql, url: '${PG_URL}'}}\n"
    )
    project.write("eval_crm.py", WRITES)
    return project


def test_the_fixture_lends_what_the_file_says_and_tells_that_nothing_is_left(crm: Project) -> None:
    crm.write("evalve.yaml", "sandboxes:\n  postgres:\n    schema: schema.sql\n    seed: seed.sql\n")

    ended = crm.pytest()

    assert ended.outcomes == {"passed": 2}
    assert LEFT.findall(ended.all) == [("0", "0", "4"), ("0", "0", "4")]


def test_workers_of_xdist_share_a_server(crm: Project, admin: Admin) -> None:
    ended = crm.pytest("-n", "2", PG_URL=admin.url)

    assert ended.outcomes == {"passed": 2}
    assert admin.databases() == []


def test_after_kill_9_the_next_run_drops_what_was_left_and_goes_on(crm: Project, admin: Admin) -> None:
    with crm.started(
        "-m", "pytest", "-k", "writes", "--experiment", "crm", HANGS="1", PG_URL=admin.url
    ) as running:
        running.wait_until(lambda: len(list(crm.folder.glob("started-*"))) == 4, "all samples have begun")
        running.kill()
    assert admin.databases()

    ended = crm.pytest("-k", "writes", "--experiment", "crm", PG_URL=admin.url)

    assert ended.outcomes == {"passed": 1, "deselected": 1}
    assert admin.databases() == []


def test_an_agent_of_the_file_is_given_the_address_and_its_password_is_in_no_record(
    crm: Project, admin: Admin
) -> None:
    crm.write(
        "agent.py",
        """
        import os, sys
        import psycopg
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            connection.execute("DELETE FROM clients")
            connection.execute("INSERT INTO clients (name) VALUES ('Hooli')")
        print("connected to", os.environ["DATABASE_URL"])
        print(True)
        """,
    )
    crm.write(
        "rows.jsonl",
        '{"id": "1", "task": "hire", "done": "True"}\n{"id": "2", "task": "fire", "done": "True"}\n',
    )
    crm.write(
        "evalve.yaml",
        f"""
        sandboxes: {{postgres: {{schema: schema.sql, seed: seed.sql, url: '${{PG_URL}}'}}}}
        datasets: {{rows: rows.jsonl}}
        models:
          mine: {{agent: command, command: [{sys.executable}, "{{project}}/agent.py"], confine: off}}
        experiments:
          hiring:
            datasets: rows
            models: mine
            prompt: "{{task}}"
            sandbox: postgres
            expected: done
            evaluators: exact_match
        """,
    )

    ended = crm.evalve("run", "hiring", PG_URL=admin.url)

    assert ended.code == 0, ended.all
    assert LEFT.findall(ended.all) == [("0", "0", "2")]
    stored = b"".join(path.read_bytes() for path in crm.folder.rglob(".evalve/**/*") if path.is_file())
    assert b"connected to" in stored
    assert b"pgpw_" not in stored
    assert "pgpw_" not in ended.all
