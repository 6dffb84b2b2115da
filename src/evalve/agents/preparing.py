"""One run before it starts: its folders, its files, its environment, its command, its walls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from evalve.agents import confinement
from evalve.agents.filling import (
    EVERYBODYS,
    LONGEST_ARGUMENT_BYTES,
    Values,
    command_of,
    environment_of,
    filled,
    model_name,
)
from evalve.agents.settings import AgentSettings
from evalve.agents.spec import AgentSpec, AgentTask, Confinement, Usage
from evalve.agents.supervising import Order, Supervisor
from evalve.agents.versions import Versions
from evalve.contracts import GatewayLease, SampleContext
from evalve.errors import AgentError
from evalve.secrecy import secret, secret_values


class Folders(Protocol):
    """Makes directories that last as long as a run, and that are removed although evalve is killed."""

    def make(self, context: SampleContext) -> Path: ...
    def remove(self, path: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Services:
    """What agents need of the rest of evalve."""

    supervisor: Supervisor
    versions: Versions
    folders: Folders
    environ: Mapping[str, str]
    project: Path
    gateway: Callable[[SampleContext], AbstractAsyncContextManager[GatewayLease]] | None = None
    price: Callable[[str, Usage], float | None] = lambda model, usage: None


@dataclass(frozen=True, slots=True)
class Prepared:
    """One run, ready to start."""

    order: Order
    version: Future[str | None] | None
    stdout: Path
    stderr: Path
    level: Confinement
    model: str | None
    secrets: tuple[str, ...]
    """What must not be in its output when that is kept."""


class Preparing:
    """For one agent. It touches the disk: call it in a thread."""

    def __init__(self, spec: AgentSpec, settings: AgentSettings, services: Services) -> None:
        self._spec = spec
        self._settings = settings
        self._services = services

    def prepare(self, task: AgentTask, folder: Path) -> Prepared:
        home = task.home or folder / "home"
        own_home, temporary = home / self._spec.home_folder, folder / "tmp"
        for each in (own_home, temporary):
            each.mkdir(parents=True, exist_ok=True)
        model = model_name(self._spec, task.model or self._settings.model)
        values = self._values(task, folder, own_home, model)
        self._write_files(task, folder, own_home, values)
        environment = environment_of(
            self._spec,
            task,
            values,
            own=self._services.environ,
            added={**self._settings.environment, **task.environment},
            folders=self._folders(home, own_home, temporary),
        )
        command = self._command(task, values)
        level = confinement.level(self._settings.confine)
        order = self._order(command, environment, task, folder)
        if level != "none":
            walls = confinement.walls(
                self._command(replace(task, prompt=""), {**values, "prompt": ""}),
                path=environment.get("PATH", os.defpath),
                writable=(task.directory, home, temporary),
                readable=(str(folder / "prompt.txt"), *self._readable(values)),
            )
            order = _behind(walls, level, order)
        token = () if task.gateway is None else (secret(task.gateway.token),)
        return Prepared(
            order=order,
            version=self.version(),
            stdout=Path(order.stdout),
            stderr=Path(order.stderr),
            level=level,
            model=model,
            secrets=(*secret_values(environment), *token, *map(secret, task.environment.values())),
        )

    def program(self) -> str:
        first = self._spec.command[0]
        named = self._settings.program or (first if isinstance(first, str) else first[0])
        return filled(named, {"project": str(self._services.project)}) or named

    def found_program(self) -> str | None:
        """Where it is; `None` where it is not installed."""
        return shutil.which(self.program(), path=self._services.environ.get("PATH"))

    def version(self) -> Future[str | None] | None:
        """Of the program. It may take seconds, the first time."""
        program, environ = self.found_program(), self._services.environ
        if not self._spec.version_command or program is None:
            return None
        allowed = {name: environ[name] for name in environ if name in EVERYBODYS}
        return self._services.versions.of(program, self._spec.version_command[1:], allowed)

    def _values(self, task: AgentTask, folder: Path, home: Path, model: str | None) -> Values:
        lease, upstream = task.gateway, self._spec.upstream
        base_url = None if lease is None else lease.base_url(upstream) if upstream else lease.url
        return {
            "prompt": task.prompt,
            "prompt_file": str(folder / "prompt.txt"),
            "model": model,
            "workspace": str(task.directory),
            "home": str(home),
            "project": str(self._services.project),
            "gateway": lease.url if lease is not None else None,
            "base_url": base_url,
            "token": lease.token if lease is not None else None,
        }

    def _write_files(self, task: AgentTask, folder: Path, home: Path, values: Values) -> None:
        (folder / "prompt.txt").write_text(task.prompt, encoding="utf-8", errors="surrogateescape")
        for_gateway = self._spec.gateway_files if task.gateway is not None else {}
        for name, text in {**self._spec.home_files, **for_gateway}.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(filled(text, values) or "", encoding="utf-8")

    def _folders(self, home: Path, own_home: Path, temporary: Path) -> dict[str, str]:
        folders = {
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
        }
        if self._spec.home_variable is not None:
            folders[self._spec.home_variable] = str(own_home)
        return folders

    def _command(self, task: AgentTask, values: Values) -> list[str]:
        arguments = command_of(self._settings.arguments, values, ())
        command = command_of(self._spec.command, values, arguments)
        command[0] = self.program()
        if max(len(argument.encode()) for argument in command) > LONGEST_ARGUMENT_BYTES:
            raise AgentError(
                f"{self._spec.name}: the prompt has {len(task.prompt.encode()):,} bytes, and an argument of "
                f"a program takes {LONGEST_ARGUMENT_BYTES:,}; put the long text in a file of the workspace "
                "and name it in the prompt, or let the command read {prompt_file}",
                failure_class="code",
            )
        return command

    def _readable(self, values: Values) -> list[str]:
        named = [filled(path, values) for path in self._settings.readable]
        return [str(self._services.project / path) for path in named if path is not None]

    def _order(self, command: list[str], environment: dict[str, str], task: AgentTask, folder: Path) -> Order:
        told, spec = self._settings, self._spec
        memory_mb = told.memory_limit_mb
        return Order(
            command=command,
            directory=str(task.directory),
            environment=environment,
            stdout=str(folder / "stdout.txt"),
            stderr=str(folder / "stderr.txt"),
            startup_s=told.startup_s or spec.startup_s,
            silence_s=told.silence_s or spec.silence_s,
            total_s=task.timeout_s or told.timeout_s,
            grace_s=told.grace_s or spec.grace_s,
            memory_bytes=None if memory_mb is None else int(memory_mb * 1_000_000),
        )


def _behind(walls: confinement.Walls, level: Confinement, order: Order) -> Order:
    if level == "landlock":
        paths = {"readable": list(walls.readable), "writable": list(walls.writable)}
        return replace(order, landlock=paths)
    return replace(order, command=confinement.in_bubblewrap(order.command, walls, order.directory))
