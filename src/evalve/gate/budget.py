"""What may be spent: a call goes when it fits beside what is spent and what other calls will cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future


class BudgetSpent(Exception):
    """The next call would exceed the budget."""


class Budget:
    """One for a run; any thread and loop may use it."""

    def __init__(
        self,
        spent_usd: Callable[[], float],
        limit_usd: float | None = None,
        *,
        before_usd: float = 0.0,
    ) -> None:
        self.limit_usd = limit_usd
        """`None` for no bound."""
        self._before_usd = before_usd
        """What others have spent of what a person set; the limit is what they left of it."""
        self._spent_usd = spent_usd
        self._lock = threading.Lock()
        self._calls = 0
        self._under_way_usd = 0.0
        self._unstated_usd = 0.0
        """Set aside for answers that did not say what they took."""
        self._ended: Future[None] | None = None
        """Where somebody waits for a call to end."""

    async def reserve(self, usd: float, *, is_bound: bool) -> None:
        """Wait while calls under way may leave too little; `BudgetSpent` where there is too little left.

        `is_bound` says that the call cannot cost more. Otherwise `usd` is what it is expected to, which is
        high before the first answer: a lone first call then goes however much that is.
        """
        while (ended := self._reserved(usd, is_bound)) is not None:
            await asyncio.shield(asyncio.wrap_future(ended))

    def reserve_now(self, usd: float, *, is_bound: bool) -> bool:
        """`reserve` without waiting; false where it would wait."""
        return self._reserved(usd, is_bound) is None

    def release(self, usd: float) -> None:
        """The call is over, and what it cost is counted."""
        with self._lock:
            self._calls -= 1
            self._under_way_usd -= usd
            ended, self._ended = self._ended, None
        if ended is not None:
            ended.set_result(None)

    def keep(self, usd: float) -> None:
        """An answer does not say what it took, or none came: what was set aside for it counts as spent."""
        with self._lock:
            self._unstated_usd += usd

    def used_usd(self) -> float:
        """What is spent, and what calls may have cost that did not say."""
        return self._spent_usd() + self._unstated_usd

    def _reserved(self, usd: float, is_bound: bool) -> Future[None] | None:
        """`None` where there was room; else what to wait for."""
        with self._lock:
            if self.limit_usd is not None:
                spent_usd = self._spent_usd() + self._unstated_usd
                left_usd = self.limit_usd - spent_usd
                if left_usd <= 0 or usd > left_usd - self._under_way_usd:
                    if self._calls:
                        self._ended = self._ended or Future()
                        return self._ended
                    if left_usd <= 0 or is_bound or spent_usd > 0:
                        before_usd = self._before_usd
                        raise BudgetSpent(
                            _refusal(self.limit_usd + before_usd, spent_usd + before_usd, usd, is_bound)
                        )
            self._calls += 1
            self._under_way_usd += usd
            return None


class SharedBudget(Budget):
    """One for several runs beside each other: what each of them spends is taken from the same amount."""

    def __init__(self, limit_usd: float) -> None:
        self._payers: list[Callable[[], float]] = []
        super().__init__(lambda: sum(spent_usd() for spent_usd in self._payers), limit_usd)

    def joined_by(self, spent_usd: Callable[[], float]) -> SharedBudget:
        with self._lock:
            self._payers.append(spent_usd)
        return self


def _refusal(limit_usd: float, spent_usd: float, usd: float, is_bound: bool) -> str:
    another = f"another call may cost {usd:.4f} USD; raise it, or lower max_tokens"
    if not is_bound:
        another = f"another call is expected to cost {usd:.4f} USD"
    return f"the budget of {limit_usd:g} USD is used up ({spent_usd:.4f} USD spent): {another}"
