"""What may be spent: a call goes when it fits beside what is spent and what other calls will cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future


class BudgetSpent(Exception):
    """The next call would exceed the budget."""


class Budget:
    """One for a process; any thread and loop may use it."""

    def __init__(self, spent_usd: Callable[[], float]) -> None:
        self.limit_usd: float | None = None
        """`None` for no bound."""
        self._spent_usd = spent_usd
        self._lock = threading.Lock()
        self._calls = 0
        self._under_way_usd = 0.0
        self._ended: Future[None] | None = None
        """Where somebody waits for a call to end."""

    async def reserve(self, expected_usd: float) -> None:
        """Wait while calls under way may leave too little; `BudgetSpent` where there is too little left.

        Expectations are high before the first answer, so a lone first call goes however much it may cost.
        """
        while (ended := self._reserved(expected_usd)) is not None:
            await asyncio.shield(asyncio.wrap_future(ended))

    def release(self, expected_usd: float) -> None:
        """The call is over, and what it cost is counted."""
        with self._lock:
            self._calls -= 1
            self._under_way_usd -= expected_usd
            ended, self._ended = self._ended, None
        if ended is not None:
            ended.set_result(None)

    def _reserved(self, expected_usd: float) -> Future[None] | None:
        """`None` where there was room; else what to wait for."""
        with self._lock:
            spent_usd = self._spent_usd()
            if self.limit_usd is not None:
                left_usd = self.limit_usd - spent_usd
                if left_usd <= 0 or (not self._calls and spent_usd > 0 and expected_usd > left_usd):
                    raise BudgetSpent(
                        f"the budget of {self.limit_usd:g} USD is spent ({spent_usd:.4f} USD);"
                        f" another call is expected to cost {expected_usd:.4f} USD"
                    )
                if self._calls and expected_usd > left_usd - self._under_way_usd:
                    self._ended = self._ended or Future()
                    return self._ended
            self._calls += 1
            self._under_way_usd += expected_usd
            return None
