"""Limits that outlive their file: whatever becomes of it, calls go on, held to limits by this process alone.

Nothing about the file is worth a sample: it may be read-only, full, damaged, or kept by another program. That
is told once; after a while the file is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from evalve.gate.limits.booking import Booking, ScopeState
from evalve.gate.limits.state import LimitState, MemoryState, ScopeView, Settlement
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.messages import Cost, Limits

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

TRY_AGAIN_AFTER_S = 30.0
LONGEST_BEFORE_TRY_S = 600.0


class SteadyState:
    """The shared state while it can be used, else one of this process's own that goes on from it."""

    def __init__(self, shared: SqliteState) -> None:
        self._shared = shared
        self._own: MemoryState | None = None
        self._try_again_at_s = 0.0
        self._failures = 0
        self._is_told = False
        self._tell: list[Callable[[], object]] = []

    def now_s(self) -> float:
        return self._shared.now_s()

    async def exchange(
        self,
        scope: str,
        limits: Limits,
        settlements: Sequence[Settlement],
        costs: Sequence[Cost],
        *,
        horizon_s: float,
    ) -> list[Booking]:
        return await self._either(
            lambda state: state.exchange(scope, limits, settlements, costs, horizon_s=horizon_s)
        )

    async def give_up(self, scope: str) -> None:
        await self._either(lambda state: state.give_up(scope))

    def on_place(self, tell: Callable[[], object]) -> None:
        self._tell.append(tell)
        self._shared.on_place(tell)

    async def version(self, scope: str) -> int:
        return await self._looked_at(lambda state: state.version(scope))

    async def peek(self, scope: str) -> ScopeState:
        return await self._looked_at(lambda state: state.peek(scope))

    async def views(self) -> list[ScopeView]:
        return await self._looked_at(lambda state: state.views())

    async def close(self) -> None:
        await self._shared.close()

    async def _looked_at(self, do: Callable[[LimitState], Awaitable[T]]) -> T:
        """Only what is written shows that the file can be used again: a full disk can be read."""
        return await (self._either(do) if self._own is None else do(self._own))

    async def _either(self, do: Callable[[LimitState], Awaitable[T]]) -> T:
        own = self._own
        if own is not None and self.now_s() < self._try_again_at_s:
            return await do(own)
        try:
            done = await do(self._shared)
        except Exception as error:  # no error of a file is worth an answer
            return await do(self._fallen_back(error))
        self._own, self._failures = None, 0
        return done

    def _fallen_back(self, error: Exception) -> MemoryState:
        wait_s = min(TRY_AGAIN_AFTER_S * 2**self._failures, LONGEST_BEFORE_TRY_S)
        self._try_again_at_s = self.now_s() + wait_s
        self._failures += 1
        if not self._is_told:
            self._is_told = True
            _LOG.warning(
                "%s cannot be used (%s): limits hold for this process alone until it can. See whether the"
                " disk is full, the file is yours to write, and no other program keeps it; or name another"
                " folder with EVALVE_STATE_DIR",
                self._shared.path,
                error,
            )
        known = self._shared.last_known()
        if self._own is None:
            self._own = MemoryState(now_s=self._shared.now_s)
            for tell in self._tell:
                self._own.on_place(tell)
            self._own.take_over(known)
        return self._own
