"""Resuming an experiment of 100,000 done samples: how long until the one new sample starts."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.measuring import Figure
from bench.processes import python
from evalve import ForEach
from evalve.concurrency import SlidingWindow

DONE = 100_000
ROUNDS = 3


def measure() -> list[Figure]:
    """The best of several processes, since noise only adds; each finds one new row, at the very end."""
    _run("list", DONE)
    sizes = itertools.count(DONE + 1)
    from_list = [_run("list", next(sizes)) for _ in range(ROUNDS)]
    from_generator = [_run("generator", next(sizes)) for _ in range(ROUNDS)]
    return [
        Figure("from the call to the new sample, rows in a list", min(from_list), "s", 2.0),
        Figure("from the call to the new sample, rows from a generator", min(from_generator), "s", 2.0),
    ]


def _run(kind: str, samples: int) -> float:
    return float(python("-m", "bench.resume", kind, str(samples), folder=Path.cwd()))


def first_start_after_s(kind: str, samples: int) -> float:
    """Run what is missing; the seconds from the call to the first sample's start."""
    starts_s: list[float] = []

    @ForEach(concurrency=SlidingWindow(100))("question,answer", _rows(kind, samples))
    async def eval_trivial(question: str, answer: str) -> bool:
        starts_s.append(time.perf_counter())
        return True

    began_s = time.perf_counter()
    result = asyncio.run(eval_trivial(experiment="long", progress="off"))
    assert result.done == samples, result.done
    if samples > DONE:
        assert len(starts_s) == 1, len(starts_s)
    return starts_s[0] - began_s


def _rows(kind: str, samples: int) -> Iterable[tuple[str, str]]:
    def generated() -> Iterator[tuple[str, str]]:
        for number in range(samples):
            yield f"question {number}", f"answer {number}"

    return list(generated()) if kind == "list" else generated()


if __name__ == "__main__":
    print(first_start_after_s(sys.argv[1], int(sys.argv[2])))
