"""What may be spent: a call goes when it fits beside what is spent and what other calls will cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol


class BudgetSpent(Exception):
    """The next call would exceed the budget."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is set aside for a call before it goes."""

    usd: float = 0.0
    is_bound: bool = True
    """It cannot cost more. Otherwise `usd` is what it is expected to cost."""
    goes_alone: bool = False
    """Nobody can know what it costs, and no answer has shown it yet: nothing else goes beside it."""
    kind: str = ""
    """Of the calls whose price nobody can know, which."""
    is_in_batch: bool = False
    """Should the process die, who fetches its answer counts it."""


NOTHING = Ahead()
_ROUNDING_USD = 1e-9


class RunBudget(Protocol):
    """What the gate asks of a budget, wherever it is kept. Any thread and loop may use it."""

    limit_usd: float | None
    """`None` for no bound."""

    async def reserve(self, look_ahead: Callable[[], Ahead]) -> Ahead:
        """Wait while calls under way may leave too little; `BudgetSpent` where there is too little left.

        It looks ahead anew after each wait: answers show what calls cost. What is expected to cost more goes
        all the same if nothing is spent and nothing is under way: an expectation is high before the first
        answer.
        """

    def reserve_now(self, ahead: Ahead) -> bool:
        """`reserve` without waiting; false where it would wait."""

    def release(self, ahead: Ahead, *, is_unknown: bool = False) -> None:
        """The call is over, and what it cost is counted.

        `is_unknown`: its answer does not say what it took, or none came; what was set aside is spent.
        """

    def stand_still(self, ahead: Ahead) -> None:
        """Nobody reads the call's answer any more: it is no use to wait for its end."""

    def go_on(self, ahead: Ahead) -> None:
        """Somebody reads it again."""

    def used_usd(self) -> float:
        """What is spent, and what calls may have cost that did not say."""


class Budget:
    """One for a run."""

    def __init__(
        self,
        spent_usd: Callable[[], float],
        limit_usd: float | None = None,
        *,
        before_usd: float = 0.0,
        shares: int = 1,
    ) -> None:
        """`shares` is among how many processes a person's budget was divided."""
        self.limit_usd = limit_usd
        self._before_usd = before_usd
        """What others have spent of what a person set; the limit is what they left of it."""
        self._shares = shares
        self._spent_usd = spent_usd
        self._lock = threading.Lock()
        self._calls = 0
        self._standing_still = 0
        """Of the calls, those that nobody reads."""
        self._alone = 0
        """Of the calls, those that nothing may go beside."""
        self._under_way_usd = 0.0
        self._unstated_usd = 0.0
        """Set aside for answers that did not say what they took."""
        self._changed: Future[None] | None = None
        """Where somebody waits for a call to end."""
        self._earlier_usd = 0.0
        """Of what is spent, what earlier runs have."""
        self._earlier_unstated_usd = 0.0
        """Of that, what calls may have cost that did not say."""

    async def reserve(self, look_ahead: Callable[[], Ahead]) -> Ahead:
        while (changed := self._reserved(ahead := look_ahead())) is not None:
            await asyncio.shield(asyncio.wrap_future(changed))
        return ahead

    def reserve_now(self, ahead: Ahead) -> bool:
        return self._reserved(ahead) is None

    def release(self, ahead: Ahead, *, is_unknown: bool = False) -> None:
        with self._lock:
            self._calls -= 1
            self._alone -= ahead.goes_alone
            self._under_way_usd -= ahead.usd
            if is_unknown:
                self._unstated_usd += ahead.usd
        self._tell()

    def stand_still(self, ahead: Ahead) -> None:
        with self._lock:
            self._standing_still += 1
        self._tell()

    def go_on(self, ahead: Ahead) -> None:
        with self._lock:
            self._standing_still -= 1

    def used_usd(self) -> float:
        return self._spent_usd() + self._unstated_usd

    def _tell(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    def _reserved(self, ahead: Ahead) -> Future[None] | None:
        """`None` where there was room; else what to wait for."""
        with self._lock:
            if self.limit_usd is not None:
                spent_usd = self._spent_usd() + self._unstated_usd
                left_usd = self.limit_usd - spent_usd
                if not self._has_room(ahead, left_usd):
                    if self._calls > self._standing_still:
                        self._changed = self._changed or Future()
                        return self._changed
                    is_first = not ahead.is_bound and not self._calls and spent_usd <= 0
                    if left_usd <= 0 or not is_first:
                        raise BudgetSpent(self._refusal(self.limit_usd, spent_usd, ahead))
            self._calls += 1
            self._alone += ahead.goes_alone
            self._under_way_usd += ahead.usd
            return None

    def _has_room(self, ahead: Ahead, left_usd: float) -> bool:
        if left_usd <= 0 or self._alone:
            return False
        if ahead.goes_alone:
            return not self._calls
        return ahead.usd <= left_usd - self._under_way_usd + _ROUNDING_USD

    def _refusal(self, limit_usd: float, spent_usd: float, ahead: Ahead) -> str:
        before_usd = self._before_usd
        another = f"another call may cost {ahead.usd:.4f} USD; raise it, or lower max_tokens"
        if not ahead.is_bound:
            another = f"another call is expected to cost {ahead.usd:.4f} USD"
        earlier = f", {self._earlier_usd:.4f} USD of it by earlier runs" if self._earlier_usd else ""
        unstated_usd = self._unstated_usd + self._earlier_unstated_usd
        unstated = ""
        if unstated_usd > _ROUNDING_USD:
            unstated = f", {unstated_usd:.4f} USD of it at most, for calls that did not say what they took"
        unread = ""
        if self._standing_still:
            unread = (
                f", {self._under_way_usd:.4f} USD set aside for streams that are open and not read:"
                " read them to their end, or close them"
            )
        whole = f"the budget of {(limit_usd + before_usd) * self._shares:g} USD"
        if self._shares > 1:
            whole = f"one of {self._shares} shares of {whole}"
        if spent_usd + before_usd <= _ROUNDING_USD and not unread:
            return f"{whole} is too small: {another.replace('another call', 'a call', 1)}"
        spent = f"{spent_usd + before_usd:.4f} USD spent{earlier}{unstated}{unread}"
        return f"{whole} is used up ({spent}): {another}"


class SharedBudget(Budget):
    """One for several runs beside each other: what each of them spends is taken from the same amount."""

    def __init__(
        self, limit_usd: float, *, earlier_usd: float = 0.0, earlier_unstated_usd: float = 0.0
    ) -> None:
        """`earlier_usd` is what earlier runs have spent of it, some of it perhaps: `earlier_unstated_usd`."""
        self._payers: list[Callable[[], float]] = [lambda: earlier_usd]
        super().__init__(lambda: sum(spent_usd() for spent_usd in self._payers), limit_usd)
        self._earlier_usd = earlier_usd
        self._earlier_unstated_usd = earlier_unstated_usd

    def joined_by(self, spent_usd: Callable[[], float]) -> BudgetShare:
        with self._lock:
            self._payers.append(spent_usd)
        return BudgetShare(self, spent_usd)


class BudgetShare:
    """A shared budget as one of the runs has it, which notes what its own calls may have cost."""

    def __init__(self, whole: SharedBudget, spent_usd: Callable[[], float]) -> None:
        self.limit_usd = whole.limit_usd
        self.note: Callable[[float], None] | None = None
        """Told before each call goes, and when it is over."""
        self._whole = whole
        self._spent_usd = spent_usd
        self._lock = threading.Lock()
        self._set_aside_usd = 0.0
        """For calls under way, and for those that did not say what they took."""

    def may_have_cost_usd(self) -> float:
        return self._spent_usd() + self._set_aside_usd

    async def reserve(self, look_ahead: Callable[[], Ahead]) -> Ahead:
        ahead = await self._whole.reserve(look_ahead)
        self._set_aside(ahead)
        return ahead

    def reserve_now(self, ahead: Ahead) -> bool:
        is_reserved = self._whole.reserve_now(ahead)
        if is_reserved:
            self._set_aside(ahead)
        return is_reserved

    def release(self, ahead: Ahead, *, is_unknown: bool = False) -> None:
        self._whole.release(ahead, is_unknown=is_unknown)
        self._set_aside(ahead, times=0 if is_unknown else -1)

    def stand_still(self, ahead: Ahead) -> None:
        self._whole.stand_still(ahead)

    def go_on(self, ahead: Ahead) -> None:
        self._whole.go_on(ahead)

    def used_usd(self) -> float:
        return self._whole.used_usd()

    def _set_aside(self, ahead: Ahead, times: int = 1) -> None:
        with self._lock:  # also while it is noted, or an older figure might come last
            if not ahead.is_in_batch:
                self._set_aside_usd += times * ahead.usd
            if self.note is not None:
                self.note(self.may_have_cost_usd())
