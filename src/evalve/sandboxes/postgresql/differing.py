"""Two states of a database side by side, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOST_SHOWN = 20
"""Of the rows of one table."""


class Words(str):
    """A text that is shown as it is."""

    __slots__ = ()


class Label(str):
    """What another row says, in its place."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One row, in the ways in which it is looked at."""

    values: Mapping[str, Any]
    """With names for ids."""
    raw: Mapping[str, Any]
    compared: Mapping[str, Any]
    """Without its own id, and with what the rows say that it refers to: comparable with another state."""
    shown: Mapping[str, Any]
    label: str = ""
    """What stands for it in rows that refer to it."""


def differing(expected: Mapping[str, Any], found: Mapping[str, Sequence[Row]], *, is_whole: bool) -> str:
    """A line for each difference. `is_whole`: what is not expected is a difference too."""
    same: set[tuple[str, str]] = set()
    while True:
        known = len(same)
        lines: list[str] = []
        for table in sorted(expected.keys() | (found.keys() if is_whole else set())):
            name = table.removeprefix("public.")
            if name not in found:
                lines.append(f"{name}: the table is not there")
            elif table not in expected:
                lines.append(f"{name}: the table should not be there")
            else:
                compared = _Table(
                    name, [_row(one) for one in expected[table]], list(found[name]), same, is_whole
                )
                lines += compared.lines()
        if len(same) == known:  # else a row that has changed is now known where others refer to it
            return "\n".join(lines)


class _Table:
    """The rows of one table, expected and found, put side by side."""

    def __init__(
        self, name: str, expected: list[Row], found: list[Row], same: set[tuple[str, str]], is_whole: bool
    ) -> None:
        self._name = name
        self._expected = expected
        self._found = found
        self._same = same
        self._is_whole = is_whole

    def lines(self) -> list[str]:
        expected, left = self._without_equal_ones()
        missing, left = self._without_matching_ones(expected, left)
        changed = []
        for row in list(missing):
            near = min(left, key=lambda one: len(self._unequal(row, one)), default=None)
            if near is None or len(self._unequal(row, near)) > len(row.compared) / 2:
                continue
            missing.remove(row)
            left.remove(near)
            changed.append(self._changed(row, near))
            if row.label and near.label:
                self._same.add((row.label, near.label))
        lines = sorted(changed)
        lines += sorted(f"{self._name}: missing: {_told(row)}" for row in missing)
        lines += sorted(f"{self._name}: too many: {_told(row)}" for row in left)
        if len(lines) > _MOST_SHOWN:
            lines = [*lines[:_MOST_SHOWN], f"{self._name}: … and {len(lines) - _MOST_SHOWN} more"]
        return lines

    def _without_equal_ones(self) -> tuple[list[Row], list[Row]]:
        """Most rows of a large table are the same in both: found at once, not by trying each with each."""
        if not self._is_whole:
            return self._expected, list(self._found)
        known: dict[str, list[int]] = {}
        for number, row in enumerate(self._found):
            known.setdefault(_key(row), []).append(number)
        others = []
        for row in self._expected:
            if numbers := known.get(_key(row)):
                numbers.pop()
            else:
                others.append(row)
        return others, [self._found[number] for numbers in known.values() for number in numbers]

    def _without_matching_ones(self, expected: list[Row], found: list[Row]) -> tuple[list[Row], list[Row]]:
        """As many pairs as there can be: a row of which little is expected must not take another one's."""
        taken: dict[int, int] = {}

        def place(number: int, seen: set[int]) -> bool:
            for at, row in enumerate(found):
                if at not in seen and not self._unequal(expected[number], row):
                    seen.add(at)
                    if at not in taken or place(taken[at], seen):
                        taken[at] = number
                        return True
            return False

        missing = [row for number, row in enumerate(expected) if not place(number, set())]
        return missing, [row for at, row in enumerate(found) if at not in taken]

    def _changed(self, expected: Row, found: Row) -> str:
        unequal = self._unequal(expected, found)
        said = ", ".join(
            f"{column} is {_text(found.shown.get(column))} instead of {_text(expected.shown.get(column))}"
            for column in unequal
        )
        return f"{self._name}: {_named(found, unequal)}: {said}"

    def _unequal(self, expected: Row, found: Row) -> list[str]:
        """Columns in which they differ; by a person, an id is given as it is or not at all."""
        if not self._is_whole:
            return [
                one for one, value in expected.compared.items() if not _is_meant(value, found.raw.get(one))
            ]
        columns = sorted(expected.compared.keys() | found.compared.keys())
        return [
            one for one in columns if not self._are_same(expected.compared.get(one), found.compared.get(one))
        ]

    def _are_same(self, expected: Any, found: Any) -> bool:
        return _are_equal(expected, found) or (
            isinstance(expected, Label) and isinstance(found, Label) and (expected, found) in self._same
        )


def _is_meant(said: Any, found: Any) -> bool:
    """Whether a person means this value, who may write times and numbers in other ways than the server."""
    if _are_equal(said, found):
        return True
    if isinstance(said, list) and isinstance(found, list):
        return len(said) == len(found) and all(map(_is_meant, said, found))
    if isinstance(said, str) and isinstance(found, int | float | Decimal) and not isinstance(found, bool):
        with suppress(ArithmeticError):
            return Decimal(said) == Decimal(str(found))
    one, other = _time(said), _time(found)
    if one is None or other is None:
        return False
    if (one.tzinfo is None) != (other.tzinfo is None):  # without a zone, the server's is meant
        one, other = one.replace(tzinfo=None), other.replace(tzinfo=None)
    return one == other


def _time(value: Any) -> datetime | None:
    text = value.isoformat() if isinstance(value, date) else value
    if not isinstance(text, str) or not _DATE.match(text):
        return None
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return None


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
        return Decimal(str(one)) == Decimal(str(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return bool(one == other) or (one is not None and other is not None and str(one) == str(other))


def _key(row: Row) -> str:
    return repr(sorted(row.compared.items()))


def _row(row: Any) -> Row:
    return row if isinstance(row, Row) else Row(dict(row), dict(row), dict(row), dict(row))


def _named(row: Row, unequal: Sequence[str]) -> str:
    """The first thing that it says, of what is as expected."""
    said = (
        (column, value) for column, value in row.shown.items() if column not in unequal and value is not None
    )
    return next((f"{column} {_text(value)}" for column, value in said), "a row")


def _told(row: Row) -> str:
    return ", ".join(f"{column} {_text(value)}" for column, value in row.shown.items() if value is not None)


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, Words):
        return value
    return "nothing" if value is None else repr(value)
