"""A sync function that computes: in this process, and in two worker processes beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from bench.measuring import Figure, alternating, timed_s
from bench.processes import python
from evalve import ForEach

SAMPLES = 160
TRIVIAL_SAMPLES = 2_000
STEPS = 1_000_000
"""About 50 ms of pure Python."""
WORKERS = 2
ROUNDS = 3
LEAST_SPEED_UP = 1.7
_NUMBERS = itertools.count()


def computed(number: int) -> int:
    total = 0
    for step in range(STEPS):
        total += step * number % 7
    return total


@ForEach()("number", range(SAMPLES))
def eval_computes(number: int) -> bool:
    return computed(number) >= 0


@ForEach()("number", range(TRIVIAL_SAMPLES))
def eval_trivial(number: int) -> bool:
    return True


def measure() -> list[Figure]:
    """Wall time of whole runs, the start of the processes included; the sides in turn."""
    one_s, two_s, bare_s = _medians_s(eval_computes, bare=_bare)
    inline_s, elsewhere_s, _ = _medians_s(eval_trivial)
    return [
        Figure(
            "two processes, against one",
            two_s / one_s,
            target=1 / LEAST_SPEED_UP,
            note=f"{one_s / two_s:.2f} times as fast",
        ),
        Figure("… two interpreters without evalve, against the same", bare_s / one_s),
        Figure("one process, per sample", one_s / SAMPLES * 1e3, unit="ms"),
        Figure("a sample that does nothing, in this process", inline_s / TRIVIAL_SAMPLES * 1e6, unit="µs"),
        Figure("… in two processes, their start included", elsewhere_s / TRIVIAL_SAMPLES * 1e6, unit="µs"),
    ]


def _medians_s(
    evaluation: Callable[..., Any], *, bare: Callable[[], object] = lambda: None
) -> tuple[float, float, float]:
    walls_s = alternating(
        {
            "one": lambda: timed_s(lambda: _evaluated(evaluation, engine="auto")),
            "two": lambda: timed_s(lambda: _evaluated(evaluation, engine="processes", workers=WORKERS)),
            "bare": lambda: timed_s(bare),
        },
        rounds=ROUNDS,
    )
    return median(walls_s["one"]), median(walls_s["two"]), median(walls_s["bare"])


def _evaluated(evaluation: Callable[..., Any], **options: Any) -> None:
    result = evaluation(progress="off", experiment=f"{next(_NUMBERS)}", **options)
    assert result.failed == 0, result.failed


def _bare() -> None:
    """The same work with nothing around it: what the machine can give at the moment."""
    work = f"from bench.engines import computed; [computed(number) for number in range({SAMPLES // WORKERS})]"
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda _: python("-c", work), range(WORKERS)))
