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
