"""A window whose end headers tell: so much until then, and as much again after it. Pure.

When it ends is known between two instants: by an answer with `reset` 37, no earlier than 37 seconds after the
call was sent, less what rounding may have added, and no later than 37 seconds after the answer came. Each
answer narrows that, and the next window ends a whole length later.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

SLACK_S = 0.02
"""Calls are sent so long after the end that one that overtakes others does not arrive before it."""
SAME_S = 0.01
"""Two instants that differ by no more may be the same."""
MOVED_S = 0.05
"""What is booked for an end is booked again where that turns out to be so much sooner or later."""
SURE = 0.05
"""Of its length: where the end is known so exactly, calls go when it is over for certain: what answers tell
may have been true when its call arrived, or when it left. Otherwise single calls try whether it is over."""
TRY_S, MOST_TRIES = 0.25, 8
"""So many: the second so long after the first, and then each sooner than the one before."""

LONG_AGO_S = -1e9
LATER = 0.1
"""Of its length: a window that ends so much later than it should has begun with the first call in it."""


@dataclass(frozen=True, slots=True)
class ToldEnd:
    """When a window ends, by one answer."""

    from_s: float
    likely_s: float
    """If what it says was true when its call arrived."""
    to_s: float

    def later(self, by_s: float) -> ToldEnd:
        return ToldEnd(self.from_s + by_s, self.likely_s + by_s, self.to_s + by_s)

    def is_before(self, other: ToldEnd) -> bool:
        return self.to_s < other.from_s - SAME_S

    def narrowed(self, other: ToldEnd) -> ToldEnd:
        """By another answer about the same end."""
        from_s = max(self.from_s, other.from_s)
        return ToldEnd(from_s, min(self.likely_s, other.likely_s), max(from_s, min(self.to_s, other.to_s)))

    @property
    def at_s(self) -> float:
        return max(self.from_s, self.likely_s)

    @property
    def unsure_s(self) -> float:
        return self.to_s - self.from_s


@dataclass(slots=True)
class StatedWindow:
    """What may still start until it ends, and afterwards."""

    most: float
    length_s: float
    end: ToldEnd
    taken: float = 0.0
    """Of the window that is open."""
    later: list[list[float]] = field(default_factory=list)
    """Bookings for the windows after it: instant and amount, in order."""
    began_s: float = LONG_AGO_S
    last_s: float = LONG_AGO_S
    """When the last call started."""
    tries: int | None = None
    """Calls since the last end, where it was not sure; `None` where it is believed."""
    is_proven: bool = False
    """Whether calls were served right after an end: the next ones are believed."""

    def earliest_s(self, cost: float) -> float:
        """From when on there is room for it; more than it holds at all starts with a window."""
        if self.fits(cost):
            return self.last_s + self._next_try_s(self.tries) if self.tries else 0.0
        begun_s, beside = self.ends_s(), self._later_within(self.ends_s())
        while beside and sum(beside) + cost > self.most + 1e-9:
            begun_s += self.length_s
            beside = self._later_within(begun_s)
        tried_for_s = 0.0 if self._is_believed() else sum(self._next_try_s(n + 1) for n in range(len(beside)))
        return begun_s + SLACK_S + tried_for_s

    def _later_within(self, begun_s: float) -> list[float]:
        """What is booked for the window that begins then."""
        return [amount for start_s, amount in self.later if begun_s <= start_s < begun_s + self.length_s]

    def fits(self, cost: float) -> bool:
        """Before it ends."""
        return not self.taken or self.taken + cost <= self.most + 1e-9

    def _next_try_s(self, tries: int) -> float:
        return min(TRY_S, self.length_s / MOST_TRIES) / tries

    def ends_s(self) -> float:
        return self.end.to_s if self._is_sure() else self.end.at_s

    def _is_sure(self) -> bool:
        return self.end.unsure_s <= SURE * self.length_s

    def _is_believed(self) -> bool:
        return self.is_proven or self._is_sure()

    def take(self, cost: float, start_s: float) -> None:
        if start_s >= self.ends_s():
            insort(self.later, [start_s, cost])
            return
        self.taken += cost
        self._try(start_s)

    def _try(self, start_s: float) -> None:
        self.last_s = max(self.last_s, start_s)
        if self.tries is not None:
            self.tries = self.tries + 1 if self.tries < MOST_TRIES else None
            self.is_proven = self.tries is None

    def go_on(self, now_s: float) -> None:
        """To the window that is open now."""
        while now_s >= self.ends_s():
            passed = max(1.0, math.floor((now_s - self.ends_s()) / self.length_s))
            self.tries = None if self._is_believed() else self.tries or 0
            self.began_s = self.ends_s() + (passed - 1) * self.length_s
            self.end = self.end.later(passed * self.length_s)
            self.taken = 0.0
            while self.later and self.later[0][0] < self.ends_s():
                start_s, amount = self.later.pop(0)
                if start_s >= self.began_s:
                    self.taken += amount
                    self._try(start_s)

    def give_back(self, amount: float, started_at_s: float) -> None:
        """Of what started then; a negative amount takes more."""
        for place, part in enumerate(self.later):
            if part[0] == started_at_s:
                part[1] -= amount
                if part[1] <= 0:
                    del self.later[place]
                return
        if started_at_s >= self.began_s:
            self.taken = max(0.0, self.taken - amount)

    def has_room_for_later(self) -> bool:
        """Whether who waits for the end may go before it, because something was given back."""
        return bool(self.later) and self.fits(self.later[0][1])

    def observe(self, end: ToldEnd, used: float, since: float, sent_at_s: float, now_s: float) -> bool:
        """Whether what an answer says moves what is booked; `since` is what started after its call."""
        self.go_on(now_s)
        at_s, before = self.ends_s(), self.end.later(-self.length_s)
        if self.end.is_before(end):
            if end.from_s - self.end.to_s <= LATER * self.length_s:  # it began with the first call in it
                self.end, self.taken = end, max(self.taken, used)
                return bool(self.later)
            ours = self.taken if sent_at_s >= self.began_s else 0.0
            return self._correct(end, max(ours, used + since))
        if not end.is_before(self.end):
            if sent_at_s < self.began_s and not before.is_before(end):
                return False  # it may be about the one before, in which it was sent
            self.end = self.end.narrowed(end)
            self.taken = max(self.taken, used)
            return bool(self.later) and abs(self.ends_s() - at_s) > MOVED_S
        if end.is_before(before) or before.is_before(end):  # its length was not known
            return self._correct(end, used + since)
        if now_s < end.from_s:  # the one before is not over yet
            return self._correct(before.narrowed(end), used + since)
        return False

    def _correct(self, end: ToldEnd, used: float) -> bool:
        self.end, self.taken, self.later = end, used, []
        self.tries, self.is_proven, self.began_s = None, False, LONG_AGO_S
        return True

    def refuse(self, now_s: float) -> None:
        """A call that there was room for: there is none before the end."""
        self.go_on(now_s)
        self.taken = max(self.taken, self.most)
        self.is_proven = False
