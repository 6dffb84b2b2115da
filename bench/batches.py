"""10,000 requests through a simulated batch: own CPU time and memory; and runs killed at random moments."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bench.measuring import Figure, peak_memory_bytes
from bench.processes import environment, own_folder, python
from bench.provider import Provider, own_state, provider
from evalve import ForEach, model
from evalve.concurrency import SlidingWindow

REQUESTS = 10_000
KILLED_REQUESTS = 1_000
KILLS = 10
WINDOW = 10
_URL, _COUNT = "BENCH_URL", "BENCH_COUNT"


@ForEach(concurrency=SlidingWindow(WINDOW))("number", lambda: range(int(os.environ[_COUNT])))
async def eval_batched(number: int) -> bool:
    asked = model("anthropic/claude-sonnet-4-5", base_url=os.environ[_URL], api_key="key")
    answer = await asked.generate(
        f"question {number}, as long as many questions are, so that it is not nothing"
    )
    return bool(answer.text)


def measure() -> list[Figure]:
    return [*_measure_large(), *_measure_killed()]


def _measure_large() -> list[Figure]:
    with own_state() as environ, own_folder() as folder, provider("--batch-delay-s", "5") as simulated:
        settings = {**environ, _URL: simulated.url, _COUNT: str(REQUESTS)}
        told = json.loads(python("-m", "bench.batches", folder=folder, environ=settings))
        seen = simulated.stats()
    return [
        Figure("own CPU, 10,000 requests submitted and collected", told["cpu_s"], "s", 30.0),
        Figure("peak RSS above idle", told["above_idle_bytes"] / 1e6, "MB", 200.0),
        Figure("batches of a window of 10", seen["batches"], "batches", 1.0),
        Figure("samples that did not complete", REQUESTS - told["done"], "samples", 0.0),
        Figure("live calls", seen["requests"], "calls", 0.0),
    ]


def _measure_killed() -> list[Figure]:
    with own_state() as environ, own_folder() as folder, provider("--batch-delay-s", "0.5") as simulated:
        settings = {
            **environ,
            _URL: simulated.url,
            _COUNT: str(KILLED_REQUESTS),
            "EVALVE_BATCH_LINGER_S": "0.5",
        }
        for moment_s in _moments_s():
            _killed_after(moment_s, settings, folder)
        told = json.loads(python("-m", "bench.batches", folder=folder, environ=settings))
        seen = simulated.stats()
    return [
        Figure("requests paid twice in 10 killed runs", _paid_twice(simulated, seen), "requests", 0.0),
        Figure("samples of these that did not complete", KILLED_REQUESTS - told["done"], "samples", 0.0),
    ]


def _paid_twice(simulated: Provider, seen: dict[str, int]) -> int:
    return seen["batched_again"] + seen["answered_again"] + max(0, seen["batched"] - KILLED_REQUESTS)


def _moments_s() -> list[float]:
    draw = random.Random(9)
    return [draw.uniform(0.5, 3.0) for _ in range(KILLS)]


def _killed_after(moment_s: float, settings: dict[str, str], folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.batches"],
        cwd=folder,
        env={**environment(), **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment_s)
    process.kill()
    process.wait()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    idle_bytes, idle_cpu_s = peak_memory_bytes(), _cpu_s()
    result = asyncio.run(eval_batched(experiment="batched", batch=True, progress="off"))
    figures = {
        "done": result.done,
        "cpu_s": _cpu_s() - idle_cpu_s,
        "above_idle_bytes": peak_memory_bytes() - idle_bytes,
    }
    print(json.dumps(figures))
