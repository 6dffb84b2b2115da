"""Which process is which, and whether it lives: one answer for locks, leases and limits.

A process is known by its id, by when it started, and by where such ids mean the same. Its start is counted
from the machine's, so that a step of the date leaves everybody who they were.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from functools import cache
from pathlib import Path

_SAME_START = 0.5
"""Two readings of one start are equal; what is stored as text may have lost its last bit."""
_STATE_AT, _STARTED_AT = 0, 19
"""Of `/proc/PID/stat`, counted from behind the name, which may have anything in it."""


@cache
def boot_id() -> str:
    """Tells one start of the machine from the next, and one machine from another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _boot_session() or f"{socket.gethostname()}-{round((time.time() - time.monotonic()) / 3600)}"


def _boot_session() -> str:
    """What macOS calls it: the difference of two clocks would change whenever the machine has slept."""
    if os.uname().sysname != "Darwin":
        return ""
    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    try:
        failed = ctypes.CDLL(None).sysctlbyname(
            b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0)
        )
    except (OSError, AttributeError):
        return ""
    return "" if failed else text.value.decode("ascii", "replace")


def here() -> str:
    """Where process ids mean the same: a machine since its start, and a namespace of processes in it."""
    return _here(os.getpid())  # a forked child may be in another


@cache
def _here(pid: int) -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (Path.readlink gives no text)
    except OSError:
        namespace = "pid"
    return f"{socket.gethostname()}/{boot_id()[:8]}/{namespace}"


def boot_offset_s() -> float:
    """By how much a namespace of time, as a container may have one, puts off the time since the start."""
    return _boot_offset_s(os.getpid())


@cache
def _boot_offset_s(pid: int) -> float:
    try:
        lines = Path("/proc/self/timens_offsets").read_text().splitlines()
    except OSError:
        return 0.0  # a system without them
    told = {name: (int(whole), int(nano)) for name, whole, nano in (line.split() for line in lines)}
    whole_s, nano_s = told.get("boottime", (0, 0))
    return whole_s + nano_s / 1e9


def host_of(where: str) -> str:
    """The machine's name, for people."""
    return where.partition("/")[0]


def started(pid: int) -> float | None:
    """When it started, by a count that no step of the date changes; `None` where it is gone or killed."""
    if os.uname().sysname != "Linux":
        return _started_by_date(pid)
    try:
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if told[_STATE_AT] in "ZX":
        return None
    return float(told[_STARTED_AT]) - boot_offset_s() * os.sysconf("SC_CLK_TCK")


def own_start() -> float:
    """When this process started; 0 where that cannot be told."""
    return _own_start(os.getpid())


@cache
def _own_start(pid: int) -> float:
    return started(pid) or 0.0


def _started_by_date(pid: int) -> float | None:
    """As the kernel noted it then; on Linux it would be worked out anew from today's date."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_same(one: float | None, other: float) -> bool:
    """Whether both are the start of one process."""
    return one is not None and abs(one - other) < _SAME_START


def lives(pid: int, started_at: float, where: str) -> bool | None:
    """`None` where it cannot be seen from here: in another container, on another machine."""
    return is_same(started(pid), started_at) if where == here() else None
