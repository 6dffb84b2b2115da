"""pass^k over repeats: how likely k runs of a sample are all right, where runs are right or wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalve.contracts import EvaluationInfo, Observation
from evalve.metrics import as_number, is_higher_better
from evalve.records import Score, failed_in_words
from evalve.show import figures
from evalve.show.tables import Column, fits, table, visible
from evalve.statistics import ClusteredSums, pass_hat_k

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class PassHat:
    """pass^k of one evaluator."""

    k: int
    value: float | None
    low: float | None
    high: float | None
    samples: int
    """Those with at least k scored repeats; the others are left out."""


@dataclass(frozen=True, slots=True)
class Passes:
    """For each evaluator, pass^1 to pass^repeats; nothing where samples ran once."""

    repeats: int = 1
    samples: int = 0
    """With a score of any of the evaluators."""
    by_evaluator: Mapping[str, Sequence[PassHat]] = field(default_factory=dict)


class PassCounting:
    """Takes observations, all repeats of a sample one after another. Equal samples are counted, not kept."""

    def __init__(self) -> None:
        self._repeats = 1
        self._samples = 0
        self._sample: str | None = None
        self._of_sample: dict[str, tuple[int, int]] = {}
        self._counts: dict[str, Counter[tuple[int, int]]] = {}
        self._unfit: set[str] = set()
        """Evaluators with several scores in one run, with numbers, or of which less is better: whether a run
        is right is not said."""

    def add(self, observation: Observation) -> None:
        sample_id, repeat, scores = observation
        if sample_id != self._sample:
            self._close()
            self._sample = sample_id
            self._samples += 1
        self._repeats = max(self._repeats, repeat + 1)
        seen: set[str] = set()
        for score in scores:
            if score.name in seen or not _says_right(score):
                self._unfit.add(score.name)
            seen.add(score.name)
            if score.value is not None and score.name not in self._unfit:
                runs, right = self._of_sample.get(score.name, (0, 0))
                self._of_sample[score.name] = runs + 1, right + bool(score.value)

    def _close(self) -> None:
        for name, counted in self._of_sample.items():
            self._counts.setdefault(name, Counter())[counted] += 1
        self._of_sample = {}

    def passes(self) -> Passes:
        self._close()
        if self._repeats == 1:
            return Passes()
        by_evaluator = {
            name: [_pass_hat(counts, k) for k in range(1, self._repeats + 1)]
            for name, counts in self._counts.items()
            if name not in self._unfit
        }
        return Passes(self._repeats, self._samples, by_evaluator)


def _says_right(score: Score) -> bool:
    """Whether true means right; what has no value says nothing else."""
    is_yes_or_no = score.value is None or as_number(score.value) in (0, 1)
    return is_yes_or_no and is_higher_better(score.metrics)


def _pass_hat(counts: Mapping[tuple[int, int], int], k: int) -> PassHat:
    sums, runs = ClusteredSums(), 0
    for (n, right), samples in sorted(counts.items()):
        estimate = pass_hat_k(n, right, k)
        for _ in range(samples if estimate is not None else 0):
            sums.add(estimate or 0.0)
            runs += n
    # the estimates are fractions in general, but all 0 or 1 where every sample had just k runs
    interval = sums.proportion_interval(binary=runs == k * sums.clusters)
    return PassHat(
        k,
        sums.mean,
        interval.low if interval else None,
        interval.high if interval else None,
        sums.clusters,
    )


def passes_text(passes: Passes, info: EvaluationInfo, *, width: int | None) -> Iterator[str]:
    """A line for each evaluator; below, which samples say nothing, and which repeats were not counted."""
    if not passes.by_evaluator:
        return
    shown = _shown(passes.repeats)
    columns = [Column("evaluator"), *(Column(f"pass^{k}") for k in shown)]
    made = [
        table(columns, _rows(passes, shown, with_interval=with_interval), indent="  ")
        for with_interval in (True, False)
    ]
    yield ""
    yield from next((each for each in made if fits(each, width)), made[-1])
    yield from _left_out(passes, info)


def _shown(repeats: int) -> list[int]:
    if repeats <= _SHOWN:
        return list(range(1, repeats + 1))
    return [*range(1, _SHOWN), repeats]


def _rows(passes: Passes, shown: Sequence[int], *, with_interval: bool) -> list[list[str]]:
    return [
        [
            name,
            *(
                figures.with_interval(one.value, one.low, one.high)
                if with_interval
                else figures.value(one.value)
                for one in (of_name[k - 1] for k in shown)
            ),
        ]
        for name, of_name in passes.by_evaluator.items()
    ]


def _left_out(passes: Passes, info: EvaluationInfo) -> Iterator[str]:
    if info.failed:
        yield f"  of the repeats, {failed_in_words(info.failed, info.failures)}: excluded, not wrong"
    samples = samples_in_all(passes, info)
    alike: dict[int, list[str]] = {}
    for name, of_name in passes.by_evaluator.items():
        alike.setdefault(samples - of_name[-1].samples, []).append(name)
    for missing, names in alike.items():
        if missing:
            whose = "" if len(names) == len(passes.by_evaluator) else f"{visible(', '.join(names))}: "
            lacking = f"{missing} of {figures.plural(samples, 'sample')} lack some of {passes.repeats}"
            yield f"  {whose}{lacking} scored repeats: left out of pass^{passes.repeats}"


def samples_in_all(passes: Passes, info: EvaluationInfo) -> int:
    """Also those of which every repeat failed: no observation tells of them."""
    attempts = info.done + info.failed
    return max(passes.samples, -(-attempts // passes.repeats))


def passes_plain(passes: Passes, info: EvaluationInfo) -> dict[str, Any] | None:
    if not passes.by_evaluator:
        return None
    samples = samples_in_all(passes, info)
    return {
        "repeats": passes.repeats,
        "samples": samples,
        "excluded": dict(info.failures),
        "evaluators": {
            name: [
                {
                    "k": one.k,
                    "value": one.value,
                    "low": one.low,
                    "high": one.high,
                    "samples": one.samples,
                    "left_out": samples - one.samples,
                }
                for one in of_name
            ]
            for name, of_name in passes.by_evaluator.items()
        },
    }
