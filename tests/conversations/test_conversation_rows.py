"""Rows as conversations: what they mean, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.conversations.rows import read_conversation
from evalve.errors import DatasetError
from evalve.records import ToolCall

SAYS = {"user_utterance": "Hello"}
CALLS = {**SAYS, "expected_tool": "search"}


def row(*turns: Any, **more: Any) -> dict[str, Any]:
    return {"conversation_id": "c1", "turns": list(turns), **more}


def test_missing_keys_have_defaults_and_unknown_ones_are_left_alone() -> None:
    read = read_conversation(row({**CALLS, "failure_category": "none"}, chain_id=7))

    (turn,) = read.turns
    assert (read.id, read.criteria, read.state, read.seed) == ("c1", "all_turns", None, {})
    assert (turn.number, turn.calls, turn.expect_success) == (1, (ToolCall("search", None),), True)
    assert (turn.takes_others, turn.response, read.needs_judge) == (True, None, False)


def test_an_expected_state_makes_both_the_criterion() -> None:
    assert read_conversation(row(CALLS, final_expected_state={"clients": []})).criteria == "both"
    assert read_conversation(row(CALLS, final_expected_state={})).criteria == "all_turns"
    assert read_conversation(row(CALLS, success_criteria="both")).criteria == "all_turns"


def test_an_expected_error_says_by_itself_that_the_call_is_to_fail() -> None:
    (turn,) = read_conversation(row({**CALLS, "expected_error_substring": "not found"})).turns
    assert turn.expect_success is False


def test_a_judge_is_needed_where_the_response_says_so() -> None:
    for response in ({"text": "a", "evaluation": "judge"}, {"text": "a", "requires_judge": True}):
        assert read_conversation(row({**SAYS, "expected_response": response})).needs_judge
    (turn,) = read_conversation(row({**CALLS, "expected_response": {"evaluation": "judge"}})).turns
    assert turn.response is None  # it says nothing


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a"], "a conversation is a mapping with `turns`, not"),
        ({"conversation_id": "c1", "turn": [CALLS]}, "'c1' has no `turns`.*did you mean 'turn'"),
        (row(), "'c1' has no `turns`"),
        (row("Hello"), "'c1', turn 1: a turn is a mapping with `user_utterance`, not 'Hello'"),
        (row(CALLS, {"utterance": "Hi"}), "turn 2 has no `user_utterance`.*did you mean 'utterance'"),
        (row({**CALLS, "turn_id": "one"}), "turn_id is a whole number, 1 for the first turn; got 'one'"),
        (row({**CALLS, "turn_id": 2}, {**CALLS, "turn_id": 2}), "two turns have the turn_id 2"),
        (row({**CALLS, "expect_success": "no"}), "expect_success is true or false; got 'no'"),
        (row({**SAYS, "expected_args": {"a": 1}}), "`expected_args` and no `expected_tool`"),
        (row({**CALLS, "expected_args": [1]}), r"expected_args are arguments by name; got \[1\]"),
        (row({**SAYS, "expected_calls": "search"}), r"expected_calls is a list, \[\] where none"),
        (row({**SAYS, "expected_calls": [{"tool": "a"}]}), r'each of expected_calls is {"name": …'),
        (row({**CALLS, "expected_response": {"text": "a", "evaluation": "judged"}}), "did you mean 'judge'"),
        (row(CALLS, success_criteria="all_turn"), "success_criteria is 'all_turn'; did you mean 'all_turns'"),
        (row(CALLS, success_criteria="final_state"), "final_state, and there is no `final_expected_state`"),
        (
            row({**SAYS, "expected_tools": "add"}),
            "turn 1: unknown key 'expected_tools'; did you mean 'expected_tool'",
        ),
        (row({**CALLS, "expected_arguments": {}}), "'expected_arguments'; did you mean 'expected_args'"),
        (row(CALLS, expected_final_state={}), "'expected_final_state'; did you mean 'final_expected_state'"),
        (row({**CALLS, "expected_response": {"answer": "a"}}), "neither text nor.*; did you mean 'answer'"),
        (row(CALLS, initial_entities={"Client": {"1": {}}}), "initial_entities has no `seed_data`: write"),
        (row(SAYS), "expects nothing, so nothing can be scored"),
        (row(CALLS, initial_entities={"seed_data": {"Client": 5}}), "Client has rows by id.*got 5"),
        (row(CALLS, initial_entities={"seed_data": {"Client": {"1": "A"}}}), "a row is a mapping.*got 'A'"),
        *(
            (
                row(CALLS, {**CALLS, "expected_args": {"id": text}}),
                "turn 2: '{{.*' is no reference: write {{turn_1",
            )
            for text in ("{{turn1.id}}", "no {{Turn_1.id}}", "{{turn_1}}", "{{turn_1.id", "{{turn_1.id}")
        ),
        (
            row({**CALLS, "expected_args": {"id": "{{turn_1.id}}"}}),
            r"turn 1: {{turn_1.id}} refers to no earlier turn \(there is none\)",
        ),
        (
            row(CALLS, {**CALLS, "expected_args": {"a": [{"b": "x {{turn_3.id}}"}]}}, CALLS),
            r"turn 2: {{turn_3.id}} refers to no earlier turn \(there is: 1\)",
        ),
        (
            row(CALLS, final_expected_state={"a": {"{{turn_9.id}}": {}}}),
            "final_expected_state: {{turn_9.id}}",
        ),
    ],
)
def test_mistakes_are_told_with_conversation_and_turn(given: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read_conversation(given)


def test_other_texts_in_braces_are_texts() -> None:
    read_conversation(row({**CALLS, "expected_args": {"text": "Dear {{name}}, {{turnover}} and {{turn}}"}}))
