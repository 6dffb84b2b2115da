"""A sample that is a conversation, as a person reads it."""

from __future__ import annotations

from typing import Any

from evalve.show.experiment import show_text
from evalve.show.sample.conversation import conversation_lines, is_conversation, what_was_wrong
from evalve.show.sample.page import Wanted, find_sample, sample_text
from evalve.show.samples import Choice
from evalve.storage import open_store
from recorded import record

RESPONSE = {
    "conversation_id": "conv-1",
    "success": False,
    "failed_at_turn": 2,
    "turns": [
        {
            "turn": 1,
            "utterance": "Add Acme as a client.",
            "calls": [
                {"name": "create_client", "arguments": {"name": "Acme"}, "result": {"client_id": "C1"}}
            ],
            "reply": "Done.\nAnything else?",
            "right": True,
            "why": [],
        },
        {
            "turn": 2,
            "utterance": "Quote them 500.",
            "calls": [{"name": "create_quote", "arguments": {"amount": 50}, "error": "no such client"}],
            "reply": "",
            "right": False,
            "why": ["arguments: amount is 50, not 500", "outcome: it failed"],
        },
    ],
    "state": "quotes\n  missing  Q1",
}


def test_turns_stand_below_each_other_with_what_was_called_answered_and_wrong() -> None:
    assert list(conversation_lines(RESPONSE, full=False)) == [
        "  conversation  2 turns, 1 wrong, first at turn 2",
        "    turn 1: right",
        "      user    Add Acme as a client.",
        '      call    create_client(name="Acme")',
        '      result  {"client_id": "C1"}',
        "      reply   Done.",
        "              Anything else?",
        "    turn 2: wrong",
        "      user    Quote them 500.",
        "      call    create_quote(amount=50)",
        "      error   no such client",
        "      wrong   arguments: amount is 50, not 500",
        "      wrong   outcome: it failed",
        "    state, where it is not as expected",
        "      quotes",
        "        missing  Q1",
    ]


def test_in_a_line_what_was_wrong_is_told() -> None:
    assert what_was_wrong(RESPONSE) == (
        "turn 2: arguments: amount is 50, not 500; outcome: it failed; state: quotes\n  missing  Q1"
    )


def test_long_results_are_cut_unless_all_is_asked_for() -> None:
    turn = {"utterance": "List them.", "calls": [{"name": "list", "arguments": {}, "result": "x" * 1000}]}

    cut = "\n".join(conversation_lines({"turns": [turn]}, full=False))
    whole = "\n".join(conversation_lines({"turns": [turn]}, full=True))

    assert "x … 700 more characters: --full shows all" in cut
    assert "x" * 1000 in whole


def test_other_responses_are_no_conversations() -> None:
    responses: list[Any] = ["text", None, {"turns": []}, {"turns": [1]}, {"turns": [{"role": "user"}]}]
    assert not any(map(is_conversation, responses))


def test_control_characters_of_a_reply_do_not_reach_the_terminal() -> None:
    turn = {"utterance": "\x1b[2J", "calls": [], "reply": "\x1b]0;x\x07", "right": True}
    assert "\x1b" not in "".join(conversation_lines({"turns": [turn]}, full=False))


def test_the_page_of_a_sample_counts_the_scores_of_turns_and_shows_the_turns() -> None:
    store = open_store("memory://")
    turns = [
        {"name": "turn", "value": True, "metrics": ["accuracy"], "metadata": {"turn": 1}},
        {"name": "turn", "value": False, "metrics": ["accuracy"], "metadata": {"turn": 2, "reason": "late"}},
        {"name": "response", "value": None, "metrics": ["accuracy"], "metadata": {"turn": 2}},
    ]
    sample = {"sample_id": "conv-1", "repeat": 0, "wall_s": 0.5, "scores": turns, "response": RESPONSE}
    record(store, "crm", sample)

    lines = list(sample_text(find_sample(store, Wanted("crm", "conv-1")), full=False))

    assert lines[4:7] == [
        "  score     turn: 1/2",
        "  score     response: 1 unscored",
        "  conversation  2 turns, 1 wrong, first at turn 2",
    ]
    assert "  response" not in lines


def test_wrong_conversations_are_listed_with_what_was_wrong() -> None:
    store = open_store("memory://")
    scores = [{"name": "success", "value": False, "metrics": ["accuracy"]}]
    record(
        store, "crm", {"sample_id": "c", "repeat": 0, "wall_s": 0.5, "scores": scores, "response": RESPONSE}
    )

    lines = list(show_text(store, "crm", evaluation=None, choice=Choice("failed"), width=160))

    assert "turn 2: arguments: amount is 50, not 500; outcome" in lines[-1]
