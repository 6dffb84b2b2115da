"""Where the limits' shared state lives: a contract, and the form of it that one process keeps to itself.

Every operation is atomic over all dimensions of a scope. A store for several machines fulfils the same
contract, so nothing here assumes that it can run Python inside a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from evalve.gate.limits.answers import note_served, note_unheld, observe
from evalve.gate.limits.booking import Booking, ScopeState
from evalve.gate.limits.bucket import Sent
from evalve.gate.limits.history import History
from evalve.gate.limits.refusals import is_about_rate, learn_rate, lower_ceiling, penalise, refuse, refute
from evalve.gate.messages import Cost, Dimension, Limits, Stated

SHORT_S = 2.0
"""What a refusal asks to wait, at most, for calls of others to go on meanwhile."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 429 that a call met."""

    dimension: str | None
    retry_after_s: float
    in_flight: int = 0
    """Calls of the same process that went on; those that were never booked are known to it alone."""
    in_a_row: bool = False
    """Whether the calls of the same process that started shortly before it were refused too."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a booked call came to."""

    booked: Cost
    actual: Cost
    started_at_s: float
    stated: Mapping[Dimension, Stated] = field(default_factory=dict)
    answered: bool = False
    """Whether headers came at all."""
    refusal: Refusal | None = None
    version: int = 0
    """Of the booking."""
    sent: Mapping[Dimension, Sent] = field(default_factory=dict)
    """From the booking."""
    unheld: History | None = None
    """For a call that no limit held back: all of the same process, the refused not counted."""


@dataclass(frozen=True, slots=True)
class ScopeView:
    """A scope as it is now, for people."""

    scope: str
    state: ScopeState
    now_s: float
    holders: Mapping[str, str] = field(default_factory=dict)
    """Holder → who that is, in words."""


class LimitState(Protocol):
    """Buckets, pauses and leases of every scope."""

    def now_s(self) -> float:
        """The clock that all instants here are told by: the same for everyone who shares the state."""

    async def exchange(
        self,
        scope: str,
        limits: Limits,
        settlements: Sequence[Settlement],
        costs: Sequence[Cost],
        *,
        horizon_s: float,
    ) -> list[Booking]:
        """Settle, then book the costs in order, as many as start within `horizon_s`.

        The first is booked however late it starts; the answer ends with the first that is not booked. If
        that is the first, every concurrent call is taken: this holder waits for a place from then on, and
        is told of it (`on_place`), until it is granted one or gives up.
        """

    async def give_up(self, scope: str) -> None:
        """This holder no longer waits for a place."""

    def on_place(self, tell: Callable[[], object]) -> None:
        """Have it called, in any thread, when there may be a place that this holder waits for.

        Nobody is forgotten that lives: who makes room tells who is next. The dead tell nobody, so who waits
        asks again now and then.
        """

    async def version(self, scope: str) -> int:
        """Changes when what is booked must be booked again."""

    async def peek(self, scope: str) -> ScopeState:
        """The state for reading, without taking part."""

    async def views(self) -> list[ScopeView]: ...

    async def close(self) -> None: ...


def apply(
    state: ScopeState,
    limits: Limits,
    settlements: Sequence[Settlement],
    costs: Sequence[Cost],
    *,
    holder: str,
    now_s: float,
    horizon_s: float,
) -> list[Booking]:
    """The whole of `LimitState.exchange`, on a state that the caller has to itself.

    What is left to do is telling those whom `ScopeState.offer_places` names.
    """
    if state.line.waits:
        state.line.pass_over(now_s, but=holder)
    if holder in state.holders:
        state.holders[holder].heard_at_s = now_s
    for settlement in settlements:
        _settle(state, limits, settlement, holder, now_s)
    state.hold(limits, now_s)
    bookings: list[Booking] = []
    for cost in costs:
        not_after_s = now_s + horizon_s if bookings else float("inf")
        booking = state.book(cost, holder, now_s, not_after_s=not_after_s)
        bookings.append(booking)
        if not booking.granted:
            break
    if bookings and (state.line.waits or not bookings[0].granted):
        state.queue(holder, granted=bookings[0].granted)
    return bookings


def _settle(state: ScopeState, limits: Limits, settlement: Settlement, holder: str, now_s: float) -> None:
    if settlement.booked:
        state.settle(
            settlement.booked,
            settlement.actual,
            holder,
            version=settlement.version,
            started_at_s=settlement.started_at_s,
        )
    if settlement.answered:
        observe(
            state,
            settlement.stated,
            now_s,
            _sent(settlement),
            cost=settlement.actual,
            sent_at_s=settlement.started_at_s,
            was_held=settlement.unheld is None,
        )
    refusal = settlement.refusal
    if settlement.unheld is not None:
        note_unheld(
            state,
            holder,
            settlement.unheld,
            settlement.actual,
            sent_at_s=settlement.started_at_s,
            now_s=now_s,
        )
    if settlement.answered and refusal is None:
        note_served(state, settlement.sent, settlement.started_at_s, now_s)
    if refusal is not None and refusal.dimension == "concurrency":
        lower_ceiling(state, refusal.in_flight, now_s)
    elif refusal is not None:
        if state.stated:
            state.hold(limits, now_s)  # what it tells depends on the rate, and its own headers may tell that
        _refused(state, settlement, refusal, now_s)


def _refused(state: ScopeState, settlement: Settlement, refusal: Refusal, now_s: float) -> None:
    sent_at_s, retry_after_s = settlement.started_at_s, refusal.retry_after_s
    is_short = retry_after_s <= SHORT_S
    if settlement.booked and state.learnt is None:
        state.doubt.note_unsent(sent_at_s)
    cost = settlement.booked or {"requests": 1.0}
    if refuse(
        state, refusal.dimension, settlement.stated, settlement.sent, cost, sent_at_s, retry_after_s, now_s
    ):
        return
    if refute(state, refusal.dimension, settlement.stated, cost, sent_at_s, now_s) and is_short:
        return  # calls go on at the rate, from an empty bucket
    if not state.stated and not state.is_configured and is_short and refusal.dimension != "ramp":
        booked_for_s = sent_at_s if settlement.booked else None
        served_per_s = settlement.unheld.per_s(now_s) if settlement.unheld is not None else 0.0
        if not is_about_rate(state, served_per_s, sent_at_s, booked_for_s, now_s, in_a_row=refusal.in_a_row):
            return
    if learn_rate(
        state,
        refusal.dimension,
        retry_after_s,
        sent=settlement.sent.get("requests", Sent(sent_at_s, 0.0)) if settlement.booked else None,
        now_s=now_s,
    ):
        return
    penalise(state, refusal.dimension, retry_after_s, sent_at_s, now_s)


def _sent(settlement: Settlement) -> Mapping[Dimension, Sent]:
    """A refused call took of our bucket what it did not take of the one that refused it."""
    if settlement.refusal is None:
        return settlement.sent
    return {
        dimension: replace(sent, refused=settlement.actual.get(dimension, 0.0))
        for dimension, sent in settlement.sent.items()
        if dimension == settlement.refusal.dimension
    }


class MemoryState:
    """For one process alone: asked for by `memory`, and what a process falls back to without a disk."""

    def __init__(self, *, now_s: Callable[[], float], beside: MemoryState | None = None) -> None:
        """`beside` shares its state, as another process would."""
        self._now_s = now_s
        self._lock: threading.Lock = threading.Lock() if beside is None else beside._lock
        self._scopes: dict[str, ScopeState] = {} if beside is None else beside._scopes
        self._tell: dict[str, list[Callable[[], object]]] = {} if beside is None else beside._tell
        self._holder = f"holder {len(self._tell)}"
        self._tell[self._holder] = []

    def take_over(self, states: Mapping[str, ScopeState]) -> None:
        """Go on from what is known of each scope."""
        self._scopes.update(states)

    def now_s(self) -> float:
        return self._now_s()

    async def exchange(
        self,
        scope: str,
        limits: Limits,
        settlements: Sequence[Settlement],
        costs: Sequence[Cost],
        *,
        horizon_s: float,
    ) -> list[Booking]:
        with self._lock:
            state = self._scopes.setdefault(scope, ScopeState())
            now_s = self._now_s()
            bookings = apply(
                state, limits, settlements, costs, holder=self._holder, now_s=now_s, horizon_s=horizon_s
            )
            told = state.offer_places(now_s, but=self._holder if costs else None)
        self._tell_of_places(told)
        return bookings

    async def give_up(self, scope: str) -> None:
        with self._lock:
            state = self._scopes.setdefault(scope, ScopeState())
            state.line.leave(self._holder)
            told = state.offer_places(self._now_s())
        self._tell_of_places(told)

    def on_place(self, tell: Callable[[], object]) -> None:
        self._tell[self._holder].append(tell)

    def _tell_of_places(self, holders: Sequence[str]) -> None:
        for holder in holders:
            for tell in self._tell[holder]:
                tell()

    async def version(self, scope: str) -> int:
        state = self._scopes.get(scope)
        return state.version if state is not None else 0

    async def peek(self, scope: str) -> ScopeState:
        return self._scopes.get(scope) or ScopeState()

    async def views(self) -> list[ScopeView]:
        return [ScopeView(scope, state, self._now_s()) for scope, state in self._scopes.items()]

    async def close(self) -> None:
        """Nothing is kept."""
