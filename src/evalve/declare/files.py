"""Rows from files, by suffix: lazily where the format allows it; errors name the file and the line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from evalve.declare.csv_rows import csv_rows
from evalve.declare.json_rows import array_rows, begins_array
from evalve.errors import DatasetError
from evalve.options import suggestion


def find_file(path: Path, folder: Path | None) -> Path:
    """The file meant by `path`: seen from the current directory, else from `folder`."""
    check_suffix(path)
    candidates = [Path.cwd() / path.expanduser()]
    if folder is not None:
        candidates.append(folder.absolute() / path.expanduser())
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = " and in ".join(dict.fromkeys(str(candidate.parent) for candidate in candidates))
    raise DatasetError(f"there is no file {str(path)!r}; looked in {looked}")


def check_suffix(path: Path) -> None:
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        known = ", ".join(_READERS)
        raise DatasetError(
            f"{str(path)!r} is not a kind of file that can be read; known are {known}"
            f"{suggestion(suffix, _READERS)}"
        )


def read_file(path: Path) -> Any:
    """What the file holds: an iterator over rows, or the list or dict that is written in it."""
    return _READERS[path.suffix.lower()](path)


def beginning(path: Path) -> Any:
    """What tells the columns of a file without reading much of it: a list of its first row, if it has one.

    A dict that is written in a file tells what its rows are only as a whole.
    """
    begin: Callable[[Path], Any] = _BEGINNINGS.get(path.suffix.lower(), _first_line)
    return begin(path)


def _first_line(path: Path) -> list[Any]:
    rows = read_file(path)
    try:
        return list(islice(rows, 1))
    finally:
        rows.close()


def _read_json_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(_decoded(file, path), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.rstrip())
            except json.JSONDecodeError as error:
                raise DatasetError(
                    f"{path}:{number}: not JSON: {error.msg} at column {error.colno} of {line.strip()[:60]!r}"
                ) from error
            yield row


def _read_csv(path: Path, delimiter: str = ",") -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv_rows(_decoded(file, path), path, delimiter=delimiter)


def _read_tsv(path: Path) -> Iterator[dict[str, str]]:
    return _read_csv(path, delimiter="\t")


def _decoded(lines: Iterator[Any], path: Path) -> Iterator[Any]:
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error


def _not_utf8(path: Path, error: UnicodeDecodeError) -> DatasetError:
    """Names the line, which the decoder does not know: it reads by blocks."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as found:
                return DatasetError(f"{path}:{number}: not UTF-8: {found}")
    return DatasetError(f"{path}: not UTF-8: {error}")


def _read_json(path: Path) -> Any:
    """The rows of an array, one at a time; what else is written there is read as a whole."""
    try:
        if begins_array(path):
            return _decoded(array_rows(path), path)
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    return _list_or_dict(content, path)


def _beginning_of_json(path: Path) -> Any:
    """The first of a list's rows, from as much of the file as that takes."""
    content = _read_json(path)
    return content if isinstance(content, dict) else list(islice(content, 1))


def _read_yaml(path: Path) -> Any:
    import yaml  # heavy: only those who read YAML pay for it

    try:
        content = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise DatasetError(f"{path}{line}: not YAML: {getattr(error, 'problem', None) or error}") from error
    return _list_or_dict(content, path)


def _beginning_of_yaml(path: Path) -> Any:
    import yaml

    with path.open("rb") as file, suppress(yaml.YAMLError):  # if it is broken, the whole will tell where
        loader: Any = yaml.SafeLoader(file)
        try:
            while loader.check_event(yaml.StreamStartEvent, yaml.DocumentStartEvent):
                loader.get_event()
            if loader.check_event(yaml.SequenceStartEvent):
                loader.get_event()
                if not loader.check_event(yaml.SequenceEndEvent):
                    return [loader.construct_document(loader.compose_node(None, None))]
        finally:
            loader.dispose()
    return _read_yaml(path)


def _list_or_dict(content: Any, path: Path) -> Any:
    if isinstance(content, list | dict):
        return content
    raise DatasetError(f"{path}: holds {type(content).__name__}, where a list of rows is needed")


def _read_parquet(path: Path) -> Iterator[Any]:
    with _parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=256):
            yield from batch.to_pylist()


def _beginning_of_parquet(path: Path) -> Any:
    """No row is read: the names of the columns stand at the file's end."""
    with _parquet_file(path) as file:
        return [dict.fromkeys(file.schema_arrow.names)]


def _parquet_file(path: Path) -> Any:
    try:
        from pyarrow import ArrowInvalid  # optional
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DatasetError(f'{path}: reading Parquet needs pyarrow: pip install "evalve[parquet]"') from error
    try:
        return ParquetFile(path)
    except ArrowInvalid as error:
        raise DatasetError(f"{path}: not Parquet: {error}") from error


_READERS: dict[str, Callable[[Path], Any]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".parquet": _read_parquet,
}

_BEGINNINGS: dict[str, Callable[[Path], Any]] = {
    ".json": _beginning_of_json,
    ".yaml": _beginning_of_yaml,
    ".yml": _beginning_of_yaml,
    ".parquet": _beginning_of_parquet,
}
