"""Tallies: take the values of one evaluator, sample after sample, and give what each metric says of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from evalve import metrics
from evalve.agreement import Cluster, Pair, Weights, clustered_agreement
from evalve.metrics import Metric
from evalve.statistics import ClusteredSums, Interval, pass_at_k, pass_hat_k

SUMMED = frozenset({"proportion", "mean", "sum"})
"""The kinds of metrics that all follow from the same `Sums`."""


@dataclass(frozen=True, slots=True)
class MetricValue:
    """What one metric says about one evaluator. `value` is `None` where it is not defined."""

    evaluator: str
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    observations: int = 0
    samples: int = 0
    note: str = ""
    """Why the value is missing, or that it is an earlier one."""
    higher_is_better: bool = True
    unscored: int = 0
    """Scores without a value: an evaluator could not tell."""

    def to_plain(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.note:
            del plain["note"]
        if self.higher_is_better:
            del plain["higher_is_better"]
        if not self.unscored:
            del plain["unscored"]
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> MetricValue:
        return cls(**{field.name: plain[field.name] for field in fields(cls) if field.name in plain})


Earlier = Mapping[tuple[str, str], MetricValue]
"""Values that were stored, by evaluator and metric."""


class Sums:
    """Proportion, mean and sum: running sums, closed whenever the sample changes."""

    __slots__ = (
        "_binary",
        "_count",
        "_of_sample",
        "_sample",
        "_sums",
        "_within_unit",
        "all_bool",
        "unscored",
    )

    def __init__(self) -> None:
        self._sums = ClusteredSums()
        self._sample: str | None = None
        self._of_sample: float = 0
        self._count = 0
        self.all_bool = self._binary = self._within_unit = True
        self.unscored = 0
        """Values that are none."""

    def add(self, sample: str, value: Any) -> None:
        if value is not True and value is not False:
            given, value = value, metrics.as_number(value)
            if value is None:
                self.unscored += given is None
                return
            self.all_bool = False
            self._binary = self._binary and value in (0, 1)
            self._within_unit = self._within_unit and 0 <= value <= 1
        if sample == self._sample:
            self._of_sample += value
            self._count += 1
        else:
            if self._count:  # as in `_close`, without the price of a call for every sample
                self._sums.add(self._of_sample, self._count)
            self._sample = sample
            self._of_sample = value
            self._count = 1

    def _close(self) -> None:
        if self._count:
            self._sums.add(self._of_sample, self._count)
            self._count = 0

    @property
    def is_empty(self) -> bool:
        return not (self._count or self._sums.count)

    def finish(self, metric: Metric, evaluator: str, _earlier: Earlier) -> MetricValue:
        self._close()
        sums = self._sums
        interval: Interval | None = None
        # ones and zeros are a proportion, whatever they are called
        if self._binary and metric.kind in ("proportion", "mean"):
            interval = sums.proportion_interval()
        elif metric.kind == "proportion" and self._within_unit:
            interval = sums.proportion_interval(binary=False)
        elif metric.kind in ("proportion", "mean"):
            interval = sums.graded_interval() if self._within_unit else sums.interval()
        number = sums.total if metric.kind == "sum" and sums.count else sums.mean
        return _value(evaluator, metric.stored_name, number, interval, sums.count, sums.clusters)


def tally_for(name: str, metric: Metric | None) -> Tally:
    """The tally of a metric that has one of its own; `None` stands for a name that nobody has declared."""
    if metric is None:
        return _Unknown(name)
    if metric.kind in ("pass_at", "pass_hat"):
        return _Passes(metric)
    if metric.kind == "agreement":
        return _Agreed(metric)
    return _Counted(metric.stored_name) if metric.kind == "count" else _Collected(metric)


class Tally(ABC):
    """Takes the values of one evaluator for one metric."""

    __slots__ = ("count", "metric", "sample")

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.sample: str | None = None
        self.count = 0

    @abstractmethod
    def add(self, sample: str, value: Any) -> None: ...

    @abstractmethod
    def finish(self, evaluator: str, earlier: Earlier) -> MetricValue: ...


class _Passes(Tally):
    """pass@k and pass^k: from the runs of a sample to a number, then the mean over samples."""

    __slots__ = ("correct", "estimate", "k", "runs", "sums")

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric.stored_name)
        self.estimate = pass_at_k if metric.kind == "pass_at" else pass_hat_k
        self.k = metric.k
        self.correct = 0
        self.runs = 0
        self.sums = ClusteredSums()

    def add(self, sample: str, value: Any) -> None:
        number = metrics.as_number(value)
        if number is None:
            return
        if sample != self.sample:
            self.close()
            self.sample = sample
        self.count += 1
        self.correct += metrics.is_correct(number)

    def close(self) -> None:
        estimate = self.estimate(self.count, self.correct, self.k)
        if estimate is not None:
            self.sums.add(estimate)
            self.runs += self.count
        self.count = self.correct = 0

    def finish(self, evaluator: str, earlier: Earlier) -> MetricValue:
        self.close()
        sums = self.sums
        # the estimates are fractions in general, but all 0 or 1 where every sample had just k runs
        interval = sums.proportion_interval(binary=self.runs == self.k * sums.clusters)
        note = "" if sums.clusters else f"no sample has {self.k} scored runs"
        return _value(evaluator, self.metric, sums.mean, interval, self.runs, sums.clusters, note)


class _Agreed(Tally):
    """Kappa: from pairs of a value and a label. Equal samples are counted, not kept."""

    __slots__ = ("clusters", "of_sample", "weights")

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric.stored_name)
        self.weights: Weights | None = "quadratic" if metric.name == metrics.weighted_kappa.name else None
        self.clusters: Counter[Cluster] = Counter()
        self.of_sample: list[Pair] = []

    def add(self, sample: str, value: Any) -> None:
        judged, label = map(metrics.as_number, value)
        if judged is None or label is None:
            return
        if sample != self.sample:
            self.close()
            self.sample = sample
        self.of_sample.append((judged, label))

    def close(self) -> None:
        if self.of_sample:
            self.clusters[tuple(sorted(self.of_sample))] += 1
            self.of_sample = []

    def finish(self, evaluator: str, earlier: Earlier) -> MetricValue:
        self.close()
        found = clustered_agreement(self.clusters, self.weights)
        samples = sum(self.clusters.values())
        note = "" if found.kappa is not None else "all values and labels are one and the same"
        note = note if samples else "no score has a label"
        return _value(evaluator, self.metric, found.kappa, found.interval, found.pairs, samples, note)


class _Counted(Tally):
    """How many values there are, and in how many samples: `count`, and all that is known of a name."""

    __slots__ = ("samples",)

    def __init__(self, metric: str) -> None:
        super().__init__(metric)
        self.samples = 0

    def add(self, sample: str, value: Any) -> None:
        if value is None:
            return
        self.count += 1
        if sample != self.sample:
            self.sample = sample
            self.samples += 1

    def finish(self, evaluator: str, earlier: Earlier) -> MetricValue:
        return _value(evaluator, self.metric, self.count, None, self.count, self.samples)


class _Unknown(_Counted):
    """A name that nobody has declared: the value that was stored."""

    __slots__ = ()

    def finish(self, evaluator: str, earlier: Earlier) -> MetricValue:
        name = metrics.plain_name(self.metric)
        if found := earlier.get((evaluator, name)):
            return found
        note = f"no metric {name!r} is declared here"
        return _value(evaluator, self.metric, None, None, self.count, self.samples, note)


class _Collected(_Counted):
    """A person's own metric: it sees all values, so they are kept."""

    __slots__ = ("compute", "values")

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric.stored_name)
        self.compute = metric.compute
        self.values: list[Any] = []

    def add(self, sample: str, value: Any) -> None:
        super().add(sample, value)
        if value is not None:
            self.values.append(value)

    def finish(self, evaluator: str, earlier: Earlier) -> MetricValue:
        number, note = _computed(self.compute, self.values)
        return _value(evaluator, self.metric, number, None, self.count, self.samples, note)


def _computed(compute: Any, values: list[Any]) -> tuple[float | None, str]:
    """What a person's own metric gives, or why that is no value."""
    try:
        result = compute(values)
        number = None if isinstance(result, str | bytes | None) else metrics.as_number(float(result))
    except Exception as error:  # a boundary: one metric's mistake must not hide the other results
        said = str(error)
        return None, _short(f"{type(error).__name__}: {said}" if said else type(error).__name__)
    return number, "" if number is not None else f"it returned {_short(repr(result))}, which is no number"


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"


def _value(
    evaluator: str,
    metric: str,
    value: float | None,
    interval: Interval | None,
    observations: int,
    samples: int,
    note: str = "",
) -> MetricValue:
    """`metric` by the name that is stored."""
    return MetricValue(
        evaluator,
        metrics.plain_name(metric),
        None if value is None else float(value),
        interval.low if interval else None,
        interval.high if interval else None,
        observations,
        samples,
        note,
        metrics.is_higher_better(metric),
    )
