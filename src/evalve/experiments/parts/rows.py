"""The rows of a `datasets:` entry: from a file or from Hugging Face, streamed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from evalve.contracts import Rows
from evalve.declare.files import find_file, read_file
from evalve.errors import DatasetError, OptionError
from evalve.experiments.file.document import Document
from evalve.experiments.file.resolving import Entry, entry_of
from evalve.records import Sample

_BLOCK_BYTES = 1 << 20
_SAVED = ("dataset_dict.json", "state.json")
"""What a folder has that Hugging Face's `save_to_disk` wrote."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from. Opened as often as it is needed."""

    name: str
    label: str
    where: str
    open: Callable[[], Iterator[dict[str, Any]]]
    count: Callable[[int | None], int | None]
    """How many rows there are, at most so many; `None` where only the source itself knows.

    It may read the whole file, and does so once."""
    path: Path | None = None

    def first(self) -> dict[str, Any] | None:
        rows = self.open()
        try:
            return next(rows, None)
        finally:
            _close(rows)


def source_of(entry: Entry) -> Source:
    """What the entry names; `OptionError` where it names nothing, or what is not there."""
    path, hub = entry.get("path"), entry.get("huggingface")
    if (path is None) == (hub is None):
        raise OptionError(
            f"{entry.place}: datasets.{entry.name} needs `path:` of a file, or `huggingface:` with a name"
        )
    named = entry.get("id")
    if hub is not None:
        return _from_hub(entry, str(hub), named)
    for key in ("config", "split", "revision", "data_files"):
        if key in entry.values:
            raise OptionError(
                f"{entry.where(key)}: datasets.{entry.name}: {key} belongs to `huggingface:`, not to a file"
            )
    folder = entry.folder("path")
    try:
        file = find_file(folder / Path(str(path)).expanduser(), folder)
    except DatasetError as error:
        raise OptionError(f"{entry.where('path')}: datasets.{entry.name}: {error}") from None
    return Source(
        name=entry.name,
        label=file.name,
        where=str(entry.place),
        open=lambda: _mappings(_rows_of(file), file.name, named),
        count=functools.cache(functools.partial(_counted, file)),
        path=file,
    )


def is_file_name(name: str) -> bool:
    """Whether `--datasets` names a file and not an entry."""
    return bool(Path(name).suffix) or len(Path(name).parts) > 1


def file_entry(document: Document, experiment: Entry, name: str) -> Entry:
    """A file in place of the experiment's dataset: that of an entry, if it is one's, else another one.

    Where the experiment has one dataset, what that says of ids holds for the file too.
    """
    meant = (experiment.folder("datasets") / Path(name).expanduser()).resolve()
    entries = [entry_of(document, "datasets", key) for key in document.section("datasets")]
    for entry in entries:
        if "path" in entry.values:
            path = entry.folder("path") / Path(str(entry.get("path"))).expanduser()
            if path.resolve() == meant:
                return entry
    place = experiment.where("datasets")
    own = entry_of(document, "experiments", _key_of(document, experiment.name)).names("datasets")
    ids = {entry.get("id") for entry in entries if entry.name in own}
    id_column = ids.pop() if len(ids) == 1 else None
    label = meant.stem if all(entry.name != meant.stem for entry in entries) else meant.name
    values = {"path": name} | ({} if id_column is None else {"id": id_column})
    return Entry("datasets", label, place, values, {"path": place})


def _key_of(document: Document, name: str) -> Any:
    return next(key for key in document.section("experiments") if str(key) == name)


def _rows_of(file: Path) -> Iterable[Any]:
    content = read_file(file)
    if not isinstance(content, Mapping):
        return content  # type: ignore[no-any-return]
    if all(isinstance(row, Mapping) for row in content.values()):
        return ({"id": key, **row} for key, row in content.items())
    raise DatasetError(f"{file}: holds a mapping, where a list of rows is needed")


def _from_hub(entry: Entry, name: str, named: str | None) -> Source:
    folder = entry.folder("huggingface") / Path(name).expanduser()

    def load() -> Any:
        try:
            import datasets
        except ImportError as error:
            raise DatasetError(
                f"{name}: Hugging Face's datasets are not installed: pip install datasets"
            ) from error
        try:
            return _loaded(datasets, entry, folder if folder.is_dir() else name)
        except Exception as error:  # a foreign library: no network, no such name, no such split
            raise DatasetError(
                f"{name}: Hugging Face's datasets cannot load it: {type(error).__name__}: {error}"
            ) from error

    return Source(
        name=entry.name,
        label=name,
        where=str(entry.place),
        open=lambda: _mappings(load(), name, named),
        count=lambda at_most: at_most,
    )


def _loaded(datasets: Any, entry: Entry, of: Path | str) -> Any:
    """The rows of a split: streamed from the hub or a folder of files, or as `save_to_disk` wrote them."""
    split = entry.get("split", "test")
    if isinstance(of, Path) and any((of / name).is_file() for name in _SAVED):
        saved = datasets.load_from_disk(str(of))
        if isinstance(saved, dict) and split not in saved:
            raise LookupError(f"there is no split {split!r} (there is: {', '.join(saved)})")
        return saved[split] if isinstance(saved, dict) else saved
    chosen = {key: entry.get(key) for key in ("revision", "data_files") if key in entry.values}
    return datasets.load_dataset(str(of), entry.get("config"), split=split, streaming=True, **chosen)


def _mappings(rows: Iterable[Any], label: str, named: str | None) -> Iterator[dict[str, Any]]:
    """Every row as a mapping that names its own id, where it has one."""
    try:
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise DatasetError(
                    f"row {number} of {label} is a {type(row).__name__}, where a mapping of columns is needed"
                )
            if named is not None:
                if named not in row:
                    raise DatasetError(
                        f"row {number} of {label} lacks the column {named!r}, which names rows"
                    )
                yield {**row, "id": row[named]}
            else:
                yield row if isinstance(row, dict) else dict(row)
    finally:
        _close(rows)


def _close(rows: Any) -> None:
    close = getattr(rows, "close", None)
    if callable(close):
        close()


def _counted(file: Path, at_most: int | None) -> int | None:
    """How many rows a file has; nothing is kept of what is read for it."""
    kind = file.suffix.lower()
    try:
        if kind in (".jsonl", ".ndjson"):
            return sum(1 for _ in islice(_filled_lines(file), at_most))
        if kind == ".parquet":
            from pyarrow.parquet import ParquetFile

            rows = int(ParquetFile(file).metadata.num_rows)
            return rows if at_most is None else min(rows, at_most)
        found = _rows_of(file)
        try:
            return sum(1 for _ in islice(found, at_most))
        finally:
            _close(found)
    except Exception:  # what is wrong with the file is told by whoever reads it for its rows
        return None


def _filled_lines(file: Path) -> Iterator[bytes]:
    with file.open("rb", buffering=_BLOCK_BYTES) as lines:
        yield from (line for line in lines if line.strip())


class SizedRows:
    """Rows of which is known beforehand how many there are, so that progress can say so."""

    def __init__(self, rows: Rows, size: int | None, *, is_all: bool = False) -> None:
        """`is_all`: so many are all that there are, not only as many as were asked for."""
        self._rows = rows
        self._size = size
        self._is_all = is_all
        self._read = 0
        self.close = rows.close
        self.fingerprint = rows.fingerprint
        self.lacking = rows.lacking

    def size(self) -> int | None:
        return self._size

    async def next(self, at_most: int) -> list[Sample]:
        samples = await self._rows.next(at_most)
        self._read += len(samples)
        return samples

    def is_whole(self) -> bool:
        return self._rows.is_whole() or (self._is_all and self._read == self._size)
