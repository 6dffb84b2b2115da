"""Each turn beside what is expected of it. No agent, no database: what was played is written out."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.conversations.rows import read_conversation
from evalve.conversations.scoring import Played, Scoring, score_conversation
from evalve.conversations.tools import MadeCall
from evalve.conversations.turns import PlayedTurn
from evalve.records import Result, Score


def call(
    tool: str, result: Any = None, /, *, error: str | None = None, wrote: bool = False, **arguments: Any
) -> MadeCall:
    return MadeCall(tool, arguments, result, error, wrote)


async def scored(turns: list[dict[str, Any]], *played: Any, state: str | None = None, **row: Any) -> Result:
    """`played` has for each turn its calls, or a whole `PlayedTurn`."""
    told = [{"user_utterance": f"say {number}", **turn} for number, turn in enumerate(turns, 1)]
    conversation = read_conversation({"conversation_id": "c", "turns": told, **row})
    done = [
        one if isinstance(one, PlayedTurn) else PlayedTurn(number, f"say {number}", one, "ok")
        for number, one in enumerate(played, 1)
    ]
    as_recorded = Played.of(Played(done, state).to_plain())  # scoring again begins with the record
    return await score_conversation(conversation, as_recorded, Scoring())


def values(result: Result) -> dict[str, Any]:
    """The scores of the first turn, and of the conversation."""
    found: dict[str, Any] = {}
    for score in result.scores:
        found.setdefault(score.name, score.value)
    return found


def named(result: Result, name: str) -> list[Score]:
    return [score for score in result.scores if score.name == name]


CREATE = {"expected_tool": "create", "expected_args": {"name": "Acme"}}
RIGHT = {"success": True, "all_turns": True, "turn": True, "tool": True, "arguments": True, "outcome": True}


@pytest.mark.parametrize(
    "calls",
    [
        [call("create", {"id": 1}, name="Acme", wrote=True)],
        # looking around is free, and so is what failed and was undone
        [
            call("search", [], q="Acme"),
            call("create", {"id": 1}, name="Acme", wrote=True),
            call("search", []),
        ],
        [call("create", error="busy", name="Acme"), call("create", {"id": 1}, name="Acme", wrote=True)],
        [call("create", {"id": 1}, name="Acme", wrote=True), call("create", error="taken", name="Acme")],
        [call("delete", error="no"), call("create", {"id": 1}, name="Acme")],
    ],
)
async def test_a_turn_is_right_whose_tool_was_called_as_expected(calls: list[MadeCall]) -> None:
    assert values(await scored([CREATE], calls)) == RIGHT


@pytest.mark.parametrize(
    ("calls", "wrong", "why"),
    [
        ([], ["tool", "arguments", "outcome"], 'missing: create(name="Acme") was not called'),
        (
            [call("delete", wrote=True, id=1)],
            ["tool", "arguments", "outcome"],
            'wrong tool: delete(id=1) was called instead of create(name="Acme")',
        ),
        (
            [call("create", name="Acme", wrote=True), call("delete", wrote=True, id=1)],
            ["tool"],
            "extra: delete(id=1) was not expected",
        ),
        (
            [call("create", name="Acme", wrote=True), call("create", name="Acme", wrote=True)],
            ["tool"],
            'extra: create(name="Acme") was not expected',
        ),
        (
            [call("create", name="Acne", wrote=True)],
            ["arguments"],
            'wrong value: create: name is "Acne", expected "Acme"',
        ),
        ([call("create", name="Acme", error="there is one")], ["outcome"], "create failed: there is one"),
    ],
)
async def test_each_part_of_a_turn_that_is_wrong_says_why(
    calls: list[MadeCall], wrong: list[str], why: str
) -> None:
    result = await scored([CREATE], calls)

    found = values(result)
    assert [name for name in ("tool", "arguments", "outcome") if not found[name]] == wrong
    assert (found["turn"], found["all_turns"], found["success"]) == (False, False, False)
    assert named(result, wrong[0])[0].metadata["reason"] == why
    assert named(result, "turn")[0].metadata == {
        "turn": 1,
        "tool": "create",
        "reason": "; ".join(result.response["turns"][0]["why"]),
    }
    assert result.response["failed_at_turn"] == 1


@pytest.mark.parametrize(
    ("made", "is_right"),
    [
        (call("create", name="Acme", error="Name is TAKEN already"), True),
        (call("create", name="Acme", error="no connection"), False),
        (call("create", name="Acme", wrote=True), False),
    ],
)
async def test_an_expected_error_is_found_in_the_message(made: MadeCall, is_right: bool) -> None:
    turn = {**CREATE, "expect_success": False, "expected_error_substring": "is taken"}
    assert values(await scored([turn], [made]))["outcome"] is is_right


@pytest.mark.parametrize(
    ("expected", "calls", "is_right"),
    [
        ([], [], True),
        ([], [call("search")], False),
        ([], [call("search", error="no")], True),
        (["a", {"name": "b", "arguments": {"x": 1}}], [call("b", x=1), call("a")], True),
        (["a", {"name": "b", "arguments": {"x": 1}}], [call("b", x=2), call("a")], False),
        (["a", "b"], [call("a")], False),
        (["a"], [call("a"), call("search")], False),
        ([{"name": "a", "arguments": {"x": {"$one_of": [1, 2]}}}], [call("a", x=2)], True),
    ],
)
async def test_expected_calls_are_these_and_no_others(
    expected: Any, calls: list[MadeCall], is_right: bool
) -> None:
    assert values(await scored([{"expected_calls": expected}], calls))["turn"] is is_right


async def test_a_reference_is_compared_with_what_the_agents_own_call_returned() -> None:
    turns = [CREATE, {"expected_tool": "get", "expected_args": {"id": "{{turn_1.id}}"}}]
    made = [call("create", {"id": 1}, name="Acne"), call("create", {"id": 2}, name="Acme")]

    right = await scored(turns, made, [call("get", {}, id=2)])
    wrong = await scored(turns, made, [call("get", {}, id=1)])
    lost = await scored(turns, [], [call("get", {}, id=2)])

    assert [score.value for score in named(right, "turn")] == [True, True]
    assert [score.value for score in named(wrong, "turn")] == [True, False]
    assert [score.value for score in named(lost, "tool")] == [False, True]
    assert named(lost, "arguments")[1].metadata["reason"] == (
        "{{turn_1.id}} is not known, because turn 1 went wrong"
    )


@pytest.mark.parametrize(
    ("criteria", "state", "success"),
    [
        ("all_turns", "clients: missing", True),
        ("final_state", "clients: missing", False),
        ("both", "clients: missing", False),
        ("both", "", True),
        (None, "clients: missing", False),
    ],
)
async def test_success_is_by_the_criteria_of_the_row(criteria: Any, state: str, success: bool) -> None:
    result = await scored(
        [CREATE],
        [call("create", {}, name="Acme")],
        state=state,
        success_criteria=criteria,
        final_expected_state={"clients": [{"name": "Acme"}]},
    )
    found = values(result)
    assert (found["success"], found["all_turns"], found["final_state"]) == (success, True, state == "")
    assert result.response["state"] == state


async def test_a_turn_that_did_not_end_is_wrong_whatever_was_called() -> None:
    played = PlayedTurn(1, "say 1", [call("create", {}, name="Acme")], "", problem="max_steps: 8 answers")
    result = await scored([CREATE], played)
    assert (values(result)["tool"], values(result)["turn"]) == (True, False)
    assert named(result, "turn")[0].metadata["reason"] == "max_steps: 8 answers"


async def test_calls_that_nobody_has_seen_are_not_wrong() -> None:
    turns = [CREATE, {**CREATE, "expected_response": {"answers": ["done"]}}]
    hidden = [PlayedTurn(n, f"say {n}", [], "Done.", hides_calls=True, hides_results=True) for n in (1, 2)]

    result = await scored(turns, *hidden, state="", final_expected_state={"clients": []})

    assert [(s.name, s.value) for s in result.scores] == [
        ("success", True),
        ("all_turns", True),
        ("final_state", True),
        ("turn", True),
        ("response", True),
    ]
    assert result.response["turns"][0]["right"] is None


async def test_of_calls_whose_results_nobody_has_seen_the_rest_is_scored() -> None:
    turns = [CREATE, {"expected_tool": "get", "expected_args": {"id": "{{turn_1.id}}", "deep": True}}]
    seen = [
        PlayedTurn(1, "say 1", [call("create", name="Acme")], "ok", hides_results=True),
        PlayedTurn(2, "say 2", [call("get", id=77, deep=False)], "ok", hides_results=True),
    ]
    result = await scored(turns, *seen)
    assert [s.value for s in named(result, "tool")] == [True, True]
    assert [s.value for s in named(result, "arguments")] == [True, False]
    assert "deep is false" in named(result, "arguments")[1].metadata["reason"]
    assert named(result, "outcome") == []


async def test_what_is_missing_is_told_once_and_without_arguments_that_nobody_knows() -> None:
    refers = {"expected_tool": "quote", "expected_args": {"id": "{{turn_1.id}}"}}

    result = await scored([CREATE, refers], [], [])

    assert [score.metadata["reason"] for score in named(result, "turn")] == [
        'missing: create(name="Acme") was not called',
        "missing: quote(…) was not called; {{turn_1.id}} is not known, because turn 1 went wrong",
    ]
