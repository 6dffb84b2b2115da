"""Scores by what their metadata says that they are about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound
from evalve.show.experiment import show_json, show_text
from evalve.show.exports.markdown import show_markdown
from evalve.show.result import EvaluationResult
from evalve.show.samples import Choice
from evalve.storage import open_store
from recorded import record

NARROW, WIDE = 52, 200


def conversation(sample_id: str, *turns: tuple[str, bool, bool]) -> dict[str, Any]:
    """Each turn: its tool, whether the tool is right, whether the turn is."""
    scores = []
    for number, (tool, is_tool_right, is_right) in enumerate(turns, start=1):
        about = {"turn": number, "tool": tool}
        scores += [
            {"name": "tool", "value": is_tool_right, "metrics": ["accuracy"], "metadata": about},
            {"name": "turn", "value": is_right, "metrics": ["accuracy"], "metadata": about},
        ]
    return {"sample_id": sample_id, "repeat": 0, "wall_s": 0.5, "scores": scores}


@pytest.fixture
def store() -> Store:
    opened = open_store("memory://")
    record(
        opened,
        "crm",
        conversation("a", ("create_client", True, True), ("create_quote", True, False)),
        conversation("b", ("create_client", True, True), ("create_client", True, True)),
        conversation("c", ("create_quote", False, False)),
    )
    return opened


def shown(
    store: Store, title: str, *, width: int, lines: int, by: tuple[str, ...] | None = None
) -> list[str]:
    chosen = {} if by is None else {"by": by}
    text = list(show_text(store, "crm", evaluation=None, choice=Choice(), width=width, **chosen))
    start = next(place for place, line in enumerate(text) if line.startswith(f"  by {title}"))
    return text[start : start + lines]


def test_a_table_has_a_line_for_each_tool_with_calls_right_share_and_interval(store: Store) -> None:
    assert shown(store, "tool", width=WIDE, lines=5) == [
        "  by tool        tool                   turn",
        "  ─────────────  ─────────────────────  ─────────────────────",
        "  create_client  3/3 1.00 [0.01, 1.00]  3/3 1.00 [0.01, 1.00]",
        "  create_quote   1/2 0.50 [0.09, 0.91]  0/2 0.00 [0.00, 0.66]",
        "  all            4/5 0.80 [0.08, 0.99]  3/5 0.60 [0.06, 0.97]",
    ]


def test_turns_stand_in_their_order_and_a_narrow_terminal_has_no_intervals(store: Store) -> None:
    assert shown(store, "turn", width=NARROW, lines=5) == [
        "  by turn  tool      turn",
        "  ───────  ────────  ────────",
        "  1        2/3 0.67  2/3 0.67",
        "  2        2/2 1.00  1/2 0.50",
        "  all      4/5 0.80  3/5 0.60",
    ]


def test_a_terminal_that_is_narrower_still_has_shares_and_how_many_they_are_of(store: Store) -> None:
    assert shown(store, "tool", width=33, lines=3) == [
        "  by tool        n  tool  turn",
        "  ─────────────  ─  ────  ────",
        "  create_client  3  1.00  1.00",
    ]


def test_any_key_of_the_metadata_may_be_asked_for(store: Store) -> None:
    text = "\n".join(show_text(store, "crm", evaluation=None, choice=Choice(), width=80, by=("turn",)))
    assert "by turn" in text
    assert "by tool" not in text


def test_a_table_that_counts_otherwise_than_the_metrics_says_so(store: Store) -> None:
    text = "\n".join(show_text(store, "crm", evaluation=None, choice=Choice(), width=80))
    assert text.count("These tables count every score alike; metrics above are means over samples") == 1


def test_a_key_that_no_score_has_is_an_error_with_those_that_they_have(store: Store) -> None:
    with pytest.raises(
        NotFound, match="no score of experiment 'crm' has 'toll' in its metadata; did you mean"
    ):
        shown(store, "toll", width=80, lines=1, by=("toll",))
    with pytest.raises(NotFound, match="'workflow' in its metadata; they have: tool, turn"):
        shown(store, "workflow", width=80, lines=1, by=("workflow",))


def test_a_jobs_summary_has_the_tables_too(store: Store) -> None:
    text = list(show_markdown(store, "crm", evaluation=None))

    start = text.index("| eval_math by tool | tool | turn |")
    assert text[start + 2 : start + 5] == [
        "| create_client | 3/3 1.00 | 3/3 1.00 |",
        "| create_quote | 1/2 0.50 | 0/2 0.00 |",
        "| all | 4/5 0.80 | 3/5 0.60 |",
    ]


def test_a_notebook_has_the_tables_too(store: Store) -> None:
    (info,) = store.evaluations("crm")

    text = EvaluationResult(store, info, [], {})._repr_html_()

    assert "<th>by tool</th><th>tool</th><th>turn</th>" in text
    assert "<td>create_quote</td><td>1/2 0.50</td><td>0/2 0.00</td>" in text


def test_scores_without_such_metadata_have_no_table() -> None:
    store = open_store("memory://")
    record(
        store, "plain", {"sample_id": "a", "repeat": 0, "wall_s": 0.1, "scores": [{"name": "x", "value": 1}]}
    )
    assert " by " not in "\n".join(show_text(store, "plain", evaluation=None, choice=Choice(), width=80))


def test_machines_get_every_group_of_every_key(store: Store) -> None:
    plain = json.loads("".join(show_json(store, "crm", evaluation=None, choice=Choice())))
    groups = plain["evaluations"][0]["groups"]

    assert list(groups) == ["tool", "turn"]
    assert groups["tool"]["groups"][1] == {
        "value": "create_quote",
        "scores": {
            "tool": {
                "observations": 2,
                "samples": 2,
                "right": 1,
                "value": 0.5,
                "low": pytest.approx(0.0945, abs=1e-4),
                "high": pytest.approx(0.9055, abs=1e-4),
            },
            "turn": {
                "observations": 2,
                "samples": 2,
                "right": 0,
                "value": 0.0,
                "low": 0.0,
                "high": pytest.approx(0.6576, abs=1e-4),
            },
        },
    }
    assert groups["turn"]["all"]["turn"]["right"] == 3
    assert [group["value"] for group in groups["turn"]["groups"]] == [1, 2]


def test_the_samples_say_how_many_of_their_turns_are_right(store: Store) -> None:
    text = list(show_text(store, "crm", evaluation=None, choice=Choice(), width=80))
    assert [line.split()[:4] for line in text[-3:]] == [
        ["a", "done", "2/2", "1/2"],
        ["b", "done", "2/2", "2/2"],
        ["c", "done", "False", "False"],
    ]
