"""Which attempts are under way, in a small file for each run: what a process died of, a later run knows.

A line is written when an attempt begins, without waiting for the disk: the file outlives the process, and
need not outlive the machine. With it goes a line for each that has ended since: a sample costs one write. A
run that ends in order removes its file; what is left was left by the dead.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from evalve import processes
from evalve.storage.keys import Key

_LOG = logging.getLogger(__name__)
_LINES = 4096
"""Then the file is begun anew with what is under way."""


class NoFlights:
    """For a store that dies with its process."""

    def begins(self, sample_id: str, repeat: int) -> None: ...
    def ended(self, sample_id: str, repeat: int) -> None: ...
    def close(self) -> None: ...


class FlightFile:
    """The attempts of one run. Whatever becomes of the file, no sample fails for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._is_usable = True
        self._lines = 0
        self._under_way: dict[Key, str] = {}
        """With what is written of each."""
        self._to_write = ""

    def begins(self, sample_id: str, repeat: int) -> None:
        line = self._under_way[sample_id, repeat] = f"{json.dumps([sample_id, repeat])}\n"
        self._lines += 1
        if self._file is None or self._lines > _LINES:
            self._begin_anew()
        else:
            self._write(f"{self._to_write}+{line}")
        self._to_write = ""

    def ended(self, sample_id: str, repeat: int) -> None:
        if (line := self._under_way.pop((sample_id, repeat), None)) is not None:
            self._to_write += f"-{line}"

    def close(self) -> None:
        """The run has ended in order."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._is_usable = False

    def _begin_anew(self) -> None:
        if not self._is_usable:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.ftruncate(self._file, 0)
        except OSError as error:
            self._give_up(error)
            return
        self._lines = len(self._under_way)
        pid = os.getpid()
        header = json.dumps([pid, processes.started(pid) or 0.0, processes.here()]) + "\n"
        self._write(header + "".join(f"+{line}" for line in self._under_way.values()))

    def _write(self, text: str) -> None:
        if self._file is not None:
            try:
                os.write(self._file, text.encode())
            except OSError as error:  # a full disk, which the records tell of
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._is_usable = False
        _LOG.debug("%s: what is under way is not noted: %s", self._path, error)


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
    header, *lines = text.splitlines()
    pid, started_at, where = json.loads(header)
    if processes.lives(pid, started_at, where):
        return
    under_way: set[Key] = set()
    for line in lines:
        with suppress(ValueError):  # the last may be cut off
            sample_id, repeat = json.loads(line[1:])
            (under_way.add if line[0] == "+" else under_way.discard)((sample_id, repeat))
    yield from under_way
