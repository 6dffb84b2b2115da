"""Two runs of the same samples side by side: what changed, and whether that could be chance."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from evalve.metrics import as_number, is_higher_better
from evalve.paired import (
    ALPHA,
    NO_GROWTH,
    RESAMPLES,
    Growth,
    agreeing,
    beyond_rounding,
    growth_of_numbers,
    growth_of_shares,
    holm,
    least_p_value,
    mcnemar_effect,
    mcnemar_exact,
    mean_effect,
    paired_difference,
    paired_proportion_interval,
    permutation_test,
    share_difference_interval,
    sign_flip_interval,
    sign_flip_test,
)
from evalve.records import Score
from evalve.statistics import Interval

Observations = Sequence[float]
"""What one evaluator said about one sample: repeats, and several scores of one name."""

Values = Mapping[str, Mapping[str, Observations]]
"""By sample id, then by evaluator."""

Test = Literal["exact McNemar", "sign-flip", "permutation"]

Kind = Literal["score", "failures", "usage"]

LOST_SHARE = 0.05
"""How many of the numbers that A has may lack in B before nothing is said about the rest."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One evaluator in both runs, on the samples that both have scored."""

    evaluator: str
    n_paired: int
    only_in_a: int
    only_in_b: int
    mean_a: float | None
    """Over the paired samples, as `mean_b` is; every sample weighs the same."""
    mean_b: float | None
    difference: float | None
    """b − a."""
    interval: Interval | None
    """95 % interval of the difference; zero is in it exactly where p is 0.05 or more."""
    p_value: float | None
    p_adjusted: float | None
    """Holm's, for as many as were judged together."""
    test: Test | None
    fixed: tuple[str, ...]
    """Samples that b has right and a has not; for numbers, those where b is better, most of all first."""
    broken: tuple[str, ...]
    """Samples that a has right and b has not; for numbers, those where b is worse, most of all first."""
    minimum_detectable_effect: float | None
    """The smallest true difference that the test finds in so many pairs four times in five."""
    kind: Kind = "score"
    higher_is_better: bool = True
    standard_deviation: float | None = None
    """Of the differences between pairs."""
    size_of_changes: float | None = None
    """The mean size of the differences that are not zero."""
    growth: Growth = NO_GROWTH
    """Of the variance of the differences, where the difference were larger."""
    lost: int = 0
    """Samples that A has scored and that are no pairs: B has not scored them, or their rows have changed."""
    lost_could_hide: bool = False
    """Whether what A has scored and B has not could make B worse, if all of it were wrong."""
    judged_with: int = 1
    """How many comparisons share the adjustment of p, this one included."""

    @property
    def is_of_numbers(self) -> bool:
        """Whether samples are higher and lower rather than right and wrong."""
        return self.test not in (None, "exact McNemar")

    @property
    def is_worse(self) -> bool:
        if self.difference is None:
            return False
        return self.difference < 0 if self.higher_is_better else self.difference > 0

    @property
    def is_found(self) -> bool:
        """Whether there is a difference that chance does not explain."""
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def is_regression(self) -> bool:
        """Worse in B beyond chance. Failures are not wrong."""
        return self.is_worse and self.is_found

    @property
    def can_show(self) -> bool:
        """Whether there are enough pairs to show anything, if all of them changed in one way."""
        return least_p_value(self.n_paired) * self.judged_with < ALPHA


class Scored(NamedTuple):
    """The scores of one run."""

    values: dict[str, dict[str, list[float]]]
    lower_is_better: frozenset[str]
    """Evaluators whose first metric says so."""


def scored(observations: Iterable[tuple[str, int, list[Score]]]) -> Scored:
    """The values of every evaluator for every sample; values that are not numbers are unscored."""
    values: dict[str, dict[str, list[float]]] = {}
    directions: dict[str, bool] = {}
    for sample_id, _repeat, scores in observations:
        for score in scores:
            number = as_number(score.value)
            if number is None:
                continue
            if score.metrics and score.name not in directions:
                directions[score.name] = is_higher_better(score.metrics)
            values.setdefault(sample_id, {}).setdefault(score.name, []).append(number)
    return Scored(values, frozenset(name for name, higher in directions.items() if not higher))


def compare(a: Values, b: Values, *, seed: int = 0) -> list[Comparison]:
    """Every evaluator that either has, in the order in which they first appear, judged together."""
    return judged(compare_each(a, b, seed=seed))


def compare_each(
    a: Values,
    b: Values,
    *,
    kind: Kind = "score",
    lower_is_better: Collection[str] = (),
    changed: Collection[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Comparison]:
    """Every evaluator by itself; `judged` is still to come. Samples that have changed are no pairs."""
    evaluators = dict.fromkeys(name for values in (a, b) for row in values.values() for name in row)
    return [
        _compared(
            _Pairs.of(name, a, b, changed, kind=kind, higher_is_better=name not in lower_is_better),
            seed,
            resamples,
        )
        for name in evaluators
    ]


def judged(compared: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with what depends on how many there are: Holm's p, and what would be found."""
    tested = [each.p_value for each in compared if each.p_value is not None]
    adjusted = iter(holm(tested))
    family = max(1, len(tested))
    with_p = [
        replace(each, p_adjusted=None if each.p_value is None else next(adjusted), judged_with=family)
        for each in compared
    ]
    return [replace(each, minimum_detectable_effect=_detectable(each, ALPHA / family)) for each in with_p]


def _detectable(one: Comparison, alpha: float) -> float | None:
    fixed, broken = len(one.fixed), len(one.broken)
    # a difference that is found explains the changes that make it; the others are chance
    by_chance = 2 * min(fixed, broken) if one.is_found else fixed + broken
    changes = mcnemar_effect(by_chance, one.n_paired, alpha)
    if one.test == "exact McNemar":
        return changes
    by_spread = mean_effect(one.standard_deviation or 0.0, one.n_paired, alpha, growth=one.growth)
    if changes is None or (by_spread is None and one.size_of_changes is not None):
        return by_spread
    # where few samples change, their number limits what is found, and not their spread; where none does,
    # one would change by as much as its repeats are alike: all of it, if they always agree
    size = one.growth.bend if one.size_of_changes is None else one.size_of_changes
    return max(by_spread or 0.0, changes * size) or None


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One evaluator's values in both runs."""

    evaluator: str
    in_a: Mapping[str, Observations]
    in_b: Mapping[str, Observations]
    shared: Sequence[str]
    lost: Sequence[str]
    """Samples that A has scored and that are no pairs."""
    kind: Kind
    higher_is_better: bool

    @classmethod
    def of(
        cls,
        evaluator: str,
        a: Values,
        b: Values,
        changed: Collection[str],
        *,
        kind: Kind,
        higher_is_better: bool,
    ) -> _Pairs:
        in_a = {sample_id: row[evaluator] for sample_id, row in a.items() if evaluator in row}
        in_b = {sample_id: row[evaluator] for sample_id, row in b.items() if evaluator in row}
        shared = [sample_id for sample_id in in_a if sample_id in in_b and sample_id not in changed]
        paired = set(shared)
        lost = [sample_id for sample_id in in_a if sample_id not in paired]
        return cls(evaluator, in_a, in_b, shared, lost, kind, higher_is_better)

    def values(self) -> list[tuple[Observations, Observations]]:
        return [(self.in_a[sample_id], self.in_b[sample_id]) for sample_id in self.shared]

    def are_shares(self) -> bool:
        """Whether all values lie between 0 and 1, and not by chance, as seconds may."""
        return self.kind != "usage" and all(
            0 <= value <= 1 for pair in self.values() for values in pair for value in values
        )


def _compared(pairs: _Pairs, seed: int, resamples: int) -> Comparison:
    values = pairs.values()
    differences = [_difference(mean(a), mean(b)) for a, b in values]
    changes = sorted(zip(pairs.shared, differences, strict=True), key=lambda change: -abs(change[1]))
    higher = tuple(sample_id for sample_id, difference in changes if difference > 0)
    lower = tuple(sample_id for sample_id, difference in changes if difference < 0)
    fixed, broken = (higher, lower) if pairs.higher_is_better else (lower, higher)
    paired = paired_difference(differences)
    tested = _tested(pairs, differences, (len(higher), len(lower)), seed, resamples)
    return Comparison(
        evaluator=pairs.evaluator,
        n_paired=len(pairs.shared),
        only_in_a=sum(sample_id not in pairs.in_b for sample_id in pairs.in_a),
        only_in_b=sum(sample_id not in pairs.in_a for sample_id in pairs.in_b),
        mean_a=paired_difference(mean(a) for a, _ in values).mean,
        mean_b=paired_difference(mean(b) for _, b in values).mean,
        difference=0.0 if differences and beyond_rounding(differences) <= 0 else paired.mean,
        interval=tested.interval,
        p_value=tested.p_value,
        p_adjusted=None,
        test=tested.test,
        fixed=fixed,
        broken=broken,
        minimum_detectable_effect=None,
        higher_is_better=pairs.higher_is_better,
        standard_deviation=paired.standard_deviation,
        size_of_changes=paired_difference(abs(each) for each in differences if each).mean,
        growth=_growth(values, differences),
        kind=pairs.kind,
        lost=len(pairs.lost),
        lost_could_hide=_lost_could_hide(pairs, tested.test, len(fixed), len(broken)),
    )


def _growth(values: Sequence[tuple[Observations, Observations]], differences: Sequence[float]) -> Growth:
    if not values:
        return NO_GROWTH
    are_right_or_wrong = all(value in (0.0, 1.0) for pair in values for each in pair for value in each)
    return growth_of_shares(values) if are_right_or_wrong else growth_of_numbers(differences)


class _Tested(NamedTuple):
    test: Test | None
    p_value: float | None
    interval: Interval | None


def _tested(
    pairs: _Pairs,
    differences: Sequence[float],
    changed: tuple[int, int],
    seed: int,
    resamples: int,
) -> _Tested:
    """The test that fits, and the interval that agrees with it."""
    values, n = pairs.values(), len(differences)
    if not n:
        return _Tested(None, None, None)
    if all(_is_binary(a) and _is_binary(b) for a, b in values):
        return _Tested("exact McNemar", mcnemar_exact(*changed), paired_proportion_interval(*changed, n))
    test: Test = "sign-flip"
    p_value = sign_flip_test(differences, seed, resamples)
    if any(len(a) != len(b) for a, b in values):
        # Both questions count: may each observation have come from either run, and may each sample
        # have differed the other way? The first alone would take two runs that differ from sample to
        # sample, and are equally good over all, for a difference.
        test = "permutation"
        p_value = max(p_value, permutation_test(values, seed, resamples))
    interval = _interval_of_numbers(pairs, differences, seed, resamples)
    average = math.fsum(differences) / n
    return _Tested(test, p_value, agreeing(interval, average, p_value) if interval else None)


def _interval_of_numbers(
    pairs: _Pairs, differences: Sequence[float], seed: int, resamples: int
) -> Interval | None:
    """The widest of those that fit: each knows of something that the others do not."""
    are_shares = pairs.are_shares()
    if are_shares and not any(differences):
        return paired_proportion_interval(0, 0, len(differences))
    interval = sign_flip_interval(differences, seed=seed, resamples=resamples)
    if interval is None:
        return None
    interval = interval.widened(paired_difference(differences).interval)
    if are_shares:
        interval = interval.widened(share_difference_interval(pairs.values())).clipped(-1.0, 1.0)
    return interval


def _lost_could_hide(pairs: _Pairs, test: Test | None, fixed: int, broken: int) -> bool:
    """Whether B could be worse by what is missing: by the test if all of it were wrong; of numbers, where
    how bad they could be is not known, if it is more than one in twenty."""
    if not pairs.lost:
        return False
    if test != "exact McNemar":
        return len(pairs.lost) > LOST_SHARE * len(pairs.in_a)
    best = 1.0 if pairs.higher_is_better else 0.0
    at_worst = broken + sum(mean(pairs.in_a[sample_id]) == best for sample_id in pairs.lost)
    return at_worst > fixed and mcnemar_exact(at_worst, fixed) < ALPHA


def mean(values: Observations) -> float:
    return values[0] if len(values) == 1 else math.fsum(values) / len(values)


def _difference(a: float, b: float) -> float:
    """b − a, without the rounding of means that were summed in another order."""
    return 0.0 if math.isclose(a, b, rel_tol=1e-12) else b - a


def _is_binary(values: Observations) -> bool:
    """Right or wrong, once; ones and zeros say the same as true and false."""
    return len(values) == 1 and values[0] in (0.0, 1.0)
