"""One embedded server for all tests of a session, and a small state to begin with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from evalve.contracts import SampleContext
from evalve.sandboxes.postgresql import embedded, lender
from evalve.sandboxes.postgresql.lender import Postgres, postgres

SCHEMA = """\
CREATE TYPE stage AS ENUM ('lead', 'customer');
CREATE TABLE clients (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL UNIQUE,
    stage stage NOT NULL DEFAULT 'lead',
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE notes (id serial PRIMARY KEY, client_id uuid REFERENCES clients (id), body text NOT NULL);
CREATE VIEW customers AS SELECT name FROM clients WHERE stage = 'customer';
"""
SEED = """\
INSERT INTO clients (name, stage) VALUES ('Acme', 'customer'), ('Globex', 'lead');
INSERT INTO notes (client_id, body) SELECT id, 'first call' FROM clients WHERE name = 'Acme';
"""


class Admin:
    """The server of the tests, asked by its administrator."""

    def __init__(self, port: int, password: str) -> None:
        self.url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"

    def ask(self, statement: str, *parameters: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def databases(self, run: str = "") -> list[str]:
        return [
            name
            for (name,) in self.ask("SELECT datname FROM pg_database WHERE datname LIKE %s", f"evalve_{run}%")
        ]


@pytest.fixture(scope="session")
def admin() -> Iterator[Admin]:
    server = embedded.join()
    yield Admin(server.port, server.password)
    server.close()


@pytest.fixture
def state(tmp_path: Path) -> tuple[Path, Path]:
    schema, seed = tmp_path / "schema.sql", tmp_path / "seed.sql"
    schema.write_text(SCHEMA)
    seed.write_text(SEED)
    return schema, seed


@pytest.fixture
def lending(admin: Admin, state: tuple[Path, Path]) -> Iterator[Callable[..., Postgres]]:
    """Makes lenders of that state; afterwards nothing of them is left."""
    made: list[Postgres] = []

    def make(**settings: Any) -> Postgres:
        made.append(postgres(*state, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
    lender.close_all()


_NUMBERS = itertools.count(1)


@pytest.fixture
def context() -> Callable[[], SampleContext]:
    def make() -> SampleContext:
        return SampleContext("tests", "eval_tests", f"sample-{next(_NUMBERS)}", repeat=0, try_number=1)

    return make
