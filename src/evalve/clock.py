"""Time, in one place: nothing else in evalve sleeps or reads a clock to wait by it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Seconds that only go forward, the date, and a way to wait."""

    def now_s(self) -> float: ...

    def utc_now(self) -> datetime: ...

    async def sleep(self, delay_s: float) -> None: ...


class LoopClock:
    """The running event loop's own time, so that a loop with virtual time makes every wait virtual."""

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def utc_now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


LOOP_CLOCK = LoopClock()


def utc_text(seconds: float) -> str:
    """Seconds since 1970 as they are recorded: `2026-11-03T14:02:00.250+00:00`."""
    whole = int(seconds)
    return f"{_utc_second(whole)}.{int((seconds - whole) * 1000):03d}+00:00"


@lru_cache(maxsize=4)
def _utc_second(whole_s: int) -> str:
    """Many attempts begin in one second, and formatting one costs more than the rest of a note."""
    return datetime.fromtimestamp(whole_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
