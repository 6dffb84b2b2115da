"""CPU per call over the gateway, which runs in a process of its own, beside the same call made directly."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median

import psutil

from bench.measuring import Figure, alternating, cpu_of
from bench.processes import environment
from bench.provider import own_state, provider
from bench.sides import Side, bare, through_model

CALLS = 600
WINDOW = 50
ROUNDS = 5
MODEL = "claude-haiku-4-5"
_NUMBERS = itertools.count()


def measure() -> list[Figure]:
    """Medians over rounds; the client of both is a bare loop, and of the gateway only its process counts."""
    with own_state() as environ, provider() as simulated:
        os.environ.update(environ)
        os.environ.update(ANTHROPIC_BASE_URL=simulated.url, ANTHROPIC_API_KEY="key")
        with _gateway() as (url, process):
            direct = bare(simulated.url, MODEL)
            over_gateway = bare(url, MODEL)
            model = through_model(simulated.url, MODEL)
            taken = alternating(
                {
                    "a bare loop, directly": partial(_client_us, direct),
                    "evalve.model": partial(_client_us, model),
                    "the gateway": partial(_gateway_us, over_gateway, process),
                },
                rounds=ROUNDS,
            )
    us = {side: median(each) for side, each in taken.items()}
    shown = [Figure(f"{side}, CPU per call", value, "µs") for side, value in us.items()]
    return [
        *shown,
        Figure("CPU of the gateway, against a direct call", us["the gateway"] / us["a bare loop, directly"]),
    ]


@contextmanager
def _gateway() -> Iterator[tuple[str, psutil.Process]]:
    running = subprocess.Popen(
        [sys.executable, "-m", "evalve", "gateway", "--json"],
        env={
            **environment(),
            **{name: os.environ[name] for name in os.environ if name.startswith("EVALVE_")},
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        url = json.loads(running.stdout.readline())["upstreams"]["anthropic"]
        yield url, psutil.Process(running.pid)
    finally:
        running.terminate()
        running.communicate(timeout=10)


def _client_us(side: Side) -> float:
    _run(side, WINDOW)  # what the first calls open is not per call
    return cpu_of(lambda: _run(side, CALLS)) / CALLS * 1e6


def _gateway_us(side: Side, process: psutil.Process) -> float:
    """What the gateway's process used; the client's own part is that of a direct call."""
    _run(side, WINDOW)
    before_s = _cpu_s(process)
    _run(side, CALLS)
    return (_cpu_s(process) - before_s) / CALLS * 1e6


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def _run(side: Side, calls: int) -> None:
    numbers: Sequence[int] = [next(_NUMBERS) for _ in range(calls)]
    left = iter(numbers)

    async def main() -> None:
        async with side() as ask:

            async def work() -> None:
                for number in left:
                    await ask(f"question {number} ".ljust(400, "x"))

            await asyncio.gather(*(work() for _ in range(WINDOW)))

    asyncio.run(main())
