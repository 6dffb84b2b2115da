"""What /proc tells about processes: whose they are, what they take, which an earlier crash has left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

MARKER = "EVALVE_AGENT"
"""The variable that every process of an agent inherits: where it runs, its supervisor, its number."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER_TICKS, _STARTED = 1, 11, 19
"""In `/proc/PID/stat`, counted from behind the name, which may have anything in it."""


class Taken(NamedTuple):
    """What the living processes of a tree take."""

    cpu_s: float
    memory_bytes: int


def marker(where: str, pid: int, number: int | str) -> str:
    """The value of the variable for one agent."""
    return f"{where}.{pid}.{started(pid) or 0}.{number}"


def started(pid: int) -> int | None:
    """When it started, in ticks since the machine did; `None` where it is gone or a zombie."""
    fields = _stat(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[_STARTED])


def children(pid: int) -> list[int]:
    """Its direct children, zombies included; those of all its threads."""
    found: list[int] = []
    try:
        for thread in _names(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        pass  # gone meanwhile
    return found if _lists_children() else _children_by_scan(pid)


@cache
def _lists_children() -> bool:
    pid = os.getpid()
    return Path(f"/proc/{pid}/task/{pid}/children").exists()


def _children_by_scan(parent: int) -> list[int]:
    """For kernels that have no list of children."""
    return [pid for pid in _all() if (fields := _stat(pid)) and int(fields[_PARENT]) == parent]


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    found = [root]
    for pid in found:  # grows while it is read
        found += children(pid)
    return found


def taken(pids: list[int]) -> Taken:
    """What they take together. Shared memory counts for each that shares it."""
    ticks = pages = 0
    for pid in pids:
        fields = _stat(pid)
        if not fields:
            continue
        # with what their children took that they have waited for
        ticks += sum(map(int, fields[_USER_TICKS : _USER_TICKS + 4]))
        with suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Taken(ticks / _TICKS_PER_S, pages * _PAGE_BYTES)


def mark_of(pid: int) -> int | None:
    """The limit by which a process is known that has neither its parents nor its environment any more."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
            if line.startswith("Max msgqueue size"):
                return int(line.split()[4])
    return None


def marked(value: str) -> list[int]:
    """Processes whose environment has the marker with this value, or one that begins so."""
    wanted = f"{MARKER}={value}".encode()
    return [pid for pid in _all() if any(entry.startswith(wanted) for entry in _environment(pid))]


def leftovers(where: str) -> Iterator[int]:
    """Processes of agents whose supervisor is dead."""
    wanted = f"{MARKER}={where}.".encode()
    for pid in _all():
        for entry in _environment(pid):
            if entry.startswith(wanted):
                with suppress(ValueError):  # somebody else wrote it
                    supervisor, since = map(int, entry[len(wanted) :].split(b".")[:2])
                    if started(supervisor) != since:
                        yield pid


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(group: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # gone, or another person's


def _all() -> list[int]:
    try:
        return [int(name) for name in _names("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []  # a system without /proc


def _names(folder: str) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 (names are all that is needed, many times a second)
