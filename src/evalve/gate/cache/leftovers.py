"""Answers that a process could not write before its end: left beside the cache, for the next one to take in.

One line of JSON for each. Nobody sees half a file, and no lock is needed: two processes that take in the same
file write the same answers.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from evalve.gate.cache.entries import CorruptEntry, Entry, Row, entry_of, row_of

_LOG = logging.getLogger(__name__)
_TAKEN_UP_TO_BYTES = 32 * 2**20
"""Of answers, which are then in memory; what is beyond waits for another process."""
_LIE_UP_TO_BYTES = 256 * 2**20
"""Where a cache can never be written, that is how much room its leftovers take."""


class Leftovers:
    """The files beside one cache."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._files: list[Path] = []
        """Whose answers this process has in memory."""

    def take(self) -> list[tuple[str, Entry]]:
        """What other processes have left; the files stay until `forget`."""
        taken: list[tuple[str, Entry]] = []
        for path in self._left():
            if sum(len(entry.body) for _, entry in taken) >= _TAKEN_UP_TO_BYTES:
                break
            try:
                taken += [
                    _read(line) for line in path.read_text(encoding="ascii", errors="replace").splitlines()
                ]
            except FileNotFoundError:
                continue  # another process has taken it in
            except (OSError, CorruptEntry) as error:
                _LOG.warning("%s: these answers cannot be read, and will be asked for again: %s", path, error)
                with suppress(OSError):
                    path.rename(f"{self._cache}.broken-{path.name}")
                continue
            self._files.append(path)
        return taken

    def leave(self, late: Sequence[tuple[str, Entry]], *, now_s: float) -> Path:
        """Replaces what this process has taken or left before; `OSError` where there is no room for it."""
        if sum(path.stat().st_size for path in self._left() if path not in self._files) > _LIE_UP_TO_BYTES:
            raise OSError(f"more than {_LIE_UP_TO_BYTES >> 20} MiB lie beside {self._cache} already")
        path = Path(f"{self._cache}.left-{os.getpid()}-{os.urandom(4).hex()}")
        unfinished = Path(f"{self._cache}.new-{os.getpid()}")
        try:
            with open(unfinished, "w", encoding="ascii", opener=_for_the_owner) as file:
                file.writelines(_line(row_of(key, entry, now_s=now_s)) for key, entry in late)
            unfinished.rename(path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        self.forget()
        self._files = [path]
        return path

    def forget(self) -> None:
        """All of it is written."""
        for path in self._files:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._files.clear()

    def _left(self) -> list[Path]:
        begins = f"{self._cache.name}.left-"
        try:
            names = os.listdir(self._cache.parent)  # noqa: PTH208 (in the way of a process's first call)
        except OSError:
            return []
        return [self._cache.with_name(name) for name in sorted(names) if name.startswith(begins)]


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _line(row: Row) -> str:
    plain = [
        {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value for value in row
    ]
    return f"{json.dumps(plain)}\n"


def _read(line: str) -> tuple[str, Entry]:
    try:
        row = tuple(
            base64.b64decode(value["bytes"]) if isinstance(value, dict) else value
            for value in json.loads(line)
        )
        return row[0].hex(), entry_of(row)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise CorruptEntry(f"a line of it is no answer: {error}") from error
