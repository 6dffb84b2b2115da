"""Follows a run's output as it grows in its file: lines for the reader, events for the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path

from evalve.agents.spec import Event, Reader

_CHUNK_BYTES = 262_144
_END_CHARACTERS = 4_000


class Transcript:
    """Reads what is new whenever it is told that there is something."""

    def __init__(self, path: Path, reader: Reader, note: Callable[[Event], None]) -> None:
        self._path = path
        self._reader = reader
        self._note = note
        self._offset = 0
        self._rest = b""

    def follow(self) -> None:
        """Take the whole lines that are there now."""
        while chunk := self._next_chunk():
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._take(lines)
            if len(chunk) < _CHUNK_BYTES:
                return  # what comes later is told

    def end(self) -> None:
        """The same, and the last line although nothing ends it."""
        self.follow()
        if self._rest:
            self._take([self._rest])
            self._rest = b""

    def _next_chunk(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return b""
        self._offset += len(chunk)
        return chunk

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            for event in self._reader.line(line.decode("utf-8", "replace").rstrip("\r")):
                self._note(event)


def end_of(path: Path) -> str:
    """The last words in a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _END_CHARACTERS))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def mask(path: Path, secrets: Iterable[str]) -> None:
    """Replace secrets in a file, line by line, where there are any."""
    wanted = [one.encode() for one in secrets if len(one) >= 8]
    if not wanted or not _has(path, wanted):
        return
    masked = path.with_suffix(".masked")
    with path.open("rb") as before, masked.open("wb") as after:
        for line in before:
            after.write(reduce(lambda text, one: text.replace(one, b"***"), wanted, line))
    masked.replace(path)


def _has(path: Path, wanted: list[bytes]) -> bool:
    try:
        with path.open("rb") as file:
            return any(one in line for line in file for one in wanted)
    except FileNotFoundError:
        return False
