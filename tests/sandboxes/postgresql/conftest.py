"""One embedded server for all tests of a session, and a small state to begin with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalve.contracts import SampleContext
from evalve.sandboxes.postgresql import embedded, lender
from evalve.sandboxes.postgresql.lender import Postgres, postgres
from postgres_server import Admin, joining, private_server

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


@pytest.fixture(scope="session")
def admin() -> Iterator[Admin]:
    with private_server() as (place, asked), pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "join", joining(place))
        yield asked
        lender.close_all()


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


_NUMBERS = itertools.count(1)


@pytest.fixture
def context() -> Callable[[], SampleContext]:
    def make() -> SampleContext:
        return SampleContext("tests", "eval_tests", f"sample-{next(_NUMBERS)}", repeat=0, try_number=1)

    return make
