"""A database for each conversation, on one server for all of these tests."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evalve import gating
from evalve.contracts import SAMPLE, SampleContext
from evalve.sandboxes.postgresql import lender
from evalve.sandboxes.postgresql.database import Database
from evalve.sandboxes.postgresql.lender import Postgres, postgres
from evalve.simulator import Batches, Behaviour, Simulator
from evalve.traces import Trace
from postgres_server import private_server

SCHEMA = """\
CREATE TYPE stage AS ENUM ('lead', 'customer');
CREATE TABLE companies (name text PRIMARY KEY);
CREATE TABLE clients (
    id serial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    stage stage NOT NULL DEFAULT 'lead',
    company text REFERENCES companies (name),
    labels jsonb
);
CREATE TABLE quotes (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    client_id int NOT NULL REFERENCES clients (id),
    amount numeric NOT NULL
);
CREATE TABLE visits (
    id serial PRIMARY KEY, client_id int REFERENCES clients (id) DEFERRABLE INITIALLY DEFERRED
);
CREATE SCHEMA stock;
CREATE SEQUENCE stock.tickets START 40;
CREATE TABLE stock.warehouses (
    id int GENERATED ALWAYS AS IDENTITY (START WITH 10), city text,
    ticket int DEFAULT nextval('stock.tickets'), PRIMARY KEY (id, city)
);
"""
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def lending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    schema = tmp_path_factory.mktemp("state") / "schema.sql"
    schema.write_text(SCHEMA)
    with private_server() as (_, admin):
        lent = postgres(schema, url=admin.url, size=2, statement_timeout_s=0.3)
        yield lent
        lent.close()
        lender.close_all()


@pytest.fixture
def sample() -> SampleContext:
    return SampleContext("tests", "eval_tests", f"s{next(_NUMBERS)}", repeat=0, try_number=1, trace=Trace())


@pytest.fixture
async def db(lending: Postgres, sample: SampleContext) -> AsyncIterator[Database]:
    async with lending.lend(sample) as database:
        yield database


@pytest.fixture
def events(sample: SampleContext) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What the test leaves in the trace of a sample."""
    token = SAMPLE.set(sample)
    assert sample.trace is not None
    yield sample.trace.events
    SAMPLE.reset(token)


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a provider whose models answer as told, and points both wire formats at it."""
    monkeypatch.setattr(gating, "_HOUSES", {})
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"EVALVE_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-4711")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-4712")

    @contextmanager
    def started(answers: Any) -> Iterator[Simulator]:
        with Simulator(Behaviour(answers=answers, batches=Batches(delay_s=0))).start_in_thread() as simulator:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
            monkeypatch.setenv("OPENAI_BASE_URL", f"{simulator.url}/v1")
            yield simulator

    yield started
    for house in gating._HOUSES.values():
        house.close()
