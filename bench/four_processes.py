"""Four processes that share one key, one of them killed in the middle: together they keep its limits."""

from __future__ import annotations

import time

from bench.measuring import Figure
from bench.pacing import BOUNDS, ideal, share_refused
from bench.provider import Caller, own_state, provider

PROCESSES = 4
CALLS_EACH = 300
WINDOW_EACH = 40


def measure() -> list[Figure]:
    """The ideal is that of what was done: the calls that the killed one never made are nobody's."""
    requests = BOUNDS[0]
    with provider(*requests.flags_with_depth(1.0)) as simulated, own_state() as environ:
        limits = {f"EVALVE_LIMITS_ANTHROPIC_{requests.setting}": str(requests.per_minute)}
        callers = [
            Caller(
                {"url": simulated.url, "calls": CALLS_EACH, "window": WINDOW_EACH, "named": f"of {number}"},
                {**environ, **limits, "EVAL_USE_CACHE": "0"},
            )
            for number in range(PROCESSES)
        ]
        for caller in callers:
            caller.go()
        while callers[-1].is_running() and simulated.stats()["requests"] < PROCESSES * CALLS_EACH / 2:
            time.sleep(0.2)
        callers.pop().kill()
        told, seen = [caller.ended() for caller in callers], simulated.stats()
    ideal_s = ideal(seen["admitted"], requests.per_minute / 60.0, 1.0)
    lost = sum(len(each["failures"]) + CALLS_EACH - each["requests"] for each in told)
    return [
        Figure(
            "time, against the ideal of what was done",
            seen["elapsed_s"] / ideal_s,
            target=1.05,
            note=f"{seen['admitted']} calls, {seen['elapsed_s']:.1f} s of {ideal_s:.1f} s",
        ),
        Figure("refused", share_refused(seen), "%", 0.0),
        Figure("calls that the others lost", lost, "calls", 0.0),
    ]
