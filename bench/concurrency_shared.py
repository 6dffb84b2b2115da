"""Two processes under one ceiling on concurrent calls: no place stays unused, and neither has more."""

from __future__ import annotations

from bench.measuring import Figure
from bench.pacing import share_refused
from bench.provider import Caller, own_state, provider

PROCESSES = 2
CALLS_EACH = 100
WINDOW_EACH = 20
CEILING = 4
LATENCY_S = 0.2


def measure() -> list[Figure]:
    """The ideal is every place taken from the first call to the last."""
    flags = ("--concurrency", str(CEILING), "--latency-s", str(LATENCY_S))
    with provider(*flags) as simulated, own_state() as environ:
        limits = {"EVALVE_LIMITS_ANTHROPIC_CONCURRENCY": str(CEILING)}
        callers = [
            Caller(
                {"url": simulated.url, "calls": CALLS_EACH, "window": WINDOW_EACH, "named": f"of {number}"},
                {**environ, **limits, "EVAL_USE_CACHE": "0"},
            )
            for number in range(PROCESSES)
        ]
        for caller in callers:
            caller.go()
        took_s = [caller.ended()["took_s"] for caller in callers]
        seen = simulated.stats()
    ideal_s = PROCESSES * CALLS_EACH / CEILING * LATENCY_S
    return [
        Figure(
            "time, against every place always taken",
            seen["elapsed_s"] / ideal_s,
            target=1.1,
            note=f"{seen['admitted']} calls, {seen['elapsed_s']:.1f} s of {ideal_s:.1f} s",
        ),
        Figure("the slower process's time, against the faster's", max(took_s) / min(took_s), target=1.1),
        Figure("refused", share_refused(seen), "%", 0.0),
    ]
