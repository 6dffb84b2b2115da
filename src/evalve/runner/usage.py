"""What a run itself costs: CPU time and memory of this process."""

from __future__ import annotations

import platform
import resource
import sys
from functools import cache
from importlib import metadata


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_memory_bytes() -> int:
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
