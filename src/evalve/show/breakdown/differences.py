"""How two runs differ by what scores are about: for each tool, on the samples that both have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalve.contracts import Observation
from evalve.metrics import as_number
from evalve.records import GROUPED_BY
from evalve.shares import PairedCounts, ShareDifference, share_difference
from evalve.show import figures
from evalve.show.breakdown.groups import GROUPS_SHOWN, GroupValue, ordering
from evalve.show.tables import Column, fits, table

Counts = dict[str, tuple[float, int]]
"""By sample: the sum of its observations, and how many they are."""


@dataclass(frozen=True, slots=True)
class Differing:
    """One evaluator in one group, in both runs."""

    observations_a: int
    observations_b: int
    samples: int
    found: ShareDifference


@dataclass(frozen=True, slots=True)
class GroupDifferences:
    """All groups by one key, the most frequent or the lowest first; by evaluator in each."""

    key: str
    evaluators: Sequence[str]
    groups: Sequence[tuple[GroupValue, Mapping[str, Differing]]]


class GroupedCounts:
    """Sums by key, group, evaluator and sample, taken while others read the same observations."""

    def __init__(self, read: Callable[[], Iterable[Observation]], by: Sequence[str] = GROUPED_BY) -> None:
        self._read = read
        self.counts: dict[str, dict[GroupValue, dict[str, Counts]]] = {key: {} for key in by}

    def observations(self) -> Iterator[Observation]:
        for observation in self._read():
            self._add(observation)
            yield observation

    def _add(self, observation: Observation) -> None:
        sample_id, _, scores = observation
        for score in scores:
            number = as_number(score.value)
            if number is None or not score.metadata:
                continue
            for key, groups in self.counts.items():
                group = score.metadata.get(key)
                if isinstance(group, str | int | float):
                    of_samples = groups.setdefault(group, {}).setdefault(score.name, {})
                    total, count = of_samples.get(sample_id, (0, 0))
                    of_samples[sample_id] = total + number, count + 1


def group_differences(
    a: GroupedCounts, b: GroupedCounts, *, changed: Collection[str] = ()
) -> list[GroupDifferences]:
    """For every group that both have; samples that have changed are left out."""
    compared = []
    for key, groups_a in a.counts.items():
        groups_b = b.counts.get(key, {})
        groups = [
            (value, differing)
            for value in groups_a
            if value in groups_b and (differing := _differing(groups_a[value], groups_b[value], changed))
        ]
        if groups:
            evaluators = list(dict.fromkeys(name for _, differing in groups for name in differing))
            placed = ordering(value for value, _ in groups)
            groups.sort(key=lambda group: placed(group[0], _most(group[1])))
            compared.append(GroupDifferences(key, evaluators, groups))
    return compared


def _differing(
    a: Mapping[str, Counts], b: Mapping[str, Counts], changed: Collection[str]
) -> dict[str, Differing]:
    by_evaluator = {}
    for name in a:
        in_both = [
            PairedCounts(*a[name][sample_id], *b[name][sample_id])
            for sample_id in a[name]
            if sample_id in b.get(name, {}) and sample_id not in changed
        ]
        found = share_difference(in_both)
        if found is not None:
            counts = sum(one.count_a for one in in_both), sum(one.count_b for one in in_both)
            by_evaluator[name] = Differing(*counts, len(in_both), found)
    return by_evaluator


def _most(differing: Mapping[str, Differing]) -> int:
    return max(one.observations_a for one in differing.values())


# -- as text and for machines ------------------------------------------------------------------------


def differences_text(compared: Sequence[GroupDifferences], *, width: int | None, full: bool) -> Iterator[str]:
    """A table for each key: a line for each group that differs, and for each evaluator A → B."""
    for one in compared:
        differing = [
            group for group in one.groups if full or any(each.found.difference for each in group[1].values())
        ]
        shown = differing if full else differing[:GROUPS_SHOWN]
        if shown:
            yield from _table(one, shown, width)
        if left_out := len(differing) - len(shown):
            yield f"  … and {left_out} more: --full shows all"
        if alike := len(one.groups) - len(differing):
            whose = f"{alike} more" if shown else f"by {one.key}, {alike}"
            yield f"  {whose} without a difference: --full shows all"
        yield ""


def _table(
    one: GroupDifferences, shown: Sequence[tuple[GroupValue, Mapping[str, Differing]]], width: int | None
) -> list[str]:
    """With intervals of the differences where there is room, then with differences, then without."""
    columns = [
        Column(f"A → B by {one.key}"),
        Column("n", align="right"),
        *(Column(name) for name in one.evaluators),
    ]
    made: list[str] = []
    for cell in (_with_interval, _with_difference, _shares):
        rows = [
            [
                str(value),
                str(_most(differing)),
                *(cell(differing[name]) if name in differing else "–" for name in one.evaluators),
            ]
            for value, differing in shown
        ]
        made = table(columns, rows, indent="  ")
        if fits(made, width):
            break
    return made


def _with_interval(one: Differing) -> str:
    ends = one.found.interval
    text = figures.interval_of_difference(ends.low, ends.high) if ends else ""
    return f"{_with_difference(one)} {text}".rstrip()


def _with_difference(one: Differing) -> str:
    return f"{_shares(one)} {figures.signed(one.found.difference)}"


def _shares(one: Differing) -> str:
    return f"{figures.short_value(one.found.share_a)} → {figures.short_value(one.found.share_b)}"


def differences_plain(compared: Sequence[GroupDifferences]) -> dict[str, Any]:
    return {
        one.key: [
            {"value": value, "scores": {name: _plain(each) for name, each in differing.items()}}
            for value, differing in one.groups
        ]
        for one in compared
    }


def _plain(one: Differing) -> dict[str, Any]:
    interval = one.found.interval
    return {
        "a": one.found.share_a,
        "b": one.found.share_b,
        "difference": one.found.difference,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "observations_a": one.observations_a,
        "observations_b": one.observations_b,
        "samples": one.samples,
    }
