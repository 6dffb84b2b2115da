"""How many files may be open: raised to what a run needs, as far as the machine allows."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from evalve.host.reading import open_files

FOR_THE_RUN = 128
"""Stores, caches, event loops, logs, what Python and pytest have open."""
FOR_A_SAMPLE = 12
"""A connection or two; for an agent, its pipes and files and the gateway's connections to both sides."""
_PLENTY = 4
"""So many times what is needed is enough, whatever is open already."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What to do about the limit."""

    raise_to: int | None
    """The soft limit to set; `None` where it is enough, or cannot be raised."""
    fits: int | None
    """How many samples at once have enough; `None` where as many as were asked for do."""


def plan_files(at_once: int, *, soft: int | None, hard: int | None, opened: int) -> FilePlan:
    """From the samples at once and the limits, where `None` is no limit. Pure."""
    needed = opened + FOR_THE_RUN + at_once * FOR_A_SAMPLE
    if soft is None or soft >= needed:
        return FilePlan(None, None)
    if hard is None or hard >= needed:
        return FilePlan(needed, None)
    fits = max(1, (hard - opened - FOR_THE_RUN) // FOR_A_SAMPLE)
    return FilePlan(hard if hard > soft else None, fits)


def make_room_for_files(at_once: int) -> int | None:
    """Raise the limit for so many samples at once; how many have enough, where not all do."""
    soft, hard = (_plain(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft is None or soft >= _PLENTY * (FOR_THE_RUN + at_once * FOR_A_SAMPLE):
        return None  # without counting what is open, which costs more than all the rest of a small evaluation
    plan = plan_files(at_once, soft=soft, hard=hard, opened=open_files() or 0)
    if plan.raise_to is None:
        return plan.fits
    try:
        unlimited = resource.RLIM_INFINITY if hard is None else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (plan.raise_to, unlimited))
    except (OSError, ValueError):  # macOS names no hard limit and has one all the same
        return plan_files(at_once, soft=soft, hard=soft, opened=open_files() or 0).fits
    return plan.fits


def too_few_files(at_once: int, fits: int) -> str:
    """What to tell a person, and what to do."""
    hard = _plain(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    needed = (open_files() or 0) + FOR_THE_RUN + at_once * FOR_A_SAMPLE
    return (
        f"this process may open {hard} files, and {at_once} samples at once need about {needed}: {fits} run"
        f" at once instead. For more, raise the hard limit before the start: `ulimit -Hn {needed}` as root,"
        f" LimitNOFILE= in a systemd unit, --ulimit nofile={needed} for a container"
    )


def _plain(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit
