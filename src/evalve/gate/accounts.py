"""What a run may do with calls, and what its calls came to: cache mode, budget and totals.

A sample carries its run's account. A call that belongs to no sample (a fixture's, a module's) counts for the
run that is under way; where none is, or several are, for what is around them all, such as a pytest run; else
for the process.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from evalve.contracts import CallLog, SampleContext
from evalve.gate.budget import Budget, RunBudget, SharedBudget

if TYPE_CHECKING:
    from evalve.gate.batches.runs import RunBatches

CacheMode = Literal["on", "off", "read", "refresh"]
"""on: read and write; off: neither; read: never ask a provider; refresh: ask anew, and keep that."""


REFUSALS_OF_A_KEY = 5
"""After so many answers in a row that do not know the key, a run stops."""


class Account:
    """One for each run, and one for the process. Any thread and loop may use it."""

    def __init__(
        self,
        mode: CacheMode,
        *,
        budget_usd: float | None = None,
        spent_before_usd: float = 0.0,
        shares: int = 1,
        shared: SharedBudget | None = None,
    ) -> None:
        self.mode: CacheMode = mode
        self.budget: RunBudget = (
            Budget(self.spent_usd, budget_usd, before_usd=spent_before_usd, shares=shares)
            if shared is None
            else shared.joined_by(self.spent_usd)
        )
        self.refreshed: set[bytes] = set()
        """What `refresh` has asked for anew already; it is not asked for a third time."""
        self.scopes: set[str] = set()
        """Whose limits its calls have waited for."""
        self.admitted: dict[str, dict[int, dict[str, float]]] = {}
        """What its calls took of limits: by scope, by second, by dimension."""
        self.batches: RunBatches | None = None
        """Where calls go that may wait for a batch; `None` where all go at once."""
        self.lock = threading.Lock()
        """Guards the figures."""
        self._total = CallLog()
        self._keys_refused: dict[str, int] = {}
        """How many answers in a row said that they do not know the key, by scope."""

    def in_mode(self, mode: CacheMode) -> Account:
        """The same account, whose budget and figures are one, for calls that use the cache in another way."""
        other = copy.copy(self)
        other.mode = mode
        return other

    def counted_before(self) -> Account:
        """The same for what an earlier run has counted, so that only the sample has yet to."""
        other = copy.copy(self)
        other._total = CallLog()
        return other

    def without_batches(self) -> Account:
        """The same for calls that cannot wait: of programs with time-outs of their own."""
        if self.batches is None:
            return self
        other = copy.copy(self)
        other.batches = None
        return other

    def note_key_refused(self, scope: str) -> bool:
        """Whether so many in a row were refused that no further call can be expected to succeed."""
        with self.lock:
            refused = self._keys_refused[scope] = self._keys_refused.get(scope, 0) + 1
        return refused >= REFUSALS_OF_A_KEY

    def note_key_taken(self, scope: str) -> None:
        if self._keys_refused:
            with self.lock:
                self._keys_refused.pop(scope, None)

    def logs(self, sample: SampleContext | None) -> tuple[CallLog, ...]:
        """Where a call is counted. Totals are not sums over samples: a call may belong to none."""
        if sample is None:
            return (self._total,)
        return (*self._total.counting(sample.role), *sample.calls.counting(sample.role))

    def totals(self) -> dict[str, Any]:
        with self.lock:
            return self._total.to_plain()

    def count_elsewhere(self, made: CallLog) -> None:
        """What calls of the run came to in another process."""
        with self.lock:
            self._total.add(made)

    def overspent(self) -> str:
        """That the budget is used up, in words, for calls that do not ask before they go; else empty."""
        limit_usd, used_usd = self.budget.limit_usd, self.budget.used_usd()
        if limit_usd is None or used_usd < limit_usd:
            return ""
        return f"the budget is used up: {used_usd:.4f} USD of {limit_usd:g} USD, by what agents report"

    def spent_usd(self) -> float:
        return self._total.spent_usd()

    def note_admitted(self, scope: str, at_s: float, cost: Any) -> None:
        """What a call takes of a limit, by dimension."""
        with self.lock:
            second = self.admitted.setdefault(scope, {}).setdefault(int(at_s), {})
            for dimension, amount in cost.items():
                second[dimension] = second.get(dimension, 0.0) + amount


class Accounts:
    """Those of the runs that are under way in this process."""

    def __init__(self) -> None:
        self._under_way: tuple[Account, ...] = ()
        self._around: Account | None = None
        """Of what is around them all."""
        self._changing = threading.Lock()

    @contextmanager
    def open(self, account: Account) -> Iterator[Account]:
        """In the block, the run is under way."""
        self.enter(account)
        try:
            yield account
        finally:
            with self._changing:
                self._under_way = tuple(each for each in self._under_way if each is not account)

    def enter(self, account: Account) -> Account:
        """The run is under way from now on."""
        with self._changing:
            self._under_way = (*self._under_way, account)
        return account

    @contextmanager
    def around(self, account: Account) -> Iterator[Account]:
        """In the block, calls between the runs have this account."""
        before, self._around = self._around, account
        try:
            yield account
        finally:
            self._around = before

    def of_no_sample(self) -> Account | None:
        """Whose a call is that belongs to no sample; `None` where only the process is left."""
        under_way = self._under_way
        return under_way[0] if len(under_way) == 1 else self._around
