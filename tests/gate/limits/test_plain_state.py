"""What is stored of a scope's state is all of it: another process goes on from there."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

import pytest

from evalve.gate.limits.booking import ScopeState
from evalve.gate.limits.bucket import Bucket, Burst, Trial
from evalve.gate.limits.doubt import Doubt
from evalve.gate.limits.history import History
from evalve.gate.limits.learnt_rate import LearntRate
from evalve.gate.limits.pace import Pace
from evalve.gate.limits.period import Period
from evalve.gate.limits.plain_state import from_plain, to_plain
from evalve.gate.limits.stated_window import StatedWindow, ToldEnd
from evalve.gate.limits.window import Window

Kind = TypeVar("Kind")
HISTORY = History([[1.0, 2.0]], 0.5, 0.25)


def filled(kind: type[Kind], **given: Any) -> Kind:
    """With a value of its own in every field that is not given."""
    values = dict(given)
    for number, each in enumerate(fields(kind)):  # type: ignore[arg-type]
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if each.name in given:
            continue
        if isinstance(default, History):
            values[each.name] = HISTORY
        elif isinstance(default, bool):
            values[each.name] = not default
        elif isinstance(default, str):
            values[each.name] = "other"
        elif isinstance(default, list):
            values[each.name] = [[1.0, 2.0]] if each.name in ("taken", "later") else [1.0, 2.0]
        elif isinstance(default, dict):
            values[each.name] = {"a": HISTORY}
        elif each.name == "end":
            values[each.name] = filled(ToldEnd)
        elif is_dataclass(default):
            values[each.name] = filled(type(default))
        else:
            values[each.name] = 100 + number
    return kind(**values)


@pytest.mark.parametrize(
    "state",
    [
        ScopeState(buckets={"requests": filled(Bucket, window=filled(Window), stated_window=None)}),
        ScopeState(buckets={"requests": filled(Bucket, window=None, stated_window=filled(StatedWindow))}),
        ScopeState(learnt=filled(LearntRate)),
        ScopeState(doubt=filled(Doubt)),
        ScopeState(periods={"requests": filled(Period)}),
        ScopeState(pace=filled(Pace)),
    ],
    ids=["window", "stated window", "learnt", "doubt", "period", "pace"],
)
def test_a_stored_state_has_every_field(state: ScopeState) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(state)))) == state


def test_every_part_of_a_bucket_is_tried() -> None:
    bucket = filled(Bucket)
    assert bucket.burst == filled(Burst)
    assert bucket.trial == filled(Trial)
