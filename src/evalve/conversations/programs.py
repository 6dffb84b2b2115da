"""A program as an agent: one run for each turn, in one workspace, with the database's address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalve.agents.spec import AgentTask
from evalve.conversations.turns import Message, Turn
from evalve.records import ToolCall

VARIABLE = "DATABASE_URL"
"""What programs in any language look for."""


@dataclass(frozen=True, slots=True)
class ProgramAgent:
    """Works by itself: of its calls is known what its transcript says, and what they returned is not."""

    agent: Any
    """Of `evalve.agent`."""
    directory: Path
    system: str | None = None
    gateway: Any = None

    @property
    def connects_itself(self) -> bool:
        """What it is to find in the database must be committed."""
        return True

    async def __call__(self, turn: Turn) -> str:
        variables = {} if turn.db is None else {VARIABLE: str(turn.db.dsn)}
        prompt = prompt_of(turn.dialogue, self.system, has_database=turn.db is not None)
        run = await self.agent.run(
            AgentTask(prompt, self.directory, gateway=self.gateway, environment=variables)
        )
        turn.saw_calls(_of_tools(run.tool_calls, {str(one.name) for one in turn.schemas}))
        return str(run.answer)


def prompt_of(dialogue: Sequence[Message], system: str | None, *, has_database: bool) -> str:
    """What a program is told in one turn: it remembers nothing of those before."""
    *before, now = dialogue
    parts = [system] if system else []
    if has_database:
        parts.append(f"The address of the PostgreSQL database is in the environment variable {VARIABLE}.")
    if before:
        said = "\n".join(f"{message['role']}: {message['content']}" for message in before)
        parts.append(f"The conversation so far:\n{said}\n\nThe user says now:")
    return "\n\n".join([*parts, str(now["content"])])


def _of_tools(calls: Sequence[ToolCall], offered: set[str]) -> list[ToolCall] | None:
    """The calls of offered tools, by their own names; `None` where there are none."""
    named = [ToolCall(call.name.rpartition("__")[2], call.arguments) for call in calls]  # mcp__crm__search
    return [call for call in named if call.name in offered] or None
