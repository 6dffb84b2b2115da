"""What a run does for a sample, pretended: waits are plain and remembered, a stop is noted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class FakeSurroundings:
    """Remembers what was asked of it; `end_waits` cancels whoever waits, as a stop does."""

    waits: list[tuple[str, str]] = field(default_factory=list)
    """`parked` or `held`, and the reason."""
    reasons: list[str] = field(default_factory=list)
    """Why the run was asked to stop."""
    drops_sample: bool = False
    calls: int = 0
    most_calls: int = 0
    _waiting: list[asyncio.Task[object]] = field(default_factory=list)

    async def parked(self, awaitable: Awaitable[T], reason: str) -> T:
        return await self._waited("parked", awaitable, reason)

    async def held(self, awaitable: Awaitable[T], reason: str) -> T:
        return await self._waited("held", awaitable, reason)

    def call_begins(self) -> None:
        self.calls += 1
        self.most_calls = max(self.most_calls, self.calls)

    def call_ends(self) -> None:
        self.calls -= 1

    def stop_run(self, reason: str, *, drops_sample: bool = False) -> None:
        self.reasons.append(reason)
        self.drops_sample = self.drops_sample or drops_sample

    def when_committed(self, callback: Callable[[], None]) -> None:
        callback()

    def when_recorded(self, callback: Callable[[], None]) -> None:
        callback()

    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def elsewhere(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end_waits(self) -> None:
        for task in self._waiting:
            task.cancel()

    async def _waited(self, how: str, awaitable: Awaitable[T], reason: str) -> T:
        self.waits.append((how, reason))
        task = asyncio.current_task()
        assert task is not None
        self._waiting.append(task)
        try:
            return await awaitable
        finally:
            self._waiting.remove(task)
