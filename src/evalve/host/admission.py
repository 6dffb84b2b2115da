"""Who may start another process: one for whose memory there is room, going by those before it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from evalve.contracts import Admitted
from evalve.host.reading import HostReading

_LOG = logging.getLogger(__name__)

UNKNOWN_BYTES = 400 << 20
"""What a process is expected to take before one of its kind has ended: agents on Node take 300 to 500 MB."""
SPARE_SHARE = 0.05
"""Of all memory, left to everything else."""
MARGIN = 1.2
"""Times the largest peak of the latest ones: the next may take more."""
REMEMBERED = 20
LOOK_EVERY_S = 1.0
"""Memory tells nobody when it is freed: whoever waits looks again, and at once when one of ours has ended."""

Wait = Callable[[Awaitable[Any], str], Awaitable[Any]]
"""How a sample waits (`SampleContext.held`)."""
WAITS_FOR_MEMORY = "memory"


class MemoryAdmission:
    """One for all runs of a process: they share the machine. On one event loop or several."""

    def __init__(self, read: Callable[[], HostReading]) -> None:
        self._read = read
        self._waiting: set[asyncio.Future[None]] = set()
        self._peaks: dict[str, deque[int]] = {}
        self._running: dict[int, tuple[Admitted, int]] = {}
        """Those that were admitted, with what each is expected to take."""

    def expected_bytes(self, kind: str) -> int:
        """The largest peak of the latest ones of its kind, and some more."""
        peaks = self._peaks.get(kind)
        return int(MARGIN * max(peaks)) if peaks else UNKNOWN_BYTES

    @asynccontextmanager
    async def admission(self, kind: str, wait: Wait) -> AsyncIterator[Admitted]:
        """Entered when there is room; in the block, the process runs. Whoever is alone always has room."""
        while not self._has_room(kind):  # another one may be faster than who has just been told
            _LOG.info("%s waits: no room for about %.0f MB", kind, self.expected_bytes(kind) / 1e6)
            await wait(self._room(kind), WAITS_FOR_MEMORY)
        place = Admitted()
        self._running[id(place)] = (place, self.expected_bytes(kind))
        try:
            yield place
        finally:
            del self._running[id(place)]
            if place.peak_bytes:
                self._peaks.setdefault(kind, deque(maxlen=REMEMBERED)).append(place.peak_bytes)
            for one in list(self._waiting):
                one.get_loop().call_soon_threadsafe(_wake, one)

    async def _room(self, kind: str) -> None:
        while not self._has_room(kind):
            one_ends = asyncio.get_running_loop().create_future()
            self._waiting.add(one_ends)
            try:
                await asyncio.wait([one_ends], timeout=LOOK_EVERY_S)
            finally:
                self._waiting.discard(one_ends)

    def _has_room(self, kind: str) -> bool:
        if not self._running:
            return True
        owed_bytes = sum(
            max(0, expected - place.memory_bytes()) for place, expected in self._running.values()
        )
        return has_room(self._read(), self.expected_bytes(kind), owed_bytes)


def has_room(reading: HostReading, expected_bytes: int, owed_bytes: int) -> bool:
    """Whether a process fits beside what those that run will still take. Pure."""
    if reading.available_bytes is None or not reading.total_bytes:
        return True  # a machine that does not say
    spare_bytes = SPARE_SHARE * reading.total_bytes
    return reading.available_bytes - owed_bytes - spare_bytes >= expected_bytes


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
