"""What importing evalve adds to starting an interpreter."""

from __future__ import annotations

from statistics import median

from bench.measuring import Figure, alternating, timed_s
from bench.processes import python

ROUNDS = 15
_USERS_FILE = (
    "from evalve import ForEach, Result, foreach; "
    "from evalve.concurrency import SlidingWindow; from evalve.evaluators import exact_match"
)


def measure() -> list[Figure]:
    """Medians of wall seconds of whole processes."""
    took_s = alternating(
        {
            "bare": lambda: _importing_s("pass"),
            "evalve": lambda: _importing_s("import evalve"),
            "file": lambda: _importing_s(_USERS_FILE),
            "run": lambda: _importing_s(f"{_USERS_FILE}; import evalve.wiring"),
        },
        rounds=ROUNDS,
    )
    bare_s = median(took_s["bare"])

    def above_ms(side: str) -> float:
        return (median(took_s[side]) - bare_s) * 1e3

    return [
        Figure("import evalve, above a bare interpreter", above_ms("evalve"), "ms", 100.0),
        Figure("what a file of evaluations imports, above the same", above_ms("file"), "ms"),
        Figure("… and what running them imports", above_ms("run"), "ms"),
        Figure("bare interpreter", bare_s * 1e3, "ms"),
    ]


def _importing_s(code: str) -> float:
    return timed_s(lambda: python("-c", code))
