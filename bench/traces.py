"""What a trace costs: CPU per sample with one call, its request and answer recorded or not."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import evalve
from bench.measuring import Figure, alternating, cpu_of
from bench.provider import own_state, provider
from evalve import ForEach
from evalve.concurrency import SlidingWindow
from evalve.gating import house

SAMPLES = 1_500
WINDOW = 50
ROUNDS = 9
_NUMBERS = itertools.count()


def measure() -> list[Figure]:
    """The median of the rounds' ratios: what disturbs the machine for a round disturbs both sides of it."""
    with own_state() as environ, provider() as simulated:
        os.environ.update(environ)
        evaluation = _evaluation(simulated.url)
        _run(evaluation, "on")
        sides = {trace: partial(cpu_of, partial(_run, evaluation, trace)) for trace in ("on", "off")}
        cpu_s = alternating(sides, rounds=ROUNDS)
    ratio = median(on / off for on, off in zip(cpu_s["on"], cpu_s["off"], strict=True))
    return [
        Figure("CPU of a sample with one call, traced against untraced", ratio, target=1.10),
        *(Figure(f"trace {side}, per sample", median(cpu_s[side]) / SAMPLES * 1e6, "µs") for side in sides),
    ]


def _evaluation(url: str) -> Callable[..., object]:
    model = evalve.model("anthropic/claude-haiku-4-5", base_url=url, api_key="key")

    def questions() -> Iterator[str]:
        for _ in range(SAMPLES):
            yield f"question {next(_NUMBERS)} ".ljust(400, "x")

    @ForEach(concurrency=SlidingWindow(WINDOW))("question", questions)
    async def eval_asked(question: str) -> bool:
        answer = await model.generate(question)
        return bool(answer.text)

    return eval_asked


def _run(evaluation: Callable[..., object], trace: str) -> None:
    async def main() -> None:
        await evaluation(storage=f"{next(_NUMBERS)}.db", progress="off", trace=trace)  # type: ignore[misc]
        await house().sender.aclose()

    asyncio.run(main())
