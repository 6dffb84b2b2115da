"""Somebody else uses 30 % of the key: how little is refused, and how much of the rest is used."""

from __future__ import annotations

from bench.measuring import Figure
from bench.pacing import BOUNDS, WINDOW, ideal, share_refused
from bench.provider import Caller, own_state, provider

CALLS = 700
OTHERS = 0.3


def measure() -> list[Figure]:
    """With the limits given, which the other one makes untrue, and with nothing given."""
    return [*_beside_another(given=True), *_beside_another(given=False)]


def _beside_another(*, given: bool) -> list[Figure]:
    requests = BOUNDS[0]
    flags = (*requests.flags_with_depth(1.0), "--other-traffic", str(OTHERS))
    with provider(*flags) as simulated, own_state() as environ:
        limits = {f"EVALVE_LIMITS_ANTHROPIC_{requests.setting}": str(requests.per_minute)} if given else {}
        caller = Caller(
            {"url": simulated.url, "calls": CALLS, "window": WINDOW},
            {**environ, **limits, "EVAL_USE_CACHE": "0"},
        )
        caller.go()
        told, seen = caller.ended(), simulated.stats()
    name = "given" if given else "learnt"
    per_s = requests.per_minute / 60.0
    # the bucket was full at first, whoever else uses the key
    ideal_s = ideal(seen["admitted"] - per_s, per_s * (1 - OTHERS), 0.0)
    return [
        Figure(
            f"{name}: time, against using all of the rest",
            seen["elapsed_s"] / ideal_s,
            target=1 / 0.9,
            note=f"{ideal_s / seen['elapsed_s']:.0%} of the rest used",
        ),
        Figure(f"{name}: refused", share_refused(seen), "%", 0.99),
        Figure(f"{name}: calls lost", len(told["failures"]) + CALLS - seen["completed"], "calls", 0.0),
    ]
