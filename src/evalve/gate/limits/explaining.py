"""Which window explains what was served and what was refused. Pure.

Of every usual length, and of a window that ends for all at once of every instant at which it may begin, it
is asked: was no more served in one of them than in one that was full when a call was refused? The truth
always says yes. A wrong length or a wrong instant cuts what was served otherwise, so that soon no other is
left.

A bucket explains much, too, for nobody knows how deep it is. Where one does, it is preferred to most windows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from evalve.gate.limits.trace import Part, Trace
from evalve.gate.limits.window import USUAL_S, Window

JITTERS_S = (0.005, 0.02)
"""Calls that were sent no further apart may arrive in any order; the first is tried first."""
PHASES = 64
"""Instants of a length that are told apart."""
MOST_LATER = 2
"""Where nothing explains all, so many times only what came later is to be explained: others may have taken
some before, or have ended and told nobody what they took."""
LEAST_BLOCKED = 0.05
"""Of a window's length: for how long nothing was served at least once, or it was told when it is over."""
LATER, MUCH_LATER = 0.15, 0.5
"""Times as long as nothing was served: when the next window ends that is tried."""
COARSE = 0.5
"""Of a length: calls that are kept together for so long tell nothing about it."""
NEARLY_MOST = 0.97
"""Of what a window may hold: as much, for all that is known."""
SPARE = 0.5
"""Calls that a bucket may hold more or less than was counted."""
PRECISE = 1e-4
"""A share of a rate: of a bucket that is a minute deep it is less than a call."""
SOON = 2.0
"""Calls that a bucket would hold again by the time that is told."""
MUCH_FASTER = 2.0
"""Than a bucket that explains it, too: a window is tried, for a few refusals tell which it is."""
SAME_MOST, SAME_BEGIN = 0.05, 0.1
"""A share of what it holds, and of its length: a window that differs by no more is no other."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A window with which all that is known agrees."""

    length_s: float
    most: float
    begins_s: float | None
    """For all at once, and after every length again; `None` where it slides."""

    def is_as(self, window: Window) -> bool:
        if window.length_s != self.length_s or (window.ends_s is None) != (self.begins_s is None):
            return False
        if self.begins_s is not None and window.ends_s is not None:
            later_s = (window.ends_s - self.begins_s) % self.length_s
            if min(later_s, self.length_s - later_s) > SAME_BEGIN * self.length_s:
                return False
        return window.most - 1.0 < self.most <= window.most * (1.0 + SAME_MOST)

    def ends_s(self, now_s: float) -> float:
        """Where it ends for all at once."""
        assert self.begins_s is not None
        return now_s + self.length_s - (now_s - self.begins_s) % self.length_s

    def next_s(self, served: Iterable[Part], now_s: float) -> float:
        """When calls are welcome again, after one was just refused."""
        if self.begins_s is not None:
            return self.ends_s(now_s)
        lately = (first_s for first_s, last_s, _ in served if last_s > now_s - self.length_s)
        return min(lately, default=now_s - self.length_s) + self.length_s

    def window(self, served: Iterable[Part], now_s: float, *, is_full: bool) -> Window:
        window = Window(self.most, self.length_s, since_s=now_s)
        for _, last_s, amount in served:
            if last_s <= now_s:
                window.take(amount, last_s)
        if self.begins_s is None:
            if is_full:
                window.fill(now_s)
        elif is_full:
            window.end_at(self.ends_s(now_s), now_s)
        else:
            window.ends_s = self.ends_s(now_s) - self.length_s
        return window


def explained(
    trace: Trace,
    now_s: float,
    *,
    told: tuple[float, float] | None,
    unanswered_s: float,
    tried_s: float = 0.0,
) -> Explained | None:
    """By the shortest window that does it, once calls were served again and then refused again.

    `told` are the instants between which calls are said to be welcome again. What was sent less than
    `unanswered_s` ago may still be refused. `tried_s` is the length of the window that is counted.
    """
    trace = trace.until(now_s)
    resumed = trace.resumed()
    if not resumed or trace.refused[-1] < resumed[0]:
        return None
    answered_s = max(now_s - unanswered_s, trace.refused[-1] - JITTERS_S[-1])
    likely_s = [*reversed(resumed), *([told[1]] if told is not None else [])]
    for from_s in (-math.inf, *resumed[:-1][-MOST_LATER:]):
        for jitter_s in JITTERS_S:
            known = _Known.since(from_s, trace, answered_s, jitter_s)
            found = list(known.windows(likely_s))
            if bucket_per_s := _bucket_per_s(known, told, now_s):
                found = [one for one in found if _is_much_faster(one, bucket_per_s)]
            best = _best(found, trace, told, tried_s, now_s)
            if best is not None or bucket_per_s:
                return best
    return None


def _bucket_per_s(known: _Known, told: tuple[float, float] | None, now_s: float) -> float:
    """The rate of a bucket that explains it, unless that would have filled before calls are welcome again."""
    per_s = known.bucket_per_s()
    return 0.0 if told is not None and per_s * (told[0] - now_s) > SOON else per_s


def _is_much_faster(found: Explained, bucket_per_s: float) -> bool:
    """One that slides: by when they begin, the others can be made to explain nearly anything."""
    return found.begins_s is None and found.most >= MUCH_FASTER * bucket_per_s * found.length_s


def _best(
    found: list[Explained],
    trace: Trace,
    told: tuple[float, float] | None,
    tried_s: float,
    now_s: float,
) -> Explained | None:
    """The shortest, or the one that ends when calls are said to be welcome again.

    Each ends a good deal later than the one that was tried before: there are many, also of one length.
    """
    if told is not None:
        for one in found:
            if told[0] <= one.next_s(trace.served, now_s) <= told[1]:
                return one
    blocked_s = trace.longest_blocked_s()
    found = [one for one in found if blocked_s >= LEAST_BLOCKED * one.length_s]
    passed_s = trace.blocked_s(now_s)

    def is_later(one: Explained) -> bool:
        later = LATER if one.length_s > tried_s else MUCH_LATER
        return one.next_s(trace.served, now_s) >= now_s + later * passed_s

    latest = max(found, key=lambda one: one.next_s(trace.served, now_s), default=None)
    return next(filter(is_later, found), latest)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known from some instant on, if calls arrive in order, give or take `jitter_s`."""

    served: list[Part]
    refused: list[float]
    from_s: float
    emptied_s: float
    """When a call was last refused before."""
    answered_s: float
    """What was sent later may still be refused."""
    jitter_s: float

    @classmethod
    def since(cls, from_s: float, trace: Trace, answered_s: float, jitter_s: float) -> _Known:
        served = [part for part in trace.served if part[0] >= from_s]
        refused = [at_s for at_s in trace.refused if at_s >= from_s]
        emptied_s = max((at_s for at_s in trace.refused if at_s < from_s), default=from_s)
        return cls(served, refused, from_s, emptied_s, answered_s, jitter_s)

    def windows(self, likely_s: Iterable[float]) -> Iterator[Explained]:
        """`likely_s` are instants at which one may have begun, besides those at which calls were served."""
        instants = [*likely_s, *(first_s for first_s, _, _ in self.served)]
        for length_s in filter(self._is_known_for, USUAL_S):
            if (most := self._sliding_most(length_s)) is not None:
                yield Explained(length_s, most, None)
            begins: dict[int, float] = {}
            for at_s in instants:
                begins.setdefault(round(at_s % length_s / length_s * PHASES), at_s)
            by_begin = {begin_s: self._fixed_most(length_s, begin_s) for begin_s in begins.values()}
            if (latest := _latest(by_begin, length_s)) is not None:
                yield Explained(length_s, latest[1], latest[0])

    def _is_known_for(self, length_s: float) -> bool:
        """Whether it is known precisely enough when those were sent that count where calls were refused."""
        for first_s, last_s, _ in self.served:
            place = bisect_left(self.refused, last_s)
            is_counted = place < len(self.refused) and self.refused[place] <= last_s + length_s
            if is_counted and last_s - first_s > COARSE * length_s:
                return False
        return True

    def _sliding_most(self, length_s: float) -> float | None:
        """What it holds; `None` where that contradicts what is known."""
        least, most = 0.0, math.inf
        sure = [part for part in self.served if part[1] <= self.answered_s]
        for begin_s, end_s, amount in sure:
            after_s = end_s - length_s + self.jitter_s
            least = max(least, amount / (2 + (end_s - begin_s) // length_s))
            least = max(least, sum(n for first_s, last_s, n in sure if after_s < first_s and last_s <= end_s))
        for refused_s in self.refused:
            after_s, until_s = refused_s - length_s - self.jitter_s, refused_s + self.jitter_s
            if after_s >= self.from_s:
                most = min(
                    most,
                    sum(n for first_s, last_s, n in self.served if last_s > after_s and first_s <= until_s),
                )
            if most < least:
                return None
        return most if 1.0 <= most < math.inf else None

    def _fixed_most(self, length_s: float, begin_s: float) -> float | None:
        """The same for one that begins shortly before that instant."""
        early_s, late_s = begin_s - 2.5 * self.jitter_s, begin_s - 0.5 * self.jitter_s
        sure: dict[int, float] = {}
        least, most = 0.0, math.inf
        possible: dict[int, list[tuple[float, float]]] = {}
        for first_s, last_s, amount in self.served:
            first, last = int((first_s - late_s) // length_s), int((last_s - early_s) // length_s)
            if last_s <= self.answered_s:
                sure[first] = sure.get(first, 0.0) + (amount if first == last else 0.0)
                least = max(least, amount / (last - first + 1), sure[first])
            for each in range(first, last + 1):
                possible.setdefault(each, []).append((first_s, amount))
        for refused_s in self.refused:
            number = int((refused_s - early_s) // length_s)
            is_known = begin_s + number * length_s >= self.from_s
            if not is_known or number != int((refused_s - begin_s - self.jitter_s) // length_s):
                continue
            until_s = refused_s + self.jitter_s
            most = min(most, sum(n for first_s, n in possible.get(number, ()) if first_s <= until_s))
            if most < least:
                return None
        return most if 1.0 <= most < math.inf else None

    def bucket_per_s(self) -> float:
        """How fast what was taken flows back in, if evenly; 0 where that contradicts what is known."""
        return max(map(self._bucket_of_length_per_s, USUAL_S))

    def _bucket_of_length_per_s(self, length_s: float) -> float:
        """The least rate at which so deep a bucket could have served all, if it refuses at that."""
        low, high = 0.0, (sum(amount for _, _, amount in self.served) + 1.0) / min(length_s, 1.0)
        while high - low > PRECISE * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._serves_all(middle, length_s) else (middle, high)
        return high if self._is_empty_when_refused(high, length_s) else 0.0

    def _serves_all(self, per_s: float, length_s: float) -> bool:
        """Each part is taken when that leaves most."""
        depth = per_s * length_s
        level, at_s = self._level_at_first(per_s, depth)
        for first_s, last_s, amount in self.served:
            if last_s <= self.answered_s:
                level = min(depth, level + per_s * max(0.0, first_s - at_s))
                level = min(depth, level + per_s * (last_s - first_s) - amount)
                at_s = last_s
                if level < -SPARE - self.jitter_s * per_s:
                    return False
        return True

    def _is_empty_when_refused(self, per_s: float, length_s: float) -> bool:
        """Each part is taken when that leaves least."""
        depth = per_s * length_s
        level, at_s = self._level_at_first(per_s, depth)
        place = 0
        for refused_s in self.refused:
            while place < len(self.served) and self.served[place][1] <= refused_s:
                _, last_s, amount = self.served[place]
                level = min(depth, level + per_s * max(0.0, last_s - at_s)) - amount
                at_s, place = last_s, place + 1
            level, at_s = min(depth, level + per_s * max(0.0, refused_s - at_s)), max(at_s, refused_s)
            beside = sum(n for first_s, _, n in self.served[place:] if first_s <= refused_s + self.jitter_s)
            if level - beside >= 1.0 + SPARE + self.jitter_s * per_s:
                return False
        return True

    def _level_at_first(self, per_s: float, depth: float) -> tuple[float, float]:
        """And when that was: it was full, or one call had just been refused."""
        if self.from_s > -math.inf:
            return 1.0, self.emptied_s
        return depth, self.served[0][0]


def _latest(by_begin: dict[float, float | None], length_s: float) -> tuple[float, float] | None:
    """The end of the longest time in which it may begin, for late is in it, too; and what it holds."""
    most = max((one for one in by_begin.values() if one is not None), default=None)
    if most is None:
        return None
    ordered = sorted(by_begin, key=lambda begin_s: begin_s % length_s)
    fits = [(one := by_begin[begin_s]) is not None and one >= NEARLY_MOST * most for begin_s in ordered]
    if all(fits):
        return ordered[-1], most

    def may_begin_for_s(end: int) -> float:
        before = end
        while fits[before]:
            before -= 1  # and from the last one on, before the first
        return (ordered[end] - ordered[before]) % length_s

    ends = [place for place, is_fit in enumerate(fits) if is_fit and not fits[(place + 1) % len(fits)]]
    return ordered[max(ends, key=may_begin_for_s)], most
