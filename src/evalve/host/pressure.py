"""Whether the machine has room for more samples, from what it says about itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from evalve.contracts import CLEAR, HostPressure, Level
from evalve.host.reading import HostReading

LITTLE, TOO_LITTLE = 0.15, 0.05
"""Shares of memory that are left: then nothing more is started; then fewer run."""
ALMOST_NONE = 0.02
"""Samples without processes of their own take little: for them, each bound is the next one."""
STALLED, BADLY_STALLED = 0.05, 0.20
"""Shares of time in which something waits for memory."""
ALL_STALLED = 0.05
"""… in which everything does."""
SWAPS = 256
"""Pages that are written to swap between two looks: a megabyte."""
LOADED, OVERLOADED = 2.0, 4.0
"""Runnable processes for each core, while samples have processes of their own here that compute."""
OWN_SHARE = 0.25
"""Of all cores, which these keep busy."""
FILES, TOO_MANY_FILES = 0.75, 0.90
"""Shares of the files that may be open."""


def host_pressure(
    now: HostReading,
    before: HostReading | None = None,
    *,
    processes: int = 0,
    cores_used: float = 0.0,
) -> HostPressure:
    """The worst of all that is said, and why. `processes` are those that samples have started here.

    Load of which they have little part is somebody else's: agents that wait for a provider hardly add to it,
    and fewer of them would not lower it.
    """
    is_ours = processes > 0 and cores_used >= OWN_SHARE * now.cores
    found = list(_found(now, before, processes, is_ours=is_ours))
    for level in ("over", "tight"):
        for pressure in found:
            if pressure.level == level:
                return pressure
    return CLEAR


def _found(
    now: HostReading, before: HostReading | None, processes: int, *, is_ours: bool
) -> Iterator[HostPressure]:
    yield from _memory(now, processes)
    yield from _stalls(now)
    if before is not None and now.swapped_pages is not None and before.swapped_pages is not None:
        pages = now.swapped_pages - before.swapped_pages
        if pages > SWAPS:
            yield HostPressure("over", f"the machine swaps: {pages * 4096 / 1e6:.0f} MB just now")
        elif pages > 0:
            yield HostPressure("tight", "the machine begins to swap")
    if is_ours and now.load is not None:
        each = now.load / now.cores
        if each > LOADED:
            level: Level = "over" if each > OVERLOADED and processes > now.cores else "tight"
            yield HostPressure(level, f"load {now.load:.1f} on {now.cores} cores", at_least=now.cores)
    if now.open_files is not None and now.most_files is not None:
        share = now.open_files / now.most_files
        if share > FILES:
            level = "over" if share > TOO_MANY_FILES else "tight"
            yield HostPressure(level, f"{now.open_files} of {now.most_files} files are open")


def _memory(now: HostReading, processes: int) -> Iterator[HostPressure]:
    if not now.total_bytes or now.available_bytes is None:
        return
    little, too_little = (LITTLE, TOO_LITTLE) if processes else (TOO_LITTLE, ALMOST_NONE)
    share = now.available_bytes / now.total_bytes
    if share < little:
        left = f"{now.available_bytes / 1e9:.1f} of {now.total_bytes / 1e9:.1f} GB memory left"
        yield HostPressure("over" if share < too_little else "tight", left)


def _stalls(now: HostReading) -> Iterator[HostPressure]:
    some, every = now.memory_stalled or 0.0, now.all_stalled or 0.0
    if every > ALL_STALLED:
        yield HostPressure("over", f"everything waits for memory {every:.0%} of the time")
    elif some > STALLED:
        yield HostPressure(
            "over" if some > BADLY_STALLED else "tight", f"waits for memory {some:.0%} of the time"
        )
