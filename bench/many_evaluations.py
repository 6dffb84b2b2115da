"""What a thousand small evaluations in one project cost beyond pytest, and again with nothing left."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.measuring import Figure
from bench.processes import python

EVALUATIONS = 1000
RUN_AT_MOST_S = 5.0
AGAIN_AT_MOST_S = 2.0
ROUNDS = 3

_EVALUATION = """
@foreach("n", range(3))
def eval_{number}(n):
    return n >= 0
"""
_TEST = """
def test_{number}():
    for n in range(3):
        assert n >= 0
"""
_CONFIGURATION = """
options:
  max_concurrency: 4
experiments:
  many:
    repeat: 1
"""


def measure() -> list[Figure]:
    """CPU seconds of whole pytest processes, less those of one with as many plain tests; the best of some."""
    return [
        *_figures(Path("one"), "one file", files=1),
        *_figures(Path("hundred"), "100 files, evalve.yaml", files=100, configuration=_CONFIGURATION),
    ]


def _figures(folder: Path, where: str, *, files: int, configuration: str = "") -> list[Figure]:
    _write(folder, files, configuration)
    tests, evaluations = (
        sorted(path.name for path in folder.glob(f"{kind}_*.py")) for kind in ("test", "eval")
    )

    def first() -> None:
        shutil.rmtree(folder / ".evalve", ignore_errors=True)
        again()

    def again() -> None:
        _pytest(folder, *evaluations, "--experiment", "many")

    plain_s = _best_s(lambda: _pytest(folder, *tests))
    run_s, again_s = _best_s(first), _best_s(again)
    return [
        Figure(f"{EVALUATIONS} evaluations of 3 samples in {where}", run_s - plain_s, "s", RUN_AT_MOST_S),
        Figure("the same with nothing left", again_s - plain_s, "s", AGAIN_AT_MOST_S),
        Figure(f"pytest with {EVALUATIONS} plain tests", plain_s, "s"),
    ]


def _write(folder: Path, files: int, configuration: str) -> None:
    folder.mkdir()
    if configuration:
        (folder / "evalve.yaml").write_text(configuration, encoding="utf-8")
    for number in range(files):
        within = range(number, EVALUATIONS, files)
        evaluations = "".join(_EVALUATION.format(number=n) for n in within)
        (folder / f"eval_{number}.py").write_text(f"from evalve import foreach\n{evaluations}", "utf-8")
        tests = "".join(_TEST.format(number=n) for n in within)
        (folder / f"test_{number}.py").write_text(tests, encoding="utf-8")


def _pytest(folder: Path, *arguments: str) -> None:
    python("-m", "pytest", "-q", *arguments, folder=folder)


def _best_s(work: Callable[[], None]) -> float:
    return min(_cpu_of_children_s(work) for _ in range(ROUNDS))


def _cpu_of_children_s(work: Callable[[], None]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
