"""Rows of any kind as samples, pulled lazily; what is wrong with a dataset is said where it is declared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from evalve.contracts import Rows
from evalve.declare.ids import SampleIds, Unnamed, content_hash
from evalve.declare.iterators import has_rows_left, is_one_shot, is_plain_reader
from evalve.declare.pulling import (
    Kept,
    Pull,
    PullDirectly,
    PullFromCall,
    PullKept,
    PullOnLoop,
    PullOnThread,
)
from evalve.declare.rows import DictRows, RowProblem, lacks, read_row
from evalve.declare.sources import (
    check_row,
    check_rows,
    consumed,
    describe,
    is_iterable,
    iterate,
    length,
    recognise,
    used_up,
    without_rows,
)
from evalve.declare.worker import SourceBroke, Worker
from evalve.errors import DatasetError, DeclarationError
from evalve.jsontext import to_json
from evalve.records import Sample


class Dataset:
    """What an evaluation goes over: a source of rows, and the columns that each must have.

    `where` is the file and line of the declaration; `folder` is where relative paths are also looked for.
    """

    def __init__(
        self,
        source: Any,
        columns: tuple[str, ...],
        where: str,
        folder: Path | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.columns = columns
        self.where = where
        self.label = describe(source)
        self._folder = folder
        self._now_s = now_s
        self._kept: Kept | None = None
        self._keeps_rows = False
        self._is_opened = False
        self._peeked: list[Any] = []
        try:
            self._source = recognise(source, folder)
            if (problem := used_up(source)) is not None:
                raise DatasetError(problem)
            check_rows(self._source, columns)
        except DatasetError as error:
            raise DeclarationError(f"{where}: {error}") from error.__cause__

    @property
    def is_one_shot(self) -> bool:
        """Whether the source is an iterator, which can be gone through only once."""
        return is_one_shot(self._source)

    def peek(self) -> None:
        """Raise `DeclarationError` if an open file or a CSV reader is at its end, or its first row misfits.

        That row is not lost. Of other iterators none is read: that may call a model, or never end.
        """
        source = self._source
        if self._peeked or self._is_opened or not is_plain_reader(source):
            return
        try:
            self._peeked = [self._first_of(source)]
            check_row(self._peeked[0], self.columns, f"row 1 of {self.label}")
        except DatasetError as error:
            raise DeclarationError(f"{self.where}: {error}") from error.__cause__

    def _first_of(self, iterator: Iterator[Any]) -> Any:
        try:
            return next(iterator)
        except StopIteration:
            raise DatasetError(without_rows(iterator)) from None
        except Exception as error:  # the person's own code raised
            what = f"{type(error).__name__}: {error}"
            raise DatasetError(f"reading row 1 of {self.label} raised {what}") from error

    def keep_rows(self) -> None:
        """Keep what is pulled from a one-shot source, so that it can be opened again."""
        self._keeps_rows = True

    def count(self) -> int | None:
        """How many rows there are; `None` where telling would call a function or use up an iterator."""
        if isinstance(self._source, Mapping):
            return len(DictRows(self._source, self.columns))
        if isinstance(self._source, Path):
            return sum(1 for _ in iterate(self._source, self.columns))
        return length(self._source)

    def known_size(self) -> int | None:
        """How many rows there are, where that takes no reading."""
        return None if isinstance(self._source, Path) else self.count()

    def open(self, limit: int | None) -> Rows:
        """A pass over the first `limit` rows."""
        source = self._source
        if_none = None
        if self.is_one_shot and has_rows_left(source) is None and not self._peeked:
            if_none = without_rows(source)
        return SampleRows(self, self._open_pull(), limit, if_none=if_none)

    def _open_pull(self) -> Pull:
        if not self.is_one_shot:
            return self._pull(self._source)
        if self._kept is None:
            problem = consumed(self._source) if self._is_opened else used_up(self._source)
            if problem is not None:
                raise DatasetError(f"{self.where}: {problem}")
            self._is_opened = True
            pull = self._pull(chain(self._peeked, self._source) if self._peeked else self._source)
            if not self._keeps_rows:
                return pull
            self._kept = Kept(pull)
        return PullKept(self._kept)

    def _pull(self, source: Any) -> Pull:
        if isinstance(source, list | tuple | range):
            return PullDirectly(source, len(source))
        if isinstance(source, Mapping):
            return PullDirectly(rows := DictRows(source, self.columns), len(rows))
        worker = Worker(f"evalve {self.label}")
        if is_iterable(source):
            return self._pull_with(worker, source)
        return PullFromCall(worker, source, lambda result: self._pull_returned(worker, result))

    def _pull_returned(self, worker: Worker, result: Any) -> Pull:
        try:
            source = recognise(result, self._folder)
        except DatasetError as error:
            raise DatasetError(f"{self.label} returned no rows: {error}") from error.__cause__
        if not is_iterable(source):
            raise DatasetError(f"{self.label} returned {describe(source)}, which holds no rows")
        if isinstance(source, Mapping):
            source = DictRows(source, self.columns)
        return self._pull_with(worker, source)

    def _pull_with(self, worker: Worker, source: Any) -> Pull:
        if hasattr(type(source), "__aiter__"):
            return PullOnLoop(source, now_s=self._now_s)
        return PullOnThread(
            worker, lambda: iterate(source, self.columns), now_s=self._now_s, size=length(source)
        )


class SampleRows:
    """One pass over a dataset; `if_none` says what is wrong if there is no row at all."""

    def __init__(
        self, dataset: Dataset, pull: Pull, limit: int | None, *, if_none: str | None = None
    ) -> None:
        self._dataset = dataset
        self._pull = pull
        self._limit = limit
        self._if_none = if_none
        self._ids = SampleIds(dataset.where)
        self._count = 0
        self._first_has_column = False
        self._has_ended = False
        self._is_closed = False
        self._broken_row: DatasetError | None = None
        """A row that cannot be used, after others that can: these go first."""

    def size(self) -> int | None:
        """How many samples there will be; `None` where only reading can tell."""
        if self._limit == 0:
            return 0
        size = self._pull.size
        return size if size is None or self._limit is None else min(size, self._limit)

    def counted(self) -> int | None:
        """The same where a file may be read for it; `None` where that would use something up."""
        count = self.size()
        if count is None and not self._dataset.is_one_shot:
            count = self._dataset.count()
        return count if count is None or self._limit is None else min(count, self._limit)

    async def next(self, at_most: int) -> list[Sample]:
        """Between one and `at_most` samples; none at the end."""
        if self._limit is not None:
            at_most = min(at_most, self._limit - self._count)
        if at_most <= 0 or self._is_closed:
            return []
        if self._broken_row is not None:
            raise self._broken_row
        try:
            rows = await self._pull.take(at_most)
        except SourceBroke as broke:
            raise self._broke(broke.cause, self._count + 1) from broke.cause
        self._has_ended = not rows and not self._is_closed
        return [] if self._is_closed else self._samples(rows)

    def is_whole(self) -> bool:
        """Whether the source has been read to its own end, not only to the limit."""
        return self._has_ended or self._count == self._pull.size

    def lacking(self, ids: Sequence[str]) -> list[str]:
        return self._ids.lacking(ids)

    async def close(self) -> None:
        self._is_closed = True
        self._ids.close()
        await self._pull.close()

    def fingerprint(self) -> str:
        return self._ids.fingerprint()

    def _samples(self, rows: list[Any]) -> list[Sample]:
        if not rows and not self._count and self._if_none is not None:
            raise DatasetError(f"{self._dataset.where}: {self._if_none}")
        columns = self._dataset.columns
        samples: list[Sample] = []
        named: list[str | Unnamed] = []
        for index, row in enumerate(rows, self._count):
            try:
                values, stored, row_id = read_row(row, columns)
                if len(columns) == 1 and type(row) is dict:
                    self._refuse_change_of_meaning(row, columns[0], is_first=index == 0)
            except RowProblem as problem:
                self._broken_row = DatasetError(f"{self._dataset.where}: {self._row(index + 1)} {problem}")
                break
            except Exception as error:  # a property or a mapping of the person's own raised
                self._broken_row = self._broke(error, index + 1)
                self._broken_row.__cause__ = error
                break
            row_json = to_json(stored)
            if row_id is None:
                samples.append(Sample("", index, values, row_json))
                named.append(Unnamed(row_json))
            else:
                samples.append(Sample("", index, values, row_json, content_hash(row_json)))
                named.append(row_id)
        if self._broken_row is not None and not samples:
            raise self._broken_row
        for sample, sample_id in zip(samples, self._ids.assign(named), strict=True):
            sample.id = sample_id
        self._count += len(samples)
        return samples

    def _refuse_change_of_meaning(self, row: dict[Any, Any], column: str, *, is_first: bool) -> None:
        """Where the first row has the one column, a later one that lacks it is not meant as a whole."""
        if is_first:
            self._first_has_column = column in row
        elif self._first_has_column and column not in row:
            raise RowProblem(lacks(column, [str(key) for key in row]))

    def _broke(self, cause: BaseException, number: int) -> DatasetError:
        where = self._dataset.where
        if isinstance(cause, DatasetError):
            return DatasetError(f"{where}: {cause}")
        return DatasetError(f"{where}: reading {self._row(number)} raised {type(cause).__name__}: {cause}")

    def _row(self, number: int) -> str:
        return f"row {number} of {self._dataset.label}"
