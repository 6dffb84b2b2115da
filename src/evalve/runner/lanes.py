"""Lanes: attempts that run one after another, in the order of the dataset, beside other lanes."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from evalve.contracts import Lender, Runnable
from evalve.errors import DatasetError, OptionError
from evalve.records import Sample

if TYPE_CHECKING:
    from evalve.runner.plan import Attempt

LaneOf = Callable[[Mapping[str, Any]], str]
"""From a row to the name of its lane."""


class Lane:
    """Attempts of one name and one repeat: the next one begins when the one before is recorded."""

    __slots__ = ("arrived", "has_begun", "is_busy", "name", "pushed", "repeat", "waiting", "weight")

    def __init__(self, name: str, repeat: int, arrived: int) -> None:
        self.name = name
        self.repeat = repeat
        self.arrived = arrived
        self.waiting: deque[Attempt] = deque()
        self.weight = 0.0
        """How long it is in all: in turns of conversations, or in seconds where durations are known."""
        self.is_busy = False
        self.has_begun = False
        self.pushed = 0
        """Which of its entries in the heap counts."""

    @property
    def is_ending(self) -> bool:
        """Whether no other attempt follows the one that runs, as far as rows have been read."""
        return not self.waiting


class Lanes:
    """Hands out attempts of lanes that are free: of a lane that has begun, else of the longest."""

    def __init__(self, lane_of: LaneOf, *, longest_first: bool) -> None:
        self._lane_of = lane_of
        self._longest_first = longest_first
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._free: list[tuple[bool, bool, float, int, int, Lane]] = []
        self._pushed = 0
        self._arrived = 0
        self.waiting = 0
        """How many attempts have been read and not handed out."""

    @property
    def has_free(self) -> bool:
        """Whether an attempt could begin now."""
        self._drop_outdated()
        return bool(self._free)

    def add(self, attempt: Attempt, row: Mapping[str, Any], weight: float) -> None:
        key = self._named(attempt, row), attempt.repeat
        lane = self._lanes.get(key)
        if lane is None:
            self._arrived += 1
            lane = self._lanes[key] = Lane(*key, self._arrived)
        attempt.lane = lane
        lane.waiting.append(attempt)
        lane.weight += weight
        self.waiting += 1
        if not lane.is_busy:
            self._push(lane)

    def take(self, *, is_all_read: bool) -> Attempt | None:
        """The next attempt of a lane that is free. What a process may have died of comes after the others."""
        self._drop_outdated()
        if not self._free or (self._free[0][0] and not is_all_read):
            return None
        lane = heapq.heappop(self._free)[-1]
        attempt = lane.waiting.popleft()
        self.waiting -= 1
        lane.is_busy = lane.has_begun = True
        return attempt

    def ended(self, attempt: Attempt) -> bool:
        """Whether another attempt of its lane may begin, now that this one is recorded."""
        lane = attempt.lane
        assert lane is not None
        lane.is_busy = False
        if not lane.waiting:
            self._lanes.pop((lane.name, lane.repeat), None)  # the next row of that name begins another
            return False
        self._push(lane)
        return True

    def keep_unfinished(self) -> tuple[int, list[Attempt]]:
        """Leave out the lanes of which everything is recorded; the others run from their first attempt.

        How many attempts were left out; and those that are recorded, and follow one that is not: what they
        came to was made in another state than the one that they will find.
        """
        left_out = 0
        outdated: list[Attempt] = []
        for key, lane in list(self._lanes.items()):
            if all(attempt.is_recorded for attempt in lane.waiting):
                left_out += len(lane.waiting)
                self.waiting -= len(lane.waiting)
                lane.waiting.clear()
                lane.pushed = 0
                del self._lanes[key]
                continue
            recorded = [attempt.is_recorded for attempt in lane.waiting]
            first_missing = recorded.index(False)
            outdated += [one for one in list(lane.waiting)[first_missing:] if one.is_recorded]
        return left_out, outdated

    def _named(self, attempt: Attempt, row: Mapping[str, Any]) -> str:
        try:
            return self._lane_of(row)
        except Exception as error:  # a function of the person's own may raise anything
            said = str(error) if isinstance(error, DatasetError) else f"{type(error).__name__}: {error}"
            place = f"row {attempt.sample.index + 1} ({attempt.sample.id!r})"
            raise DatasetError(f"{place}: which lane it belongs to cannot be told: {said}") from error

    def _push(self, lane: Lane) -> None:
        self._pushed += 1
        lane.pushed = self._pushed
        weight = -lane.weight if self._longest_first else 0.0
        entry = (lane.waiting[0].runs_alone, not lane.has_begun, weight, lane.arrived, lane.pushed, lane)
        heapq.heappush(self._free, entry)

    def _drop_outdated(self) -> None:
        while self._free and self._free[0][4] != self._free[0][5].pushed:
            heapq.heappop(self._free)


def lane_of(evaluation: Runnable) -> LaneOf | None:
    """What tells a row's lane; one lane for all where something that is lent is kept through the run."""
    kept = {kept_through(lender): name for name, lender in evaluation.lenders.items()}
    if "run" in kept:
        return lambda row: ""
    if "lane" in kept and evaluation.lane is None:
        raise OptionError(
            f"{evaluation.spec.name}: {kept['lane']!r} is kept through each lane, and there are no lanes:"
            ' say which with lane="{column}", or keep it through the whole run (reset: never)'
        )
    return evaluation.lane


def keeps_state(evaluation: Runnable) -> bool:
    """Whether what a lane's attempts leave to each other is lost when a run ends."""
    return any(kept_through(lender) for lender in evaluation.lenders.values())


def kept_through(lender: Lender) -> str:
    """`lane`, `run`, or nothing: each attempt begins anew."""
    return str(getattr(lender, "kept_through", "") or "")


def row_of(sample: Sample) -> dict[str, Any]:
    """The row, with all of its columns; where its only column is a mapping, with its keys too."""
    row: dict[str, Any] = {**json.loads(sample.row_json), **sample.values}
    inner = next(iter(row.values())) if len(row) == 1 else None
    return {**inner, **row} if isinstance(inner, Mapping) else row


def turns_in(row: Mapping[str, Any]) -> int:
    """How many turns a conversation has; anything else counts as one."""
    turns = row.get("turns")
    return max(1, len(turns)) if isinstance(turns, list) else 1
