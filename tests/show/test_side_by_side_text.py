"""The variants of one evaluation beside each other."""

from __future__ import annotations

from typing import Any

from evalve.contracts import Store
from evalve.show.experiment import show_text
from evalve.show.samples import Choice
from evalve.storage import open_store
from recorded import done, failed, record


def agents(*names: str, **report: dict[str, float]) -> Store:
    store = open_store("memory://")
    for name in names:
        turns = [
            {"name": "turn", "value": right, "metrics": ["accuracy"], "metadata": {"tool": tool}}
            for tool, right in (("create_client", True), ("create_quote", name == "atlas"))
        ]
        sample = done("a", success=name == "atlas")
        sample["scores"] += turns
        calls = {"calls": report[name]} if name in report else {}
        record(store, "crm", sample, failed("b"), name=f"crm[{name}]", variant={"model": name}, report=calls)
    return store


def shown(store: Store, width: int) -> list[str]:
    text = list(show_text(store, "crm", evaluation=None, choice=Choice(), width=width))
    return text[2 : text.index("", 2)]


def test_agents_have_a_column_each_with_scores_calls_by_role_and_tools() -> None:
    alone: dict[str, Any] = {"input_tokens": 900, "output_tokens": 10, "cost_usd": 0.25}
    pair = {**alone, "student.input_tokens": 500, "student.cost_usd": 0.05}
    pair |= {"teacher.input_tokens": 400, "teacher.output_tokens": 10, "teacher.cost_usd": 0.2}
    pair |= {"judge.input_tokens": 7, "judge.cost_usd": 0.01}

    assert shown(agents("claude", "atlas", claude=alone, atlas=pair), 100) == [
        "crm                              claude               atlas",
        "───────────────────  ──────────────────  ──────────────────",
        "done                                1/2                 1/2",
        "failed                                1                   1",
        "success              0.000 [0.00, 0.79]  1.000 [0.21, 1.00]",
        "turn                              0.500               1.000",
        "tokens                         900 + 10            900 + 10",
        "  student                             –             500 + 0",
        "  teacher                             –            400 + 10",
        "judge tokens                          –               7 + 0",
        "USD                              0.2500              0.2500",
        "  student                             –              0.0500",
        "  teacher                             –              0.2000",
        "judge USD                             –              0.0100",
        "turn: create_client  1.000 [0.21, 1.00]  1.000 [0.21, 1.00]",
        "turn: create_quote   0.000 [0.00, 0.79]  1.000 [0.21, 1.00]",
    ]


def test_what_came_from_the_cache_stands_above_the_tokens_that_it_saved() -> None:
    paid = {"requests": 4.0, "retries": 1.0, "input_tokens": 900.0}
    saved = {"requests": 0.0, "cached": 3.0}

    lines = shown(agents("claude", "atlas", claude=paid, atlas=saved), 100)

    assert [line.split(maxsplit=3)[3] for line in lines if line.startswith("from the cache")] == [
        "0 of 3 calls        3 of 3 calls"
    ]


def test_a_narrow_terminal_has_no_intervals_and_many_agents_are_told_in_several_tables() -> None:
    lines = list(
        show_text(agents("claude", "gpt", "mini", "atlas"), "crm", evaluation=None, choice=Choice(), width=40)
    )

    assert lines[2] == "crm                  claude    gpt"
    assert lines[2 + 9] == "crm                   mini  atlas"


def test_evaluations_that_are_no_variants_of_each_other_stand_alone() -> None:
    store = open_store("memory://")
    record(store, "crm", done("a", success=True), name="eval_one")
    record(store, "crm", done("a", success=True), name="eval_two")

    assert shown(store, 80)[0] == "eval_one"
