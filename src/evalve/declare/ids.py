"""A sample's id: the row's own, or a hash of its content; and which ids this pass over the rows has seen."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from evalve.errors import DatasetError

_CHUNK = 500
"""Ids per query: below the 999 variables that the oldest SQLite allows."""
_IN_MEMORY = 1000
"""So many rows are remembered without a database, which takes longer to make than a short dataset to read."""


_OF_CONTENT = re.compile(r"([0-9a-f]{16})(?:-([0-9]+))?")
"""The id of a row without one of its own."""


class Unnamed(NamedTuple):
    """The content of a row without an id of its own."""

    row_json: str


class SampleIds:
    """Gives every row of one pass its id.

    What was seen of a long dataset lies in a private temporary file, so that memory stays flat over
    millions of rows.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._count = 0
        self._sum = 0
        self._seen: _Seen = _SeenInMemory()

    def assign(self, rows: Sequence[str | Unnamed]) -> list[str]:
        """The ids of the next rows, each given as the id that it names or as its content."""
        ids: list[str] = []
        for start in range(0, len(rows), _CHUNK):
            ids += self._assign_chunk(rows[start : start + _CHUNK])
        return ids

    def lacking(self, ids: Sequence[str]) -> list[str]:
        """Those of the ids that no row so far has."""
        absent: list[str] = []
        for start in range(0, len(ids), _CHUNK):
            absent += self._lacking_chunk(ids[start : start + _CHUNK])
        return absent

    def fingerprint(self) -> str:
        """The ids so far and their number, whatever their order."""
        return f"{self._sum:016x}-{self._count}"

    def close(self) -> None:
        self._seen.close()

    def _assign_chunk(self, rows: Sequence[str | Unnamed]) -> list[str]:
        if isinstance(self._seen, _SeenInMemory) and self._count + len(rows) > _IN_MEMORY:
            self._seen = self._seen.on_disk()
        ids: list[str] = []
        keys: list[int] = []
        named: dict[str, int] = {}
        for number, row in enumerate(rows, self._count + 1):
            if type(row) is Unnamed:
                digest = hashlib.sha256(row.row_json.encode()).digest()[:8]
                ids.append(digest.hex())
                keys.append(int.from_bytes(digest, "big", signed=True))
            else:
                name = str(row)
                if (first := named.setdefault(name, number)) != number:
                    raise self._duplicate(name, first, number)
                ids.append(name)
                keys.append(_hash_of(name))
        if named:
            self._remember_named(named)
        if len(named) < len(rows):
            unnamed = [place for place, row in enumerate(rows) if type(row) is Unnamed]
            _number_equal_rows(self._seen, ids, keys, unnamed)
        self._count += len(rows)
        self._sum = (self._sum + sum(keys)) % 2**64
        return ids

    def _lacking_chunk(self, ids: Sequence[str]) -> list[str]:
        named = self._seen.named(ids)
        of_content: dict[str, tuple[int, int]] = {}
        for row_id in ids:
            if row_id not in named and (match := _OF_CONTENT.fullmatch(row_id)):
                key = int.from_bytes(bytes.fromhex(match[1]), "big", signed=True)
                of_content[row_id] = key, int(match[2] or 1)
        counts = self._seen.counts([key for key, _ in of_content.values()])
        there = {row_id for row_id, (key, ordinal) in of_content.items() if counts.get(key, 0) >= ordinal}
        return [row_id for row_id in ids if row_id not in named and row_id not in there]

    def _remember_named(self, named: dict[str, int]) -> None:
        clashes = self._seen.named(list(named))
        if clashes:
            name = min(clashes, key=named.__getitem__)
            raise self._duplicate(name, clashes[name], named[name])
        self._seen.add_named(named)

    def _duplicate(self, row_id: str, first: int, second: int) -> DatasetError:
        return DatasetError(
            f"{self._where}: rows {first} and {second} have the id {row_id!r}; "
            "ids must be unique within a dataset"
        )


def content_hash(row_json: str) -> int:
    """64 bits, with a sign, as SQLite stores whole numbers."""
    return int.from_bytes(hashlib.sha256(row_json.encode()).digest()[:8], "big", signed=True)


def _number_equal_rows(seen: _Seen, ids: list[str], keys: list[int], places: list[int]) -> None:
    """Count each content, and append -2, -3 … to the ids of rows that are not the first of theirs."""
    counts = seen.counts([keys[place] for place in places])
    for place in places:
        key = keys[place]
        ordinal = counts[key] = counts.get(key, 0) + 1
        if ordinal > 1:
            ids[place] = f"{ids[place]}-{ordinal}"
            keys[place] = _hash_of(ids[place])
    seen.set_counts(counts)


class _Seen(Protocol):
    """What the rows so far were: the number of each named one, how many there were of each content."""

    def named(self, names: Sequence[str]) -> dict[str, int]: ...
    def add_named(self, numbers: Mapping[str, int]) -> None: ...
    def counts(self, keys: Sequence[int]) -> dict[int, int]: ...
    def set_counts(self, counts: Mapping[int, int]) -> None: ...
    def close(self) -> None: ...


class _SeenInMemory:
    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._counts: dict[int, int] = {}

    def named(self, names: Sequence[str]) -> dict[str, int]:
        return {name: self._numbers[name] for name in names if name in self._numbers}

    def add_named(self, numbers: Mapping[str, int]) -> None:
        self._numbers.update(numbers)

    def counts(self, keys: Sequence[int]) -> dict[int, int]:
        return {key: self._counts[key] for key in keys if key in self._counts}

    def set_counts(self, counts: Mapping[int, int]) -> None:
        self._counts.update(counts)

    def close(self) -> None:
        """There is nothing to let go of."""

    def on_disk(self) -> _SeenOnDisk:
        disk = _SeenOnDisk()
        disk.add_named(self._numbers)
        disk.set_counts(self._counts)
        return disk


class _SeenOnDisk:
    def __init__(self) -> None:
        self._database = _temporary_database()

    def named(self, names: Sequence[str]) -> dict[str, int]:
        return self._select("SELECT id, number FROM named WHERE id", names)

    def add_named(self, numbers: Mapping[str, int]) -> None:
        self._database.executemany("INSERT INTO named VALUES (?, ?)", numbers.items())

    def counts(self, keys: Sequence[int]) -> dict[int, int]:
        return self._select("SELECT key, count FROM unnamed WHERE key", keys)

    def set_counts(self, counts: Mapping[int, int]) -> None:
        self._database.executemany("INSERT OR REPLACE INTO unnamed VALUES (?, ?)", counts.items())

    def close(self) -> None:
        self._database.close()

    def _select(self, query: str, keys: Sequence[Any]) -> dict[Any, int]:
        return dict(self._database.execute(f"{query} IN ({','.join('?' * len(keys))})", keys).fetchall())


def _hash_of(row_id: str) -> int:
    return int.from_bytes(hashlib.sha256(row_id.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _temporary_database() -> sqlite3.Connection:
    """A database in a file without a name, which ends with the connection.

    Nothing is ever rolled back, so there is no journal, and one transaction lasts from here to the end.
    8 MB of cache hold the cost of a random insert near 2.5 µs at a million rows (2 MB: 3.5 µs).
    """
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for pragma in ("temp_store = FILE", "journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
        database.execute(f"PRAGMA {pragma}")
    database.execute("CREATE TABLE named (id TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID")
    database.execute("CREATE TABLE unnamed (key INTEGER PRIMARY KEY, count INTEGER NOT NULL)")
    database.execute("BEGIN")
    return database
