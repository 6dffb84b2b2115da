"""Single flight: of equal requests that are asked for at once, one is sent, whoever asks for the others.

Who boards first makes the call; the others wait. When it lands, all of them have its answer. When it
fails or is cancelled, one of those who wait makes the call instead. In a process they wait on futures,
so that several loops and threads can; for other processes on a lease row, which is polled: the one
exception to never polling, because a process that was killed tells nobody.

    reply = await flights.board(key, look, park) # None: the call is ours, until we leave
    try:
        … flights.land(key, reply)               # where there is an answer for everybody
    finally:
        flights.leave(key)
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from evalve.clock import LOOP_CLOCK, Clock
from evalve.gate.cache.leases import LASTS_S, Holder, Leases
from evalve.gate.messages import Reply

_FIRST_LOOK_AFTER_S = 0.020
_LOOK_AT_LEAST_EVERY_S = 0.5
_GROWTH = 1.6

Look = Callable[[], Reply | None]
"""Reads the cache once more."""
Park = Callable[[Awaitable[Reply | None]], Awaitable[Reply | None]]
"""Waits for what somebody else does; what it waits for may be over before it returns."""


def not_parked(awaitable: Awaitable[Reply | None]) -> Awaitable[Reply | None]:
    return awaitable


@dataclass(slots=True)
class _Flight:
    """One call being made, and those in this process who wait for it. Mostly none does, and thousands may be
    in flight for a batch: an empty list takes a tenth of what an empty deque does."""

    waiting: list[Future[Reply | None]] = field(default_factory=list)
    waiting_for_news: list[Future[Reply | None]] = field(default_factory=list)
    """Those to whom an answer from the cache is none."""
    landed: Reply | None = None
    is_found: bool = False
    """Whether it was in the cache already."""
    is_leased: bool = True

    def next_place(self) -> Future[Reply | None] | None:
        if self.waiting:
            return self.waiting.pop(0)
        if self.is_found:
            self.landed = None
        return self.waiting_for_news.pop(0) if self.waiting_for_news else None


class Flights:
    """The calls in flight of one process; without `leases` other processes are not asked."""

    def __init__(self, leases: Leases | None = None, *, clock: Clock = LOOP_CLOCK) -> None:
        self._leases = leases
        self._clock = clock
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight] = {}
        self._pid = os.getpid()

    async def board(
        self, key: str, look: Look, park: Park = not_parked, *, is_anew: bool = False
    ) -> Reply | None:
        """The answer to an equal request, or `None`: then the call is ours until `leave`.

        `is_anew` refuses what another request only finds in the cache.
        """
        place = self._joined(key, is_anew)
        if place is not None:
            try:
                reply = await park(asyncio.wrap_future(place))
            except BaseException:
                self._step_back(key, place)
                raise
            if reply is not None:
                return replace(reply)
        try:
            reply = await self._found_elsewhere(key, look, park)
        except BaseException:
            self.leave(key)
            raise
        if reply is not None:
            self.land(key, reply, is_found=True)
            self.leave(key)
        return reply

    def land(self, key: str, reply: Reply, *, is_leased: bool = True, is_found: bool = False) -> None:
        """Everybody who waits will have this answer; `is_leased` is false where keeping it ended that."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                flight.landed = reply
                flight.is_leased = is_leased
                flight.is_found = is_found

    def leave(self, key: str) -> None:
        """The call is over. If it has not landed, the next who waits makes it."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                return
            while (place := flight.next_place()) is not None:
                if place.set_running_or_notify_cancel():
                    place.set_result(flight.landed)
                    if flight.landed is None:
                        return  # it goes on, with its lease, in other hands
            del self._flights[key]
            if self._leases is None:
                return
            if flight.is_leased:
                self._leases.give_up(key)  # in here: who boards next must come after this
            else:
                self._leases.gone(key)

    # -- in this process

    def _joined(self, key: str, is_anew: bool) -> Future[Reply | None] | None:
        """A place in the queue, or `None` for the first."""
        with self._lock:
            if self._pid != os.getpid():
                self._flights, self._pid = {}, os.getpid()  # a forked child makes its own calls
            flight = self._flights.get(key)
            if flight is None:
                self._flights[key] = _Flight()
                return None
            place: Future[Reply | None] = Future()
            (flight.waiting_for_news if is_anew else flight.waiting).append(place)
            return place

    def _step_back(self, key: str, place: Future[Reply | None]) -> None:
        """Who waited goes away, perhaps just when the call was handed over to it."""
        with self._lock:
            handed_over = not place.cancel() and place.result() is None
        if handed_over:
            self.leave(key)

    # -- among processes

    async def _found_elsewhere(self, key: str, look: Look, park: Park) -> Reply | None:
        """Wait until another process has landed the call, or until it is ours to make."""
        if self._leases is None:
            return look()
        taken = await self._leases.take(key)
        # look after taking, or what has landed between looking and taking would be asked for again
        reply = look() if taken.cached or taken.other is not None else None
        if reply is not None or taken.other is None:
            return reply
        return await park(self._polled(key, look, self._leases, taken.other))

    async def _polled(self, key: str, look: Look, leases: Leases, other: Holder | None) -> Reply | None:
        reply, delay_s = None, _FIRST_LOOK_AFTER_S
        seen, since_s = other, self._clock.now_s()
        while reply is None and other is not None:
            if other != seen:
                seen, since_s = other, self._clock.now_s()
            if leases.is_dead(other) or self._clock.now_s() - since_s >= LASTS_S:
                taken = await leases.take(key, instead_of=other)
            else:
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * _GROWTH, _LOOK_AT_LEAST_EVERY_S)
                taken = await leases.take(key)
            other = taken.other
            reply = look()
        return reply
