"""How often scores are right, by what their metadata says that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalve.metrics import as_number
from evalve.records import Score
from evalve.shares import PooledSums
from evalve.show import figures
from evalve.show.tables import Column, fits, table

_MOST_GROUPS = 1000
"""A key with more values tells samples apart rather than groups them: the rest are counted together."""
_OTHERS = "others"
GROUPS_SHOWN = 40

GroupValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Share:
    """What the scores of one name come to in one group. Every observation weighs the same."""

    observations: int
    samples: int
    total: float
    """How many are right, where all are right or wrong."""
    mean: float
    low: float | None
    high: float | None
    is_binary: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The scores about one thing, by evaluator."""

    value: GroupValue
    shares: Mapping[str, Share]


@dataclass(frozen=True, slots=True)
class Grouping:
    """All groups by one key of the metadata, and the whole."""

    key: str
    groups: Sequence[Group]
    all: Mapping[str, Share] = field(default_factory=dict)

    @property
    def evaluators(self) -> list[str]:
        return list(self.all)


Groups = Sequence[Grouping]


class GroupCounting:
    """Takes scores, all of a sample one after another."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._cells: dict[str, dict[GroupValue | None, dict[str, _Cell]]] = {key: {} for key in keys}

    def add(self, sample_id: str, score: Score) -> None:
        for key, groups in self._cells.items():
            group = score.metadata.get(key)
            if group is None or (number := as_number(score.value)) is None:
                continue
            if not isinstance(group, str | int | float):
                continue
            if group not in groups and len(groups) > _MOST_GROUPS:
                group = _OTHERS
            for each in (group, None):  # `None` is the whole
                cells = groups.setdefault(each, {})
                if (cell := cells.get(score.name)) is None:
                    cell = cells[score.name] = _Cell()
                cell.add(sample_id, number)

    def groups(self) -> list[Grouping]:
        return [_grouping(key, groups) for key, groups in self._cells.items() if groups]


class _Cell:
    """The sums of one evaluator in one group, closed whenever the sample changes."""

    __slots__ = ("_count", "_is_binary", "_of_sample", "_sample", "_sums")

    def __init__(self) -> None:
        self._sums = PooledSums()
        self._sample: str | None = None
        self._of_sample: float = 0
        self._count = 0
        self._is_binary = True

    def add(self, sample_id: str, number: float) -> None:
        if sample_id != self._sample:
            self._close()
            self._sample = sample_id
        self._of_sample += number
        self._count += 1
        self._is_binary = self._is_binary and number in (0, 1)

    def _close(self) -> None:
        if self._count:
            self._sums.add(self._of_sample, self._count)
        self._of_sample, self._count = 0, 0

    def share(self) -> Share:
        self._close()
        sums = self._sums
        interval = sums.proportion_interval() if self._is_binary else sums.interval()
        return Share(
            sums.count,
            sums.clusters,
            float(sums.total),
            float(sums.mean or 0.0),
            interval.low if interval else None,
            interval.high if interval else None,
            self._is_binary,
        )


def _grouping(key: str, cells: Mapping[GroupValue | None, Mapping[str, _Cell]]) -> Grouping:
    whole = {name: cell.share() for name, cell in cells[None].items()}
    groups = [
        Group(value, {name: of_value[name].share() for name in whole if name in of_value})
        for value, of_value in cells.items()
        if value is not None
    ]
    placed = ordering(group.value for group in groups)
    return Grouping(key, sorted(groups, key=lambda group: placed(group.value, _most(group.shares))), whole)


def ordering(values: Iterable[GroupValue]) -> Callable[[GroupValue, int], Any]:
    """What to sort groups by, from value and count: numbers by size, names by how often they occur."""
    if any(isinstance(value, str) for value in values):
        return lambda value, count: (-count, str(value))
    return lambda value, _count: value


def _most(shares: Mapping[str, Share]) -> int:
    return max(share.observations for share in shares.values())


def groups_text(groups: Groups, *, width: int | None, full: bool) -> Iterator[str]:
    """A table for each key: a line for each group, a column for each evaluator, and a line for all."""
    for grouping in groups:
        yield ""
        shown = grouping.groups if full else grouping.groups[:GROUPS_SHOWN]
        lines = [(str(group.value), group.shares) for group in shown] + [("all", grouping.all)]
        yield from _table(grouping, lines, width)
        if left_out := len(grouping.groups) - len(shown):
            yield f"  … and {left_out} more: --full shows all"


def _table(
    grouping: Grouping, lines: Sequence[tuple[str, Mapping[str, Share]]], width: int | None
) -> list[str]:
    """With counts and intervals where there is room; without intervals; with shares alone."""
    names = grouping.evaluators
    columns = [Column(f"by {grouping.key}"), *(Column(name) for name in names)]
    for cell in (_with_interval, _with_counts):
        rows = [[line, *(cell(shares.get(name)) for name in names)] for line, shares in lines]
        made = table(columns, rows, indent="  ")
        if fits(made, width):
            return made
    counted = Column("n", align="right")
    rows = [
        [line, str(_most(shares)), *(_share_alone(shares.get(name)) for name in names)]
        for line, shares in lines
    ]
    return table([columns[0], counted, *columns[1:]], rows, indent="  ")


def group_rows(grouping: Grouping) -> list[list[str]]:
    """Counts and shares of all groups, and of the whole."""
    lines = [(str(group.value), group.shares) for group in grouping.groups] + [("all", grouping.all)]
    return [
        [line, *(_with_counts(shares.get(name)) for name in grouping.evaluators)] for line, shares in lines
    ]


def _with_interval(share: Share | None) -> str:
    """`12/14 0.86 [0.60, 0.96]`."""
    return f"{_with_counts(share)} {figures.interval(share.low, share.high)}".rstrip() if share else "–"


def _with_counts(share: Share | None) -> str:
    """`12/14 0.86`; of numbers how many they are, and their mean."""
    if share is None:
        return "–"
    counted = f"{int(share.total)}/{share.observations}" if share.is_binary else f"{share.observations} ×"
    return f"{counted} {_share_alone(share)}"


def _share_alone(share: Share | None) -> str:
    return figures.short_value(share.mean) if share else "–"


def groups_plain(groups: Groups) -> dict[str, Any]:
    """By key, then by group, then by evaluator; `all` beside the groups of each key."""
    return {
        grouping.key: {
            "all": {name: _share_plain(share) for name, share in grouping.all.items()},
            "groups": [
                {
                    "value": group.value,
                    "scores": {name: _share_plain(share) for name, share in group.shares.items()},
                }
                for group in grouping.groups
            ],
        }
        for grouping in groups
    }


def _share_plain(share: Share) -> dict[str, Any]:
    return {
        "observations": share.observations,
        "samples": share.samples,
        "right": int(share.total) if share.is_binary else None,
        "value": share.mean,
        "low": share.low,
        "high": share.high,
    }
