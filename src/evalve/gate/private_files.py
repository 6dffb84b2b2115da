"""Files that only their owner may read: made so, and mended where an earlier version made them otherwise."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o077


def make_private(path: Path) -> None:
    """Make a database file and its folder for the owner alone, with the files that SQLite puts beside it.

    A folder that was there before is closed to others only if nothing else lies in it: a person may have
    named one that serves other purposes, too. By name alone: closing a descriptor of a database would drop
    the locks that this process has on it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    for each in path.parent.glob(f"{path.name}*"):
        _close_to_others(each)
    if all(each.name.startswith(path.name) for each in path.parent.iterdir()):
        _close_to_others(path.parent)


def _close_to_others(path: Path) -> None:
    with suppress(OSError):  # another's file, or one that has just gone: it is no reason to do without it
        mode = path.stat().st_mode & 0o777
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
