"""Wake-ups between processes of one machine: who waits has a FIFO, and who has news writes a byte to it.

A FIFO needs no server, its path may be long, and the kernel knows whether anybody listens: one that a
killed process left behind refuses to be opened, and is removed by whoever finds it.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Fifo:
    """Where one process listens."""

    path: Path
    descriptor: int
    pid: int
    is_over: bool = False


class Wakeups:
    """The FIFOs of one directory: our own, and those of others. Nothing is made before somebody listens."""

    def __init__(self, directory: Path, heard: Callable[[], None]) -> None:
        """`heard` is called in a thread of its own, once or more for all that was written meanwhile."""
        self._directory = directory
        self._heard = heard
        self._fifo: _Fifo | None = None
        self._failed_in = 0

    def listen(self, name: str) -> bool:
        """From now on hear what others send to that name; false where the file system has no FIFOs."""
        fifo = self._fifo
        if fifo is not None and fifo.pid == os.getpid():
            return True
        if self._failed_in == os.getpid():
            return False
        if fifo is not None:
            os.close(fifo.descriptor)  # a fork's copy: the parent still listens, and we would take its bytes
            self._fifo = None
        try:
            self._fifo = self._made(name)
        except OSError as error:
            self._failed_in = os.getpid()
            _LOG.debug("%s: no FIFO can be made (%s); places are asked for often instead", name, error)
            return False
        threading.Thread(target=_hear, args=(self._fifo, self._heard), name="wakeups", daemon=True).start()
        atexit.register(self.close)
        return True

    def wake(self, name: str) -> None:
        """Whoever listens by that name hears of it."""
        with _to_write(self._directory / name) as descriptor:
            if descriptor is not None:
                with suppress(OSError):  # full of bytes that have not been heard, or its reader has just gone
                    os.write(descriptor, b"!")

    def close(self) -> None:
        """Listen no more."""
        fifo, self._fifo = self._fifo, None
        if fifo is not None and fifo.pid == os.getpid():
            atexit.unregister(self.close)
            ours = os.dup(fifo.descriptor)  # its thread closes its own, as soon as anybody wakes it
            fifo.is_over = True
            fifo.path.unlink(missing_ok=True)
            os.write(ours, b"!")
            os.close(ours)

    def _made(self, name: str) -> _Fifo:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._directory / name
        with _alone_in(self._directory):  # or another would take ours, not yet open, for a leftover
            for other in self._directory.iterdir():
                with _to_write(other):
                    pass
            os.mkfifo(path, mode=0o600)
            # for reading and writing: it is open at once, and never at its end when a writer leaves
            return _Fifo(path, os.open(path, os.O_RDWR), os.getpid())


def _hear(fifo: _Fifo, heard: Callable[[], None]) -> None:
    while os.read(fifo.descriptor, 4096) and not fifo.is_over:
        heard()
    os.close(fifo.descriptor)


@contextmanager
def _to_write(path: Path) -> Iterator[int | None]:
    """The FIFO, open for writing; where nobody listens it is removed, and there is none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            path.unlink(missing_ok=True)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
