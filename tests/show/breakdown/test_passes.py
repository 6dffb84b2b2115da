"""pass^k over repeats: what is computed, what is left out, and what is said about that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.show.experiment import show_json, show_text
from evalve.show.samples import Choice
from evalve.storage import open_store
from recorded import done, failed, record


def repeated(sample_id: str, *right: bool) -> list[dict[str, Any]]:
    return [done(sample_id, repeat=number, success=each) for number, each in enumerate(right)]


@pytest.fixture
def store() -> Store:
    opened = open_store("memory://")
    died = failed("d", "SandboxError", "gone", "infrastructure")
    record(
        opened,
        "crm",
        *repeated("a", True, True, True),
        *repeated("b", True, True, False),
        *repeated("c", False, True),
        {**failed("c", "SandboxError", "gone", "infrastructure"), "repeat": 2},
        *({**died, "repeat": number} for number in range(3)),
    )
    return opened


def test_every_k_up_to_the_repeats_has_a_column_and_what_is_missing_is_said(store: Store) -> None:
    text = list(show_text(store, "crm", evaluation=None, choice=Choice(), width=120))
    start = next(place for place, line in enumerate(text) if "pass^1" in line)

    assert text[start : start + 5] == [
        "  evaluator  pass^1              pass^2              pass^3",
        "  ─────────  ──────────────────  ──────────────────  ──────────────────",
        "  success    0.722 [0.12, 0.98]  0.444 [0.03, 0.96]  0.500 [0.09, 0.91]",
        "  of the repeats, 4 failed (infrastructure): excluded, not wrong",
        "  2 of 4 samples lack some of 3 scored repeats: left out of pass^3",
    ]


def test_an_evaluator_of_which_less_is_better_has_no_passes() -> None:
    store = open_store("memory://")
    scores = [{"name": "toxic", "value": True, "metrics": ["mean:lower"]}]
    record(store, "crm", *({**each, "scores": scores} for each in repeated("a", True, True)))

    plain = json.loads("".join(show_json(store, "crm", evaluation=None, choice=Choice())))

    assert plain["evaluations"][0]["passes"] is None


def test_machines_get_values_intervals_and_what_was_left_out(store: Store) -> None:
    plain = json.loads("".join(show_json(store, "crm", evaluation=None, choice=Choice())))
    passes = plain["evaluations"][0]["passes"]

    # a: 3 of 3; b: 2 of 3, so C(2,2)/C(3,2) = 1/3; c: 1 of 2
    by_k = {one["k"]: one for one in passes["evaluators"]["success"]}
    assert by_k[1]["value"] == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    assert by_k[2]["value"] == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert by_k[3]["value"] == pytest.approx((1 + 0) / 2)
    assert [(by_k[k]["samples"], by_k[k]["left_out"]) for k in (1, 2, 3)] == [(3, 1), (3, 1), (2, 2)]
    assert (passes["samples"], passes["excluded"]) == (4, {"infrastructure": 4})


def test_samples_that_ran_once_have_no_such_table() -> None:
    store = open_store("memory://")
    record(store, "once", done("a", success=True))

    text = "\n".join(show_text(store, "once", evaluation=None, choice=Choice(), width=120))
    plain = json.loads("".join(show_json(store, "once", evaluation=None, choice=Choice())))

    assert "pass^" not in text
    assert plain["evaluations"][0]["passes"] is None


def test_numbers_and_several_scores_of_one_name_are_not_runs_that_are_right_or_wrong() -> None:
    store = open_store("memory://")
    turns = [{"name": "turn", "value": True, "metrics": ["accuracy"]}] * 2
    grade = [{"name": "grade", "value": 0.5, "metrics": ["mean"]}]
    both = [
        {"sample_id": "a", "repeat": number, "wall_s": 0.5, "scores": [*turns, *grade]} for number in (0, 1)
    ]
    record(store, "twice", *both)

    plain = json.loads("".join(show_json(store, "twice", evaluation=None, choice=Choice())))

    assert plain["evaluations"][0]["passes"] is None
