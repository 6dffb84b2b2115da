"""Samples that all take 200 ms: how close the window stays to full."""

from __future__ import annotations

import asyncio

from bench.measuring import Figure, in_order_s, timed_s
from evalve import ForEach
from evalve.concurrency import SlidingWindow

SAMPLES = 2_000
WINDOW = 100
LATENCY_S = 0.2


@ForEach(concurrency=SlidingWindow(WINDOW))("number", range(SAMPLES))
async def eval_waits(number: int) -> bool:
    await asyncio.sleep(LATENCY_S)
    return True


def measure() -> list[Figure]:
    """One run: it is as long as twenty samples, and its ideal is known without measuring."""
    walls_s: list[float] = []

    def evaluate() -> None:
        result = asyncio.run(eval_waits(progress="off"))
        assert result.done == SAMPLES, result.done
        walls_s.append(result.report["wall_s"])

    call_s = timed_s(evaluate)
    ideal_s = in_order_s([LATENCY_S] * SAMPLES, WINDOW)
    return [
        Figure("first start to last record, against the ideal", walls_s[0] / ideal_s, target=1.05),
        Figure("whole call, against the ideal", call_s / ideal_s),
        Figure("ideal", ideal_s, unit="s"),
    ]
