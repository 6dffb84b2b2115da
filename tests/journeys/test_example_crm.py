"""`examples/crm`: four simulated agents, whose true success is known, have conversations with a CRM."""

from __future__ import annotations

import json
import re
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
SOME = 24
"""Conversations of each agent: enough for every kind of work and of error."""


@pytest.fixture
def crm(project: Project) -> Project:
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "results")
    shutil.copytree(EXAMPLE, project.folder, ignore=unwanted, dirs_exist_ok=True)
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


MUST_BE_WRONG = {
    "wrong_tool": "tool",
    "missing_call": "tool",
    "wrong_argument": "arguments",
    "wrong_reply": "response",
}
"""The score that shows an error of this kind."""


def test_four_agents_at_once_are_found_to_err_exactly_as_they_do(crm: Project) -> None:
    ended = simulated(crm, "run", "crm", "--samples", str(SOME), EVALVE_CACHE="off")
    shown = json.loads(crm.evalve("show", "crm", "--json").out)
    known = truth(crm, "--samples", str(SOME))

    assert ended.code == 0, ended.err
    records = crm.records("crm")
    kinds: Counter[str] = Counter()
    for agent, one in known.items():
        found = {
            record["sample_id"]: record
            for record in records
            if record["evaluation"] == f"conversations[{agent}]"
        }
        assert outcomes(found) == {
            which: (conversation["success"], conversation["turns"])
            for which, conversation in one["conversations"].items()
        }
        for which, conversation in one["conversations"].items():
            kinds += first_error(conversation["errors"], found[which])
        success = metric(shown, f"conversations[{agent}]", "success")
        assert success["value"] == pytest.approx(one["drawn"])
        assert success["low"] <= one["expected"] <= success["high"], agent
    assert kinds.keys() == MUST_BE_WRONG.keys()
    assert tokens(records, "") + tokens(records, "judge.") == what_the_provider_counted(ended)
    pairs = [record for record in records if record["evaluation"] == "conversations[atlas]"]
    assert tokens(pairs, "student.") + tokens(pairs, "teacher.") == tokens(pairs, "")


def outcomes(found: dict[str, Any]) -> dict[str, tuple[bool, list[bool]]]:
    """Whether each conversation succeeded, and each of its turns."""
    return {
        which: (record["response"]["success"], [turn["right"] for turn in record["response"]["turns"]])
        for which, record in found.items()
    }


def first_error(errors: list[str | None], record: dict[str, Any]) -> Counter[str]:
    """The first error of a conversation shows in its own score, and in none that stands before it."""
    turn, kind = next(((turn, kind) for turn, kind in enumerate(errors, 1) if kind), (0, None))
    if kind is None:
        return Counter()
    scores = {
        score["name"]: score["value"] for score in record["scores"] if score["metadata"].get("turn") == turn
    }
    wrong = MUST_BE_WRONG[kind]
    assert scores[wrong] is False, (kind, scores)
    assert wrong == "tool" or scores.get("tool", True), (kind, scores)
    assert wrong != "response" or scores.get("arguments", True), (kind, scores)
    return Counter([kind])


def metric(shown: dict[str, Any], evaluation: str, name: str) -> dict[str, Any]:
    (metrics,) = [one["metrics"] for one in shown["evaluations"] if one["evaluation"] == evaluation]
    (found,) = [one for one in metrics if one["evaluator"] == name]
    return dict(found)


def tokens(records: list[dict[str, Any]], role: str) -> Counter[str]:
    """Those of all calls in a role; without one, of an agent's own."""
    kinds = {
        "input_tokens": "input",
        "cache_read_tokens": "input",
        "cache_write_tokens": "input",
        "output_tokens": "output",
    }
    found: Counter[str] = Counter()
    for record in records:
        for name, kind in kinds.items():
            found[kind] += record["calls"].get(role + name, 0)
    return found


def what_the_provider_counted(ended: Ended) -> dict[str, int]:
    told = re.search(r"simulated models: .* ([\d,]+) \+ ([\d,]+) tokens", ended.err)
    assert told is not None, ended.err
    return {"input": int(told[1].replace(",", "")), "output": int(told[2].replace(",", ""))}


def test_one_by_one_and_sixteen_at_once_are_the_same(crm: Project) -> None:
    flags = ("--samples", "8", "--model", "gpt4.1-mini", "--model", "atlas")
    exported = []
    for concurrency in ("1", "16"):
        ended = simulated(
            crm, "run", "crm", *flags, "--concurrency", concurrency, "--fresh", EVALVE_CACHE="off"
        )
        assert ended.code == 0, ended.err
        exported.append(crm.evalve("export", "crm", "--canonical").out.splitlines())

    assert len(exported[0]) == 16
    assert exported[0] == exported[1]
