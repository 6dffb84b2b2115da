"""What a scripted agent does next, given what has been said and what tools have returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from truth import Row, Unknown, resolved
from truth import read as read_rows

from simulated.dialogue import Event, Turn, turns_of
from simulated.slips import Call, calls_of, expected_calls, reply_of

NO_ID = "I do not have the id that this needs."


@dataclass(frozen=True)
class Place:
    """Where a conversation is: its row, the turns so far; the last of them is under way."""

    row: Row
    turns: Sequence[Turn]

    @property
    def expected(self) -> Mapping[str, Any]:
        turn: Mapping[str, Any] = self.row["turns"][len(self.turns) - 1]
        return turn

    @property
    def results(self) -> dict[int, Any]:
        """What the expected tool of each turn returned, as the dialogue has it."""
        found = {}
        for expected, turn in zip(self.row["turns"], self.turns, strict=False):
            for call in turn.calls:
                if call.name == expected.get("expected_tool"):
                    found[expected["turn_id"]] = call.result
        return found


@dataclass(frozen=True)
class Step:
    """Calls, or where there are none, a reply."""

    calls: Sequence[Call]
    reply: str = ""


def place_of(events: Iterable[Event]) -> Place | None:
    """Which conversation it is, and where: its first utterance is no other one's."""
    told = list(events)
    rows = (_rows().get(value) for kind, value in told if kind == "user")
    row = next(filter(None, rows), None)
    if row is None:
        return None
    return Place(row, turns_of(told, [turn["user_utterance"] for turn in row["turns"]]))


def next_step(place: Place, error: str | None = None) -> Step:
    """What an agent does that makes this error in the turn."""
    made = place.turns[-1].calls
    try:
        calls = resolved(calls_of(place.expected, error), place.results)
    except Unknown:
        return Step((), NO_ID)
    if calls and not made:
        return Step([(name, arguments) for name, arguments in calls])
    return Step((), reply_of(place.expected, error))


def is_right(place: Place, step: Step) -> bool:
    """Whether a careful person would let this pass: nothing wrong is called, and nothing is left out."""
    try:
        right = [
            (name, arguments) for name, arguments in resolved(expected_calls(place.expected), place.results)
        ]
    except Unknown:
        return True  # nothing can be done about it any more
    if step.calls:
        return list(step.calls) == right
    return len(place.turns[-1].calls) >= len(right) and step.reply != reply_of(place.expected, "wrong_reply")


@cache
def _rows() -> dict[str, Row]:
    return {row["turns"][0]["user_utterance"]: row for row in read_rows(Path(__file__).parent.parent)}
