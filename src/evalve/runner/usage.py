"""What a run itself costs: CPU time and memory."""

from __future__ import annotations

import platform
import resource
import sys
from functools import cache
from importlib import metadata


def cpu_s() -> float:
    """Of this process and of those that it started and that have ended, worker processes above all."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def peak_memory_bytes() -> int:
    """Of this process alone."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("evalve", "pytest"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass  # run from a source tree without an installation
    return found
