"""Who can take part in a conversation: a model, a pair of them, any async function of a turn."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalve.conversations.models import ModelAgent, opened_model
from evalve.conversations.pairs import Pair
from evalve.conversations.programs import ProgramAgent
from evalve.conversations.turns import Agent
from evalve.errors import OptionError


def as_agent(
    agent: Any, *, system: str | None, max_steps: int, asked: Mapping[str, Any], workspace: Any = None
) -> Agent:
    """The agent that somebody is; `OptionError` where it cannot be one."""
    if not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 1:
        raise OptionError(f"max_steps= is a whole number, 1 or more; got {max_steps!r}")
    if isinstance(agent, Pair):
        return agent.opened(system=system, max_steps=max_steps, asked=asked)
    if isinstance(agent, str) or callable(getattr(agent, "generate", None)):
        return ModelAgent(opened_model(agent), system, max_steps, asked)
    if hasattr(type(agent), "recommended_concurrency"):  # what `evalve.agent` returns
        if workspace is None:
            raise OptionError("an agent that is a program works in a directory: say workspace=")
        return ProgramAgent(agent, Path(os.fspath(workspace)).absolute(), system)
    called = agent if inspect.isroutine(agent) else getattr(agent, "__call__", None)  # noqa: B004
    if not inspect.iscoroutinefunction(called):
        raise OptionError(
            "agent= is a model, a Pair, what evalve.agent returns, or an async function of a turn, as in "
            "`async def answer(turn)`; "
            f"got {agent!r}"
        )
    if asked:
        raise OptionError(f"{next(iter(asked))}= goes with every call of a model, and agent= is a function")
    return agent  # type: ignore[no-any-return]
