"""Durations with a heavy tail, as model calls have them, and the evaluation that takes so long."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from bench.measuring import Figure
from evalve import ForEach
from evalve.show.result import EvaluationResult

SAMPLES = 1_000
WINDOW = 50
MEAN_S = 0.3
SIGMA = 1.0


def durations_s() -> list[float]:
    """Lognormal, the same in every process."""
    chance = random.Random(2026)
    drawn = [chance.lognormvariate(0.0, SIGMA) for _ in range(SAMPLES)]
    scale = MEAN_S * SAMPLES / sum(drawn)
    return [scale * one for one in drawn]


@ForEach()("duration_s", durations_s())
async def eval_sleeps(duration_s: float) -> bool:
    await asyncio.sleep(duration_s)
    return True


def evaluated(**options: Any) -> EvaluationResult:
    result: EvaluationResult = asyncio.run(eval_sleeps(progress="off", **options))
    assert result.done == SAMPLES, result.done
    return result


def told(what: str, seconds: float) -> Figure:
    return Figure(what, seconds, unit="s")
