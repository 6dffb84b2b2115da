"""Programs in conversations: what they are told, and what is known of what they called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import evalve
from conversation_tools import add, row, values
from evalve.agents.spec import AgentRun, AgentTask
from evalve.conversations import converse
from evalve.conversations.programs import prompt_of
from evalve.errors import OptionError
from evalve.records import ToolCall

SUM = {"says": "2 + 3?", "expected_tool": "add", "expected_args": {"one": 2, "other": 3}}


class Program:
    """Stands for a program whose transcript has been read."""

    recommended_concurrency = 1

    def __init__(self, *calls: ToolCall) -> None:
        self.tasks: list[AgentTask] = []
        self._calls = calls

    async def run(self, task: AgentTask) -> AgentRun:
        self.tasks.append(task)
        return AgentRun("program", "It is 5.", tool_calls=self._calls)


def test_a_program_is_told_the_whole_dialogue_in_each_turn() -> None:
    dialogue = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "2 + 3?"},
    ]
    assert prompt_of(dialogue[:1], None, has_database=False) == "Hello"
    assert prompt_of(dialogue, "Be exact.", has_database=True) == (
        "Be exact.\n\n"
        "The address of the PostgreSQL database is in the environment variable DATABASE_URL.\n\n"
        "The conversation so far:\nuser: Hello\nassistant: Yes?\n\nThe user says now:\n\n2 + 3?"
    )


@pytest.mark.parametrize(
    ("calls", "scored"),
    [
        (
            [ToolCall("Bash", {"command": "ls"}), ToolCall("mcp__sums__add", {"one": 2, "other": 3})],
            [True, True],
        ),
        ([ToolCall("add", {"one": 2, "other": 4})], [True, False]),
        ([ToolCall("Bash", {"command": "ls"})], []),
    ],
)
async def test_calls_of_offered_tools_are_scored_where_the_transcript_names_them(
    tmp_path: Path, calls: list[ToolCall], scored: list[Any]
) -> None:
    program = Program(*calls)
    told = row({**SUM, "expected_response": {"answers": [5]}})
    result = await converse(told, agent=program, tools=[add], workspace=tmp_path)

    assert [*values(result, "tool"), *values(result, "arguments")] == scored
    assert values(result, "response") == [True]
    assert values(result, "outcome") == []
    assert program.tasks[0].directory == tmp_path


async def test_a_program_needs_a_workspace() -> None:
    with pytest.raises(OptionError, match="works in a directory: say workspace="):
        await converse(row(SUM), agent=evalve.agent("command", command=["true"]), tools=[add])
