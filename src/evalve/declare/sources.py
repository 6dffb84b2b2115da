"""What can be a source of rows, what it is called, and how it is gone through."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from evalve.declare import files
from evalve.declare.iterators import has_rows_left, is_begun, is_finished, is_one_shot
from evalve.declare.rows import DictRows, RowProblem, lacks, read_row
from evalve.errors import DatasetError

_CHECKED_ROWS = 10_000
"""Rows in memory that are looked at when they are declared: about 10 ms."""


def describe(source: Any) -> str:
    """A short label: `list of 8`, `generator stream_dataset`, `data.jsonl`."""
    if isinstance(source, str | PathLike):
        return Path(source).name or repr(source)
    kind = type(source).__name__
    if inspect.isgenerator(source) or inspect.isasyncgen(source):
        return f"{kind.replace('_', ' ')} {source.__name__}"
    if not is_iterable(source) and callable(source):
        name = getattr(source, "__name__", kind)
        return "lambda" if name == "<lambda>" else f"function {name}"
    size = length(source)
    return kind if size is None else f"{kind} of {size}"


def recognise(source: Any, folder: Path | None) -> Any:
    """The source, a path made absolute; raises `DatasetError` for what holds no rows."""
    if isinstance(source, str) and not Path(source).suffix:
        raise DatasetError(f"{source!r} is text, where an iterable of rows or the path of a file is needed")
    if isinstance(source, str | PathLike):
        return files.find_file(Path(source), folder)
    if is_finished(source):
        raise DatasetError(consumed(source))
    if inspect.isawaitable(source):
        name = getattr(source, "__name__", "the function")
        raise DatasetError(f"{describe(source)} was not awaited; pass the function itself ({name}, uncalled)")
    if isinstance(source, bytes | bytearray) or not (is_iterable(source) or callable(source)):
        raise DatasetError(
            f"{_shown(source)} is not iterable; give a list, a dict, an iterator, "
            "a function that returns one of these, or the path of a file"
        )
    if not is_iterable(source):
        _check_needs_no_arguments(source)
    return source


def check_rows(source: Any, columns: tuple[str, ...]) -> None:
    """Raise `DatasetError` if rows that are at hand do not fit the columns."""
    if (names := _table_columns(source)) is not None:
        for column in columns:
            if column not in names:
                raise DatasetError(f"{describe(source)} {lacks(column, names)}")
    for number, row in enumerate(_rows_at_hand(source, columns), 1):
        check_row(row, columns, f"row {number} of {describe(source)}")


def check_row(row: Any, columns: tuple[str, ...], name: str) -> None:
    """Raise `DatasetError` if the row does not fit the columns."""
    try:
        read_row(row, columns)
    except RowProblem as problem:
        raise DatasetError(f"{name} {problem}") from None
    except Exception as error:  # a property or a mapping of the person's own raised
        raise DatasetError(f"reading {name} raised {type(error).__name__}: {error}") from error


def iterate(source: Any, columns: tuple[str, ...]) -> Iterator[Any]:
    """The rows of anything that is iterable without awaiting."""
    if isinstance(source, Path):
        return iter(_rows_in_file(source, files.read_file(source), columns))
    if isinstance(source, Mapping):
        return iter(DictRows(source, columns))
    kind = type(source)
    if hasattr(kind, "iter_rows"):  # a polars DataFrame
        return iter(source.iter_rows(named=True))
    if hasattr(kind, "itertuples"):  # a pandas DataFrame
        return _records_of_slices(source)
    if hasattr(kind, "to_batches"):  # a pyarrow Table
        return (row for batch in source.to_batches(max_chunksize=256) for row in batch.to_pylist())
    if hasattr(kind, "__iter__"):
        return iter(source)
    return (source[index] for index in range(len(source)))


def _rows_in_file(path: Path, content: Any, columns: tuple[str, ...]) -> Iterable[Any]:
    if not isinstance(content, Mapping):
        return content  # type: ignore[no-any-return]
    try:
        return DictRows(content, columns)
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None


def is_iterable(source: Any) -> bool:
    """Asked of the type: a class that defines `__iter__` is itself a callable, not an iterable."""
    kind = type(source)
    return (
        isinstance(source, Path)
        or hasattr(kind, "__iter__")
        or hasattr(kind, "__aiter__")
        or (hasattr(kind, "__getitem__") and hasattr(kind, "__len__"))
    )


def used_up(source: Any) -> str | None:
    """What to say of an iterator whose rows were already taken by somebody, where that is certain."""
    if is_finished(source):
        return consumed(source)
    if is_begun(source):
        return f"{describe(source)} was already begun, so its first rows are gone; {_remedy(source)}"
    if is_one_shot(source) and has_rows_left(source) is False:
        return without_rows(source)
    return None


def consumed(source: Any) -> str:
    """What to say of an iterator that was gone through before."""
    return f"{describe(source)} was already consumed; {_remedy(source)}"


def without_rows(source: Any) -> str:
    """What to say of an iterator that gave not a single row."""
    return f"{describe(source)} has no rows: it was already consumed, or never had any; {_remedy(source)}"


def _remedy(source: Any) -> str:
    name = getattr(source, "__name__", "")
    if name.isidentifier():
        return f"pass the function itself ({name} instead of {name}()) or a list"
    return "pass a function that makes it or a list"


def length(source: Any) -> int | None:
    """How many rows there are, where the source says so."""
    if isinstance(source, Path) or not hasattr(type(source), "__len__"):
        return None
    try:
        return len(source)
    except (TypeError, NotImplementedError, AttributeError):
        return None  # a class that inherits `__len__` without having one


def _shown(source: Any) -> str:
    text = repr(source)
    return f"{text if len(text) <= 40 else text[:39] + '…'} ({type(source).__name__})"


def _check_needs_no_arguments(function: Any) -> None:
    try:
        inspect.signature(function).bind()
    except ValueError:
        pass  # a builtin that does not tell its signature
    except TypeError as error:
        raise DatasetError(
            f"{describe(function)} must be callable without arguments ({error}); wrap it in a lambda"
        ) from None


def _table_columns(source: Any) -> list[str] | None:
    """The columns of a data frame, a pyarrow Table or a Hugging Face dataset, where it knows them."""
    if hasattr(type(source), "iter_rows") or hasattr(type(source), "itertuples"):
        return [name for name in source.columns if isinstance(name, str)]
    if hasattr(type(source), "column_names"):
        names = source.column_names
        return list(names) if isinstance(names, list) else None
    return None


def _rows_at_hand(source: Any, columns: tuple[str, ...]) -> Iterator[Any]:
    """In memory, or at a file's beginning; nothing that would take time or could not be read again."""
    if isinstance(source, Path):
        try:
            content = files.beginning(source)
        except OSError as error:
            raise DatasetError(f"cannot read {source}: {error}") from error
        return islice(_rows_in_file(source, content, columns), _CHECKED_ROWS)
    if isinstance(source, Mapping):
        return islice(DictRows(source, columns), _CHECKED_ROWS)
    if isinstance(source, list | tuple):
        return iter(source[:_CHECKED_ROWS])
    if isinstance(source, range | set | frozenset | deque | KeysView | ValuesView | ItemsView):
        return islice(source, 1)
    if (shape := _shape_of_array(source)) is not None:
        if not shape:
            raise DatasetError(f"{describe(source)} is a single value, where rows are needed")
        return iter(source[:1])
    return iter([])


def _shape_of_array(source: Any) -> tuple[int, ...] | None:
    """Of numpy and its like, whose rows are all of one kind."""
    kind = type(source)
    return tuple(source.shape) if hasattr(kind, "shape") and hasattr(kind, "dtype") else None


def _records_of_slices(frame: Any) -> Iterator[Any]:
    for start in range(0, len(frame), 256):
        yield from frame.iloc[start : start + 256].to_dict("records")
