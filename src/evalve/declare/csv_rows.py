"""Rows of a CSV file: any length of field, and errors that name the line on which a row begins."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalve.errors import DatasetError


def csv_rows(lines: Iterator[str], path: Path, *, delimiter: str) -> Iterator[dict[str, str]]:
    """By the columns that the first row names; a short row lacks its last columns."""
    columns: list[str] | None = None
    for number, fields in _numbered(csv.reader(lines, delimiter=delimiter), path):
        if columns is None:
            columns = fields
            continue
        if len(fields) > len(columns):
            raise DatasetError(
                f"{path}:{number}: more fields than the header's {len(columns)}; "
                "a field that contains the delimiter needs quotes"
            )
        yield dict(zip(columns, fields, strict=False))


def _numbered(reader: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the line on which it begins."""
    while True:
        number = reader.line_num + 1
        try:
            with _limit_lifted():
                fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DatasetError(f"{path}:{number}: {error}") from error
        if fields:
            yield number, fields


class _LimitLifted:
    """Lifts the limit on a field's length, which is one for the whole process, while a row is read.

    Rows of several files may be read at once, on several threads: the last one restores the limit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._restored = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._readers += 1
            if self._readers == 1:
                self._restored = csv.field_size_limit(_ANY_LENGTH)
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    csv.field_size_limit(self._restored)


_ANY_LENGTH = 2**31 - 1  # what fits into a C long everywhere
_limit_lifted = _LimitLifted()
