"""`examples/tool_calls`: the simulated model misses what it is told to, and the suite reports just that."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from project import Ended, Project

from evalve.evaluators.tools import KINDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "tool_calls"
SCRIPTED = yaml.safe_load((EXAMPLE / "answers.yaml").read_text(encoding="utf-8"))
CASES = yaml.safe_load((EXAMPLE / "cases.yaml").read_text(encoding="utf-8"))
IDS = {f"{resource}-{name}" for resource, cases in CASES.items() for name in cases}


@pytest.fixture
def suite(project: Project) -> Project:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, project.folder)
    return project


@contextmanager
def provider(suite: Project, *flags: str) -> Iterator[tuple[dict[str, str], list[dict[str, Any]]]]:
    """The simulated model as a process: the environment for whoever asks it; at the end, what it saw."""
    seen: list[dict[str, Any]] = []
    with suite.started("provider.py", "--latency-s", "0.01", *flags) as running:
        running.has_written("url", to="out")
        environ = {
            "ANTHROPIC_BASE_URL": json.loads(suite.read("out"))["url"],
            "ANTHROPIC_API_KEY": "any",
            "EVALVE_STATE_DIR": str(suite.folder / "state"),
        }
        yield environ, seen
        running.interrupt()
        seen.append(json.loads(running.end().out.splitlines()[-1]))


def failed(suite: Project, name: str) -> set[str]:
    return {test for test, case in suite.junit(name).items() if case.find("failure") is not None}


def test_every_kind_of_miss_occurs_in_three_cases_at_least() -> None:
    kinds = Counter(kind for script in SCRIPTED.values() for kind in script["misses"])

    assert len(IDS) == 60
    assert len(CASES) == 12
    assert SCRIPTED.keys() <= IDS
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 3


def test_the_suite_reports_exactly_what_is_scripted_and_the_tests_of_a_case_share_its_call(
    suite: Project,
) -> None:
    with provider(suite) as (environ, seen):
        ended = suite.pytest("--known-misses", "known_misses.txt", "--experiment", "all", **environ)
        cached = suite.pytest("-q", "--junitxml=cached.xml", **environ, EVALVE_CACHE="read")

    known = set(suite.read("known_misses.txt").split())
    assert (ended.code, ended.outcomes) == (0, {"passed": 254 - len(known), "xfailed": len(known)})
    found = {
        record["sample_id"]: sorted(score["metadata"].get("miss_counts", {}))
        for record in suite.records("all")
        for score in record["scores"]
        if score["name"] == "tool_call_match"
    }
    assert {id: kinds for id, kinds in found.items() if kinds} == {
        id: sorted(script["misses"]) for id, script in SCRIPTED.items()
    }
    assert "\n".join(ended.summary).count("\n  5 calls; ") == len(CASES)
    assert (seen[0]["refused"], seen[0]["answered_again"]) == (0, 0)
    assert (cached.code, failed(suite, "cached.xml")) == (1, known)
    assert (suite.folder / ".tool_call_cache" / "responses.db").exists()


def test_four_workers_keep_one_limit_and_find_what_one_by_one_finds(suite: Project) -> None:
    flags = ("-q", "--no-header", "-k", "basic")
    with provider(suite, "--requests-per-minute", "3600") as (environ, seen):
        environ |= {"EVAL_USE_CACHE": "false", "ANTHROPIC_RPM_LIMIT": "3600"}
        four = suite.pytest(*flags, "-n", "4", "--junitxml=four.xml", **environ)
        one = suite.pytest(*flags, "--max-concurrency", "1", "--junitxml=one.xml", **environ)

    known = {test for test in suite.read("known_misses.txt").split() if "basic" in test}
    assert (four.code, one.code) == (1, 1)
    assert four.outcomes == {"passed": 120 - len(known), "failed": len(known)}
    assert failed(suite, "four.xml") == failed(suite, "one.xml") == known
    assert (seen[0]["completed"], seen[0]["refused"]) == (2 * len(IDS), 0)


def test_without_a_key_it_simulates_a_model_by_itself_and_runs_one_resource(suite: Project) -> None:
    ended = suite.pytest("-k", "triggers", "-m", "basic", "--known-misses", "known_misses.txt")

    assert ended.outcomes == {"passed": 7, "xfailed": 3, "deselected": 244}
    assert "no ANTHROPIC_API_KEY, so a simulated model answers at http://127.0.0.1:" in ended.out
    assert [record["sample_id"].split("-")[0] for record in suite.records()] == ["triggers"] * 5
    planned = suite.evalve("plan", "eval_tool_calls.py::triggers")
    assert planned.code == 0
    assert re.search(r"^triggers +5 +5 ", planned.out, re.MULTILINE)


def test_evaluations_side_by_side_spend_one_budget(suite: Project) -> None:
    ended = suite.pytest("-k", "(triggers or boards) and basic", "--budget-usd", "0.04")

    assert ended.code == 2
    assert "the budget of 0.04 USD is used up" in ended.out
    spent_usd = [float(usd) for usd in re.findall(r"tokens; ([\d.]+) USD", ended.out)]
    assert len(spent_usd) == 2
    assert 0 < sum(spent_usd) <= 0.04


def test_with_batch_the_suite_is_one_batch_whatever_the_workers_and_finds_the_same(suite: Project) -> None:
    with provider(suite) as (environ, seen):
        ended = suite.pytest(
            "-k", "basic", "-n", "2", "--batch", "--known-misses", "known_misses.txt", **environ
        )
        listed = suite.evalve("batch", "list", "--json", **environ)

    known = [test for test in suite.read("known_misses.txt").split() if "basic" in test]
    assert (ended.code, ended.outcomes) == (0, {"passed": 120 - len(known), "xfailed": len(known)})
    (batch,) = json.loads(listed.out)
    assert batch["requests"] == len(IDS)
    assert seen[0]["answered_again"] == 0


WORKFLOW = EXAMPLE.parents[1] / ".github" / "workflows" / "evals.yml"


def steps(job: str) -> dict[str, str]:
    """The commands of a job's steps, by name."""
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return {step["name"]: step["run"] for step in workflow["jobs"][job]["steps"] if "run" in step}


def bash(suite: Project, script: str, **environ: str) -> Ended:
    """As CI runs it, with our interpreter's programs before others."""
    suite.write("step.sh", script)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = "import subprocess, sys; sys.exit(subprocess.call(['bash', '-eo', 'pipefail', 'step.sh']))"
    return suite.python("-c", program, PATH=path, GITHUB_STEP_SUMMARY="summary.md", **environ)


def test_the_workflow_tells_a_missed_case_from_a_broken_one_and_writes_a_summary(suite: Project) -> None:
    fast = steps("eval-fast")
    evaluate = fast["Evaluate"].replace("-n 4", "")  # which another test does
    alone = evaluate.replace("-k basic", "-k 'basic and recipients'")

    passed = bash(suite, evaluate)
    summary = bash(suite, fast["Summary"])
    written = suite.read("summary.md")
    (suite.folder / "known_misses.txt").write_text("")
    missed = bash(suite, alone.replace("tool-calls", "missed"))
    broken = bash(suite, alone.replace("tool-calls", "broken"), EVALVE_CACHE_DIR="empty", EVALVE_CACHE="read")

    assert (passed.code, summary.code, missed.code, broken.code) == (0, 0, 1, 7)
    assert "| recipients[anthropic" in written
    assert "| bad JSON | " in written
    assert "### Wrong: " in written
    assert "::error title=Missed::" in missed.out
    assert "5 calls, 5 of them cached" in missed.out
    assert "::error title=Broken::" in broken.out
    assert len(suite.junit("evals.xml")) == 10
    assert steps("eval-full").keys() == fast.keys()
    assert "basic" not in steps("eval-full")["Evaluate"]


def test_its_makefile_has_what_a_person_types(suite: Project) -> None:
    targets = suite.read("Makefile")

    for target, flags in (("eval", ""), ("eval-fast", " -k basic"), ("eval-parallel", " -n 4 -k basic")):
        assert f"\n{target}:\n\t$(PYTEST) eval_tool_calls.py $(FLAGS){flags}\n" in targets
