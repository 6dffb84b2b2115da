"""`llm_tool_selection` and `llm_tool_arguments`, asked of a scripted model over HTTP, through the gate."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import evalve
from evalve.errors import OptionError
from evalve.evaluators import ToolCall, llm_tool_arguments, llm_tool_selection
from evalve.simulator import Ask

MODEL = "anthropic/claude-haiku-4-5"
SEARCH, DELETE = ToolCall("search", {"query": "cats"}), ToolCall("delete", {"id": 5})
TOOLS = [{"name": "search", "description": "Search.", "input_schema": {"type": "object"}}]


def part(ask: Ask, name: str) -> Any:
    """What stands between the tags of that name."""
    found = re.search(rf"<{name}-(\w+)>\n(.*?)\n</{name}-\1>", ask.prompt, re.DOTALL)
    return None if found is None else found[2]


def verdict(said: str, reason: str) -> str:
    return json.dumps({"reason": reason, "verdict": said})


def likes_search(ask: Ask) -> str:
    name = json.loads(part(ask, "call"))["name"]
    return verdict("yes" if name == "search" else "no", f"{name} it is.")


async def test_each_call_gets_a_verdict_with_its_reason(provider: Any) -> None:
    with provider(likes_search) as simulator:
        score = await llm_tool_selection([SEARCH, DELETE], question="Find cats", model=MODEL)

    assert (score.name, score.value) == ("llm_tool_selection", 0.5)
    assert score.metadata["verdicts"] == [
        {"tool": "search", "value": 1.0, "reason": "search it is."},
        {"tool": "delete", "value": 0.0, "reason": "delete it is."},
    ]
    assert score.metadata["reason"] == "delete it is."
    assert score.metadata["judge"] == MODEL
    assert simulator.stats.requests == 2


async def test_the_judge_sees_request_tools_reference_and_all_calls(provider: Any) -> None:
    asked: list[Ask] = []

    def answers(ask: Ask) -> str:
        asked.append(ask)
        return verdict("yes", "fine")

    with provider(answers):
        await llm_tool_arguments([SEARCH, DELETE], [SEARCH], question="Find cats", tools=TOOLS, model=MODEL)

    first = next(ask for ask in asked if json.loads(part(ask, "call"))["name"] == "search")
    assert part(first, "request") == "Find cats"
    assert json.loads(part(first, "tools"))[0]["name"] == "search"
    assert json.loads(part(first, "reference")) == [{"name": "search", "arguments": {"query": "cats"}}]
    assert [call["name"] for call in json.loads(part(first, "all-calls"))] == ["search", "delete"]
    assert "Judge the arguments" in first.prompt


async def test_calls_that_are_missing_count_as_wrong(provider: Any) -> None:
    with provider(likes_search):
        score = await llm_tool_selection([SEARCH], [SEARCH, DELETE], question="x", model=MODEL)
    assert (score.value, score.metadata["missing"]) == (0.5, 1)


async def test_the_judge_says_whether_no_call_is_right(provider: Any) -> None:
    def answers(ask: Ask) -> str:
        assert "called no tool" in ask.prompt
        return verdict("yes", "small talk")

    with provider(answers):
        score = await llm_tool_selection([], [], question="Hi!", model=MODEL)
    assert (score.value, score.metadata["reason"]) == (1.0, "small talk")


async def test_arguments_of_no_call_cost_no_question(provider: Any) -> None:
    with provider(likes_search) as simulator:
        none = await llm_tool_arguments([], question="Hi!", model=MODEL)
        absent = await llm_tool_arguments([], [SEARCH], question="Find", model=MODEL)
    assert (none.value, absent.value) == (1.0, 0.0)
    assert simulator.stats.requests == 0


async def test_without_a_verdict_a_sample_is_unscored_and_not_wrong(provider: Any) -> None:
    with provider(["I would rather not say."]):
        score = await llm_tool_selection([SEARCH], question="x", model=MODEL)
    assert score.value is None
    assert "gave no verdict" in score.metadata["unscored"]


async def test_a_judge_of_calls_answers_yes_or_no(provider: Any) -> None:
    with provider(likes_search), pytest.raises(OptionError, match="leave its scale out"):
        await llm_tool_selection([SEARCH], model=MODEL, rubric={"text": "How good?", "scale": [1, 5]})
    with pytest.raises(OptionError, match="a judge needs a model"):
        await llm_tool_selection([SEARCH])


def test_what_the_judge_takes_is_counted_apart(provider: Any) -> None:
    @evalve.foreach("call", [(SEARCH,), (DELETE,)])
    async def eval_calls(call: ToolCall) -> Any:
        return await llm_tool_selection([call], question="Find cats", model=MODEL)

    with provider(likes_search):
        result = evalve.run(eval_calls)
        again = evalve.run(eval_calls)

    assert result.summary["llm_tool_selection"]["mean"] == 0.5
    assert [record.calls["judge.requests"] for record in result if record.calls] == [1, 1]
    assert [record.calls["judge.cached"] for record in again if record.calls] == [1, 1]
