"""Iterators can be gone through only once: whether one was begun, and whether it has rows left."""

from __future__ import annotations

import csv
import inspect
import io
from operator import length_hint
from typing import Any


def is_one_shot(source: Any) -> bool:
    """Whether the source is an iterator, which can be gone through only once."""
    return hasattr(type(source), "__next__") or hasattr(type(source), "__anext__")


def is_plain_reader(source: Any) -> bool:
    """Whether reading a row of it costs nothing and calls nobody's code: an open file, a CSV reader."""
    return isinstance(source, _READERS)


_READERS = (io.IOBase, csv.DictReader, type(csv.reader(())))


def is_finished(source: Any) -> bool:
    """Whether the source is a generator that has run to its end."""
    is_generator = inspect.isgenerator(source) or inspect.isasyncgen(source)
    return is_generator and has_rows_left(source) is False


def is_begun(source: Any) -> bool:
    """Whether the source is a generator of which somebody has already taken rows."""
    if inspect.isgenerator(source):
        return inspect.getgeneratorstate(source) == inspect.GEN_SUSPENDED
    return inspect.isasyncgen(source) and getattr(source, "ag_suspended", False)  # not told before 3.12


def has_rows_left(iterator: Any) -> bool | None:
    """Whether an iterator is short of its end; `None` where only reading can tell.

    One that goes over others is at its end when one of them is. What a generator or a filter will
    come to is another question: that they were not used up is enough.
    """
    if inspect.isgenerator(iterator):
        return iterator.gi_frame is not None
    if inspect.isasyncgen(iterator):
        return iterator.ag_frame is not None
    kind = type(iterator)
    if kind in (map, zip, filter, enumerate):
        return _all_have_rows_left([part for part in iterator.__reduce__()[1] if is_one_shot(part)])
    if kind.__module__ == "builtins" and hasattr(kind, "__length_hint__"):  # of a list, a dict, a range …
        return length_hint(iterator) > 0
    return None


def _all_have_rows_left(iterators: list[Any]) -> bool | None:
    left = [has_rows_left(iterator) for iterator in iterators]
    return False if False in left else None if None in left else True
