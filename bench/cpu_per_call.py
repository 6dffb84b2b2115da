"""CPU per call through `evalve.model`, every layer on, beside a bare loop and the official SDKs."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench.measuring import Figure, alternating, cpu_of, timed_s
from bench.provider import own_state, provider
from bench.sides import Side, bare, through_model

CALLS = 1_000
SDK_CALLS = 300
WINDOW = 50
ROUNDS = 9
SDK_ROUNDS = 3
FREE, LIMITED = "claude-haiku-4-5", "claude-sonnet-4-5"
NEVER_BINDING_PER_MINUTE = 6_000_000
_NUMBERS = itertools.count()


def measure() -> list[Figure]:
    """Medians over rounds, in this process; the simulator answers at once, from a process of its own."""
    configured = {"anthropic": {"models": {LIMITED: {"rpm": NEVER_BINDING_PER_MINUTE}}}}
    Path("evalve.yaml").write_text(json.dumps({"limits": configured}))
    stated = {LIMITED: {"requests_per_minute": NEVER_BINDING_PER_MINUTE}}
    Path("simulator.json").write_text(json.dumps({"models": stated}))
    with own_state() as environ, provider("--config", "simulator.json") as simulated:
        os.environ.update(environ)
        return [*_ours(simulated.url), *_sdks(simulated.url)]


def _ours(url: str) -> list[Figure]:
    us = _per_call_us(
        {
            "bare loop": bare(url, FREE),
            "evalve": through_model(url, FREE),
            "bare loop, limits stated": bare(url, LIMITED),
            "evalve, under a limit": through_model(url, LIMITED),
        },
        calls=CALLS,
        rounds=ROUNDS,
    )
    asked = [next(_NUMBERS) for _ in range(CALLS)]
    _run(through_model(url, FREE), asked)
    cached_s = median(timed_s(lambda: _run(through_model(url, FREE), asked)) for _ in range(ROUNDS))
    return [
        Figure(
            "CPU where no limit applies, against a bare loop",
            _ratio(us["evalve"], us["bare loop"]),
            target=3.0,
        ),
        Figure(
            "CPU under a limit, against a bare loop",
            _ratio(us["evalve, under a limit"], us["bare loop, limits stated"]),
            target=4.0,
        ),
        Figure(
            "time of a cached call",
            cached_s / CALLS * 1e6,
            "µs",
            500.0,
            note=f"{CALLS / cached_s:,.0f} a second",
        ),
        *(Figure(f"{side}, CPU per call", median(taken_us), "µs") for side, taken_us in us.items()),
    ]


def _sdks(url: str) -> list[Figure]:
    # not before: among the hundred thousands of objects that they bring, collecting garbage took 20 µs a call
    from bench.sdk_sides import anthropic_sdk, openai_sdk

    us = _per_call_us(
        {
            "anthropic SDK": anthropic_sdk(url, FREE, gated=False),
            "anthropic SDK through evalve": anthropic_sdk(url, FREE, gated=True),
            "openai SDK": openai_sdk(url, "gpt-4o-mini", gated=False),
            "openai SDK through evalve": openai_sdk(url, "gpt-4o-mini", gated=True),
        },
        calls=SDK_CALLS,
        rounds=SDK_ROUNDS,
    )
    return [Figure(f"{side}, CPU per call", median(taken_us), "µs") for side, taken_us in us.items()]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' ratios: what disturbs the machine for a round disturbs both sides of it."""
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def _per_call_us(sides: Mapping[str, Side], *, calls: int, rounds: int) -> dict[str, list[float]]:
    """By side, for each round; what the first calls import and build is not per call."""
    for side in sides.values():
        _run(side, [next(_NUMBERS) for _ in range(WINDOW)])

    def cpu_s(side: Side) -> float:
        numbers = [next(_NUMBERS) for _ in range(calls)]
        return cpu_of(lambda: _run(side, numbers))

    taken = alternating({name: partial(cpu_s, side) for name, side in sides.items()}, rounds=rounds)
    return {name: [each_s / calls * 1e6 for each_s in every_s] for name, every_s in taken.items()}


def _run(side: Side, numbers: Sequence[int]) -> None:
    """A call for each number, whose prompt nobody else has."""
    left = iter(numbers)

    async def main() -> None:
        async with side() as ask:

            async def work() -> None:
                for number in left:
                    await ask(f"question {number} ".ljust(400, "x"))

            await asyncio.gather(*(work() for _ in range(WINDOW)))

    asyncio.run(main())
