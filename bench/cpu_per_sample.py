"""CPU per sample, recording and summary included, beside a bare loop that stores each row."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from statistics import median
from typing import Any

from bench.measuring import Figure, alternating, cpu_of
from evalve import ForEach, Score
from evalve.concurrency import SlidingWindow
from evalve.evaluators import exact_match

SAMPLES = 50_000
WINDOW = 100
ROUNDS = 5
_FILES = itertools.count()


def questions() -> Iterator[tuple[str, str]]:
    for number in range(SAMPLES):
        yield f"question {number}", f"answer {number}"


@ForEach(concurrency=SlidingWindow(WINDOW))("question,answer", questions)
async def eval_trivial(question: str, answer: str) -> Score:
    return exact_match(answer, answer)


def measure() -> list[Figure]:
    """Medians of CPU seconds over rounds, each side starting with an empty file."""
    cpu_s = alternating(
        {
            "evalve": lambda: cpu_of(_evaluate),
            "keyed": lambda: cpu_of(lambda: asyncio.run(_bare_loop(key="PRIMARY KEY"))),
            "unkeyed": lambda: cpu_of(lambda: asyncio.run(_bare_loop(key=""))),
        },
        rounds=ROUNDS,
    )
    ours_s, keyed_s, unkeyed_s = (median(cpu_s[side]) for side in ("evalve", "keyed", "unkeyed"))
    return [
        Figure("CPU, against a bare loop whose rows can be found by id", ours_s / keyed_s, target=4.0),
        Figure("… against one that only appends them", ours_s / unkeyed_s),
        Figure("evalve, per sample", ours_s / SAMPLES * 1e6, unit="µs"),
        Figure("bare loop, per sample", keyed_s / SAMPLES * 1e6, unit="µs"),
        Figure("appending loop, per sample", unkeyed_s / SAMPLES * 1e6, unit="µs"),
    ]


def _evaluate() -> None:
    result = asyncio.run(eval_trivial(storage=f"{next(_FILES)}.db", progress="off"))
    assert result.done == SAMPLES, result.done
    assert result.summary["exact_match"]["accuracy"] == 1.0


async def _bare_loop(*, key: str) -> None:
    """Workers on one iterator: call, hash, encode, and insert by the hundred.

    The hash is the table's key, as it has to be where a later run shall find what is done. Without a
    key the same loop needs a third of the time, and its rows cannot be looked up.
    """
    with closing(sqlite3.connect(f"{next(_FILES)}.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"CREATE TABLE results (id TEXT {key}, result TEXT)")
        rows = questions()
        batch: list[tuple[str, str]] = []

        async def work() -> None:
            for question, answer in rows:
                score = await _trivial(question, answer)
                text = json.dumps({"question": question, "answer": answer, **score})
                batch.append((hashlib.sha256(text.encode()).hexdigest(), text))
                if len(batch) == 100:
                    _insert(database, batch)

        await asyncio.gather(*(work() for _ in range(WINDOW)))
        _insert(database, batch)
        (stored,) = database.execute("SELECT count(*) FROM results").fetchone()
        assert stored == SAMPLES, stored


async def _trivial(question: str, answer: str) -> dict[str, Any]:
    return {"exact_match": answer == answer.strip()}


def _insert(database: sqlite3.Connection, batch: list[tuple[str, str]]) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.executemany("INSERT INTO results VALUES (?, ?)", batch)
    database.execute("COMMIT")
    batch.clear()
