"""What a database costs a conversation: to be lent one, and to give it back, for each way of resetting."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measuring import Figure
from bench.sandbox.agents import SCHEMA, SEED
from evalve.contracts import SampleContext
from evalve.sandboxes.postgresql import copies
from evalve.sandboxes.postgresql.lender import Postgres, close_all, postgres

ALONE = 60
AT_ONCE = 4
CONVERSATIONS = 120
STEADY_AFTER = 20
CALLS, CALL_S = 4, 0.05
"""Of a conversation that is over soon: model calls, and how long one takes."""


def measure() -> list[Figure]:
    Path("schema.sql").write_text(SCHEMA)
    Path("seed.sql").write_text(SEED)
    try:
        return asyncio.run(_measured())
    finally:
        close_all()


async def _measured() -> list[Figure]:
    called = await _one_by_one(_in_call)
    read = await _one_by_one(_reads)
    in_turn = await _side_by_side(_commits, CALLS * CALL_S)
    hurried = await _side_by_side(_commits, 0.0)
    return [
        Figure("to be lent a database, rolled back before", _median_ms(called.lent), "ms", 5.0),
        Figure("to roll back and to prove it", _median_ms(called.back), "ms"),
        Figure("to be lent a database, unchanged or cloned before, nobody else", _median_ms(read.lent), "ms"),
        Figure("to hand it back (it is looked at in the background)", _median_ms(read.back), "ms"),
        Figure(
            f"to be lent a clone, {AT_ONCE} at once, conversations of {CALLS * CALL_S:.1f} s",
            _median_ms(in_turn.lent),
            "ms",
            50.0,
            note=f"9 of 10 within {_nine_of_ten_ms(in_turn.lent):.0f} ms",
        ),
        Figure(
            f"the same, conversations of no length: {hurried.per_s:.0f} a second",
            _median_ms(hurried.lent),
            "ms",
        ),
        *await _strategies(),
    ]


class _Times:
    def __init__(self) -> None:
        self.lent: list[float] = []
        self.back: list[float] = []
        self.per_s = 0.0

    async def converse(self, lender: Postgres, number: int, agent: Callable[[Any], Awaitable[None]]) -> None:
        context = SampleContext("bench", "eval_lending", str(number), 0, 1)
        began_s = time.perf_counter()
        loan = lender.lend(context)
        db = await loan.__aenter__()
        self.lent.append(time.perf_counter() - began_s)
        await agent(db)
        ended_s = time.perf_counter()
        await loan.__aexit__(None, None, None)
        self.back.append(time.perf_counter() - ended_s)


async def _one_by_one(agent: Callable[[Any], Awaitable[None]]) -> _Times:
    times, lender = _Times(), postgres("schema.sql", "seed.sql")
    await lender.run_begins(AT_ONCE)
    for number in range(ALONE):
        await times.converse(lender, number, agent)
    await lender.run_ends()
    return times


async def _side_by_side(agent: Callable[[Any], Awaitable[None]], length_s: float) -> _Times:
    times, lender = _Times(), postgres("schema.sql", "seed.sql")
    await lender.run_begins(AT_ONCE)
    numbers = iter(range(CONVERSATIONS))

    async def talks(db: Any) -> None:
        await agent(db)
        await asyncio.sleep(length_s)

    async def slot() -> None:
        for number in numbers:
            await times.converse(lender, number, talks)

    began_s = time.perf_counter()
    await asyncio.gather(*(slot() for _ in range(AT_ONCE)))
    times.per_s = CONVERSATIONS / (time.perf_counter() - began_s)
    await lender.run_ends()
    del times.lent[:STEADY_AFTER]
    return times


async def _in_call(db: Any) -> None:
    async with db.savepoint() as connection:
        await connection.execute("INSERT INTO notes (body) VALUES ('of a call')")


async def _reads(db: Any) -> None:
    async with db.connect() as connection:
        await connection.execute("SELECT * FROM notes")


async def _commits(db: Any) -> None:
    async with db.connect() as connection:
        await connection.execute("INSERT INTO notes (body) VALUES ('of an agent')")


async def _strategies() -> list[Figure]:
    """Each by itself, with nothing beside it."""
    lender = postgres("schema.sql", "seed.sql", size=1)
    await lender.run_begins(1)
    pool = lender._pool
    assert pool is not None
    tenancy, walls = pool.tenancy, pool.walls
    took: dict[str, list[float]] = {"made": [], "proven": [], "looked at": [], "dropped": []}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began_s = time.perf_counter()
        result = work()
        took[name].append(time.perf_counter() - began_s)
        return result

    def once() -> None:
        copy = timed("made", lambda: copies.make_copy(tenancy, pool.template(), walls))
        timed("proven", lambda: copies.wrong_with(tenancy, copy))
        timed("looked at", lambda: copies.is_shut_and_unchanged(tenancy, copy))
        timed("dropped", lambda: copies.drop_copy(tenancy, copy))

    for _ in range(ALONE // 3):
        await asyncio.to_thread(once)
    await lender.run_ends()
    return [
        Figure("a clone made", _median_ms(took["made"]), "ms"),
        Figure("a clone proven to be what its template is", _median_ms(took["proven"]), "ms"),
        Figure("a database shut and proven unchanged", _median_ms(took["looked at"]), "ms"),
        Figure("a database dropped", _median_ms(took["dropped"]), "ms"),
    ]


def _median_ms(times_s: list[float]) -> float:
    return statistics.median(times_s) * 1e3


def _nine_of_ten_ms(times_s: list[float]) -> float:
    return statistics.quantiles(times_s, n=10)[-1] * 1e3
