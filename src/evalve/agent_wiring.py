"""Puts agents together: one supervisor for the process, folders beside the records, the gateway around."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
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
from evalve.declare.experiments import project_folder
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
    """Those of this process; a forked child has its own."""
    with _LOCK:
        services = _SERVICES.get(os.getpid())
        if services is None:
            project = project_folder(Path.cwd())
            supervisor = Supervisor()
            services = _SERVICES[os.getpid()] = Services(
                supervisor=supervisor,
                versions=Versions(),
                folders=_RunFolders(project / ".evalve"),
                environ=Environment(os.environ),
                project=project,
                gateway=_gateway,
                price=_price,
            )
            atexit.register(supervisor.close)
        return services


_SERVICES: dict[int, Services] = {}
"""Processes belong to the process that started them, and so does who holds them."""
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class _RunFolders:
    """Where workspaces are: removed by the next process if this one is killed."""

    base: Path

    def make(self, context: SampleContext) -> Path:
        return self._home().new_directory(context)

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
