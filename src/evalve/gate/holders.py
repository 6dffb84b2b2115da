"""Who holds calls in flight: processes of this machine by a name that no later process will have."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

_SAME_START_S = 2.0
"""Two readings of one process's start differ when the machine's clock is corrected."""


@cache
def name_of(pid: int) -> str:
    """A process by its id and start, so that another one with the same id is not mistaken for it."""
    return f"{pid}:{_started(pid)}"


def _started(pid: int) -> str:
    import psutil

    try:
        process = psutil.Process(pid)
        is_killed = process.status() == psutil.STATUS_ZOMBIE  # and nobody has waited for it yet
        return "gone" if is_killed else f"{process.create_time():.2f}"
    except psutil.Error:
        return "gone"


def is_alive(holder: str) -> bool:
    pid, started = holder.split(":")[:2]
    now_told = _started(int(pid))
    if "gone" in (now_told, started):
        return now_told == started
    return abs(float(now_told) - float(started)) < _SAME_START_S


def in_words(holder: str) -> str:
    import psutil

    pid = int(holder.partition(":")[0])
    try:
        command: list[Any] = psutil.Process(pid).cmdline()[:4]
    except psutil.Error:
        return f"process {pid}"
    name = " ".join(Path(part).name if index == 0 else part for index, part in enumerate(command))
    return f"process {pid} ({name or sys.platform})"
