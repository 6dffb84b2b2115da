"""An agent of the file as somebody who answers: a workspace with the row's files, a run, its answer."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalve import agent_wiring
from evalve.agents.spec import AgentTask
from evalve.contracts import SAMPLE, Lender
from evalve.errors import OptionError
from evalve.experiments.answering import Ask, fill_workspace
from evalve.experiments.parts.models import Asked
from evalve.sandboxes.workspace import Workspace

WORKSPACE = "workspace"
GATEWAY = "gateway"
DATABASE = "database"
VARIABLE = "DATABASE_URL"
"""What programs in any language look for."""
_OURS = frozenset({"agent", "cache", "description", "lane"})


def open_agent(asked: Asked, environ: Mapping[str, str], *, folder: Path) -> Any:
    """The agent, its paths seen from the folder of the file; `OptionError` where it cannot be one."""
    said = asked.expanded(environ)
    settings = {key: _in_project(value, folder) for key, value in said.items() if key not in _OURS}
    return _named(asked, str(said["agent"]), settings)


def _named(asked: Asked, name: str, settings: Mapping[str, Any]) -> Any:
    folder = str(asked.entry.folder("function"))
    if "function" in settings and folder not in sys.path:
        sys.path.insert(0, folder)  # a module beside the file is found, from wherever one works
    try:
        return agent_wiring.named(name, settings)
    except OptionError as error:
        raise OptionError(f"{asked.entry.place}: models.{asked.name}: {error}") from None


def _in_project(value: Any, folder: Path) -> Any:
    """`{project}` is where the file is, also where that is not the project that one works in."""
    if isinstance(value, str):
        return value.replace("{project}", str(folder))
    return [_in_project(item, folder) for item in value] if isinstance(value, list) else value


def lenders_for(
    asked: Asked, home: Path, keep: str, taken: Collection[str], database: Lender | None = None
) -> dict[str, Lender]:
    """What each attempt is lent, by names that no column has: a workspace first."""
    found: dict[str, Lender] = {
        # checked as a key of the file
        _free(WORKSPACE, taken): Workspace(keep=keep, directory=home / ".evalve")  # type: ignore[arg-type]
    }
    if asked.entry.get("cache") in (True, "on") and asked.entry.get("gateway", True) not in (False, "off"):
        from evalve import gateways

        found[_free(GATEWAY, taken)] = gateways.gateway(cache=True)
    if database is not None:
        found[_free(DATABASE, taken)] = database
    return found


def _free(name: str, taken: Collection[str]) -> str:
    return name if name not in taken else f"{name}_lent"


def _lent_as(name: str, lent: Sequence[str]) -> str | None:
    return next((one for one in lent if one in (name, f"{name}_lent")), None)


def asking_agent(agent: Any, files: Mapping[str, Any], *, folder: Path, lent: Sequence[str]) -> Ask:
    """Its time is the sample's: the deadline stands still while files are copied and while calls wait."""
    workspace = lent[0]
    gateway, database = (_lent_as(name, lent) for name in (GATEWAY, DATABASE))

    async def ask(prompt: str, row: Mapping[str, Any], loans: Mapping[str, Any]) -> Any:
        directory: Path = loans[workspace].path
        if files:
            filling, sample = fill_workspace(directory, files, row, folder), SAMPLE.get()
            await (filling if sample is None else sample.held(filling, "files"))
        lease = None if gateway is None else loans[gateway]
        variables = {} if database is None else {VARIABLE: str(loans[database].dsn)}
        return await agent.run(AgentTask(prompt, directory, gateway=lease, environment=variables))

    return ask


def check_agent(asked: Asked) -> str | None:
    """What can be told without its variables: raises `OptionError`, returns what is not installed."""
    settings = {key: value for key, value in asked.entry.values.items() if key not in _OURS}
    missing: str | None = _named(asked, str(asked.entry.get("agent")), settings).missing()
    return missing
