"""False alarms, coverage and power of what `show` and `compare` say, from seeded simulations."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.measuring import Figure
from evalve.comparison import Comparison, compare_each, judged
from evalve.metrics import pass_at
from evalve.paired import mcnemar_effect, mcnemar_exact, mean_effect, sign_flip_test
from evalve.records import Score
from evalve.shares import PairedCounts, PooledSums, share_difference
from evalve.statistics import Interval
from evalve.summary import summarise

RUNS = 1_000
DRAWS = 999
"""Resamples of a test, a tenth of what `compare` draws: a p-value is then as right and less fine."""

Runs = list[list[float]]
"""Sample by sample, the values of its repeats."""


def measure() -> list[Figure]:
    """What is simulated is equally good in A and B for false alarms; for coverage, the truth is known."""
    return [
        *_false_alarms(),
        *_limits_of_false_alarms(),
        *_coverage(),
        *_coverage_of_few(),
        *_limits_of_coverage(),
        *_power(),
        *_gates(),
    ]


# -- false alarms: A and B are equally good -------------------------------------------------------------


def _false_alarms() -> list[Figure]:
    cases: dict[str, Callable[[random.Random], tuple[Runs, Runs]]] = {
        "right or wrong, 100 samples, 5 % change": lambda draw: _changing(draw, 100, 0.025, 0.025),
        "right or wrong, 100 samples, 30 % change": lambda draw: _changing(draw, 100, 0.15, 0.15),
        "1 against 10 repeats, 20 samples at 0.95": lambda draw: _repeated(draw, 20, 0.95, 1, 10),
        "1 against 10 repeats, 100 samples at 0.9": lambda draw: _repeated(draw, 100, 0.9, 1, 10),
        "10 against 3 repeats, other samples are hard": lambda draw: _other_strengths(draw, 40, 10, 3),
        "3 against 3 repeats, 30 samples at 0.9": lambda draw: _repeated(draw, 30, 0.9, 3, 3),
        "numbers, 20 samples": lambda draw: _numbers(draw, 20, 0.0),
        "seconds with a heavy tail, 20 samples": _heavy_tailed,
    }
    return [
        *(_alarms(f"false regressions: {what}", case) for what, case in cases.items()),
        _alarms_among_many(),
    ]


def _alarms(what: str, case: Callable[[random.Random], tuple[Runs, Runs]]) -> Figure:
    draw = random.Random(1)
    runs = RUNS // 2
    flagged = sum(judged([_compared(*case(draw))])[0].is_regression for _ in range(runs))
    return Figure(what, 100 * flagged / runs, "%", target=5.0)


def _alarms_among_many() -> Figure:
    """The share of whole comparisons, twenty evaluations each, in which anything is flagged."""
    draw = random.Random(2)
    runs = RUNS // 2
    flagged = 0
    for _ in range(runs):
        together = judged([_compared(*_changing(draw, 100, 0.05, 0.05)) for _ in range(20)])
        flagged += any(one.is_regression for one in together)
    return Figure("false regressions: any of 20 evaluations", 100 * flagged / runs, "%", target=5.0)


# -- where B is called worse more often: told, and no target -----------------------------------------------


def _limits_of_false_alarms() -> list[Figure]:
    """A always repeats itself, B does not: the samples that A has all right may be the easy ones."""

    def case(draw: random.Random) -> tuple[Runs, Runs]:
        return _repeats(draw, 20, 0.95, 1, 0.0, copies=10), _repeats(draw, 20, 0.95, 10, 0.0)

    what = "false regressions: 10 equal against 10 free repeats"
    return [replace(_alarms(what, case), target=None)]


# -- coverage: the interval holds the truth -----------------------------------------------------------


def _coverage() -> list[Figure]:
    proportions = (
        ("accuracy, 20 samples at 0.95", 20, 1, 0.95, 0.0),
        ("accuracy, 20 × 10 repeats at 0.95", 20, 10, 0.95, 0.0),
        ("accuracy, 20 × 10 repeats at 0.95, alike", 20, 10, 0.95, 0.5),
        ("accuracy, 50 × 3 repeats at 0.02, alike", 50, 3, 0.02, 0.3),
        ("accuracy, 20 × 5 repeats at 0.5", 20, 5, 0.5, 0.2),
    )
    differences: tuple[tuple[str, Callable[[random.Random], tuple[Runs, Runs]], float], ...] = (
        ("B - A, 100 samples, nothing differs", lambda draw: _changing(draw, 100, 0.0, 0.0), 0.0),
        ("B - A, 100 samples, 5 % broken", lambda draw: _changing(draw, 100, 0.0, 0.05), -0.05),
        ("B - A, 50 samples, 20 % fixed, 10 % broken", lambda draw: _changing(draw, 50, 0.2, 0.1), 0.1),
        ("B - A, 1 against 10 repeats, 0.95 and 0.95", lambda draw: _repeated(draw, 20, 0.95, 1, 10), 0.0),
        (
            "B - A, 1 against 10 repeats, 0.9 and 0.7",
            lambda draw: _repeated(draw, 50, 0.9, 1, 10, share_b=0.7),
            -0.2,
        ),
        ("B - A, 3 against 3 repeats", lambda draw: _repeated(draw, 40, 0.9, 3, 3, share_b=0.8), -0.1),
        ("B - A of numbers, 12 samples", lambda draw: _numbers(draw, 12, 0.3), 0.3),
    )
    return [
        *(
            _covered(f"coverage: {what}", samples, repeats, share, alike)
            for what, samples, repeats, share, alike in proportions
        ),
        _passes_covered("coverage: pass@3 of 5 runs, 20 samples at 0.95", 20),
        _ones_covered(),
        *_groups_covered(),
        *(_differences_covered(f"coverage: {what}", case, truth) for what, case, truth in differences),
        _contradictions([case for _, case, _ in differences]),
    ]


def _covered(what: str, samples: int, repeats: int, share: float, alike: float) -> Figure:
    draw = random.Random(3)
    return _share_of_hits(
        what, share, lambda: _interval_of(_repeats(draw, samples, share, repeats, alike), ())
    )


def _passes_covered(what: str, samples: int) -> Figure:
    draw = random.Random(4)
    share = 1 - 0.05 ** (1 / 3)  # of which pass@3 is 0.95
    return _share_of_hits(
        what, 0.95, lambda: _interval_of(_repeats(draw, samples, share, 5, 0.0), (pass_at(3),))
    )


def _ones_covered() -> Figure:
    draw = random.Random(5)
    what = "coverage: mean of ones and zeros, 20 samples at 0.9"
    return _share_of_hits(
        what, 0.9, lambda: _interval_of(_repeats(draw, 20, 0.9, 1, 0.0), ("mean",), as_value=int)
    )


def _groups_covered() -> list[Figure]:
    """The calls of one tool: one to eight in a sample, and alike in it."""
    draw = random.Random(8)

    def counts(share: float) -> tuple[int, int]:
        chance, count = draw.betavariate(2 * share, 2 * (1 - share)), draw.choice([1, 2, 3, 8])
        return sum(draw.random() < chance for _ in range(count)), count

    def of_one(samples: int, share: float) -> Interval | None:
        sums = PooledSums()
        for _ in range(samples):
            sums.add(*counts(share))
        return sums.proportion_interval()

    def of_two(samples: int) -> Interval | None:
        found = share_difference([PairedCounts(*counts(0.9), *counts(0.8)) for _ in range(samples)])
        return found.interval if found else None

    return [
        _share_of_hits("coverage: by tool, 10 samples at 0.9", 0.9, lambda: of_one(10, 0.9)),
        _share_of_hits("coverage: by tool, 120 samples at 0.98", 0.98, lambda: of_one(120, 0.98)),
        _share_of_hits("coverage: B - A by tool, 20 samples", -0.1, lambda: of_two(20)),
    ]


def _differences_covered(
    what: str, case: Callable[[random.Random], tuple[Runs, Runs]], truth: float
) -> Figure:
    draw = random.Random(6)
    return _share_of_hits(what, truth, lambda: _compared(*case(draw)).interval)


def _share_of_hits(what: str, truth: float, interval: Callable[[], Interval | None]) -> Figure:
    runs = RUNS // 2
    hits = 0
    for _ in range(runs):
        found = interval()
        hits += found is not None and found.low - 1e-12 <= truth <= found.high + 1e-12
    return Figure(what, hits / runs, "", target=0.90, at_least=True)


def _contradictions(cases: Sequence[Callable[[random.Random], tuple[Runs, Runs]]]) -> Figure:
    draw = random.Random(7)
    wrong = 0
    for number in range(RUNS // 2):
        one = _compared(*cases[number % len(cases)](draw))
        assert one.interval is not None and one.p_value is not None
        wrong += (one.interval.low <= 0 <= one.interval.high) != (one.p_value >= 0.05)
    return Figure("interval and p contradict each other", 100 * wrong / (RUNS // 2), "%", target=0.0)


# -- coverage where few samples say little --------------------------------------------------------------


def _coverage_of_few() -> list[Figure]:
    draw = random.Random(11)

    def mean_of(samples: int, value: Callable[[], float]) -> Interval | None:
        return _interval_of([[value()] for _ in range(samples)], ("mean",), as_value=float)

    def near_one() -> float:
        """Most are nearly 1, as a judge's often are; their mean is 0.976."""
        return draw.betavariate(8.0, 0.2)

    def in_tenths() -> float:
        """Their mean is 0.928."""
        return draw.choices([0.0, 0.3, 0.5, 0.8, 0.9, 1.0], [1, 1, 3, 5, 30, 60])[0]

    cases: tuple[tuple[str, float, Callable[[], Interval | None]], ...] = (
        ("accuracy, 5 samples at 0.97", 0.97, lambda: _interval_of(_repeats(draw, 5, 0.97, 1, 0.0), ())),
        ("accuracy, 20 samples at 0.99", 0.99, lambda: _interval_of(_repeats(draw, 20, 0.99, 1, 0.0), ())),
        ("mean of grades near 1, 10 samples", 8 / 8.2, lambda: mean_of(10, near_one)),
        ("mean of grades in tenths, 20 samples", 0.928, lambda: mean_of(20, in_tenths)),
        ("mean of numbers, 10 samples", 3.0, lambda: mean_of(10, lambda: draw.gauss(3.0, 1.0))),
        ("mean of waiting times, 10 samples", 1.0, lambda: mean_of(10, lambda: draw.expovariate(1.0))),
        ("mean of numbers, 50 samples, one in five above 0", 0.2, lambda: mean_of(50, lambda: _some(draw))),
        (
            "B - A, 20 samples, one in five higher",
            0.2,
            lambda: _compared(*_some_higher(draw)).interval,
        ),
        (
            "B - A, 5 against 1 repeats, 10 samples",
            -0.1,
            lambda: _compared(*_repeated(draw, 10, 0.95, 5, 1, share_b=0.85)).interval,
        ),
        (
            "B - A, 1 against 10 repeats, 10 samples",
            0.1,
            lambda: _compared(*_repeated(draw, 10, 0.85, 1, 10, share_b=0.95)).interval,
        ),
        (
            "B - A, 3 against 3 repeats, 20 samples",
            -0.03,
            lambda: _compared(*_repeated(draw, 20, 0.98, 3, 3, share_b=0.95)).interval,
        ),
    )
    return [_share_of_hits(f"coverage: {what}", truth, interval) for what, truth, interval in cases]


# -- where intervals are known to miss the truth more often: told, and no target ------------------------


def _limits_of_coverage() -> list[Figure]:
    draw = random.Random(12)

    def seconds(samples: int, spread: float) -> Interval | None:
        runs = [[math.exp(draw.gauss(0.0, spread))] for _ in range(samples)]
        return _interval_of(runs, ("mean",), as_value=float)

    def near_zero() -> Interval | None:
        runs = [[draw.betavariate(0.2, 8.0)] for _ in range(10)]
        return _interval_of(runs, ("mean",), as_value=float)

    cases: tuple[tuple[str, float, Callable[[], Interval | None]], ...] = (
        ("mean of seconds with a heavy tail, 10 samples", math.exp(1.5**2 / 2), lambda: seconds(10, 1.5)),
        ("mean of chances near 0, 10 samples", 0.2 / 8.2, near_zero),
    )
    return [
        replace(_share_of_hits(f"coverage: {what}", truth, interval), target=None)
        for what, truth, interval in cases
    ]


# -- power at the minimum detectable effect -------------------------------------------------------------


def _power() -> list[Figure]:
    return [
        *(_power_of_changes(n, share) for n in (100, 400) for share in (0.02, 0.05, 0.2)),
        _power_beside_a_found_difference(120, 0.15),
        *(_power_of_numbers(n) for n in (8, 30)),
        *(_power_of_repeats(*case) for case in ((20, 0.95, 3, 3), (50, 0.9, 5, 1))),
    ]


def _power_of_changes(n: int, share: float) -> Figure:
    """Of two runs that change a share of the samples: what is promised, then how often it is found."""
    draw = random.Random(8)
    found = 0.0
    for _ in range(RUNS):
        changed = sum(draw.random() < share for _ in range(n))
        effect = mcnemar_effect(changed, n)
        assert effect is not None
        fixed, broken = _changes(draw, n, share / 2 + effect, share / 2)
        found += mcnemar_exact(fixed, broken) < 0.05
    what = f"power at the effect told: {n} samples, {share:.0%} change".replace("%", " %")
    return Figure(what, found / RUNS, "", target=0.75, at_least=True)


def _power_beside_a_found_difference(n: int, fall: float) -> Figure:
    """What two runs promise of which one is much worse, then how often a fall by as much is found."""
    draw = random.Random(14)
    runs = RUNS // 2
    found = 0
    for _ in range(runs):
        (fallen,) = judged([_compared(*_changing(draw, n, 0.02, 0.02 + fall))])
        effect = fallen.minimum_detectable_effect
        assert effect is not None
        found += mcnemar_exact(*_changes(draw, n, 0.02, 0.02 + effect)) < 0.05
    what = f"power at the effect told: {n} samples, a fall by {fall} found"
    return Figure(what, found / runs, "", target=0.75, at_least=True)


def _power_of_numbers(n: int) -> Figure:
    draw = random.Random(9)
    effect = mean_effect(1.0, n)
    assert effect is not None
    runs = RUNS // 2
    found = sum(
        sign_flip_test([draw.gauss(effect, 1.0) for _ in range(n)], resamples=DRAWS) < 0.05
        for _ in range(runs)
    )
    return Figure(f"power at the effect told: {n} numbers", found / runs, "", target=0.75, at_least=True)


def _power_of_repeats(samples: int, share: float, in_a: int, in_b: int) -> Figure:
    """What two equal runs promise, then how often a fall by as much is found."""
    draw = random.Random(13)
    runs = RUNS // 2
    found = 0
    for _ in range(runs):
        (same,) = judged([_compared(*_repeated(draw, samples, share, in_a, in_b))])
        effect = same.minimum_detectable_effect
        assert effect is not None
        fallen = _compared(*_repeated(draw, samples, share, in_a, in_b, share_b=share - effect))
        found += fallen.p_value is not None and fallen.p_value < 0.05
    what = f"power at the effect told: {samples} samples, {in_a} against {in_b} repeats"
    return Figure(what, found / runs, "", target=0.75, at_least=True)


# -- gates: the truth is 0.8, and 0.9 is required ------------------------------------------------------


def _gates() -> list[Figure]:
    draw = random.Random(10)
    by_value = by_bound = 0
    for _ in range(RUNS):
        runs = _repeats(draw, 10, 0.8, 1, 0.0)
        (value,) = summarise(lambda runs=runs: _observations(runs, ()))  # type: ignore[misc]
        by_value += value.value is not None and value.value >= 0.9
        by_bound += value.low is not None and value.low >= 0.9
    return [
        Figure("a true 0.8 of 10 samples passes accuracy=0.9", 100 * by_value / RUNS, "%"),
        Figure("a true 0.8 of 10 samples passes accuracy.low=0.9", 100 * by_bound / RUNS, "%", target=5.0),
    ]


# -- what is simulated ---------------------------------------------------------------------------------


def _changes(draw: random.Random, n: int, up: float, down: float) -> tuple[int, int]:
    fixed = broken = 0
    for _ in range(n):
        at = draw.random()
        fixed += at < up
        broken += up <= at < up + down
    return fixed, broken


def _changing(draw: random.Random, n: int, up: float, down: float) -> tuple[Runs, Runs]:
    """Right or wrong, once: a share is fixed, a share broken."""
    fixed, broken = _changes(draw, n, up, down)
    a = [[0.0]] * fixed + [[1.0]] * (n - fixed)
    b = [[1.0]] * (n - broken) + [[0.0]] * broken
    return a, b


def _repeats(
    draw: random.Random, samples: int, share: float, repeats: int, alike: float, copies: int = 1
) -> Runs:
    """Right or wrong; `alike` is the correlation within a sample, `copies` how often each says the same."""
    runs = []
    for _ in range(samples):
        own = share
        if alike:
            own = draw.betavariate(share * (1 - alike) / alike, (1 - share) * (1 - alike) / alike)
        runs.append([float(draw.random() < own) for _ in range(repeats)] * copies)
    return runs


def _repeated(
    draw: random.Random, samples: int, share: float, in_a: int, in_b: int, share_b: float | None = None
) -> tuple[Runs, Runs]:
    return (
        _repeats(draw, samples, share, in_a, 0.0),
        _repeats(draw, samples, share if share_b is None else share_b, in_b, 0.0),
    )


def _other_strengths(draw: random.Random, samples: int, in_a: int, in_b: int) -> tuple[Runs, Runs]:
    """Two models that are right on other samples, and always so there: equally good over all."""
    return (
        [[float(draw.random() < 0.7)] * in_a for _ in range(samples)],
        [[float(draw.random() < 0.7)] * in_b for _ in range(samples)],
    )


def _numbers(draw: random.Random, n: int, difference: float) -> tuple[Runs, Runs]:
    a = [[draw.gauss(3.0, 1.0)] for _ in range(n)]
    return a, [[value + draw.gauss(difference, 0.5)] for (value,) in a]


def _heavy_tailed(draw: random.Random) -> tuple[Runs, Runs]:
    def one() -> Runs:
        return [[math.exp(draw.gauss(0.0, 1.0))] for _ in range(20)]

    return one(), one()


def _some(draw: random.Random) -> float:
    """Mostly 0, and one in five 1 in the mean."""
    return draw.expovariate(1.0) if draw.random() < 0.2 else 0.0


def _some_higher(draw: random.Random) -> tuple[Runs, Runs]:
    """Numbers of which most do not change, and some grow, by 1 in the mean."""
    higher = [_some(draw) for _ in range(20)]
    return [[3.0] for _ in higher], [[3.0 + more] for more in higher]


# -- through the front door ------------------------------------------------------------------------------


def _compared(a: Runs, b: Runs) -> Comparison:
    first, second = ({str(at): {"x": values} for at, values in enumerate(runs)} for runs in (a, b))
    (one,) = compare_each(first, second, resamples=DRAWS)
    return one


def _observations(
    runs: Runs, metrics: tuple[object, ...], as_value: Callable[[float], float] = bool
) -> list[tuple[str, int, list[Score]]]:
    return [
        (str(at), repeat, [Score("x", as_value(value), metrics)])
        for at, values in enumerate(runs)
        for repeat, value in enumerate(values)
    ]


def _interval_of(
    runs: Runs, metrics: tuple[object, ...], as_value: Callable[[float], float] = bool
) -> Interval | None:
    (value,) = summarise(lambda: _observations(runs, metrics, as_value))
    if value.low is None or value.high is None:
        return None
    return Interval(value.low, value.high)
