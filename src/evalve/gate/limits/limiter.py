"""Admission: who may send when. Waiters queue here, their head books in the shared state, and waits exactly.

Of a process's waiters only one, the leader, talks to the state; it books for those behind it that may
start at the same moment, wakes each at its instant, and hands on when it has been served itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from evalve.clock import LOOP_CLOCK, Clock
from evalve.gate.limits.booking import Booking
from evalve.gate.limits.bucket import Sent
from evalve.gate.limits.queueing import Hold, Pricing, Scope, Signal, Waiter, priced
from evalve.gate.limits.state import LimitState, Refusal, Settlement
from evalve.gate.messages import Call, Cost, Dimension, Limits, Stated

HORIZON_S = 0.02
"""How far ahead the leader books for those behind it: further would be unfair to other processes."""
MOST_AT_ONCE = 32
LONG_WAIT_S = 0.25
"""A wait during which answers may come that change it."""
ASK_AGAIN_S = 1.0
"""When a place is asked for again that nobody has told of, for who holds it may have been killed; and when
a long wait looks whether another process was told of a higher limit."""
SHORTEST_WAIT_S = 0.001
"""Before a place is asked for again: its instant may be rounded to just before it."""
UNBOOKED = -1
"""The version of leave that was given where no limit was known: nothing is to be settled."""
USED_OVER_S = 5
OPENING_STEP_S = 0.01
PILOT_DOUBLES_EVERY_S = 1.0
"""Until the first answer shows the limits, calls are few: one, after this long two, then four …"""


@dataclass(slots=True)  # not frozen: there is one for every call, and freezing triples its cost
class Permit:
    """Leave to send one request now."""

    scope: str
    cost: Cost
    started_at_s: float
    booked: bool
    waited_s: float = 0.0
    version: int = 0
    """Of the booking."""
    sent: Mapping[Dimension, Sent] = field(default_factory=dict)
    """From the booking."""


class Limiter:
    """Admits calls under the limits of their scopes. One per process; any thread and loop may use it."""

    def __init__(
        self,
        state: LimitState,
        *,
        limits_for: Callable[[Call], Limits],
        clock: Clock = LOOP_CLOCK,
        ask_again_s: float = ASK_AGAIN_S,
    ) -> None:
        self._state = state
        self._limits_for = limits_for
        self._clock = clock
        self._ask_again_s = ask_again_s
        self._lock = threading.RLock()  # reentrant: the garbage collector may call `abandon` anywhere
        self._scopes: dict[str, Scope] = {}
        state.on_place(self._told_of_place)

    async def admit(self, call: Call, cost: Pricing, *, group: str = "", learns: bool = True) -> Permit:
        """Wait until the call may be sent.

        `learns` says that its answer's headers will be told; without, no first answer is waited for.
        """
        scope = self._scopes.get(call.scope) or await self._entered(call)
        asked_s = self._state.now_s()
        if not scope.limited and (scope.known or not learns) and scope.room(asked_s) >= 1:
            return self._let_go(scope, cost, asked_s)
        waiter = Waiter(cost, group)
        booking = await self._served(scope, waiter)
        scope.note_admitted(booking)
        if booking.version == UNBOOKED:
            scope.unheld.add(1, booking.start_s)
        return Permit(
            scope.name,
            booking.cost,
            booking.start_s,
            booked=booking.version != UNBOOKED,
            waited_s=max(0.0, self._state.now_s() - asked_s),
            version=booking.version,
            sent=booking.sent,
        )

    def admit_now(self, call: Call, cost: Pricing) -> Permit | None:
        """Leave without a wait, where it is known that no limit applies."""
        scope = self._scopes.get(call.scope)
        if scope is None or scope.limited or not scope.known:
            return None
        now_s = self._state.now_s()
        return self._let_go(scope, cost, now_s) if scope.room(now_s) >= 1 else None

    def _let_go(self, scope: Scope, cost: Pricing, now_s: float) -> Permit:
        with self._lock:
            scope.let_out([now_s])
            scope.unheld.add(1, now_s)
        return Permit(scope.name, priced(cost), now_s, booked=False)

    async def settle(
        self,
        permit: Permit,
        actual: Cost,
        *,
        stated: Mapping[Dimension, Stated] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        """Tell what the call took; `stated` is `None` where no answer came."""
        scope = self._scopes[permit.scope]
        with self._lock:
            scope.in_flight -= 1
            scope.tell_news()
            if stated is not None and not scope.known:
                scope.known = True
                scope.open(self._state.now_s())
            in_a_row = False
            if refusal is not None and not stated and not scope.is_configured:
                in_a_row = scope.hesitate(permit.started_at_s, self._state.now_s())
            if stated or refusal is not None:
                scope.limited = True
            if not scope.limited:
                return
            if refusal is not None:
                if not permit.booked:
                    scope.unheld.take_back(1, permit.started_at_s)
                refusal = replace(refusal, in_flight=scope.in_flight, in_a_row=in_a_row)
            settlement = Settlement(
                booked=permit.cost if permit.booked else {},
                actual=actual if permit.booked or refusal is None else permit.cost,
                started_at_s=permit.started_at_s,
                stated=stated or {},
                answered=stated is not None,
                refusal=refusal,
                version=permit.version,
                sent=permit.sent,
                unheld=None if permit.booked else scope.unheld.copy(),
            )
            scope.settlements.append(settlement)
            if scope.takes_along() and refusal is None:
                return  # rides on the leader's next booking, or with who tells already
            scope.telling = True
        try:
            await asyncio.sleep(0)  # one transaction for all that end in this turn of the loop
        finally:
            scope.telling = False
            await self._tell_settlements(scope)
            if scope.waits_long:
                with self._lock:
                    scope.tell_news()

    async def _tell_settlements(self, scope: Scope) -> None:
        with self._lock:
            settlements, scope.settlements = scope.settlements, []
        if settlements:
            await self._state.exchange(scope.name, scope.limits, settlements, [], horizon_s=0.0)

    def abandon(self, permit: Permit) -> None:
        """The call has ended without telling: what was booked counts, and its place is free."""
        scope = self._scopes[permit.scope]
        with self._lock:
            scope.in_flight -= 1
            scope.tell_news()
            if permit.booked:
                scope.settlements.append(
                    Settlement(permit.cost, permit.cost, permit.started_at_s, version=permit.version)
                )

    def holds(self) -> list[Hold]:
        """What keeps calls waiting now."""
        with self._lock:
            return [scope.hold for scope in self._scopes.values() if scope.hold is not None]

    async def _entered(self, call: Call) -> Scope:
        limits = self._limits_for(call)
        configured = bool(limits.by_dimension) or limits.concurrency is not None
        remembered = False if configured else await self._is_remembered(call.scope)
        with self._lock:
            return self._scopes.setdefault(
                call.scope,
                Scope(
                    call.scope,
                    limits,
                    known=configured or remembered,
                    limited=configured or remembered,
                    under_ceiling=limits.concurrency is not None,
                    is_configured=configured,
                ),
            )

    async def _is_remembered(self, scope: str) -> bool:
        state = await self._state.peek(scope)
        return bool(state.stated) or state.learnt is not None

    # -- queueing

    async def _served(self, scope: Scope, waiter: Waiter) -> Booking:
        """Queue, be given a booking or the lead, and return at the booked instant."""
        with self._lock:
            leads = not scope.led
            scope.led = True
            if not leads:
                scope.join(waiter)
        while True:
            if leads:
                return await self._lead(scope, waiter)
            signal = await self._signalled(scope, waiter)
            if signal == "lead":
                leads = True
            elif await self._reached(scope, signal):
                return signal
            else:
                waiter = Waiter(waiter.cost, waiter.group)
                with self._lock:
                    leads = not scope.led
                    scope.led = True
                    if not leads:
                        scope.join(waiter, first=True)

    async def _signalled(self, scope: Scope, waiter: Waiter) -> Signal:
        with self._lock:
            told = waiter.wait()
        try:
            await told
        except asyncio.CancelledError:
            with self._lock:
                scope.leave(waiter)
                waiter.gone = waiter.signal is None
            if waiter.signal == "lead":
                self._hand_on(scope)
            elif waiter.signal is not None:  # given in the very moment of being cancelled
                await self._give_back(scope, waiter.signal)
            raise
        assert waiter.signal is not None
        return waiter.signal

    async def _lead(self, scope: Scope, me: Waiter) -> Booking:
        """Book for ourselves and for those who may start at the same moment; hand on when it is time."""
        try:
            if scope.limited:
                await asyncio.sleep(0)  # who asks in this turn of the loop is booked with us, at one go
            while True:
                if not scope.known:
                    await self._first_answer(scope)
                    await self._look_again(scope)
                await self._room(scope)
                booking = await self._booked(scope, me) if scope.limited else self._unlimited(scope, me)
                if booking is not None and await self._reached(scope, booking):
                    return booking
        except BaseException:
            await self._tell_settlements(scope)  # those that rode with us, and may have no other
            if scope.waits_for_place:
                scope.waits_for_place = False
                await self._state.give_up(scope.name)
            raise
        finally:
            scope.hold = None
            self._hand_on(scope)

    def _hand_on(self, scope: Scope) -> None:
        with self._lock:
            scope.left = False
            while waiters := scope.next_waiters(1):
                if waiters[0].give("lead"):
                    return
            scope.led = False

    async def _booked(self, scope: Scope, me: Waiter) -> Booking | None:
        """Our own booking; `None` where every concurrent call is taken, after waiting for one to end."""
        with self._lock:
            room = scope.room(self._state.now_s())
            others = scope.next_waiters(int(min(room, MOST_AT_ONCE)) - 1)
            settlements, scope.settlements = scope.settlements, []
            scope.left = True
            heard = scope.heard
        try:
            costs = [priced(waiter.cost) for waiter in (me, *others)]
            bookings = await self._state.exchange(
                scope.name, scope.limits, settlements, costs, horizon_s=HORIZON_S
            )
        except BaseException:
            with self._lock:  # or nobody would ever serve them
                scope.settlements[:0] = settlements
                for waiter in reversed(others):
                    scope.join(waiter, first=True)
            raise
        granted = [booking for booking in bookings if booking.granted]
        with self._lock:
            for waiter in reversed(others[max(0, len(granted) - 1) :]):
                scope.join(waiter, first=True)
            scope.let_out([booking.start_s for booking in granted])
            scope.waits_for_place = not granted
            scope.left = bool(granted)
            scope.under_ceiling = bookings[0].under_ceiling
            taken = [waiter.give(booking) for waiter, booking in zip(others, granted[1:], strict=False)]
        for is_taken, booking in zip(taken, granted[1:], strict=True):
            if not is_taken:
                await self._give_back(scope, booking)
        if granted:
            return granted[0]
        now_s = self._state.now_s()
        self._holds(scope, "concurrency", now_s)
        delay_s = max(SHORTEST_WAIT_S, bookings[0].start_s - now_s)
        await self._wait_for_news(scope, heard, min(self._ask_again_s, delay_s))
        return None

    def _unlimited(self, scope: Scope, me: Waiter) -> Booking:
        """No limit is known: everybody may go, once it is known that there is none."""
        now_s = self._state.now_s()

        def leave(waiter: Waiter) -> Booking:
            return Booking(now_s, priced(waiter.cost), UNBOOKED, "")

        with self._lock:
            most = int(min(scope.room(now_s), len(scope.groups) * 10_000.0 + 1)) - 1
            others = scope.next_waiters(most) if scope.known else []
            scope.let_out([now_s] * (1 + sum(waiter.give(leave(waiter)) for waiter in others)))
        return leave(me)

    async def _first_answer(self, scope: Scope) -> None:
        """Until an answer shows the limits, let few calls out: the first is real work, not a probe."""
        while not scope.known:
            with self._lock:
                now_s = self._state.now_s()
                if scope.pilot_began_s is None:
                    scope.pilot_began_s = now_s
                allowed = 2 ** int((now_s - scope.pilot_began_s) / PILOT_DOUBLES_EVERY_S)
                if scope.in_flight < allowed:
                    return
                heard = scope.heard
            self._holds(scope, "first answer", now_s)
            await self._wait_for_news(scope, heard, PILOT_DOUBLES_EVERY_S)

    async def _room(self, scope: Scope) -> None:
        while True:
            with self._lock:
                if scope.room(self._state.now_s()) >= 1:
                    return
                heard = scope.heard
            await self._wait_for_news(scope, heard, OPENING_STEP_S)

    async def _look_again(self, scope: Scope) -> None:
        """While we waited for the first answer, another process may have been refused."""
        if not scope.limited:
            scope.limited = await self._is_remembered(scope.name)
            if scope.limited:
                scope.known = True
                with self._lock:
                    scope.open(self._state.now_s())
                    scope.settlements.append(
                        Settlement({}, {}, self._state.now_s(), unheld=scope.unheld.copy())
                    )

    async def _reached(self, scope: Scope, booking: Booking) -> bool:
        """Wait for the booked instant; false, with the booking given back, if limits changed meanwhile."""
        delay_s = booking.start_s - self._state.now_s()
        if delay_s <= 0:
            return True
        self._holds(scope, booking.binding, booking.start_s, booking.per_s)
        try:
            if await self._is_still_booked(scope, booking):
                return True
        except BaseException:
            await self._give_back(scope, booking)
            raise
        await self._give_back(scope, booking)
        return False

    async def _is_still_booked(self, scope: Scope, booking: Booking) -> bool:
        """At its instant; earlier where the answer of another call shows that it was booked too late.

        Nobody wakes us for an answer that another process was given, so that long waits look again.
        """
        while (delay_s := booking.start_s - self._state.now_s()) > 0:
            delay_s = min(delay_s, self._ask_again_s)
            if delay_s <= LONG_WAIT_S or scope.in_flight <= 1:
                await self._clock.sleep(delay_s)
            else:
                scope.waits_long = True
                try:
                    await self._wait_for_news(scope, scope.heard, delay_s)
                finally:
                    scope.waits_long = False
            if await self._state.version(scope.name) != booking.version:
                return False
        return True

    async def _give_back(self, scope: Scope, booking: Booking) -> None:
        with self._lock:
            scope.take_back(booking.start_s)
            scope.tell_news()
            if booking.version == UNBOOKED:
                return
        back = Settlement(
            booked=booking.cost, actual={}, started_at_s=booking.start_s, version=booking.version
        )
        await self._state.exchange(scope.name, scope.limits, [back], [], horizon_s=0.0)

    def _told_of_place(self) -> None:
        with self._lock:
            for scope in self._scopes.values():
                scope.tell_news()

    async def _wait_for_news(self, scope: Scope, heard: int, at_most_s: float) -> None:
        """Wait until there was more news than `heard`, or a while."""
        with self._lock:
            if scope.heard != heard:
                return
            scope.news = news = scope.news or Future()
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        timer = loop.call_later(at_most_s, over.set)
        news.add_done_callback(lambda _: _set_from_thread(loop, over))
        try:
            await over.wait()
        finally:
            timer.cancel()

    def _holds(self, scope: Scope, reason: str, until_s: float, per_s: float = 0.0) -> None:
        now_s = self._state.now_s()
        share = None
        if per_s > 0:
            last = range(int(now_s) - USED_OVER_S, int(now_s))
            used = sum(scope.admitted.get(second, {}).get(reason, 0.0) for second in last)
            share = min(1.0, used / (per_s * USED_OVER_S))
        scope.hold = Hold(scope.name, reason, until_s, now_s, share)


def _set_from_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
