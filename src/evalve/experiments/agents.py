"""An agent of the file as somebody who answers: a workspace with the row's files, a run, its answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalve import agent_wiring
from evalve.errors import OptionError
from evalve.experiments.answering import Ask, fill_workspace
from evalve.experiments.models import Asked
from evalve.sandboxes.workspace import Workspace

WORKSPACE = "workspace"
_OURS = frozenset({"agent", "description"})


def open_agent(asked: Asked, environ: Mapping[str, str], *, folder: Path) -> Any:
    """The agent, its paths seen from the folder of the file; `OptionError` where it cannot be one."""
    said = asked.expanded(environ)
    settings = {key: _in_project(value, folder) for key, value in said.items() if key not in _OURS}
    try:
        return agent_wiring.named(str(said["agent"]), settings)
    except OptionError as error:
        raise OptionError(f"{asked.entry.place}: models.{asked.name}: {error}") from None


def _in_project(value: Any, folder: Path) -> Any:
    """`{project}` is where the file is, also where that is not the project that one works in."""
    if isinstance(value, str):
        return value.replace("{project}", str(folder))
    return [_in_project(item, folder) for item in value] if isinstance(value, list) else value


def workspace_for(home: Path, keep: str) -> Workspace:
    return Workspace(keep=keep, directory=home / ".evalve")  # type: ignore[arg-type]  # checked as a key


def asking_agent(
    agent: Any, files: Mapping[str, Any], *, folder: Path, lent: str, timeout_s: float | None
) -> Ask:
    async def ask(prompt: str, row: Mapping[str, Any], loans: Mapping[str, Any]) -> str:
        directory: Path = loans[lent].path
        await fill_workspace(directory, files, row, folder)
        run = await agent(prompt, directory, timeout_s=timeout_s)
        return str(run.answer)

    return ask
