"""Kept answers in one SQLite file, for many threads, loops and processes at once.

Reads are direct, on the caller's thread; writes are grouped on one thread. An entry that `put` has
acknowledged survives the death of the process at any instant.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from evalve.clock import LOOP_CLOCK, Clock
from evalve.gate.cache import upkeep
from evalve.gate.cache.entries import COLUMNS, CorruptEntry, Entry, Row, entry_of, row_of
from evalve.gate.cache.file import CacheFile
from evalve.gate.cache.leftovers import Leftovers
from evalve.gate.cache.unwritten import Unwritten
from evalve.gate.cache.upkeep import CacheStats, Cleared, Verified
from evalve.gate.cache.writer import InlineWriter, ThreadWriter, Writer, committed

_LOG = logging.getLogger(__name__)
_DEFAULT_CAP_BYTES = 2 * 2**30
_USE_GRAIN_S = 3600  # the last use is known to the hour: a hit that writes would cost five times as much
_USES_AT_MOST = 256
_CHECK_AFTER_SHARE = 32  # of the cap, written by this process since it last looked at the size
_ROOM_SHARE = 0.05  # how much of the cap is freed beyond the need
_EVICTED_AT_ONCE = 64
_LEASES_SWEPT_AFTER_S = 7 * 86_400.0  # of the dead; no step of the date makes the living as old

_SELECT = f"SELECT {COLUMNS} FROM entries WHERE key = ?"
_INSERT = f"INSERT OR REPLACE INTO entries ({COLUMNS}) VALUES ({', '.join('?' * (COLUMNS.count(',') + 1))})"
_LAST_USED_AT = COLUMNS.split(", ").index("last_used_at")
_CHECKSUM = COLUMNS.split(", ").index("checksum")


class CacheStore:
    """The cache of one directory; the file appears with the first write."""

    def __init__(
        self,
        directory: Path,
        *,
        cap_bytes: int | None = _DEFAULT_CAP_BYTES,
        inline: bool = False,
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        self.file = CacheFile(directory, clock=clock)
        self.writer: Writer = InlineWriter(self.file) if inline else ThreadWriter(self.file)
        self._cap_bytes = cap_bytes
        self._clock = clock
        self._unchecked_bytes = cap_bytes or 0  # so the first put of every process looks at the size
        self._using = threading.Lock()
        self._used: dict[bytes, None] = {}
        self._unwritten = Unwritten()
        self._leftovers = Leftovers(self.path)
        self._has_looked = False
        """For what earlier processes could not write."""
        self._is_closed = False
        self._hits = 0

    @property
    def path(self) -> Path:
        return self.file.path

    def get(self, key: str, *, only_look: bool = False) -> Entry | None:
        """The entry, or `None`. A damaged one counts as missing, and is removed.

        With `only_look` nothing is written: neither that it was used nor that it was damaged.
        """
        raw_key = bytes.fromhex(key)
        self._take_leftovers()
        if (unwritten := self._unwritten.get(key)) is not None:
            return unwritten
        try:
            row = self.file.row(_SELECT, (raw_key,))
        except sqlite3.Error:  # the file has judged it and warned
            return None
        if row is None:
            return None
        try:
            entry = entry_of(row)
        except CorruptEntry as error:
            self._drop(key, row, error, remove=not only_look)
            return None
        if not only_look:
            self._note_use(raw_key, row[_LAST_USED_AT])
        return entry

    async def put(self, key: str, entry: Entry) -> bool:
        """Return once it is committed; False where the cache cannot be written.

        Then it is kept in memory, as far as there is room, and written with the next that can be.
        """
        self._take_leftovers()
        if self._sort_late([(key, entry)], await self._tried([(key, entry)])):
            return False
        late = self._unwritten.take()
        if late and not self._sort_late(late, await self._tried(late)):
            self._leftovers.forget()
        return True

    async def _tried(self, entries: Sequence[tuple[str, Entry]]) -> list[object]:
        """Which of them are written. Who is cancelled meanwhile does not know: all may have to be again."""
        try:
            return [await self.writer.do(self._put(*each)) for each in entries]
        except asyncio.CancelledError:
            self._sort_late(entries, [None] * len(entries))
            raise

    def _put(self, key: str, entry: Entry) -> _Put:
        return _Put(key, entry, self._now_s(), self._written)

    def flush(self) -> None:
        """Return when everything put before, and every use, is committed."""
        self._take_leftovers()
        self._write_uses(self.writer)
        self.writer.flush()
        self._write_late()

    def settle(self) -> None:
        """Write what could not be written yet, or leave it beside the cache: the process may end now."""
        lost = self._unwritten.dropped()
        if late := self._write_late():
            try:
                self._leftovers.leave(late, now_s=self._now_s())
            except OSError:  # a full disk: what it was told of already
                lost += len(late) if self._is_closed else 0
            else:
                self.file.warn(
                    "leaving",
                    "answers that could not be written lie in a file beside it; whoever uses the cache next"
                    " takes them in",
                )
        if lost:
            _LOG.warning("%s: %d answers could not be kept; they will be asked for again", self.path, lost)

    def _take_leftovers(self) -> None:
        """Once in a process: what others could not write is there from now on, and written when it can be."""
        if not self._has_looked:
            self._has_looked = True
            for key, entry in self._leftovers.take():
                self._unwritten.add(key, entry)

    def _write_late(self) -> list[tuple[str, Entry]]:
        """What still cannot be written, which stays in memory."""
        late = self._unwritten.take()
        if not late:
            return []
        with self.file.hurry():
            # on this thread: from Python 3.12 on an interpreter that ends starts no other
            written = committed(self.file, [self._put(*each) for each in late])
        if not (left := self._sort_late(late, written)):
            self._leftovers.forget()
        return left

    def _sort_late(
        self, late: Sequence[tuple[str, Entry]], written: Sequence[object]
    ) -> list[tuple[str, Entry]]:
        """What is not written, which stays in memory as long as somebody may write it."""
        left = [each for each, is_written in zip(late, written, strict=True) if not is_written]
        if not self._is_closed:
            for key, entry in left:
                self._unwritten.add(key, entry)
        return left

    def close(self) -> None:
        self._is_closed = True
        self.writer.close()
        self.settle()
        self._write_uses(InlineWriter(self.file))
        self.file.close()

    # -- upkeep

    def stats(self) -> CacheStats:
        self.flush()
        return upkeep.stats(self.file)

    def clear(
        self, *, model: str | None = None, older_than_s: float | None = None, experiment: str | None = None
    ) -> Cleared:
        """Remove what meets all that is said; everything, and damaged files too, where nothing is."""
        self.flush()
        created_before = None if older_than_s is None else self._now_s() - older_than_s
        return upkeep.clear(self.file, model=model, created_before=created_before, experiment=experiment)

    def verify(self) -> Verified:
        """Read every entry; remove those that are damaged."""
        self.flush()
        return upkeep.verify(self.file)

    # -- uses

    def _note_use(self, raw_key: bytes, last_used_at: int) -> None:
        with self._using:
            self._hits += 1
            if self._now_s() - last_used_at >= _USE_GRAIN_S:
                self._used[raw_key] = None
            full = len(self._used) >= _USES_AT_MOST
        if full:
            self._write_uses(self.writer)

    def _write_uses(self, writer: Writer) -> None:
        with self._using:
            used, hits = list(self._used), self._hits
            self._used, self._hits = {}, 0
        if hits:
            writer.post(_Uses(used, hits, int(self._now_s())))

    # -- damage and size

    def _drop(self, key: str, row: Row, error: CorruptEntry, *, remove: bool) -> None:
        _LOG.warning("%s: the entry %s… is damaged and counts as missing: %s", self.path, key[:12], error)
        if remove:
            self.writer.post(_Removal(row[0], row[_CHECKSUM]))

    def _written(self, size_bytes: int) -> None:
        """Called on the writing thread."""
        if self._cap_bytes is None:
            return
        self._unchecked_bytes += size_bytes
        if self._unchecked_bytes >= self._cap_bytes // _CHECK_AFTER_SHARE:
            self._unchecked_bytes = 0
            self.writer.post(_Eviction(self._cap_bytes, self._cap_bytes, self._now_s(), self.writer))

    def _now_s(self) -> float:
        return self._clock.utc_now().timestamp()


class _Put:
    __slots__ = ("_entry", "_key", "_now_s", "_row", "_written")

    def __init__(self, key: str, entry: Entry, now_s: float, written: Callable[[int], None]) -> None:
        self._key = key
        self._entry = entry
        self._now_s = now_s
        self._written = written
        self._row: Row = ()

    def prepare(self) -> None:
        self._row = self._row or row_of(self._key, self._entry, now_s=self._now_s)

    def apply(self, connection: sqlite3.Connection) -> bool:
        connection.execute(_INSERT, self._row)
        connection.execute("DELETE FROM leases WHERE key = ?", self._row[:1])  # whoever asks finds it now
        self._written(len(self._row[-1]))
        return True


class _Uses:
    def __init__(self, used: Sequence[bytes], hits: int, now_s: int) -> None:
        self._used = used
        self._hits = hits
        self._now_s = now_s

    def prepare(self) -> None:
        """Nothing to prepare."""

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE totals SET hits = hits + ?", (self._hits,))
        connection.executemany(
            "UPDATE entries SET last_used_at = ? WHERE key = ?", [(self._now_s, key) for key in self._used]
        )


class _Removal:
    """Of one damaged row, and not of the whole one that may have replaced it."""

    def __init__(self, raw_key: bytes, checksum: int) -> None:
        self._place = (raw_key, checksum)

    def prepare(self) -> None:
        """Nothing to prepare."""

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM entries WHERE key = ? AND checksum = ?", self._place)


class _Eviction:
    """One small step towards the cap, which orders the next: other orders come between them."""

    def __init__(self, cap_bytes: int, above_bytes: float, now_s: float, writer: Writer) -> None:
        self._cap_bytes = cap_bytes
        self._above_bytes = above_bytes
        self._now_s = now_s
        self._writer = writer

    def prepare(self) -> None:
        """Nothing to prepare."""

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM leases WHERE expires_at < ?", (self._now_s - _LEASES_SWEPT_AFTER_S,))
        if upkeep.used_bytes(connection) <= self._above_bytes:
            return
        removed = connection.execute(
            "DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY last_used_at, id LIMIT ?)",
            (_EVICTED_AT_ONCE,),
        )
        if removed.rowcount:
            above_bytes = self._cap_bytes * (1 - _ROOM_SHARE)
            self._writer.post(_Eviction(self._cap_bytes, above_bytes, self._now_s, self._writer))
