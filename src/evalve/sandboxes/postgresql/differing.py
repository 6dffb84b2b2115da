"""Two states of a database side by side, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_MOST_SHOWN = 20
"""Of the rows of one table."""


class Words(str):
    """A text that is shown as it is."""

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


def differing(expected: Mapping[str, Any], found: Mapping[str, Sequence[Row]], *, is_whole: bool) -> str:
    """A line for each difference. `is_whole`: what is not expected is a difference too."""
    lines: list[str] = []
    for table in sorted(expected.keys() | (found.keys() if is_whole else set())):
        name = table.removeprefix("public.")
        if name not in found:
            lines.append(f"{name}: the table is not there")
        elif table not in expected:
            lines.append(f"{name}: the table should not be there")
        else:
            lines += _of_table(name, [_row(one) for one in expected[table]], list(found[name]), is_whole)
    return "\n".join(lines)


def _of_table(table: str, expected: list[Row], found: list[Row], is_whole: bool) -> list[str]:
    left, missing = list(found), []
    for row in expected:
        same = next((one for one in left if not _unequal(row, one, is_whole)), None)
        if same is None:
            missing.append(row)
        else:
            left.remove(same)
    lines = []
    for row in list(missing):
        near = min(left, key=lambda one: len(_unequal(row, one, is_whole)), default=None)
        if near is None or len(unequal := _unequal(row, near, is_whole)) > len(row.compared) / 2:
            continue
        missing.remove(row)
        left.remove(near)
        said = ", ".join(
            f"{column} is {_text(near.shown.get(column))} instead of {_text(row.shown.get(column))}"
            for column in unequal
        )
        lines.append(f"{table}: {_name(near, unequal)}: {said}")
    lines += [f"{table}: missing: {_told(row)}" for row in missing]
    lines += [f"{table}: too many: {_told(row)}" for row in left]
    if len(lines) > _MOST_SHOWN:
        lines = [*lines[:_MOST_SHOWN], f"{table}: … and {len(lines) - _MOST_SHOWN} more"]
    return lines


def _unequal(expected: Row, found: Row, is_whole: bool) -> list[str]:
    """Columns in which they differ; by a person, an id is given as it is or not at all."""
    if is_whole:
        columns = sorted(expected.compared.keys() | found.compared.keys())
        return [one for one in columns if not _are_equal(expected.compared.get(one), found.compared.get(one))]
    return [one for one, value in expected.compared.items() if not _are_equal(value, found.raw.get(one))]


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


def _row(row: Any) -> Row:
    return row if isinstance(row, Row) else Row(dict(row), dict(row), dict(row), dict(row))


def _name(row: Row, unequal: Sequence[str]) -> str:
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
