"""Eight samples of one second: one by one, in windows, by default; and once under pytest."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from bench.measuring import Figure, timed_s
from bench.processes import python
from evalve import ForEach, foreach, run
from evalve.concurrency import SlidingWindow

SAMPLES = 8
SLOWER_AT_MOST = 1.1

_FILE = f"""
import asyncio
from evalve import foreach

@foreach("number", range({SAMPLES}))
async def eval_sleeps(number):
    await asyncio.sleep(1.0)
    return True
"""


@foreach("number", range(SAMPLES))
def eval_sync(number: int) -> bool:
    time.sleep(1.0)
    return True


@ForEach(concurrency=SlidingWindow(4))("number", range(SAMPLES))
async def eval_window_of_4(number: int) -> bool:
    await asyncio.sleep(1.0)
    return True


@ForEach(concurrency=SlidingWindow(8))("number", range(SAMPLES))
async def eval_window_of_8(number: int) -> bool:
    await asyncio.sleep(1.0)
    return True


@foreach("number", range(SAMPLES))
async def eval_default(number: int) -> bool:
    await asyncio.sleep(1.0)
    return True


def measure() -> list[Figure]:
    """One whole call each, from nothing to the result, against the seconds that a person expects."""
    figures = []
    for evaluation, expected_s in (
        (eval_default, 1.0),
        (eval_window_of_8, 1.0),
        (eval_window_of_4, 2.0),
        (eval_sync, 8.0),
    ):
        took_s = timed_s(partial(run, evaluation, progress="off"))
        name = evaluation.__name__.removeprefix("eval_").replace("_", " ")
        note = f"{took_s:.2f} s"
        figures.append(
            Figure(f"{name}, against {expected_s:g} s", took_s / expected_s, "×", SLOWER_AT_MOST, note)
        )
    Path("eval_file.py").write_text(_FILE, encoding="utf-8")
    under_pytest_s = timed_s(lambda: python("-m", "pytest", "-q", "eval_file.py", folder=Path.cwd()))
    return [*figures, Figure("default, whole pytest process", under_pytest_s, "s")]
