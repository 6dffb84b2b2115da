"""What a run tells other processes about how far it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from evalve.contracts import LiveProgress, RunInfo, RunningAgent, RunningStore, Store, Tally
from evalve.runner.telling import agents_in_words, as_progress, telling_progress
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from running import rows, run, runnable

RUN = RunInfo(
    id="run-1",
    evaluation_id=4,
    started_at="2026-01-02T03:04:00+00:00",
    ended_at=None,
    status="running",
    options={},
    versions={},
    git_commit=None,
    fingerprint={},
    report={},
)


class Heard:
    """A store that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[LiveProgress] = []

    def tell_progress(self, progress: LiveProgress) -> None:
        self.told.append(progress)


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


def test_progress_is_told_at_once_and_then_every_second_until_the_end() -> None:
    heard = Heard()
    tally = Tally("exp", "eval_x", started_s=time.monotonic())

    async def work() -> None:
        with telling_progress(cast(RunningStore, heard), RUN, tally):
            await asyncio.sleep(1.5)
            tally.done = 7
            await asyncio.sleep(1.0)
        await asyncio.sleep(10.0)

    run_in_virtual_time(work())

    assert [progress.done for progress in heard.told] == [0, 0, 7]


def test_progress_has_the_numbers_and_the_words_of_the_tally() -> None:
    tally = Tally("exp", "eval_x", started_s=0.0, total=9, skipped=1, done=2, failed=3, skipped_now=4)
    tally.in_flight, tally.limit, tally.waiting = 5, 6, {"retry": 2, "limits": 0}
    tally.held_by, tally.spent, tally.stopping = lambda: "requests 99%", lambda: "0.1 USD", True

    progress = as_progress(RUN, tally)

    assert (progress.run_id, progress.evaluation_id, progress.evaluation) == ("run-1", 4, "eval_x")
    assert (progress.total, progress.before, progress.done, progress.failed) == (9, 1, 2, 3)
    assert (progress.skipped, progress.in_flight, progress.limit) == (4, 5, 6)
    assert (progress.waiting, progress.held_by, progress.spent) == ({"retry": 2}, "requests 99%", "0.1 USD")
    assert progress.stopping


def test_agents_in_words_count_those_that_are_just_being_started() -> None:
    tally = Tally("exp", "eval_x", started_s=0.0)
    assert agents_in_words(tally) == ""
    tally.agents[1] = RunningAgent("claude", "1")
    assert agents_in_words(tally) == "1 agent has been running for 0 s"
    tally.agents[2] = RunningAgent("claude", "2", started_s=time.monotonic() - 120.5)
    assert agents_in_words(tally) == "2 agents are running, the longest for 2 min"


def test_a_run_can_be_followed_while_it_goes_on_and_not_afterwards(store: Store) -> None:
    seen: list[tuple[int, int, int | None]] = []

    async def evaluate(id: str) -> bool:
        await asyncio.sleep(1.5)
        ((live),) = store.live("exp")
        seen.append((live.done, live.in_flight, live.total))
        return True

    run(runnable(evaluate, rows("a", "b", "c"), max_concurrency=1), store)

    assert seen == [(0, 1, 3), (1, 1, 3), (2, 1, 3)]
    assert store.live("exp") == []


def test_a_run_that_breaks_leaves_no_progress_behind(store: Store) -> None:
    def rows_that_break() -> Iterator[dict[str, Any]]:
        yield {"id": "a"}
        raise OSError("the file is gone")

    async def evaluate(id: str) -> bool:
        return True

    with pytest.raises(Exception, match="the file is gone"):
        run(runnable(evaluate, rows_that_break), store)

    assert store.live("exp") == []
