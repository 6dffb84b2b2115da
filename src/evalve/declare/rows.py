"""One row of any kind: its values for the function, what is stored of it, and the id that it names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from numbers import Number
from typing import Any, NamedTuple

from evalve.errors import DatasetError
from evalve.options import suggestion

_WHOLE = (str, bytes, bytearray, Number, type(None), set, frozenset)
"""Values that are never looked into: `"a".title` is not a title."""


class RowProblem(Exception):
    """Why a row does not fit; reads on from "row 57 …"."""


class Keyed(NamedTuple):
    """A row under its key in a dict; the key is its id."""

    key: Any
    row: Any


class ReadRow(NamedTuple):
    """A row that fits the columns."""

    values: dict[str, Any]
    stored: Any
    """What becomes `row_json`: a mapping."""
    id: str | None


def read_row(row: Any, columns: tuple[str, ...]) -> ReadRow:
    """By name from mappings and attributes, by position from tuples and lists, whole with one column."""
    kind = type(row)
    if kind is tuple or kind is list:
        return _by_position(row, columns)
    if kind is dict:
        return _by_key(row, columns)
    if kind is Keyed:
        return read_row(row.row, columns)._replace(id=id_text(row.key))
    if isinstance(row, _WHOLE):
        return _whole(row, columns)
    if isinstance(row, Mapping) or (hasattr(kind, "keys") and hasattr(kind, "__getitem__")):
        return _by_key(dict(row), columns)
    if isinstance(row, tuple | list) and not _has_all(row, columns):
        return _by_position(row, columns)
    if hasattr(kind, "tolist") and hasattr(kind, "shape") and len(row.shape) == 1 and len(columns) > 1:
        return _by_position(row.tolist(), columns)  # a row of a numpy array
    return _by_attribute(row, columns)


def id_text(value: Any) -> str | None:
    """An id as text; an empty field (`None`, NaN, empty text) is none."""
    if value is None or value == "" or (isinstance(value, float) and value != value):
        return None
    return str(value)


def lacks(column: str, present: list[str]) -> str:
    """How to say that a column is missing; reads on from the name of what lacks it."""
    more = f" and {len(present) - 10} more" if len(present) > 10 else ""
    has = f"it has {_names(present[:10])}{more}" if present else "it is empty"
    return f"lacks the column {column!r}; {has}{suggestion(column, present)}"


def _by_key(row: dict[Any, Any], columns: tuple[str, ...]) -> ReadRow:
    try:
        values = {column: row[column] for column in columns}
    except KeyError as error:
        missing, present = error.args[0], [str(key) for key in row]
        own_id = f"{missing}_id"  # of a column `conversation`, `conversation_id` is no misspelling
        if len(columns) == 1 and row and not suggestion(missing, [one for one in present if one != own_id]):
            row_id = id_text(row.get("id", row.get(own_id)))
            return ReadRow({missing: row}, {missing: row}, row_id)  # the row is the column
        raise RowProblem(lacks(missing, present)) from None
    return ReadRow(values, row, id_text(row.get("id")))


def _by_position(row: Any, columns: tuple[str, ...]) -> ReadRow:
    if len(row) == len(columns):
        values = dict(zip(columns, row, strict=True))
    elif len(columns) == 1:
        values = {columns[0]: row}
    else:
        count = f"{len(row)} value" + ("" if len(row) == 1 else "s")
        raise RowProblem(f"has {count}, where the {len(columns)} columns {_names(columns)} are needed")
    return ReadRow(values, values, id_text(values.get("id")))


def _whole(row: Any, columns: tuple[str, ...]) -> ReadRow:
    if len(columns) != 1:
        raise RowProblem(
            f"is {_a(row)}, which cannot fill the {len(columns)} columns {_names(columns)}; "
            "give tuples or mappings"
        )
    values = {columns[0]: row}
    return ReadRow(values, values, id_text(values.get("id")))


def _by_attribute(row: Any, columns: tuple[str, ...]) -> ReadRow:
    missing = [column for column in columns if not _has(row, column)]
    row_id = id_text(row.id) if _has(row, "id") else None
    if not missing:
        values = {column: getattr(row, column) for column in columns}
        stored = values if row_id is None or "id" in values else {**values, "id": row.id}
        return ReadRow(values, stored, row_id)
    if len(columns) == 1:
        values = {columns[0]: row}
        return ReadRow(values, values, row_id)
    attributes = _attributes(row)
    if not attributes:
        return _whole(row, columns)
    raise RowProblem(lacks(missing[0], attributes))


def _has_all(row: Any, columns: tuple[str, ...]) -> bool:
    return hasattr(type(row), "_fields") and all(_has(row, column) for column in columns)


def _has(row: Any, name: str) -> bool:
    return hasattr(row, name) and not inspect.isroutine(getattr(row, name))


def _attributes(row: Any) -> list[str]:
    slots = getattr(type(row), "__slots__", ())
    names = [
        *getattr(row, "__dict__", ()),
        *getattr(row, "_fields", ()),
        *([slots] if isinstance(slots, str) else slots),
    ]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def _names(names: Any) -> str:
    return ", ".join(repr(name) for name in names)


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


class DictRows:
    """The rows that a dict stands for: columns of equal length, rows under their ids, or pairs."""

    def __init__(self, source: Mapping[Any, Any], columns: tuple[str, ...]) -> None:
        self._source = source
        self._columns = columns
        self._fields: list[Any] = []
        self._pairs = False
        if not source:
            return
        value = next(iter(source.values()))
        if hasattr(value, "column_names"):
            raise DatasetError(f"a dict of the datasets {_names(source)}; choose one of them by its key")
        if all(column in source for column in columns) and not isinstance(source[columns[0]], Mapping):
            self._fields = _fields(source, columns)
        else:
            self._pairs = len(columns) == 2 and _fits_only_a_pair(value, columns)
            _refuse_what_is_around_rows(source, columns, pairs=self._pairs)

    def __len__(self) -> int:
        return len(self._source[self._fields[0]]) if self._fields else len(self._source)

    def __iter__(self) -> Iterator[Any]:
        if self._fields:
            for values in zip(*(self._source[field] for field in self._fields), strict=True):
                yield dict(zip(self._fields, values, strict=True))
        elif self._pairs:
            yield from self._source.items()
        else:
            for key, row in self._source.items():
                yield Keyed(key, row)


def _fields(source: Mapping[Any, Any], columns: tuple[str, ...]) -> list[Any]:
    """The keys that hold one value per row; a note beside them (`"name": "gsm8k"`) is not one."""
    lengths = {key: len(value) for key, value in source.items() if isinstance(value, list | tuple)}
    if not all(column in lengths for column in columns):
        raise DatasetError("the dict looks like a single row; put it into a list, as in [row]")
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key!r}: {length}" for key, length in lengths.items())
        raise DatasetError(f"the dict's columns have different lengths: {found}")
    return list(lengths)


def _refuse_what_is_around_rows(source: Mapping[Any, Any], columns: tuple[str, ...], *, pairs: bool) -> None:
    """Values that are not all rows or all plain, as in `{"version": 1, "data": [row, row]}`."""
    lists = [key for key, value in source.items() if _is_list_of_mappings(value)]
    if len(lists) == 1:
        others = [value for key, value in source.items() if key != lists[0]]
        has_rows = any(column in source[lists[0]][0] for column in columns)
        if has_rows or not all(isinstance(value, list | tuple) for value in others):
            raise DatasetError(
                f"{_ACCEPTED}; {lists[0]!r} holds a list of objects: if these are the rows, "
                "give that list alone"
            )
    for key, value in source.items() if pairs else ():
        if isinstance(value, list | tuple | Mapping):
            raise DatasetError(f"{_ACCEPTED}; the value of {key!r} is {_a(value)}")


_ACCEPTED = (
    "rows are a list, or a mapping whose values are all rows, or columns of equal length, "
    "or with two columns plain values"
)


def _is_list_of_mappings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _fits_only_a_pair(value: Any, columns: tuple[str, ...]) -> bool:
    """Whether the value is half a row, its key being the other half."""
    if isinstance(value, list | tuple | Mapping):
        return False
    try:
        read_row(value, columns)
    except RowProblem:
        return isinstance(value, _WHOLE) or not _attributes(value)
    return False
