"""The simulated provider in a process of its own, and programs that call it through the gate."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.processes import Broke, environment

_LONGEST_END_S = 10.0


@dataclass(frozen=True, slots=True)
class Provider:
    """A simulator that serves."""

    url: str

    def stats(self) -> dict[str, Any]:
        """What it saw since its start."""
        with urllib.request.urlopen(f"{self.url}/_simulator/stats") as answer:
            seen: dict[str, Any] = json.load(answer)
        return seen


@contextmanager
def provider(*flags: str) -> Iterator[Provider]:
    """A simulator with these flags, until the block is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evalve.simulator", "--remember-requests", "0", *flags],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield Provider(json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        process.communicate(timeout=_LONGEST_END_S)


@contextmanager
def own_state() -> Iterator[dict[str, str]]:
    """Settings under which a program begins with no limits known, no estimates, and an empty cache."""
    with tempfile.TemporaryDirectory(prefix="evalve-bench-") as folder:
        yield {
            "EVALVE_STATE_DIR": f"{folder}/state",
            "EVALVE_CACHE_DIR": f"{folder}/cache",
            "ANTHROPIC_RPM_LIMIT": "",
            "OPENAI_RPM_LIMIT": "",
        }


class Caller:
    """`bench.calling` in a process of its own: it is ready once made, and calls when it is told to."""

    def __init__(self, asked: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.calling", json.dumps(asked)],
            env={**environment(), **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise Broke(f"bench.calling did not begin; it ended with {self._process.wait()}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ended(self) -> dict[str, Any]:
        """What it tells at its end."""
        told, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise Broke(f"bench.calling ended with {self._process.returncode}")
        plain: dict[str, Any] = json.loads(told)
        return plain
