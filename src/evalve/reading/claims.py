"""Which process of a session runs what: a locked file for each group of evaluations.

The kernel holds the lock, and gives it to the next where a process dies, so that nobody waits for the dead.
The file says which evaluations have ended, and why one broke.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Claim:
    """A group that this process holds."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        text = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        self._ended: dict[str, str] = json.loads(text) if text else {}

    @property
    def ended(self) -> dict[str, str]:
        """Evaluations that have ended in this session, by key, each with why it broke, or nothing."""
        return dict(self._ended)

    def note_ended(self, key: str, why_broken: str = "") -> None:
        self._ended[key] = why_broken
        text = json.dumps(self._ended).encode()
        os.pwrite(self._descriptor, text, 0)  # it only grows, so nothing of the old text is left behind
        os.ftruncate(self._descriptor, len(text))


class Claims:
    """Those of one session, in a folder that its processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def taken(self, group: str, *, wait: bool = True) -> Iterator[Claim | None]:
        """The group, once nobody else holds it; without `wait`, `None` where somebody does."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / hashlib.sha256(group.encode()).hexdigest()[:24]
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield None
                return
            yield Claim(descriptor)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork of a sample's may have the file open as well
            os.close(descriptor)

    def forget(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
