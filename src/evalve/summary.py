"""From the scores of all samples to one value with its interval for each evaluator and metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from evalve import metrics
from evalve.contracts import Observation
from evalve.metrics import Metric
from evalve.tallies import SUMMED, Earlier, MetricValue, Sums, Tally, tally_for

_Declared = Mapping[str, Metric | None]
"""Metrics by name; `None` for a name that nobody has declared here."""


def summarise(
    read: Callable[[], Iterable[Observation]], stored: Sequence[Mapping[str, Any]] = ()
) -> list[MetricValue]:
    """What `Summary` makes of the observations."""
    summary = Summary()
    summary.add(read())
    while summary.begins_again():
        summary.add(read())
    return summary.values(stored)


class Summary:
    """Every metric of every evaluator, in the order in which they first appear.

    All scores of one name are one evaluator: its metrics are those that any of them declares, each over
    all values; where none declares any, accuracy for bools, and the mean if there is a number among them.

    All repeats of a sample come one after another; failed samples are absent. Several scores of one
    name in one sample, and its repeats, are observations clustered by sample. A metric known only by a
    name that nobody has declared here keeps its `stored` value.

    One reading is enough, except where a metric that needs more than running sums is first declared
    after other scores of its evaluator: then the observations are read once more.
    """

    def __init__(self) -> None:
        self._evaluators: dict[str, _Evaluator] = {}
        self._declared: dict[str, _Declared] = {}

    def add(self, observations: Iterable[Observation]) -> None:
        """Take some of them, in order."""
        evaluators = self._evaluators
        for sample_id, _repeat, scores in observations:
            for score in scores:
                evaluator = evaluators.get(score.name)
                if evaluator is None:
                    evaluator = evaluators[score.name] = _Evaluator(self._declared.get(score.name, {}))
                if evaluator.last_spec != score.metrics:
                    evaluator.learn(score.metrics)
                for tally in evaluator.tallies:
                    tally.add(sample_id, score.value)
                for tally in evaluator.of_labels:
                    tally.add(sample_id, (score.value, score.metadata.get(metrics.LABEL)))

    def begins_again(self) -> bool:
        """Asked after a whole reading: whether all observations must come once more."""
        if not any(one.is_incomplete for one in self._evaluators.values()):
            return False
        self._declared = {name: one.declared for name, one in self._evaluators.items()}
        self._evaluators = {}
        return True

    def values(self, stored: Sequence[Mapping[str, Any]] = ()) -> list[MetricValue]:
        earlier = {(plain["evaluator"], plain["metric"]): MetricValue.from_plain(plain) for plain in stored}
        return [value for name, one in self._evaluators.items() for value in one.values(name, earlier)]


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
    first = next((value for value in values if value.evaluator == name), None)
    return [
        value
        for value in values
        if value is first or name in (value.metric, f"{value.evaluator}.{value.metric}")
    ]


# -- evaluators: all scores of one name --------------------------------------------------------------


class _Evaluator:
    """The metrics that scores of one name declare, and the tallies that all their values go to."""

    __slots__ = ("_finishes", "_sums", "declared", "is_incomplete", "last_spec", "of_labels", "tallies")

    def __init__(self, declared: _Declared) -> None:
        self._sums = Sums()
        self.tallies: list[Sums | Tally] = [self._sums]
        self.of_labels: list[Tally] = []
        """Those that take each value with the label beside it."""
        self._finishes: dict[str, Callable[[str, Earlier], MetricValue]] = {}
        self.declared: dict[str, Metric | None] = {}
        self.last_spec: Any = _NONE_YET
        """As the latest score declares its metrics: mostly all scores say the same."""
        self.is_incomplete = False
        """Whether a tally has missed values, because its metric was declared after them."""
        for name, metric in declared.items():
            self._declare(name, metric)

    def learn(self, spec: Any) -> None:
        for item in _flat(spec):
            name = item if isinstance(item, str) else item.stored_name
            if name not in self.declared:
                self._declare(name, metrics.lookup(item) if isinstance(item, str) else item)
        self.last_spec = spec

    def _declare(self, name: str, metric: Metric | None) -> None:
        self.declared[name] = metric
        if metric is not None and metric.kind in SUMMED:
            self._finishes[name] = partial(self._sums.finish, metric)
            return
        tally = tally_for(name, metric)
        (self.of_labels if metric is not None and metric.kind == "agreement" else self.tallies).append(tally)
        self._finishes[name] = tally.finish
        self.is_incomplete = self.is_incomplete or self.last_spec is not _NONE_YET

    def values(self, evaluator: str, earlier: Earlier) -> Iterator[MetricValue]:
        finishes = list(self._finishes.values())
        if not finishes and not (self._sums.is_empty and not self._sums.unscored):
            default = metrics.accuracy if self._sums.all_bool else metrics.mean
            finishes = [partial(self._sums.finish, default)]
        for finish in finishes:
            value = finish(evaluator, earlier)
            yield replace(value, unscored=self._sums.unscored) if self._sums.unscored else value


_NONE_YET = object()


def _flat(spec: Any) -> list[Any]:
    """Metrics and names; a name that is not known stays a name."""
    if isinstance(spec, str | Metric):
        return [spec]
    if isinstance(spec, list | tuple):
        return [item for part in spec for item in _flat(part)]
    return list(metrics.resolve(spec))
