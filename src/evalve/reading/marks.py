"""`evalve.reads`: says which evaluation a test reads, and which of its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from evalve.callers import caller
from evalve.declare.foreach import MARK, as_called
from evalve.errors import DeclarationError

MARKER = "evalve_reads"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one test reads."""

    evaluation: Callable[..., Any]
    sample: str | None
    repeat: int
    scores: tuple[str, ...] = ()
    """What a record must have to be read: one without is run again."""


def reads(
    evaluation: Callable[..., Any], sample: object = None, *, repeat: int = 0, scores: Iterable[str] = ()
) -> pytest.MarkDecorator:
    """For a test, a class of tests or `pytest.param(…, marks=)`: it reads what this evaluation recorded.

    The fixture `record` is then the record of the sample with this id, `records` those of all samples.
    `scores` are names of scores that not every run gives, because only some tests want them: where the record
    of an earlier run lacks one, its sample is run again.
    """
    name = getattr(evaluation, "__name__", repr(evaluation))
    if getattr(evaluation, MARK, None) is None:
        raise DeclarationError(
            f"{caller()}: reads({name}): that is not an evaluation; decorate it with"
            " @foreach(columns, dataset)"
        )
    if as_called(evaluation).is_method:
        raise DeclarationError(
            f"{caller()}: reads({name}): tests read evaluations that are functions, and this is a method"
        )
    names = (scores,) if isinstance(scores, str) else tuple(scores)
    reading = Reading(evaluation, None if sample is None else str(sample), repeat, names)
    # by name: a mark that is called with one function alone decorates it
    return getattr(pytest.mark, MARKER)(reading=reading)  # type: ignore[no-any-return]


def reading_of(item: pytest.Item) -> Reading | None:
    """What the mark nearest to the test says."""
    mark = item.get_closest_marker(MARKER)
    reading = mark.kwargs.get("reading") if mark is not None else None
    return reading if isinstance(reading, Reading) else None
