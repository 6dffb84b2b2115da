"""What the machine says about itself: memory, swap, pressure, load and open files. Thin: it only reads."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class HostReading:
    """`None` where the machine does not say."""

    total_bytes: int | None = None
    """Of memory: the machine's, or what a container may use of it."""
    available_bytes: int | None = None
    swapped_pages: int | None = None
    """Written to swap since the machine started."""
    memory_stalled: float | None = None
    """The share of the last ten seconds in which something waited for memory (PSI, some avg10)."""
    all_stalled: float | None = None
    """… in which everything did (PSI, full avg10)."""
    load: float | None = None
    """Runnable processes, averaged over a minute."""
    cores: int = 1
    open_files: int | None = None
    """Of this process."""
    most_files: int | None = None
    """That it may open; `None` for any number."""


def read_memory(root: Path = _ROOT) -> HostReading:
    """Only how much memory there is, and is left: asked for every process that starts."""
    meminfo = _meminfo(root)
    total, available = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
    for limit_bytes, used_bytes in _cgroups(root):
        total = limit_bytes if total is None else min(total, limit_bytes)
        left = max(0, limit_bytes - used_bytes)
        available = left if available is None else min(available, left)
    return HostReading(total_bytes=total, available_bytes=available)


def read_host(root: Path = _ROOT) -> HostReading:
    """As it is now. `root` is where `/proc` and `/sys` are found."""
    some, full = _stalled(root)
    return replace(
        read_memory(root),
        swapped_pages=_swapped_pages(root),
        memory_stalled=some,
        all_stalled=full,
        load=_load(root),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        open_files=open_files(root),
        most_files=_most_files(),
    )


def open_files(root: Path = _ROOT) -> int | None:
    """How many this process has open."""
    for folder in (root / "proc/self/fd", root / "dev/fd"):
        try:
            return sum(1 for _ in folder.iterdir())
        except OSError:
            continue
    return None


def _most_files() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _meminfo(root: Path) -> dict[str, int]:
    """How much there is, and how much is left; both stand at the beginning of a long list."""
    sizes: dict[str, int] = {}
    for line in _text(root / "proc/meminfo").splitlines():
        if len(sizes) == 2:
            break
        name, _, rest = line.partition(":")
        words = rest.split()
        if name in ("MemTotal", "MemAvailable") and words and words[0].isdigit():
            sizes[name] = int(words[0]) * 1024
    return sizes


def _cgroups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of every group around this process that has a limit, in version 2 and in version 1."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, limit, used, cached = (
                root / "sys/fs/cgroup",
                "memory.max",
                "memory.current",
                "inactive_file",
            )
        elif "memory" in controllers.split(","):
            base, limit = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            used, cached = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        folder = base / path.strip("/")
        for group in (folder, *folder.parents):
            limit_bytes, used_bytes = _number(group / limit), _number(group / used)
            if limit_bytes is not None and used_bytes is not None and limit_bytes < 1 << 60:
                # what was read from files and may be forgotten at once is not really in use
                yield limit_bytes, max(0, used_bytes - _stat(group / "memory.stat", cached))
            if group == base:
                break


def _swapped_pages(root: Path) -> int | None:
    for line in _text(root / "proc/vmstat").splitlines():
        if line.startswith("pswpout "):
            return int(line.split()[1])
    return None


def _stalled(root: Path) -> tuple[float | None, float | None]:
    shares: dict[str, float] = {}
    for line in _text(root / "proc/pressure/memory").splitlines():
        kind, *figures = line.split()
        for figure in figures:
            name, _, value = figure.partition("=")
            if name == "avg10":
                shares[kind] = float(value) / 100
    return shares.get("some"), shares.get("full")


def _load(root: Path) -> float | None:
    words = _text(root / "proc/loadavg").split()
    if words:
        return float(words[0])
    try:
        return os.getloadavg()[0] if root == _ROOT else None
    except OSError:
        return None


def _stat(path: Path, name: str) -> int:
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
