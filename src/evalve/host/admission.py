"""Who may start another process: one for whose memory there is room, going by those before it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from evalve.contracts import Admitted
from evalve.host.reading import HostReading

_LOG = logging.getLogger(__name__)

UNKNOWN_BYTES = 800 << 20
"""What a process is expected to take before anything is known of its kind. Agents on Node take 300 to 500 MB;
with 400 here, four of 500 MB started at once in 1.8 GB, and the system killed one."""
SETTLED_S = 10.0
"""After so long a process has mostly taken what it takes: agents run for minutes, and others wait for one to
end."""
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


@dataclass(slots=True)
class _Running:
    """A process that was admitted."""

    kind: str
    since_s: float
    place: Admitted = field(default_factory=Admitted)
    memory_bytes: int = 0
    """When last looked at."""
    highest_bytes: int = 0

    def look(self) -> None:
        self.memory_bytes = self.place.memory_bytes()
        self.highest_bytes = max(self.highest_bytes, self.memory_bytes)


class MemoryAdmission:
    """One for all runs of a process: they share the machine. On one event loop or several."""

    def __init__(
        self, read: Callable[[], HostReading], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._now_s = now_s
        self._waiting: set[asyncio.Future[None]] = set()
        self._peaks: dict[str, deque[int]] = {}
        self._running: dict[int, _Running] = {}

    def expected_bytes(self, kind: str) -> int:
        """The largest that the latest ones of its kind took, and some more; those that run count too."""
        settled_s = self._now_s() - SETTLED_S
        peaks = list(self._peaks.get(kind, ()))
        peaks += [
            one.highest_bytes
            for one in self._running.values()
            if one.kind == kind and one.highest_bytes and (one.since_s <= settled_s or peaks)
        ]
        return int(MARGIN * max(peaks)) if peaks else UNKNOWN_BYTES

    @asynccontextmanager
    async def admission(self, kind: str, wait: Wait) -> AsyncIterator[Admitted]:
        """Entered when there is room; in the block, the process runs. Whoever is alone always has room."""
        while not self._has_room(kind):  # another one may be faster than who has just been told
            _LOG.info("%s waits: no room for about %.0f MB", kind, self.expected_bytes(kind) / 1e6)
            await wait(self._room(kind), WAITS_FOR_MEMORY)
        running = _Running(kind, self._now_s())
        self._running[id(running)] = running
        place = running.place
        try:
            yield place
        finally:
            del self._running[id(running)]
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
        running = list(self._running.values())
        for one in running:
            one.look()
        expected = {each: self.expected_bytes(each) for each in {kind, *(one.kind for one in running)}}
        owed_bytes = sum(max(0, expected[one.kind] - one.memory_bytes) for one in running)
        return has_room(self._read(), expected[kind], owed_bytes)


def has_room(reading: HostReading, expected_bytes: int, owed_bytes: int) -> bool:
    """Whether a process fits beside what those that run will still take. Pure."""
    if reading.available_bytes is None or not reading.total_bytes:
        return True  # a machine that does not say
    spare_bytes = SPARE_SHARE * reading.total_bytes
    return reading.available_bytes - owed_bytes - spare_bytes >= expected_bytes


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
