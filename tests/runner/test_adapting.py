"""What a run tells an adaptive strategy, and where its decisions are found."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from evalve.concurrency import Adaptive, SlidingWindow
from evalve.contracts import CLEAR, Admitted, HostPressure, Runnable
from evalve.engines.choosing import engine_for
from evalve.runner.evaluation import Outcome, run_evaluation
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from running import Notes, runnable


class FakeHost:
    """A machine under pressure from one instant to another, which has files for so many samples."""

    def __init__(self, over_s: tuple[float, float] = (0.0, 0.0), fits: int | None = None) -> None:
        self._from_s, self._to_s = over_s
        self._fits = fits

    def pressure(self, processes: int, cores_used: float) -> HostPressure:
        now_s = asyncio.get_running_loop().time()
        return HostPressure("over", "no memory left") if self._from_s <= now_s < self._to_s else CLEAR

    @asynccontextmanager
    async def admission(
        self, kind: str, wait: Callable[[Awaitable[Any], str], Awaitable[Any]]
    ) -> AsyncIterator[Admitted]:
        yield Admitted()

    def room_for_files(self, at_once: int) -> tuple[int, str] | None:
        return None if self._fits is None else (self._fits, f"only {self._fits} fit")


def run_on(host: FakeHost, evaluation: Runnable, progress: Notes) -> Outcome:
    return run_in_virtual_time(
        run_evaluation(
            evaluation, store=open_store("memory://"), progress=progress, engine_for=engine_for, host=host
        )
    )


async def slow(n: int) -> bool:
    await asyncio.sleep(60)
    return True


def test_decisions_are_logged_shown_and_kept_with_their_side_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    progress = Notes()
    strategy = Adaptive(10, max_concurrency=10)

    with caplog.at_level(logging.INFO, logger="evalve"):
        outcome = run_on(FakeHost((30.0, 40.0)), runnable(slow, range(40), strategy=strategy), progress)

    (first, *_) = outcome.run.report["decisions"]
    assert (first["from"], first["to"], first["side"]) == (10, 7, "host")
    assert first["reason"] == "no memory left"
    assert "eval_x: 10 → 7: no memory left (host)" in caplog.messages
    assert progress.tallies[0].decided == "8 → 10: the machine has room again"
    assert outcome.run.report["max_concurrency"] == 10
    assert outcome.info.done == 40


def test_where_not_all_files_can_be_open_fewer_run_and_the_person_is_told() -> None:
    progress = Notes()

    outcome = run_on(FakeHost(fits=3), runnable(slow, range(9), strategy=SlidingWindow(20)), progress)

    assert progress.notes == ["only 3 fit"]
    assert outcome.run.report["peak_in_flight"] == 3


def test_mistakes_in_the_evaluation_do_not_lower_the_concurrency() -> None:
    async def mistaken(n: int) -> bool:
        await asyncio.sleep(1)
        raise KeyError(n)

    outcome = run_on(
        FakeHost(), runnable(mistaken, range(100), strategy=Adaptive(10, max_concurrency=10)), Notes()
    )

    assert outcome.info.failures == {"code": 100}
    assert outcome.run.report["decisions"] == []


def test_a_providers_trouble_does() -> None:
    async def troubled(n: int) -> bool:
        await asyncio.sleep(1)
        raise ConnectionError("reset by peer")

    strategy = Adaptive(10, max_concurrency=10)
    outcome = run_on(FakeHost(), runnable(troubled, range(100), strategy=strategy, retries=1), Notes())

    assert outcome.info.failures == {"provider": 100}
    assert outcome.run.report["decisions"][0]["reason"] == "only 0% of turns succeeded"
