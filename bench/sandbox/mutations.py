"""Whether leaks are found: nothing is reset, or somebody else writes into databases while they are lent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import evalve
from bench.processes import own_folder
from bench.sandbox.agents import SCHEMA, SEED, WRITERS, began_clean_in_call
from bench.sandbox.server import PersonsServer
from evalve.contracts import SampleContext
from evalve.sandboxes.postgresql import copies
from evalve.sandboxes.postgresql.lender import Postgres, postgres

WRITES = (
    "INSERT INTO notes (body) VALUES ('of somebody else')",
    "UPDATE clients SET stage = 'lead' WHERE name = 'Acme'",
    "UPDATE clients SET stage = stage",
    "DELETE FROM notes",
    "CREATE TABLE others (id int)",
    "ALTER TABLE clients ADD COLUMN age int",
    "CREATE INDEX ON notes (body)",
    "ALTER TYPE stage ADD VALUE 'lost'",
    "COMMENT ON TABLE notes IS 'of somebody else'",
    "GRANT SELECT ON notes TO PUBLIC",
    "SELECT lo_from_bytea(0, 'secret')",
    "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'",
)
"""As an administrator, beside a sample that has an open transaction."""


def lender_in(folder: Path, url: str, **settings: Any) -> Postgres:
    (folder / "schema.sql").write_text(SCHEMA)
    (folder / "seed.sql").write_text(SEED)
    made: Postgres = postgres(folder / "schema.sql", folder / "seed.sql", url=url, **settings)
    return made


async def leaks_found(url: str) -> tuple[int, int]:
    """Leaks that agents have made, and those that are told of a database that is not reset."""
    found = 0
    with own_folder() as folder:
        lender = lender_in(folder, url, size=2)
        await lender.run_begins(1)
        for number, agent in enumerate(WRITERS.values()):
            async with lender.lend(SampleContext("mutations", "leaks", str(number), 0, 1)) as db:
                await agent(db)
                pool = lender._pool
                assert pool is not None
                wrong = await asyncio.to_thread(copies.wrong_with, pool.tenancy, pool._lent[db.name])
                found += bool(wrong)
        await lender.run_ends()
    return len(WRITERS), found


def sabotages_found(server: PersonsServer) -> tuple[int, int, int]:
    """Writes, those that were told, and wrong scores: whoever was written into is run again."""
    tries: dict[str, int] = {}
    with own_folder() as folder:

        @evalve.foreach("write", WRITES)
        async def eval_sabotaged(write: str, db: Any) -> bool:
            tries[write] = tries.get(write, 0) + 1
            if tries[write] > 1:
                return not await began_clean_in_call(db)
            async with db.savepoint() as connection:
                await connection.execute("SELECT 1")  # no lock of its own is in the way
            await asyncio.to_thread(server.ask, write, db.name)
            return False

        result = evalve.run(
            eval_sabotaged,
            db=lender_in(folder, server.url, size=2),
            storage=f"sqlite:///{folder}/records.db",
            progress="off",
        )
    wrong = sum(record.status != "done" or not record.scores[0].value for record in result)
    return len(WRITES), sum(count == 2 for count in tries.values()), wrong
