"""What a thousand small evaluations in one project cost beyond pytest, and again with nothing left."""

from __future__ import annotations

from pathlib import Path

from bench.measuring import Figure, timed_s
from bench.processes import python

EVALUATIONS = 1000
RUN_AT_MOST_S = 5.0
AGAIN_AT_MOST_S = 2.0

_EVALUATION = """
@foreach("n", range(3))
def eval_{number}(n):
    return n >= 0
"""
_TEST = """
def test_{number}():
    pass
"""


def measure() -> list[Figure]:
    """Wall seconds of whole pytest processes, less those of one with as many empty tests."""
    Path("eval_many.py").write_text(
        "from evalve import foreach\n" + "".join(_EVALUATION.format(number=n) for n in range(EVALUATIONS)),
        encoding="utf-8",
    )
    Path("test_many.py").write_text(
        "".join(_TEST.format(number=n) for n in range(EVALUATIONS)), encoding="utf-8"
    )
    empty_s = min(_pytest_s("test_many.py") for _ in range(2))
    run_s = _pytest_s("eval_many.py", "--experiment", "many")
    again_s = min(_pytest_s("eval_many.py", "--experiment", "many") for _ in range(2))
    return [
        Figure(f"{EVALUATIONS} evaluations of 3 samples", run_s - empty_s, "s", RUN_AT_MOST_S),
        Figure(f"{EVALUATIONS} evaluations with nothing left", again_s - empty_s, "s", AGAIN_AT_MOST_S),
        Figure(f"pytest with {EVALUATIONS} empty tests", empty_s, "s"),
    ]


def _pytest_s(*arguments: str) -> float:
    return timed_s(lambda: python("-m", "pytest", "-q", *arguments, folder=Path.cwd()))
