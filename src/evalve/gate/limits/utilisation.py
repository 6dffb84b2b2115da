"""How much of a limit was used, second by second: for the report of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalve.gate.limits.booking import ScopeState

POINTS = 60
"""At the most: a long run is told in longer steps."""


def utilisation(
    used: Mapping[str, Mapping[int, Mapping[str, float]]], states: Mapping[str, ScopeState]
) -> list[dict[str, Any]]:
    """For each scope its binding limit: `{scope, dimension, per_minute, step_s, shares}`."""
    told = []
    for scope, state in states.items():
        seconds = used[scope]
        series = [
            _series(dimension, bucket.per_s, seconds)
            for dimension, bucket in state.buckets.items()
            if any(dimension in amounts for amounts in seconds.values())
        ]
        if series:
            binding = max(series, key=lambda one: one["mean"])
            told.append({"scope": scope, **binding})
    return told


def _series(dimension: str, per_s: float, seconds: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    first, last = min(seconds), max(seconds)
    step_s = max(1, -(-(last - first + 1) // POINTS))
    shares = []
    for start in range(first, last + 1, step_s):
        amount = sum(seconds.get(at, {}).get(dimension, 0.0) for at in range(start, start + step_s))
        shares.append(round(amount / (per_s * step_s), 3))
    return {
        "dimension": dimension,
        "per_minute": round(per_s * 60, 3),
        "step_s": step_s,
        "mean": round(sum(shares) / len(shares), 3),
        "shares": shares,
    }
