"""What runs may have cost so far, in a small file for each: of a process that is killed, a later run knows.

Written before each call goes, without waiting for the disk: the file outlives the process, and need not
outlive the machine. The report of a run that ends in order takes its place.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_LOG = logging.getLogger(__name__)


class SpendingNotes:
    """The files of one store, in a folder beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def noting(self, run_id: str) -> Callable[[float], None]:
        """What writes how much the run may have cost. Whatever becomes of the file, no call fails for it."""
        path = self._path(run_id)

        def note(usd: float) -> None:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
                try:
                    os.pwrite(file, b"%020.9f" % usd, 0)  # of one length, so that no digit is left over
                finally:
                    os.close(file)
            except OSError as error:  # a full disk, which the records tell of
                _LOG.debug("%s: what the run may have cost is not noted: %s", path, error)

        return note

    def noted_usd(self, run_id: str) -> float | None:
        try:
            return float(self._path(run_id).read_bytes())
        except (OSError, ValueError):
            return None

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            with suppress(OSError):
                self._path(run_id).unlink(missing_ok=True)

    def _path(self, run_id: str) -> Path:
        return self._folder / f"spent-{run_id}"
