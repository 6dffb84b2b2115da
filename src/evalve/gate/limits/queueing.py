"""Who waits for leave to send, by scope: the queue of one process, and what it knows about the scope."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from evalve.gate.limits.booking import Booking
from evalve.gate.limits.doubt import MOST_SENT, calls_to_tell
from evalve.gate.limits.history import History
from evalve.gate.limits.state import Settlement
from evalve.gate.messages import Cost, Limits

REMEMBERED_S = 10
"""For how long it is known what was admitted: progress shows the use of a limit over the last seconds."""

FIRST_AT_ONCE, FIRST_PER_S, DOUBLES_EVERY_S, OPENS_FOR_S = 4.0, 60.0, 0.2, 1.8
RESUMED_PER_S = 300.0
"""After a refusal that seems to have been chance."""
FEW_AT_ONCE = 10
"""So many calls are no crowd, and go out at once: pacing the usual window of ten took a tenth of a second, of
the second and a half that sixty calls take."""
REFUSED_WITHIN = 1.5
"""A call that was not refused for so many times as long as refusals take to come is taken to be served.
After a first refusal no more go out than are needed to tell what it is about, beside those still open."""
HESITATES_EVERY_S, MOST_HESITATIONS, FORGOTTEN_S = 2.0, 3, 60.0
"""More refusals than these had nothing to do with how many calls there were."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps a scope's next call waiting."""

    scope: str
    reason: str
    """A dimension, `pause`, `concurrency` or `first answer`."""
    until_s: float
    now_s: float
    used_share: float | None = None
    """How much of that limit was used over the last seconds."""


Signal = Literal["lead"] | Booking
Pricing = Cost | Callable[[], Cost]
"""What a call is expected to take; a function is asked when it is booked, which may be much later: with a
hundred calls queued at what was expected before the first answer, pacing by output took 1.37 × the ideal."""


class Waiter:
    """A call in the queue. All but `loop` is guarded by the limiter's lock."""

    __slots__ = ("_told", "cost", "gone", "group", "loop", "signal")

    def __init__(self, cost: Pricing, group: str) -> None:
        self.cost = cost
        self.group = group
        self.loop = asyncio.get_running_loop()
        self.signal: Signal | None = None
        self.gone = False
        self._told: asyncio.Future[None] | None = None

    def wait(self) -> asyncio.Future[None]:
        """Done when there is a signal; to be asked for on the waiter's own loop."""
        if self._told is None:
            self._told = self.loop.create_future()
            if self.signal is not None:
                self._told.set_result(None)
        return self._told

    def give(self, signal: Signal) -> bool:
        """Whether the waiter is still there to take it."""
        if self.gone or self.loop.is_closed():
            return False
        self.signal = signal
        if self._told is not None:
            if asyncio.get_running_loop() is self.loop:
                _done(self._told)  # not through the loop's pipe, which costs three times as much
            else:
                self.loop.call_soon_threadsafe(_done, self._told)
        return True


def priced(cost: Pricing) -> Cost:
    return cost() if callable(cost) else cost


@dataclass(slots=True)
class Scope:
    """One scope as this process sees it. Everything in it is guarded by the limiter's lock."""

    name: str
    limits: Limits
    groups: OrderedDict[str, deque[Waiter]] = field(default_factory=OrderedDict)
    led: bool = False
    settlements: list[Settlement] = field(default_factory=list)
    known: bool = False
    """Whether it is known if there are limits, because some are configured or an answer came."""
    limited: bool = False
    in_flight: int = 0
    unheld: History = field(default_factory=History)
    """Calls that no limit held back."""
    pilot_began_s: float | None = None
    opened_at_s: float = -math.inf
    """When calls were let out: few a second at first, then ever more, for nobody knows what is there.

    A provider that has enough of them then meets few that are already on their way."""
    opened: int = 0
    """How many were let out since."""
    at_once: float = FIRST_AT_ONCE
    """How many of them need not be paced …"""
    first_per_s: float = FIRST_PER_S
    """… and how many a second follow at first."""
    hesitated_at_s: float = -math.inf
    latest_s: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_SENT))
    """When the latest calls started that were not refused."""
    refused_from_s: float = math.inf
    """When the first call started that was refused …"""
    refused: int = 0
    """… and how many were refused since; 0 where that has told what it is about."""
    refused_at_s: float = -math.inf
    refusal_takes_s: float = 0.0
    hesitations: int = 0
    hesitates: bool = False
    """Whether few go out, until it is known what a refusal was about."""
    is_configured: bool = False
    heard: int = 0
    """How often there was news: a call that ended, or a place that another process left."""
    news: Future[None] | None = None
    """Where somebody waits for more of it."""
    left: bool = False
    """Whether the leader has gone to book, or sleeps until its instant: no more settlements ride with it."""
    under_ceiling: bool = False
    """Whether others may wait for a call of ours to end."""
    waits_for_place: bool = False
    """Whether the shared state counts us among those that wait."""
    waits_long: bool = False
    """Whether the leader sleeps for so long that answers may change what it has booked."""
    telling: bool = False
    """Whether somebody is about to tell what calls took."""
    hold: Hold | None = None
    admitted: dict[int, dict[str, float]] = field(default_factory=dict)
    """What was admitted in each of the last seconds, by dimension."""

    def note_admitted(self, booking: Booking) -> None:
        at = int(booking.start_s)
        second = self.admitted.get(at)
        if second is None:
            recent = {then: taken for then, taken in self.admitted.items() if then > at - REMEMBERED_S}
            second = recent[at] = {}
            self.admitted = recent
        for dimension, amount in booking.cost.items():
            second[dimension] = second.get(dimension, 0.0) + amount

    def join(self, waiter: Waiter, *, first: bool = False) -> None:
        queue = self.groups.setdefault(waiter.group, deque())
        if first:
            queue.appendleft(waiter)
            self.groups.move_to_end(waiter.group, last=False)
        else:
            queue.append(waiter)

    def next_waiters(self, most: int) -> list[Waiter]:
        """In turn from every group, so that no evaluation waits behind all of another."""
        chosen: list[Waiter] = []
        while self.groups and len(chosen) < most:
            group, queue = next(iter(self.groups.items()))
            waiter = queue.popleft()
            if queue:
                self.groups.move_to_end(group)
            else:
                del self.groups[group]
            if not waiter.gone:
                chosen.append(waiter)
        return chosen

    def leave(self, waiter: Waiter) -> None:
        queue = self.groups.get(waiter.group)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self.groups[waiter.group]

    def room(self, now_s: float) -> float:
        """How many more calls may go out now."""
        if self.refused and self.hesitations < MOST_HESITATIONS and self._missing(now_s):
            self.hesitates = True
            return self._few(now_s)
        if self.hesitates:  # it seems to have been chance: those who wait go on, but not all at once
            self.hesitates, self.opened_at_s, self.opened = False, now_s, 0
            self.at_once, self.first_per_s = FIRST_AT_ONCE, RESUMED_PER_S
        open_s = now_s - self.opened_at_s
        if open_s > OPENS_FOR_S:
            return math.inf
        doublings = max(0.0, open_s) / DOUBLES_EVERY_S
        paced = self.first_per_s * DOUBLES_EVERY_S / math.log(2) * (math.exp2(doublings) - 1)
        return self.at_once + paced - self.opened

    def let_out(self, starts_s: Sequence[float]) -> None:
        self.in_flight += len(starts_s)
        self.opened += len(starts_s)
        self.latest_s.extend(starts_s)

    def take_back(self, start_s: float) -> None:
        """It has not started after all."""
        self.in_flight -= 1
        if start_s in self.latest_s:
            self.latest_s.remove(start_s)

    def open(self, now_s: float) -> None:
        """The first answer has come: who waits may go."""
        others = sum(map(len, self.groups.values())) + self.led
        self.opened_at_s, self.opened = now_s, 0
        self.at_once = FEW_AT_ONCE if others < FEW_AT_ONCE else FIRST_AT_ONCE  # with whoever comes next

    def hesitate(self, sent_at_s: float, now_s: float) -> bool:
        """A refusal where nothing is known: few calls for a moment, to see whether they are refused too.

        Whether they are, of all that started after the first.
        """
        if sent_at_s in self.latest_s:
            self.latest_s.remove(sent_at_s)
        if self.refused and sent_at_s < self.refused_from_s:
            return False
        if not self._missing(now_s) or now_s - self.refused_at_s > HESITATES_EVERY_S:
            self.refused_at_s, self.refused_from_s, self.refused = now_s, sent_at_s, 1
            self.refusal_takes_s = now_s - sent_at_s
            if now_s - self.hesitated_at_s > HESITATES_EVERY_S:
                self.hesitations = 0 if now_s - self.hesitated_at_s > FORGOTTEN_S else self.hesitations + 1
                if self.hesitations < MOST_HESITATIONS:
                    self.hesitated_at_s = now_s
            return False
        tells = calls_to_tell(self.refused, self._unrefused(-math.inf, sent_at_s)) == 1
        self.refusal_takes_s = max(self.refusal_takes_s, now_s - sent_at_s)
        self.refused = 0 if tells else self.refused + 1
        return tells

    def _few(self, now_s: float) -> int:
        """How many calls more tell what refusals are about, beside those under way."""
        under_way = self._unrefused(now_s - REFUSED_WITHIN * self.refusal_takes_s, math.inf)
        return max(0, self._missing(now_s) - under_way)

    def _missing(self, now_s: float) -> int:
        """The same with those under way; 0 where that was told, or enough were served."""
        served = self._unrefused(-math.inf, now_s - REFUSED_WITHIN * self.refusal_takes_s)
        return calls_to_tell(self.refused, served)

    def _unrefused(self, after_s: float, until_s: float) -> int:
        """Calls that started then, after the first that was refused, and were not."""
        return sum(self.refused_from_s <= at_s and after_s < at_s <= until_s for at_s in self.latest_s)

    def takes_along(self) -> bool:
        """Whether somebody will soon tell the shared state what calls took, and frees their places."""
        return self.telling or (self.led and not (self.left and (self.under_ceiling or self.waits_long)))

    def tell_news(self) -> None:
        self.heard += 1
        news, self.news = self.news, None
        if news is not None:
            news.set_result(None)


def _done(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
