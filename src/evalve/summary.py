"""From the scores of all samples to one value with its interval for each evaluator and metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from evalve import metrics
from evalve.metrics import Metric
from evalve.records import Score
from evalve.statistics import ClusteredSums, Interval, pass_at_k, pass_hat_k

Observation = tuple[str, int, list[Score]]
"""A sample's id, the repeat, its scores."""


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

    def to_plain(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.note:
            del plain["note"]
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> MetricValue:
        return cls(**{field.name: plain[field.name] for field in fields(cls) if field.name in plain})


def summarise(
    observations: Iterable[Observation], stored: Sequence[Mapping[str, Any]] = ()
) -> list[MetricValue]:
    """Every metric of every evaluator, in the order in which they first appear.

    All repeats of a sample come one after another; failed samples are absent. Several scores of one
    name in one sample, and its repeats, are observations clustered by sample. A metric known only by a
    name that nobody has declared here keeps its `stored` value.
    """
    tallies: dict[str, dict[str, _Tally]] = {}
    seen: dict[str, tuple[Any, list[_Tally]]] = {}
    for sample_id, _repeat, scores in observations:
        for score in scores:
            known = seen.get(score.name)
            if known is None or known[0] != score.metrics:
                known = (score.metrics, _tallies_for(score, tallies.setdefault(score.name, {})))
                seen[score.name] = known
            for tally in known[1]:
                tally.add(sample_id, score.value)
    earlier = {(plain["evaluator"], plain["metric"]): MetricValue.from_plain(plain) for plain in stored}
    return [
        value
        for evaluator, by_metric in tallies.items()
        for tally in by_metric.values()
        if (value := tally.finish(evaluator, earlier)) is not None
    ]


def as_table(values: Iterable[MetricValue]) -> dict[str, dict[str, float | None]]:
    """`table["exact_match"]["accuracy"]`."""
    table: dict[str, dict[str, float | None]] = {}
    for value in values:
        table.setdefault(value.evaluator, {})[value.metric] = value.value
    return table


def find(values: Sequence[MetricValue], name: str) -> list[MetricValue]:
    """The values that a gate's name means: `evaluator.metric`, a metric of any evaluator, an evaluator.

    An evaluator stands for its first metric. A name that is both a metric and an evaluator means both.
    """
    exact = [value for value in values if f"{value.evaluator}.{value.metric}" == name]
    if exact:
        return exact
    first = next((value for value in values if value.evaluator == name), None)
    return [value for value in values if value.metric == name or value is first]


# -- tallies: one per evaluator and metric -----------------------------------------------------------

_Earlier = Mapping[tuple[str, str], MetricValue]


def _tallies_for(score: Score, by_metric: dict[str, _Tally]) -> list[_Tally]:
    """The tallies that scores with these metrics go to; new ones join `by_metric`."""
    found: dict[str, _Tally] = {}
    for item in _flat(score.metrics) or [None]:
        metric = metrics.lookup(item) if isinstance(item, str) else item
        name = item if isinstance(item, str) else metric.name if metric else ""
        if name not in by_metric:
            by_metric[name] = _tally(name, metric)
        found[name] = by_metric[name]
    return list(found.values())


def _flat(spec: Any) -> list[Any]:
    """Metrics and names; a name that is not known stays a name."""
    if isinstance(spec, str | Metric):
        return [spec]
    if isinstance(spec, list | tuple):
        return [item for part in spec for item in _flat(part)]
    return list(metrics.resolve(spec))


def _tally(name: str, metric: Metric | None) -> _Tally:
    if not name:
        return _Default("", "default")
    if metric is None:
        return _Unknown(name)
    if metric.kind in ("pass_at", "pass_hat"):
        return _Passes(metric)
    if metric.kind == "count":
        return _Counted(name)
    if metric.kind == "other":
        return _Collected(metric)
    return _Sums(name, metric.kind)


class _Tally(ABC):
    """Takes the values of one evaluator for one metric, sample after sample."""

    __slots__ = ("count", "metric", "sample")

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.sample: str | None = None
        self.count = 0

    @abstractmethod
    def add(self, sample: str, value: Any) -> None: ...

    @abstractmethod
    def finish(self, evaluator: str, earlier: _Earlier) -> MetricValue | None: ...


class _Sums(_Tally):
    """Proportion, mean and sum: running sums, closed whenever the sample changes."""

    __slots__ = ("all_bool", "binary", "kind", "of_sample", "sums", "within_unit")

    def __init__(self, metric: str, kind: str) -> None:
        super().__init__(metric)
        self.kind = kind
        self.sums = ClusteredSums()
        self.of_sample: float = 0
        self.all_bool = self.binary = self.within_unit = True

    def add(self, sample: str, value: Any) -> None:
        if value is not True and value is not False:
            value = metrics.as_number(value)
            if value is None:
                return
            self.all_bool = False
            self.binary = self.binary and value in (0, 1)
            self.within_unit = self.within_unit and 0 <= value <= 1
        if sample == self.sample:
            self.of_sample += value
            self.count += 1
        else:
            if self.count:
                self.sums.add(self.of_sample, self.count)
            self.sample = sample
            self.of_sample = value
            self.count = 1

    def close(self) -> None:
        if self.count:
            self.sums.add(self.of_sample, self.count)
            self.count = 0

    def finish(self, evaluator: str, earlier: _Earlier) -> MetricValue | None:
        self.close()
        sums = self.sums
        interval: Interval | None = None
        if self.kind == "proportion" and self.within_unit:
            interval = sums.proportion_interval(binary=self.binary)
        elif self.kind in ("proportion", "mean"):
            interval = sums.interval()
        number = sums.total if self.kind == "sum" and sums.count else sums.mean
        return _value(evaluator, self.metric, number, interval, sums.count, sums.clusters)


class _Default(_Sums):
    """Scores without metrics: accuracy where all values are bools, else their mean."""

    __slots__ = ()

    def finish(self, evaluator: str, earlier: _Earlier) -> MetricValue | None:
        self.close()
        if not self.sums.count:
            return None
        metric = metrics.accuracy if self.all_bool else metrics.mean
        self.metric, self.kind = metric.name, metric.kind
        return super().finish(evaluator, earlier)


class _Passes(_Tally):
    """pass@k and pass^k: from the runs of a sample to a number, then the mean over samples."""

    __slots__ = ("correct", "estimate", "k", "runs", "sums")

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric.name)
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

    def finish(self, evaluator: str, earlier: _Earlier) -> MetricValue:
        self.close()
        sums = self.sums
        # the estimates are fractions in general, but all 0 or 1 where every sample had just k runs
        interval = sums.proportion_interval(binary=self.runs == self.k * sums.clusters)
        note = "" if sums.clusters else f"no sample has {self.k} scored runs"
        return _value(evaluator, self.metric, sums.mean, interval, self.runs, sums.clusters, note)


class _Counted(_Tally):
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

    def finish(self, evaluator: str, earlier: _Earlier) -> MetricValue:
        return _value(evaluator, self.metric, self.count, None, self.count, self.samples)


class _Unknown(_Counted):
    """A name that nobody has declared: the value that was stored."""

    __slots__ = ()

    def finish(self, evaluator: str, earlier: _Earlier) -> MetricValue:
        if found := earlier.get((evaluator, self.metric)):
            return found
        note = f"no metric {self.metric!r} is declared here"
        return _value(evaluator, self.metric, None, None, self.count, self.samples, note)


class _Collected(_Counted):
    """A person's own metric: it sees all values, so they are kept."""

    __slots__ = ("compute", "values")

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric.name)
        self.compute = metric.compute
        self.values: list[Any] = []

    def add(self, sample: str, value: Any) -> None:
        super().add(sample, value)
        if value is not None:
            self.values.append(value)

    def finish(self, evaluator: str, earlier: _Earlier) -> MetricValue:
        try:
            result = self.compute(self.values)
            number, note = (None if result is None else metrics.as_number(float(result))), ""
        except Exception as error:  # a boundary: one metric's mistake must not hide the other results
            number, note = None, f"{self.metric} raised {type(error).__name__}: {error}"
        return _value(evaluator, self.metric, number, None, self.count, self.samples, note)


def _value(
    evaluator: str,
    metric: str,
    value: float | None,
    interval: Interval | None,
    observations: int,
    samples: int,
    note: str = "",
) -> MetricValue:
    return MetricValue(
        evaluator,
        metric,
        None if value is None else float(value),
        interval.low if interval else None,
        interval.high if interval else None,
        observations,
        samples,
        note,
    )
