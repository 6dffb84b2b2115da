"""A provider that fails 7 % of the calls: every sample completes, and no answer is paid for twice."""

from __future__ import annotations

import asyncio
import os

from bench.measuring import Figure
from bench.provider import own_state, provider
from evalve import ForEach, model
from evalve.concurrency import SlidingWindow

SAMPLES = 1_000
WINDOW = 50
FAULTS = ("error=0.02", "overloaded=0.02", "reset=0.015", "truncated=0.015")
_URLS: list[str] = []


@ForEach(concurrency=SlidingWindow(WINDOW))("number", range(SAMPLES))
async def eval_answers(number: int) -> bool:
    answer = await model("anthropic/claude-sonnet-4-5", base_url=_URLS[-1], api_key="key").generate(
        f"question {number}"
    )
    return bool(answer.text)


def measure() -> list[Figure]:
    """One run; the simulator draws its faults from a seed."""
    flags = [part for fault in FAULTS for part in ("--fault", fault)]
    with own_state() as environ, provider("--latency-s", "0.05", *flags) as simulated:
        os.environ.update(environ)
        _URLS.append(simulated.url)
        result = asyncio.run(eval_answers(progress="off"))
        seen = simulated.stats()
    failed = sum(seen["faults"].values())
    return [
        Figure("samples that did not complete", SAMPLES - result.done, "samples", 0.0),
        Figure("calls answered again", seen["answered_again"], "calls", 0.0),
        Figure("requests beyond samples and faults", seen["requests"] - SAMPLES - failed, "calls", 0.0),
        Figure("faults", 100.0 * failed / seen["requests"], "%", note=f"{failed} of {seen['requests']}"),
        Figure("whole run", result.report["wall_s"], "s"),
    ]
