"""`examples/crm`: four simulated agents, whose true success is known, have conversations with a CRM."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from project import Ended, Project

from evalve.statistics import wilson_interval

EXAMPLE = Path(__file__).parents[2] / "examples" / "crm"
ROWS = [json.loads(line) for line in (EXAMPLE / "conversations.jsonl").read_text().splitlines()]
SOME = 36
"""Conversations of each agent: enough for every kind of work and of error."""


@pytest.fixture
def crm(project: Project) -> Project:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, project.folder)
    return project


def simulated(crm: Project, *arguments: str, **environ: str) -> Ended:
    """`evalve` with these arguments, and with simulated providers."""
    evalve = str(Path(sys.executable).parent / "evalve")
    folders = {name: str(crm.folder / name) for name in ("EVALVE_STATE_DIR", "EVALVE_CACHE_DIR")}
    flags = ("--port", "0", "--latency-s", "0.001")
    return crm.python("provider.py", *flags, evalve, *arguments, **folders, **environ)


def truth(crm: Project, *arguments: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(crm.python("truth.py", "--json", *arguments).out)
    return told


def test_the_conversations_are_what_the_script_writes(crm: Project) -> None:
    made = crm.python("make_conversations.py")

    assert made.code == 0, made.err
    for name in ("conversations.jsonl", "seed.sql"):
        assert crm.read(name) == (EXAMPLE / name).read_text(), f"{name} is not what the script writes"
    lengths = {"simple": range(1, 4), "medium": range(4, 7), "complex": range(7, 11)}
    assert len(ROWS) == 126
    assert all(len(row["turns"]) in lengths[row["complexity_level"]] for row in ROWS)
    assert len({row["turns"][0]["user_utterance"] for row in ROWS}) == len(ROWS)
    assert set(Counter(row["workflow_category"] for row in ROWS).values()) == {18}
    assert (EXAMPLE / "tools.py").read_text().count("\n@tool\n") == 32


def test_over_all_conversations_the_true_rates_lie_in_the_intervals_of_what_was_drawn(crm: Project) -> None:
    for agent, known in truth(crm).items():
        interval = wilson_interval(round(known["drawn"] * len(ROWS)), len(ROWS))
        assert interval is not None
        assert interval.low <= known["expected"] <= interval.high, agent


def test_the_expected_calls_succeed_so_that_tools_and_model_agree(crm: Project) -> None:
    ended = simulated(crm, "run", "gold")

    assert ended.code == 0, ended.err
    records = crm.records("gold")
    assert len(records) == len(ROWS)
    wrong = [record["response"] for record in records if not record["response"]["success"]]
    assert wrong == []


FIRST_WRONG = {
    "wrong_tool": {"turn", "tool"},
    "missing_call": {"turn", "tool"},
    "wrong_argument": {"turn", "arguments"},
    "wrong_reply": {"turn", "response"},
}
"""The scores that must be wrong in a turn with such an error."""


def scores_of(record: dict[str, Any], turn: int) -> dict[str, Any]:
    return {
        score["name"]: score["value"] for score in record["scores"] if score["metadata"].get("turn") == turn
    }


def test_four_agents_at_once_are_found_to_err_exactly_as_they_do(crm: Project) -> None:
    ended = simulated(crm, "run", "crm", "--samples", str(SOME), EVALVE_CACHE="off")
    shown = crm.evalve("show", "crm", "--json")

    assert ended.code == 0, ended.err
    records = {(record["evaluation"], record["sample_id"]): record for record in crm.records("crm")}
    known = truth(crm, "--samples", str(SOME))
    assert len(records) == 4 * SOME
    kinds: Counter[str] = Counter()
    for agent, one in known.items():
        for which, conversation in one["conversations"].items():
            record = records[f"conversations[{agent}]", which]
            response = record["response"]
            assert [turn["right"] for turn in response["turns"]] == conversation["turns"], (agent, which)
            assert response["success"] == conversation["success"], (agent, which)
            first = next((n for n, error in enumerate(conversation["errors"], 1) if error), None)
            if first is not None:
                kind = conversation["errors"][first - 1]
                kinds[kind] += 1
                scores = scores_of(record, first)
                assert all(scores[name] is False for name in FIRST_WRONG[kind]), (agent, which, scores)
                assert kind != "wrong_argument" or scores["tool"], (agent, which)
                assert kind != "wrong_reply" or scores.get("tool", True), (agent, which)
    assert set(kinds) == set(FIRST_WRONG)
    print(shown.out[:4000])
