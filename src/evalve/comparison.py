"""Two runs of the same samples side by side: what changed, and whether that could be chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from evalve.metrics import as_number
from evalve.records import Score
from evalve.statistics import (
    Interval,
    holm,
    mcnemar_exact,
    minimum_detectable_effect,
    paired_difference,
    sign_flip_test,
)


class SampleValue(NamedTuple):
    """What one evaluator said about one sample."""

    mean: float
    """Over its observations: repeats, and several scores of one name."""
    observations: int = 1


Values = Mapping[str, Mapping[str, SampleValue]]
"""By sample id, then by evaluator."""

Test = Literal["exact McNemar", "sign-flip"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One evaluator in both runs, on the samples that both have scored."""

    evaluator: str
    n_paired: int
    only_in_a: int
    only_in_b: int
    mean_a: float | None
    """Over the paired samples, as `mean_b` is."""
    mean_b: float | None
    difference: float | None
    """b − a."""
    interval: Interval | None
    """95 % interval of the difference; `None` with fewer than two pairs, or where all differ alike."""
    p_value: float | None
    p_adjusted: float | None
    """Holm's, for as many evaluators as were compared."""
    test: Test | None
    fixed: tuple[str, ...]
    """Samples that b has right and a has not; for numbers, those where b is higher, most of all first."""
    broken: tuple[str, ...]
    """Samples that a has right and b has not; for numbers, those where b is lower, most of all first."""
    minimum_detectable_effect: float | None
    """The smallest true difference that so many pairs show four times in five."""

    @property
    def is_of_numbers(self) -> bool:
        """Whether samples are higher and lower rather than right and wrong."""
        return self.test == "sign-flip"


def sample_values(observations: Iterable[tuple[str, int, list[Score]]]) -> dict[str, dict[str, SampleValue]]:
    """The mean of every evaluator for every sample; values that are not numbers are unscored."""
    sums: dict[str, dict[str, SampleValue]] = {}
    for sample_id, _repeat, scores in observations:
        for score in scores:
            number = as_number(score.value)
            if number is None:
                continue
            of_sample = sums.setdefault(sample_id, {})
            total, count = of_sample.get(score.name, _NOTHING)
            of_sample[score.name] = SampleValue(total + number, count + 1)
    for of_sample in sums.values():
        for name, (total, count) in of_sample.items():
            if count > 1:
                of_sample[name] = SampleValue(total / count, count)
    return sums


_NOTHING = SampleValue(0.0, 0)


def compare(
    a: Values | Iterable[tuple[str, Mapping[str, SampleValue]]],
    b: Values | Iterable[tuple[str, Mapping[str, SampleValue]]],
    *,
    seed: int = 0,
) -> list[Comparison]:
    """Every evaluator that either has, in the order in which they first appear."""
    of_a, of_b = dict(a), dict(b)
    evaluators = dict.fromkeys(name for values in (of_a, of_b) for row in values.values() for name in row)
    compared = [_compared(name, of_a, of_b, seed) for name in evaluators]
    tested = [index for index, result in enumerate(compared) if result.p_value is not None]
    adjusted = holm([p for result in compared if (p := result.p_value) is not None])
    for index, p_adjusted in zip(tested, adjusted, strict=True):
        compared[index] = replace(compared[index], p_adjusted=p_adjusted)
    return compared


def _compared(evaluator: str, a: Values, b: Values, seed: int) -> Comparison:
    in_a = {sample_id: row[evaluator] for sample_id, row in a.items() if evaluator in row}
    in_b = {sample_id: row[evaluator] for sample_id, row in b.items() if evaluator in row}
    shared = [sample_id for sample_id in in_a if sample_id in in_b]
    differences = [_difference(in_a[sample_id].mean, in_b[sample_id].mean) for sample_id in shared]
    changes = sorted(zip(shared, differences, strict=True), key=lambda change: -abs(change[1]))
    fixed = tuple(sample_id for sample_id, difference in changes if difference > 0)
    broken = tuple(sample_id for sample_id, difference in changes if difference < 0)
    test: Test | None = None
    p_value: float | None = None
    binary = False
    if shared:
        binary = all(_is_binary(in_a[sample_id]) and _is_binary(in_b[sample_id]) for sample_id in shared)
        test = "exact McNemar" if binary else "sign-flip"
        p_value = mcnemar_exact(len(broken), len(fixed)) if binary else sign_flip_test(differences, seed)
    paired = paired_difference(differences)
    return Comparison(
        evaluator=evaluator,
        n_paired=len(shared),
        only_in_a=len(in_a) - len(shared),
        only_in_b=len(in_b) - len(shared),
        mean_a=_mean(in_a[sample_id].mean for sample_id in shared),
        mean_b=_mean(in_b[sample_id].mean for sample_id in shared),
        difference=paired.mean,
        # yes and no differ by one at the most
        interval=paired.interval.clipped(-1.0, 1.0) if binary and paired.interval else paired.interval,
        p_value=p_value,
        p_adjusted=None,
        test=test,
        fixed=fixed,
        broken=broken,
        # without any spread nothing is known about it, and an effect of zero would be a boast
        minimum_detectable_effect=(
            minimum_detectable_effect(paired.standard_deviation, paired.n)
            if paired.standard_deviation
            else None
        ),
    )


def _difference(a: float, b: float) -> float:
    """b − a, without the rounding of means that were summed in another order."""
    return 0.0 if math.isclose(a, b, rel_tol=1e-12) else b - a


def _is_binary(value: SampleValue) -> bool:
    """Right or wrong, once; ones and zeros say the same as true and false."""
    return value.observations == 1 and value.mean in (0.0, 1.0)


def _mean(numbers: Iterable[float]) -> float | None:
    return paired_difference(numbers).mean
