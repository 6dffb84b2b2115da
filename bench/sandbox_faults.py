"""Agents that misbehave, a runner that is killed, a server that is restarted: what reaches another sample."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from typing import Any

from bench.measuring import Figure
from bench.processes import Broke, environment, own_folder, python
from bench.sandbox.agents import AGENTS
from bench.sandbox.mutations import leaks_found, sabotages_found
from bench.sandbox.server import PersonsServer, persons_server
from evalve.sandboxes.postgresql.lender import close_all

ROUNDS = 10
KILLS = 10
RESTARTS, MADE_BETWEEN_RESTARTS = 4, 30
_SAMPLES = ROUNDS * len(AGENTS)


def measure() -> list[Figure]:
    with persons_server(max_prepared_transactions="10") as server:
        quiet = _finished(server)
        killed = _killed(server)
        restarted = _restarted(server)
        leaks, found = asyncio.run(leaks_found(server.url))
        sabotages, told, wrong = sabotages_found(server)
        close_all()
        left = server.left()
    runs = {
        "undisturbed": quiet,
        f"killed {KILLS} times": killed,
        f"server restarted {RESTARTS} times": restarted,
    }
    figures = []
    for name, of in runs.items():
        figures += [
            Figure(f"samples that began with a leak, {name}", len(of["wrong"]), "samples", 0.0),
            Figure(f"samples that did not complete, {name}", _SAMPLES - of["done"], "samples", 0.0),
            Figure(f"databases, roles and connections left, {name}", of["left"], "", 0.0),
        ]
    return [
        *figures,
        Figure("leaks that the fingerprint does not find, without reset", leaks - found, "leaks", 0.0),
        Figure("writes of others that it does not find", sabotages - told, "writes", 0.0),
        Figure("wrong scores after these", wrong, "samples", 0.0),
        Figure("left in the end", left, "", 0.0),
    ]


def _finished(server: PersonsServer) -> dict[str, Any]:
    with own_folder() as folder:
        told = json.loads(python("-m", "bench.sandbox.campaign", server.url, str(ROUNDS), folder=folder))
    return {**told, "left": server.left()}


def _killed(server: PersonsServer) -> dict[str, Any]:
    """At random moments; then it is run to its end."""
    chance = random.Random(10)
    with own_folder() as folder:
        command = [sys.executable, "-m", "bench.sandbox.campaign", server.url, str(ROUNDS)]
        for _ in range(KILLS):
            process = subprocess.Popen(
                command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(chance.uniform(0.8, 4.0))
            process.kill()
            process.wait()
        told = json.loads(python(*command[1:], folder=folder))
    return {**told, "left": server.left()}


def _restarted(server: PersonsServer) -> dict[str, Any]:
    """Without a word to its clients; it is away for a while each time."""
    with own_folder() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.sandbox.campaign", server.url, str(ROUNDS)],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(1, RESTARTS + 1):
            while process.poll() is None and _databases_made(server) < number * MADE_BETWEEN_RESTARTS:
                time.sleep(0.1)
            server.stop()
            time.sleep(1.0)
            server.start()
        said, told = process.communicate()
    if process.returncode != 0:
        raise Broke(f"bench.sandbox.campaign: {told.strip().splitlines()[-1:]}")
    return {**json.loads(said), "left": server.left()}


def _databases_made(server: PersonsServer) -> int:
    """By the run that is under way: they are numbered."""
    names = server.ask("SELECT datname FROM pg_database WHERE datname ~ '^evalve_[0-9a-f]{8}_'")
    return max((int(name.rpartition("_")[2]) for (name,) in names), default=0)
