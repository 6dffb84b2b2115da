"""Rows of an export as a Parquet file, a thousand at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any

from evalve.errors import OptionError
from evalve.jsontext import to_json
from evalve.show.figures import text_of

_ROWS_AT_ONCE = 1000


def write_parquet(
    rows: Iterable[dict[str, Any]], keys: Sequence[str], file: IO[bytes], *, numbers: bool
) -> int:
    """A score's value is a number where all are numbers or truth values, otherwise JSON text."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise OptionError(
            "writing Parquet needs pyarrow: `pip install 'evalve[parquet]'`, or export .jsonl"
        ) from None
    schema = _schema(pyarrow, keys, numbers=numbers)
    count = 0
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for some in _in_parts(iter(rows)):
            cells = [{key: _cell(key, row[key], numbers) for key in keys} for row in some]
            writer.write_table(pyarrow.Table.from_pylist(cells, schema=schema))
            count += len(some)
    return count


def _schema(pyarrow: Any, keys: Sequence[str], *, numbers: bool) -> Any:
    text, whole, number = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    score = pyarrow.struct(
        [("name", text), ("value", number if numbers else text), ("metadata", text)],
    )
    failure = pyarrow.struct([("kind", text), ("message", text), ("traceback", text)])
    types = {
        "index": whole,
        "repeat": whole,
        "tries": whole,
        "wall_s": number,
        "working_s": number,
        "scores": pyarrow.list_(score),
        "failure": failure,
    }
    return pyarrow.schema([(key, types.get(key, text)) for key in keys])


def _in_parts(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        yield some


def _cell(key: str, content: Any, numbers: bool) -> Any:
    if key == "scores":
        return [
            {
                "name": _text(score["name"]),
                "value": float(score["value"]) if numbers else to_json(score["value"]),
                "metadata": to_json(score["metadata"]),
            }
            for score in content
        ]
    if key == "failure" and content is not None:
        return {part: _text(text) for part, text in content.items()}
    if key in ("prompt", "response", "row", "calls", "lent", "trace"):
        return None if content is None else _text(text_of(content))
    return _text(content) if isinstance(content, str) else content


def _text(content: str) -> str:
    """Parquet holds UTF-8 only: a lone surrogate is written out."""
    return content.encode("utf-8", "backslashreplace").decode("utf-8")
