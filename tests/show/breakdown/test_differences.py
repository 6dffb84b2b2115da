"""Two runs side by side: by what scores are about, and by who made calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound
from evalve.show.comparison.comparing import compare_across, compare_experiments, expect_groups
from evalve.show.comparison.regressions import regression_check
from evalve.show.comparison.text import comparison_json, comparison_text
from evalve.storage import open_store
from recorded import record


def conversation(sample_id: str, *turns: tuple[str, bool], **calls: float) -> dict[str, Any]:
    scores = [
        {
            "name": "turn",
            "value": right,
            "metrics": ["accuracy"],
            "metadata": {"turn": number, "tool": tool},
        }
        for number, (tool, right) in enumerate(turns, start=1)
    ]
    made = {name.replace("__", "."): amount for name, amount in calls.items()}
    return {"sample_id": sample_id, "repeat": 0, "wall_s": 0.5, "scores": scores, "calls": made}


ALONE = {
    "requests": 1,
    "input_tokens": 100,
    "cost_usd": 0.01,
    "judge__input_tokens": 5,
    "judge__cost_usd": 0.001,
}
PAIR = {
    "requests": 2,
    "input_tokens": 300,
    "cost_usd": 0.04,
    "student__input_tokens": 120,
    "student__cost_usd": 0.01,
    "teacher__input_tokens": 180,
    "teacher__cost_usd": 0.03,
}


@pytest.fixture
def store() -> Store:
    opened = open_store("memory://")
    record(
        opened,
        "crm",
        conversation("x", ("create_client", False), ("create_quote", True), **ALONE),
        conversation("y", ("create_client", True), ("create_client", False), **ALONE),
        conversation("only here", ("create_client", True), **ALONE),
        name="eval_crm[claude]",
        variant={"model": "claude"},
    )
    record(
        opened,
        "crm",
        conversation("x", ("create_client", True), ("create_quote", True), **PAIR),
        conversation("y", ("create_client", True), ("create_client", False), **PAIR),
        name="eval_crm[atlas]",
        variant={"model": "atlas"},
    )
    return opened


def lines(store: Store, title: str, *, width: int, count: int) -> list[str]:
    (compared,) = compare_across(store, "crm", "model")
    text = list(comparison_text(compared, limit=20, width=width))
    start = next(place for place, line in enumerate(text) if line.startswith(f"  {title}"))
    return text[start : start + count]


def test_each_tool_has_its_share_in_both_and_the_difference(store: Store) -> None:
    assert lines(store, "A → B by tool", width=100, count=4) == [
        "  A → B by tool  n  turn",
        "  ─────────────  ─  ────────────────────────────────",
        "  create_client  3  0.33 → 0.67 +0.333 [-1.00, 1.00]",
        "  1 more without a difference: --full shows all",
    ]


def test_a_narrow_terminal_has_the_shares(store: Store) -> None:
    assert lines(store, "A → B by turn", width=31, count=4) == [
        "  A → B by turn  n  turn",
        "  ─────────────  ─  ───────────",
        "  1              2  0.50 → 1.00",
        "  1 more without a difference: --full shows all",
    ]


def test_what_a_sample_takes_is_told_by_role_and_parts_sum_to_the_whole(store: Store) -> None:
    assert lines(store, "a sample takes", width=100, count=6) == [
        "  a sample takes  tokens A  tokens B   USD A   USD B",
        "  ──────────────  ────────  ────────  ──────  ──────",
        "  own                  100       300  0.0100  0.0400",
        "    student              –       120       –  0.0100",
        "    teacher              –       180       –  0.0300",
        "  judge                  5         –  0.0010       –",
    ]


def test_machines_get_groups_and_roles(store: Store) -> None:
    compared = compare_across(store, "crm", "model")
    plain = json.loads(comparison_json(compared, regression_check(compared)))["evaluations"][0]

    assert plain["groups"]["tool"][0]["value"] == "create_client"
    figures = plain["groups"]["tool"][0]["scores"]["turn"]
    assert (figures["a"], figures["b"]) == pytest.approx((1 / 3, 2 / 3))
    assert (figures["observations_a"], figures["observations_b"], figures["samples"]) == (3, 3, 2)
    assert plain["roles"]["teacher"] == {"b": {"tokens": 180.0, "cost_usd": 0.03}}
    assert plain["roles"]["own"]["b"]["tokens"] == (
        plain["roles"]["student"]["b"]["tokens"] + plain["roles"]["teacher"]["b"]["tokens"]
    )


def test_another_key_may_be_asked_for_and_plain_runs_have_neither_table() -> None:
    store = open_store("memory://")
    for name in ("a", "b"):
        record(store, name, {**conversation("x", ("t", True)), "calls": {"requests": 1, "input_tokens": 3}})

    compared = compare_experiments(store, "a", "b", by=("nothing",))

    with pytest.raises(NotFound, match="nothing to compare by 'nothing'"):
        expect_groups([compared], ("nothing",))
    text = "\n".join(comparison_text(compared, limit=20, width=100))
    assert " by " not in text
    assert "a sample takes" not in text
