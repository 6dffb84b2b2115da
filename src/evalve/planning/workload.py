"""What the rows of an experiment ask of one agent: turns, calls of each role, lanes. Before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from evalve.conversations.rows import read_conversation
from evalve.errors import DatasetError
from evalve.experiments.declared import Declared
from evalve.experiments.parts.lanes import lane_of
from evalve.experiments.parts.models import Asked
from evalve.experiments.parts.rows import Source


@dataclass(frozen=True, slots=True)
class Workload:
    """Of all rows together, each taken once."""

    rows: int
    turns: int
    steps: int
    """Answers of the agent: a call of a tool, or a reply."""
    lanes: tuple[int, ...] = ()
    """Turns of each lane, the longest first; empty where everything may run beside everything."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """Calls to models that a row is expected to make, by role; those of a plain model under no name."""


def workload_of(declared: Declared, asked: Asked, source: Source, limit: int | None) -> Workload | None:
    """`None` where only fetching the rows would tell."""
    if source.path is None:
        return None
    lane = lane_of(declared.entry, asked)
    rows, turns, steps = 0, 0, 0
    lanes: dict[str, int] = {}
    try:
        for row in islice(source.open(), limit):
            row_turns, row_steps = _turns_and_steps(declared, row)
            rows, turns, steps = rows + 1, turns + row_turns, steps + row_steps
            if lane is not None:
                name = lane(row)
                lanes[name] = lanes.get(name, 0) + row_turns
    except DatasetError:
        return None  # told by whoever runs it
    calls = {role: count / rows for role, count in _calls(asked, turns, steps)} if rows else {}
    return Workload(rows, turns, steps, tuple(sorted(lanes.values(), reverse=True)), calls)


def _turns_and_steps(declared: Declared, row: Any) -> tuple[int, int]:
    """A turn takes a step for each call that is expected, and one for the reply."""
    if declared.conversations is None:
        return 1, 1
    turns = read_conversation(row).turns
    return len(turns), sum(1 + len(turn.calls or ()) for turn in turns)


def _calls(asked: Asked, turns: int, steps: int) -> Iterator[tuple[str, int]]:
    """A teacher sees every step of the student, or speaks once a turn."""
    if not asked.is_pair:
        yield "", steps
        return
    yield "student", steps
    yield "teacher", steps if asked.entry.get("teaching", "review") == "review" else turns
