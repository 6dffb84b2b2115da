"""Time, in one place: nothing else in evalve sleeps or reads a clock to wait by it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
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
