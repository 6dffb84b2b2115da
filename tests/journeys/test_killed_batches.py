"""Batches with real processes that are killed: whatever happens, every request is paid for once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from evalve.gate.batches.store import BatchStore
from evalve.simulator import Batches, Behaviour, Simulator
from evalve.storage import open_store

PATIENCE_S = 120.0
SAMPLES = 40
PROGRAM = """
import sys
import evalve
from evalve import Score, foreach

name, turns, samples = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

@foreach("n", [(n,) for n in range(samples)])
async def eval_it(n):
    model = evalve.model(name)
    text = str(n)
    for turn in range(turns):
        text = (await model.generate(f"{turn}: {text}", max_tokens=30)).text
    return Score("right", text == str(n), [])

# accepting: a sample at work when its process is killed twice would else be taken for what kills it
result = evalve.run(eval_it, experiment="e", batch=True, max_concurrency=5, accept_changes=True)
print(sum(record.scores[0].value for record in result))
"""


class Runs:
    """A program that asks in batches, in one project, as often as it is started."""

    def __init__(self, folder: Path, provider: Simulator) -> None:
        self.folder = folder
        self.provider = provider
        (folder / "program.py").write_text(PROGRAM)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EVALVE_")},
            "EVALVE_CACHE_DIR": str(folder / "cache"),
            "EVALVE_STATE_DIR": str(folder / "state"),
            "EVALVE_BATCH_LINGER_S": "0.5",
            "ANTHROPIC_API_KEY": "k",
            "OPENAI_API_KEY": "k",
            "ANTHROPIC_BASE_URL": provider.url,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
        }

    def start(self, model: str, turns: int = 1) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "program.py", model, str(turns), str(SAMPLES)],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def to_the_end(self, model: str, turns: int = 1) -> str:
        process = self.start(model, turns)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return out.strip()

    def killed_at(self, point: str, model: str) -> None:
        process = self.start(model)
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.provider.stats.crash_points[point]:
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.01)
        process.kill()
        process.communicate()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with Simulator(behaviour()).start_in_thread() as provider:
        yield Runs(tmp_path, provider)


def behaviour(**settings: Any) -> Behaviour:
    return Behaviour(
        answers=lambda ask: ask.prompt.rpartition(" ")[2], batches=Batches(**{"delay_s": 0.2, **settings})
    )


CLAUDE, GPT = "anthropic/claude-haiku-4-5", "openai/gpt-5-mini"


@pytest.mark.parametrize(
    ("model", "points"),
    [
        (CLAUDE, ["before_create", "after_create", "status", "before_results", "half_results"]),
        (GPT, ["before_file", "after_file", "before_create", "after_create", "half_results"]),
    ],
)
def test_a_run_that_is_killed_at_every_point_comes_back_to_its_batch_and_pays_nothing_twice(
    runs: Runs, model: str, points: list[str]
) -> None:
    for point in points:
        runs.provider.adopt(behaviour(crash_point=point))
        runs.killed_at(point, model)
    right, stats = runs.to_the_end(model), runs.provider.stats
    assert (right, stats.batched, stats.batched_again, stats.requests) == (str(SAMPLES), SAMPLES, 0, 0)


def test_a_run_of_two_turns_may_be_killed_at_any_moment(runs: Runs) -> None:
    moments = random.Random(9)
    for _ in range(4):
        process = runs.start(CLAUDE, turns=2)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.7, 1.8))
        process.kill()
        process.communicate()
    right, stats = runs.to_the_end(CLAUDE, turns=2), runs.provider.stats
    assert (right, stats.batched, stats.batched_again, stats.requests) == (str(SAMPLES), 2 * SAMPLES, 0, 0)


def test_ctrl_c_leaves_the_batch_running_and_says_how_to_come_back(runs: Runs) -> None:
    runs.provider.adopt(behaviour(delay_s=2.0))
    process = runs.start(CLAUDE)
    while not runs.provider.stats.batches:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert runs.to_the_end(CLAUDE) == str(SAMPLES)
    assert runs.provider.stats.batched == SAMPLES
    assert process.returncode != 0
    assert f"with {SAMPLES} requests" in err and "`evalve batch wait evb_" in err


EVALUATIONS = """
import evalve
import pytest
from evalve import Score, foreach

MODEL = evalve.model("anthropic/claude-haiku-4-5")

@pytest.fixture
def word():
    return "say"

@foreach("n", [(n,) for n in range(10)])
async def eval_once(n, word):
    return Score("right", (await MODEL.generate(f"{word} once {n}", max_tokens=9)).text == str(n), [])

@foreach("n", [(n,) for n in range(10)])
async def eval_twice(n, word):
    first = await MODEL.generate(f"{word} twice {n}", max_tokens=9)
    second = await MODEL.generate(f"{word} again {first.text}", max_tokens=9)
    return Score("right", second.text == str(n), [])
"""


def pytest_run(runs: Runs, evaluations: str = EVALUATIONS) -> subprocess.Popen[str]:
    (runs.folder / "eval_both.py").write_text(evaluations)
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "--batch", "eval_both.py", "--experiment", "both"],
        cwd=runs.folder,
        env=runs.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def spent_usd(path: Path, experiment: str) -> tuple[float, float]:
    """What the runs of an experiment have counted, and what its records have."""
    with closing(open_store(path, create=False)) as store:
        found = store.evaluations(experiment)
        runs = [run for info in found for run in store.runs(info.id)]
        records = [record for info in found for record in store.records(info)]
    of_runs = sum((run.report.get("calls") or {}).get("cost_usd", 0.0) for run in runs)
    return of_runs, sum((record.calls or {}).get("cost_usd", 0.0) for record in records)


def test_evaluations_of_one_pytest_run_share_a_batch_for_each_turn_also_after_a_kill(runs: Runs) -> None:
    runs.provider.adopt(behaviour(crash_point="status"))
    killed = pytest_run(runs)
    while not runs.provider.stats.crash_points["status"]:
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    process = pytest_run(runs)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out + err
    stats = runs.provider.stats
    assert (stats.batches, stats.batched, stats.batched_again, stats.requests) == (2, 30, 0, 0)
    assert "right  accuracy 1.000" in out and "20 calls; " in out and "cached" not in out
    # once by a run and once by the sample that has it, also where that sample was stopped and replayed
    batched_usd = sum(
        row.cost_usd or 0.0 for row in BatchStore(runs.folder / "state" / "batches.db").batches()
    )
    by_runs_usd, by_samples_usd = spent_usd(runs.folder / ".evalve" / "evalve.db", "both")
    assert batched_usd == pytest.approx(by_runs_usd) == pytest.approx(by_samples_usd) != 0
    # of the second turn: the first one's may have ended before anybody came back to it
    assert "10 calls wait for msgbatch_sim000002" in err


def test_a_batch_that_is_cancelled_fails_its_samples_alone_as_the_provider_s(runs: Runs) -> None:
    runs.provider.adopt(behaviour(delay_s=3600.0))
    process = pytest_run(runs)
    store = BatchStore(runs.folder / "state" / "batches.db")
    while not (found := [row for row in store.batches() if row.state == "submitted"]):
        assert process.poll() is None
        time.sleep(0.02)
    cancel = [sys.executable, "-m", "evalve", "batch", "cancel", found[0].intent]
    subprocess.run(cancel, cwd=runs.folder, env=runs.environ, check=True, stdout=subprocess.DEVNULL)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, out + err
    assert out.count("10 failed (provider)") == 2
    assert f"cancelled with its batch {found[0].provider_id}; run again" in out
    assert runs.provider.stats.batches == 1


def test_an_evaluation_that_asks_anew_when_it_is_replayed_is_not_gathered_for_ever(runs: Runs) -> None:
    changed = EVALUATIONS.replace("{word} twice", "{word} {uuid4()}")
    process = pytest_run(runs, "from uuid import uuid4\n" + changed)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out + err
    # the first turn of one of them twice, for its replay asked for something else
    assert (runs.provider.stats.batches, runs.provider.stats.batched) == (3, 40)
    assert "10 samples are non-deterministic" in err
