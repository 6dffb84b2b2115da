"""Which attempts are under way, in a small file for each run: what a process died of, a later run knows.

A line is written when an attempt begins, without waiting for the disk: the file outlives the process, and
need not outlive the machine. With it goes a line for each that has ended since. A run that ends in order
removes its file; what is left was left by the dead.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from evalve import processes
from evalve.storage.keys import Key

_LOG = logging.getLogger(__name__)
_BYTES = 1 << 14
"""When so much is written, the file is begun anew with what is under way."""


class NoFlights:
    """For a store that dies with its process."""

    def begins(self, sample_id: str, repeat: int) -> None: ...
    def ended(self, sample_id: str, repeat: int) -> None: ...
    def rests(self, sample_id: str, repeat: int) -> None: ...
    def close(self) -> None: ...


class FlightFile:
    """The attempts of one run. Whatever becomes of the file, no sample fails for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._end = 0
        self._is_usable = True
        self._under_way: dict[Key, str] = {}
        """With what is written of each."""
        self._to_write = ""

    def begins(self, sample_id: str, repeat: int) -> None:
        line = self._under_way[sample_id, repeat] = _line(sample_id, repeat)
        self._write(f"{self._to_write}+{line}\0".encode())

    def rests(self, sample_id: str, repeat: int) -> None:
        """Written at once: nothing may follow for hours."""
        if (line := self._under_way.pop((sample_id, repeat), None)) is not None:
            self._write(f"{self._to_write}-{line}\0".encode())

    def _write(self, written: bytes) -> None:
        self._to_write = ""
        end = self._end + len(written)
        if self._map is None or end > len(self._map):
            self._begin_anew()
        else:
            self._map[self._end : end] = written
            self._end = end - 1  # the next one begins where this one says that it ends

    def ended(self, sample_id: str, repeat: int) -> None:
        if (line := self._under_way.pop((sample_id, repeat), None)) is not None:
            self._to_write += f"-{line}"

    def close(self) -> None:
        """The run has ended in order."""
        self._is_usable = False
        if self._map is not None:
            self._map.close()
            self._map = None
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _begin_anew(self) -> None:
        """With what is under way now, and room for more."""
        header = json.dumps([os.getpid(), processes.own_start(), processes.here()])
        written = f"{header}\n{''.join(f'+{line}' for line in self._under_way.values())}\0".encode()
        try:
            if self._is_usable and (self._map is None or 2 * len(written) > len(self._map)):
                self._map = self._mapped(max(_BYTES, 4 * len(written)))
        except (OSError, ValueError) as error:  # a full disk, which the records tell of
            self._is_usable, self._map = False, None
            _LOG.debug("%s: what is under way is not noted: %s", self._path, error)
        if self._map is not None:
            self._map[: len(written)] = written
            self._end = len(written) - 1

    def _mapped(self, size_bytes: int) -> mmap.mmap:
        """Written through the map, not by calls: each would give the interpreter lock away (measured: 18 µs).

        The room is taken before, because a map of a full disk kills the process.
        """
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.pwrite(file, bytes(size_bytes), 0) < size_bytes:
                raise OSError("the disk is full")
            return mmap.mmap(file, size_bytes)
        finally:
            os.close(file)


class Flights:
    """The files of one store, in a folder beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, evaluation_id: int, run_id: str) -> FlightFile:
        return FlightFile(self._folder / f"{evaluation_id}-{run_id}")

    def deaths(self, evaluation_id: int) -> Mapping[Key, int]:
        """How many processes have died while an attempt was under way."""
        counted: Counter[Key] = Counter()
        for path in self._of(evaluation_id):
            with suppress(OSError, ValueError, TypeError):  # cut off, or another program's
                counted.update(_left_by_the_dead(path.read_text(encoding="utf-8")))
        return counted

    def forget(self, evaluation_id: int) -> None:
        """What the dead have left."""
        for path in self._of(evaluation_id):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _of(self, evaluation_id: int) -> list[Path]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 (a hundred times in a project, and mostly empty)
        except OSError:
            return []
        return [self._folder / name for name in names if name.startswith(f"{evaluation_id}-")]


def _left_by_the_dead(text: str) -> Iterator[Key]:
    header, *lines = text.partition("\0")[0].splitlines()
    pid, started_at, where = json.loads(header)
    if processes.lives(pid, started_at, where):
        return
    under_way: set[Key] = set()
    for line in lines:
        with suppress(ValueError):  # the last may be cut off
            sample_id, repeat = json.loads(line[1:])
            (under_way.add if line[0] == "+" else under_way.discard)((sample_id, repeat))
    yield from under_way


def _line(sample_id: str, repeat: int) -> str:
    if sample_id.isalnum() and sample_id.isascii():
        return f'["{sample_id}", {repeat}]\n'  # most ids are hashes: a quarter of the time
    return f"{json.dumps([sample_id, repeat])}\n"
