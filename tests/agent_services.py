"""Services for agents that run in a test's own folder."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalve.agents.agent import Agent
from evalve.agents.function import FunctionAgent
from evalve.agents.named import named
from evalve.agents.preparing import Services
from evalve.agents.supervising import Supervisor
from evalve.agents.versions import Versions
from evalve.contracts import SampleContext


@dataclass
class PlainFolders:
    base: Path

    def make(self, context: SampleContext) -> Path:
        path = self.base / f"run-{os.urandom(4).hex()}"
        path.mkdir(parents=True)
        return path

    def remove(self, path: Path) -> None:
        shutil.rmtree(path)


class Bench:
    """A project folder, a supervisor, and agents by name."""

    def __init__(self, folder: Path) -> None:
        self.supervisor = Supervisor()
        self.workspace = folder / "workspace"
        self.project = folder / "project"
        self.runs = folder / "runs"
        for each in (self.workspace, self.project, self.runs):
            each.mkdir()
        self.environ = {"PATH": os.environ["PATH"], "JUDGE_API_KEY": "sk-judge-1234567890abcdef"}

    def agent(self, name: str, **settings: Any) -> Agent | FunctionAgent:
        gateway = settings.pop("lend", None)
        services = Services(
            supervisor=self.supervisor,
            versions=Versions(),
            folders=PlainFolders(self.runs),
            environ=self.environ,
            project=self.project,
            gateway=gateway,
        )
        return named(name, settings, services)

    def shell(self, script: str, **settings: Any) -> Agent | FunctionAgent:
        return self.agent("command", command=["sh", "-c", script, "sh", "{prompt}"], **settings)
