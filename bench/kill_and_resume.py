"""A run killed with SIGKILL at half of its calls, and resumed: how many calls are made once more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.measuring import Figure
from bench.processes import environment, python
from bench.provider import Provider, own_state, provider
from evalve import ForEach, model
from evalve.concurrency import SlidingWindow

CALLS = 500
WINDOW = 10
_URL = "BENCH_URL"


@ForEach(concurrency=SlidingWindow(WINDOW))("number", range(CALLS))
async def eval_answers(number: int) -> bool:
    answer = await model("anthropic/claude-sonnet-4-5", base_url=os.environ[_URL], api_key="key").generate(
        f"question {number}"
    )
    return bool(answer.text)


def measure() -> list[Figure]:
    """Whatever the kill interrupts is at most the window: those calls are made again, and no other."""
    with own_state() as environ, provider("--latency-s", "0.05") as simulated:
        settings = {**environ, _URL: simulated.url}
        _killed_at_half(simulated, settings)
        time.sleep(0.5)  # what was in flight is answered, or broken off
        before = simulated.stats()
        done = int(python("-m", "bench.kill_and_resume", folder=Path.cwd(), environ=settings))
        seen = simulated.stats()
    missing = CALLS - before["completed"]
    made = seen["requests"] - before["requests"]
    return [
        Figure("calls made beyond those that had no answer", made - missing, "calls", float(WINDOW)),
        Figure("samples that did not complete", CALLS - done, "samples", 0.0),
        Figure("answers before the kill", before["completed"], "calls"),
    ]


def _killed_at_half(simulated: Provider, settings: dict[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.kill_and_resume"],
        env={**environment(), **settings},
        stdout=subprocess.DEVNULL,
    )
    while process.poll() is None and simulated.stats()["completed"] < CALLS / 2:
        time.sleep(0.01)
    process.kill()
    process.wait()


if __name__ == "__main__":
    print(asyncio.run(eval_answers(experiment="killed", progress="off")).done)
