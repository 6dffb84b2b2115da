"""Agents by name: those that evalve knows, and those that other packages register."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from evalve.agents.adapters import claude_code, codex, command, gemini_cli
from evalve.agents.agent import Agent
from evalve.agents.function import FunctionAgent
from evalve.agents.preparing import Services
from evalve.agents.settings import AgentSettings, read_settings
from evalve.agents.spec import AgentSpec
from evalve.errors import OptionError

GROUP = "evalve.agents"
"""The entry-point group: each entry is an `AgentSpec`, or a function that makes one of `AgentSettings`."""

_SPECS = {spec.name: spec for spec in (claude_code.SPEC, codex.SPEC, gemini_cli.SPEC)}
_OWN = (*_SPECS, "command", "python")


def named(name: str, settings: Mapping[str, Any], services: Services) -> Agent | FunctionAgent:
    """The agent of that name; `OptionError` where there is none, or where a setting is wrong."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}"
        raise OptionError(f"there is no agent {name!r}; {hint}")
    read = read_settings(settings, whose=f"agent {name!r}")
    if name == "python":
        return FunctionAgent(read, services)
    if read.command and name in _SPECS:
        raise OptionError(
            f"agent {name!r} has a command of its own: say program: for another path, arguments: for more "
            "arguments, or take the agent 'command'"
        )
    return Agent(_spec(name, read), read, services)


def names() -> list[str]:
    return [*_OWN, *sorted(point.name for point in entry_points(group=GROUP) if point.name not in _OWN)]


def _spec(name: str, settings: AgentSettings) -> AgentSpec:
    if name in _SPECS:
        return _SPECS[name]
    if name == "command":
        return command.spec_of(settings)
    (point, *_) = entry_points(group=GROUP, name=name)
    try:
        registered: AgentSpec | Callable[[AgentSettings], AgentSpec] = point.load()
        spec = registered(settings) if callable(registered) else registered
    except OptionError:
        raise
    except Exception as error:  # another package's code
        said = f"{type(error).__name__}: {error}"
        raise OptionError(f"agent {name!r}: {point.value} of its package cannot be loaded: {said}") from error
    if not isinstance(spec, AgentSpec):
        raise OptionError(f"agent {name!r}: {point.value} is registered in {GROUP}, and is no AgentSpec")
    return spec
