"""Agents that only sleep: how close to the ideal they run, what they cost, what kill -9 leaves of them."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil

import evalve
from bench.measuring import Figure, cpu_of, timed_s
from bench.processes import environment
from bench.provider import own_state
from evalve import ForEach, Workspace
from evalve.concurrency import SlidingWindow
from evalve.storage import open_store

AGENTS = 200
WINDOW = 20
SLEEP_S = 0.5
KILLS = 20
MORE_THAN_DONE = 5_000
"""So many that some are left at the last kill."""
GONE_WITHIN_S = 10.0
_LOG = "BENCH_LOG"

_SCRIPT = 'echo "$1" >> "$BENCH_LOG"; sleep 0.5; echo done'


def _evaluation(count: int):  # type: ignore[no-untyped-def]  # what ForEach makes has no name for its type
    log = {_LOG: os.environ.get(_LOG, os.devnull)}
    sleeper = evalve.agent(
        "command", command=["sh", "-c", _SCRIPT, "sh", "{prompt}"], environment=log, gateway=False
    )

    @ForEach(concurrency=SlidingWindow(WINDOW))("id", [{"id": str(number)} for number in range(count)])
    async def eval_sleeps(id: str, workspace: Workspace = Workspace()) -> bool:  # noqa: B008 (a lender)
        return (await sleeper(id, workspace)).answer == "done"  # type: ignore[arg-type]  # a directory is lent

    return eval_sleeps


def measure() -> list[Figure]:
    with own_state() as environ:
        os.environ.update(environ)
        evalve.run(_evaluation(1), experiment="first", progress="off")  # imports; starts the supervisor
        evaluation = _evaluation(AGENTS)
        taken: list[float] = []

        def run() -> None:
            taken.append(timed_s(lambda: evalve.run(evaluation, experiment="sleeps", progress="off")))

        own_s = cpu_of(run)
        (supervisor,) = [
            one for one in psutil.Process().children() if "supervisor" in " ".join(one.cmdline())
        ]
        times = supervisor.cpu_times()
        ideal_s = AGENTS * SLEEP_S / WINDOW
        return [
            Figure(
                f"{AGENTS} agents of {SLEEP_S} s, {WINDOW} at once, against the ideal",
                taken[0] / ideal_s,
                "×",
                1.15,
            ),
            Figure("CPU of evalve per agent", own_s / AGENTS * 1e3, "ms"),
            Figure("CPU of the supervisor per agent", (times.user + times.system) / AGENTS * 1e3, "ms"),
            *_killed(environ),
        ]


def _killed(environ: dict[str, str]) -> list[Figure]:
    """At random moments; what was recorded is never run again, and no process is left."""
    chance = random.Random(20)
    log = Path("started.log")
    log.touch()
    again = lost = left = 0
    for _ in range(KILLS):
        recorded, before = _recorded(), len(log.read_text().split())
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.agents"],
            env={**environment(), **environ, _LOG: str(log.absolute())},
            stdout=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(1.0, 3.0))
        process.kill()
        process.wait()
        left += _left_after_a_while(str(log.absolute()))
        again += len(recorded & set(log.read_text().split()[before:]))
        lost += len(recorded - _recorded())
    return [
        Figure(f"processes left {GONE_WITHIN_S:.0f} s after {KILLS} kills", left, "processes", 0.0),
        Figure("recorded samples that were run again", again, "samples", 0.0),
        Figure("recorded samples that were lost", lost, "samples", 0.0),
        Figure("samples recorded in spite of all kills", len(_recorded()), "samples"),
    ]


def _recorded() -> set[str]:
    if not Path(".evalve/evalve.db").exists():
        return set()
    with closing(open_store(Path(".evalve/evalve.db"))) as store:
        known = {one.name for one in store.experiments()}
        evaluations = store.evaluations("killed") if "killed" in known else []
        return {record.sample_id for one in evaluations for record in store.records(one)}


def _left_after_a_while(log: str) -> int:
    """Processes that have the log in their environment, once there are none, or time is up."""
    until_s = time.monotonic() + GONE_WITHIN_S
    while (left := _with_variable(log)) and time.monotonic() < until_s:
        time.sleep(0.1)
    return left


def _with_variable(value: str) -> int:
    found = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            found += process.environ().get(_LOG) == value
    return found


if __name__ == "__main__":
    asyncio.run(_evaluation(MORE_THAN_DONE)(experiment="killed", progress="off"))
