"""The conversations of examples/crm against simulated models, as `evalve run` plays them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.processes import Broke, environment
from bench.provider import Provider

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "crm"
_FILES = ("conversations.jsonl", "provider.py", "schema.sql", "seed.sql", "tools.py", "truth.py")
_FOLDERS = ("making", "simulated")
MODELS = {
    "claude": "{model: anthropic/claude-sonnet-4-5-20250929, temperature: 0.0, max_output_tokens: 800}",
    "gpt4.1": "{model: openai/gpt-4.1, temperature: 0.0, max_output_tokens: 800}",
    "gpt4.1-mini": "{model: openai/gpt-4.1-mini, temperature: 0.0, max_output_tokens: 800}",
    "atlas": "{student: gpt4.1-mini, teacher: claude, teaching: review}",
}
_FILE = """\
sandboxes:
  postgres: {{schema: schema.sql, seed: seed.sql}}
datasets:
  conversations: {{path: conversations.jsonl, id: conversation_id}}
models:
{models}
experiments:
  crm:
    evaluation_mode: conversation
    datasets: conversations
    models: [{names}]
    sandbox: postgres
    tools: tools.py
    judge_model: {judge}
    system: You work in the CRM of a company, with tools. Do what the user asks for and nothing more.
"""


class Ran(NamedTuple):
    """One command that was run to its end."""

    wall_s: float
    cpu_s: float
    """Of evalve; PostgreSQL and the provider are others' processes."""
    peak_bytes: int
    said: str


class Crm:
    """A folder with the conversations, and providers that answer in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _FILES:
            shutil.copy2(EXAMPLE / name, folder / name)
        for name in _FOLDERS:
            shutil.copytree(EXAMPLE / name, folder / name)
        self._variables: dict[str, str] = {}

    def write(self, models: dict[str, str], judge: str = "claude", repeated: int = 1) -> None:
        """The experiment with these models, over all conversations, so many times each."""
        told = "\n".join(f"  {name}: {what}" for name, what in {**MODELS, **models}.items())
        text = _FILE.format(models=told, names=", ".join(models), judge=judge)
        (self.folder / "evalve.yaml").write_text(text)
        rows = [json.loads(line) for line in (EXAMPLE / "conversations.jsonl").read_text().splitlines()]
        with (self.folder / "conversations.jsonl").open("w") as file:
            for number in range(repeated):
                for row in rows:
                    again = {**row, "conversation_id": f"{row['conversation_id']}-{number}"}
                    file.write(json.dumps(again if number else row) + "\n")

    @contextmanager
    def provider(self, *flags: str) -> Iterator[Provider]:
        process = subprocess.Popen(
            [sys.executable, "provider.py", "--port", "0", *flags],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            told = process.stdout.readline().removeprefix("export ")
            self._variables = dict(one.split("=", 1) for one in told.split())
            yield Provider(self._variables["ANTHROPIC_BASE_URL"])
        finally:
            process.terminate()
            process.communicate()

    def run(self, experiment: str, *flags: str, state: str = "") -> Ran:
        """`evalve run crm`, recorded under that name; it knows no limits and no answers before."""
        own = self.folder / "states" / (state or experiment)
        environ = {
            **environment(),
            **self._variables,
            "EVALVE_STATE_DIR": str(own / "state"),
            "EVALVE_CACHE_DIR": str(own / "cache"),
        }
        command = ["run", "crm", "--experiment", experiment, "--progress", "off", "--trace", "off", *flags]
        began_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "evalve.cli", *command],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1) or "failed (" in said or "connections left" not in said:
            raise Broke(f"evalve {' '.join(command)}: {said.strip().splitlines()[-1:]}")
        return Ran(time.monotonic() - began_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, said)

    def exported(self, experiment: str, *flags: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "evalve.cli", "export", experiment, "-o", "-", *flags]
        said = subprocess.run(
            command, cwd=self.folder, env=environment(), capture_output=True, text=True, check=True
        )
        return [json.loads(line) for line in said.stdout.splitlines()]


def only(*names: str) -> dict[str, str]:
    return {name: MODELS[name] for name in names}


def nothing_left(runs: Sequence[Ran]) -> int:
    """How many of them say of their server that something was left."""
    return sum("postgres: 0 databases, 0 connections left" not in one.said for one in runs)


def durations_s(records: list[dict[str, Any]]) -> dict[str, float]:
    """For each agent, from its first conversation's start to its last one's end."""
    spans: dict[str, list[float]] = {}
    for record in records:
        began_s = datetime.fromisoformat(record["started_at"]).timestamp()
        spans.setdefault(record["evaluation"], []).extend((began_s, began_s + record["wall_s"]))
    return {name: max(times) - min(times) for name, times in spans.items()}
