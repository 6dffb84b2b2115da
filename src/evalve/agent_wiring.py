"""Puts agents together: one supervisor for the process, folders beside the records, the gateway around."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalve.agents.agent import Agent
from evalve.agents.function import FunctionAgent
from evalve.agents.named import named as _named
from evalve.agents.preparing import Services
from evalve.agents.spec import Usage
from evalve.agents.supervising import Supervisor
from evalve.agents.versions import Versions
from evalve.contracts import GatewayLease, SampleContext
from evalve.experiments.file.configuration import project_folder
from evalve.sandboxes.homes import Home, home_in
from evalve.secrecy import Environment


def agent(name: str, **settings: Any) -> Agent | FunctionAgent:
    """An agent to run: `claude-code`, `codex`, `gemini-cli`, `command`, `python`, or a registered one.

    In a function under `@foreach`: `run = await agent(prompt, workspace)`, and then `run.answer`.
    """
    return named(name, settings)


def named(name: str, settings: Mapping[str, Any]) -> Agent | FunctionAgent:
    """The same, with settings as `evalve.yaml` has them."""
    return _named(name, settings, _services())


def _services() -> Services:
    project = project_folder(Path.cwd())
    return Services(
        supervisor=_supervisor(),
        versions=_VERSIONS,
        folders=_RunFolders(project / ".evalve"),
        environ=Environment(os.environ),
        project=project,
        gateway=_gateway,
        price=_price,
    )


def _supervisor() -> Supervisor:
    """That of this process; a forked child has its own."""
    with _LOCK:
        supervisor = _SUPERVISORS.get(os.getpid())
        if supervisor is None:
            supervisor = _SUPERVISORS[os.getpid()] = Supervisor()
            atexit.register(supervisor.close)
        return supervisor


_SUPERVISORS: dict[int, Supervisor] = {}
"""Processes belong to the process that started them, and so does who holds them."""
_LOCK = threading.Lock()
_VERSIONS = Versions()


@dataclass(frozen=True, slots=True)
class _RunFolders:
    """Where workspaces are: removed by the next process if this one is killed."""

    base: Path

    def make(self, context: SampleContext) -> Path:
        # a short name: a socket's path has room for a hundred characters, and programs put theirs in TMPDIR
        return self._home().new_directory(replace(context, sample_id="run"))

    def remove(self, path: Path) -> None:
        self._home().remove(path)

    def _home(self) -> Home:
        return home_in(self.base)


def _gateway(context: SampleContext) -> AbstractAsyncContextManager[GatewayLease]:
    """Started with the first agent that needs it."""
    from evalve import gateways

    return gateways.gateway().lend(context)


def _price(model: str, usage: Usage) -> float | None:
    """For agents that count tokens and no money."""
    from evalve import gating
    from evalve.gate.messages import Usage as Tokens

    return gating.house().prices.cost(
        model,
        Tokens(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
    )
