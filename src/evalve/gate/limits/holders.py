"""Who holds calls in flight: processes of this machine by a name that no later process will have."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from evalve.processes import here, is_same, started

UNSEEN_FOR_S = 600.0
"""A process that cannot be seen from here counts as dead when it has not been heard of for this long: about
as long as an answer may take, for meanwhile it tells nothing."""


def name_of_this_process() -> str:
    return _name_of(os.getpid())


@cache
def _name_of(pid: int) -> str:
    """Its id, its start, and where such ids mean the same: another with the same id is not taken for it."""
    return f"{pid}:{started(pid) or 0.0:.2f}:{_place()}"


def _place() -> str:
    return hashlib.sha256(here().encode()).hexdigest()[:8]


def is_alive(holder: str, *, unheard_s: float = 0.0) -> bool:
    """`unheard_s` is for how long the shared state has not been told anything by it."""
    pid, began, place = (*holder.split(":"), "", "")[:3]
    if place != _place():
        return unheard_s < UNSEEN_FOR_S
    try:
        return is_same(started(int(pid)), float(began))
    except ValueError:
        return False


def in_words(holder: str) -> str:
    import psutil

    pid, _, place = (*holder.split(":"), "", "")[:3]
    if place != _place():
        return f"process {pid} of another container"
    try:
        command: list[Any] = psutil.Process(int(pid)).cmdline()[:4]
    except psutil.Error:
        return f"process {pid}"
    name = " ".join(Path(part).name if index == 0 else part for index, part in enumerate(command))
    return f"process {pid} ({name or sys.platform})"
