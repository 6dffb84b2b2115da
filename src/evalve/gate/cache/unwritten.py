"""Answers that could not be written to the cache yet: kept in memory, so that nobody pays for them again."""

from __future__ import annotations

import threading

from evalve.gate.cache.entries import Entry

_MOST_BYTES = 64 * 2**20


class Unwritten:
    """The newest, up to a size. Any thread may use it."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._size_bytes = 0
        self._dropped = 0

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key) if self._entries else None

    def add(self, key: str, entry: Entry) -> None:
        with self._lock:
            self._forget(key)
            self._entries[key] = entry
            self._size_bytes += len(entry.body)
            while self._size_bytes > self._most_bytes:
                self._forget(next(iter(self._entries)))
                self._dropped += 1

    def take(self) -> list[tuple[str, Entry]]:
        """All of them, for who tries to write them: what that cannot write is to be added again."""
        if not self._entries:
            return []
        with self._lock:
            taken, self._entries, self._size_bytes = list(self._entries.items()), {}, 0
            return taken

    def dropped(self) -> int:
        """How many there was no room for since this was last asked."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
            return dropped

    def _forget(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size_bytes -= len(entry.body)
