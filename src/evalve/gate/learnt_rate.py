"""A rate that nobody states, learnt from refusals. Pure.

A provider that refuses has just been asked for more than it gives. So what it served from one refusal to the
next, over the time between them, is its rate: it had nothing left at both. Calls then go out a little below
that rate, and more is tried: in large steps while little is known, in small ones and seldom afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST_PER_S = 5.0
"""Tried at first, however little went through before the first refusal."""
LEAST_TELLING = 5
"""Calls; what fewer tell about the rate is as much chance, such as another process that has just begun."""
MOST_BEYOND = 1.5
"""Where calls went out below the provider's rate for some time, it had more than it could hold: what was
served is less than it gives. Its rate is between that and the one that it refuses, at most so many times
the last."""
BELOW_SHARE = 0.97
MOST_TOLD = 1.1
"""Of what the few could tell that were served."""
SURE, TOLD_BY_GAP = 0.1, 14.0
"""The further apart these two are, the less was told."""
SUSPECTED_SHARE = 0.85
UNTOLD_SHARE = 0.6
"""Of a rate that is refused before so many were served."""
RESUMED_SHARE = 0.94
"""Of the rate that was refused, used at first."""
NEAR_SHARE = 1.0
"""Of the rate that was refused: where growth stops for a while."""
STEP_S, STEP_REQUESTS = 0.5, 10.0
"""Growth takes a step after so long and so many …"""
SEARCH_DOUBLES_S, MOST_AT_ONCE = 0.3, 2.0
"""… and doubles in so long while nothing is known, but with one call grows no more than so many times."""
UNCERTAIN, LEAST_GROWTH, MOST_GROWTH = 3.0, 0.02, 0.15
"""A step is so many calls of those that the rate was measured by, but no less and no more of the rate."""
STAY_S, STAY_REQUESTS = 5.0, 150.0
"""Growth stops near the rate that was refused, the first time; then twice as long, and so on."""
LONGEST_STAY = 8
LEAST_USED = 0.5
"""Of a rate; where less was called for, that nothing was refused says nothing about more."""
RESTARTED_SHARE = 0.125
"""Of a rate, after nothing was served for a while: all may be there again, or a little."""
SEARCHED_BELOW = 0.5
TRIED_AGAIN_SHARE, LONGEST_UNTRIED_S = 0.3, 4.0
"""Of the time for which nothing was served, until the next try; and the longest."""
BLOCKED_S = 1.5
BLOCKED_AFTER_S, LONG_S = 0.4, 2.0
"""After so long of refusals alone nothing is served, or at once where so long a wait is asked for."""
GUESSED_SHARE = 0.125
"""Of what went out when calls began to be refused."""


@dataclass(slots=True)
class LearntRate:
    """Requests a second that are tried where the provider refuses and states no limit."""

    per_s: float
    refused_at_s: float
    """When it last had nothing left."""
    refused_per_s: float | None = None
    """What it gave then; `None` before that is known."""
    admitted: int = 0
    """Since it last refused."""
    told: float = 0.0
    """How many calls the rate was measured by."""
    served: int = 0
    """From one time that it had nothing left to the next."""
    stepped_at_s: float = 0.0
    admitted_then: int = 0
    stay: int = 1
    """How often as long as the first time growth stops near the rate that was refused."""
    beyond: int = 0
    """Steps beyond that rate: each is larger than the one before."""
    below: float = 0.0
    """Refusals below the rate that was refused, less half of the others: many are not about the rate."""
    is_suspicion: bool = False
    """Whether nothing but single refusals speaks for it."""
    is_lowered: bool = False
    """By refusals of which each alone tells little."""
    was_blocked: bool = False
    """For long, since it last had nothing left."""
    is_settled: bool = False
    known_at_s: float = 0.0
    """When the last refusal was known: those of calls sent before tell nothing new."""
    accepted: int = 0
    """Admitted since it last refused, and not refused, when the last refusal came."""
    in_row: int = 0
    """Refusals between which nothing was served."""
    in_row_since_s: float = 0.0
    """When the first of the refusals came between which nothing was served."""
    blocked_from_s: float | None = None
    """Since when nothing was served."""

    @classmethod
    def suspected(cls, per_s: float, now_s: float) -> LearntRate:
        """Single refusals, and many: a little less is tried, to see whether they become fewer."""
        rate = max(per_s, LEAST_PER_S)
        return cls(
            SUSPECTED_SHARE * rate,
            now_s,
            rate,
            stepped_at_s=now_s,
            known_at_s=now_s,
            in_row_since_s=now_s,
            is_suspicion=True,
        )

    @classmethod
    def guessed(cls, per_s: float, now_s: float) -> LearntRate:
        """From what went out before the first refusal, when nothing was held back."""
        return cls(
            max(GUESSED_SHARE * per_s, LEAST_PER_S),
            now_s,
            stepped_at_s=now_s,
            known_at_s=now_s,
            in_row_since_s=now_s,
        )

    @property
    def is_measured(self) -> bool:
        return self.refused_per_s is not None and self.told >= 2 * LEAST_TELLING

    def note_admitted(self, number: int, now_s: float) -> None:
        """Also less than none, for those that were refused or have not gone."""
        self.admitted = max(0, self.admitted + number)
        if number > 0 and not self.is_settled:
            self._grow(now_s)

    def refused(self, now_s: float) -> None:
        """At this rate: the first refusal of an episode."""
        passed_s = max(now_s - self.refused_at_s, 0.05)
        if self.admitted >= LEAST_TELLING:
            self._measure(passed_s)
            self.refused_at_s = self.in_row_since_s = now_s
            self.admitted = self.accepted = self.in_row = 0
        else:
            self._lower(passed_s)
            self.in_row += 1
        self.known_at_s = self.stepped_at_s = now_s
        self.admitted_then, self.beyond = self.admitted, 0

    def _measure(self, passed_s: float) -> None:
        """What was served since it last had nothing left is its rate, or less than that."""
        before, was_blocked = self.refused_per_s, self.was_blocked
        least = given = min(self.per_s, self.admitted / passed_s)
        if before is not None:
            is_below = self.per_s <= BELOW_SHARE * before and not self.is_lowered
            self.below = max(0.0, self.below + (1.0 if is_below else -0.5))
            if not was_blocked:
                given = math.sqrt(least * max(least, min(self.per_s, MOST_BEYOND * before)))
        is_near = before is not None and given > 0.9 * before
        gap = 0.01 if was_blocked else max(0.01, 1 - least / self.per_s)
        self.stay = min(2 * self.stay, LONGEST_STAY) if is_near and gap < SURE else 1
        self.told = min(max(self.admitted, 0.5 * self.told if is_near else 0.0), TOLD_BY_GAP / gap)
        self.refused_per_s, self.served = given, self.admitted
        self.per_s = RESUMED_SHARE * given
        self.was_blocked = self.is_lowered = False

    def _lower(self, passed_s: float) -> None:
        """Too few were served to measure by."""
        if self.refused_per_s is None:
            self.per_s = max(UNTOLD_SHARE * self.per_s, LEAST_PER_S)
        elif passed_s > 1.0 / self.per_s:
            told = MOST_TOLD * (self.admitted + 1) / passed_s
            self.is_lowered = self.is_lowered or told < self.per_s
            self.per_s = min(self.per_s, max(told, 0.5 * self.per_s))

    def is_blocked(self, now_s: float, retry_after_s: float) -> bool:
        """Whether nothing is served: the only call that was sent since the last refusal was refused too."""
        if self.admitted > self.accepted:
            self.accepted, self.in_row_since_s, self.in_row = self.admitted, now_s, 0
            return False
        is_long = now_s - self.in_row_since_s >= BLOCKED_AFTER_S
        return self.blocked_from_s is not None or is_long or retry_after_s > LONG_S

    def block(self, now_s: float, retry_after_s: float) -> float:
        """Nothing is served: how long to wait before the next tries, for what there will be is unknown."""
        if self.blocked_from_s is None:
            self.blocked_from_s = now_s
            if not self.is_measured:
                self.per_s = max(RESTARTED_SHARE * self.per_s, LEAST_PER_S)
        again_s = TRIED_AGAIN_SHARE * (now_s - self.blocked_from_s)
        wait_s = max(retry_after_s, min(again_s, LONGEST_UNTRIED_S))
        self.was_blocked = self.was_blocked or now_s + wait_s - self.blocked_from_s > BLOCKED_S
        self.stepped_at_s, self.admitted_then = now_s + wait_s, self.admitted
        self.known_at_s = now_s
        return wait_s

    def blocked_for_s(self, now_s: float) -> float:
        return now_s - self.blocked_from_s if self.blocked_from_s is not None else 0.0

    def settle(self, per_s: float) -> None:
        """It is known what comes back when: nothing more is tried for a while."""
        self.per_s = self.refused_per_s = per_s
        self.is_settled = True

    def unsettle(self, now_s: float) -> None:
        """That was long ago: more is tried again."""
        self.is_settled = False
        self.stepped_at_s, self.admitted_then = now_s, self.admitted

    def serve(self, sent_at_s: float) -> None:
        if self.blocked_from_s is not None and sent_at_s > self.known_at_s:
            self.blocked_from_s = None

    def _grow(self, now_s: float) -> None:
        passed_s = now_s - self.stepped_at_s
        if self._is_searching():
            self.per_s *= min(2 ** (max(0.0, passed_s) / SEARCH_DOUBLES_S), MOST_AT_ONCE)
            self.stepped_at_s, self.admitted_then = max(now_s, self.stepped_at_s), self.admitted
            return
        if passed_s < self._step_s():
            return
        used = (self.admitted - self.admitted_then) / (self.per_s * passed_s)
        self.stepped_at_s, self.admitted_then = now_s, self.admitted
        if used >= LEAST_USED:
            self.per_s = self._grown()

    def _is_searching(self) -> bool:
        return self.refused_per_s is None or self.per_s < SEARCHED_BELOW * self.refused_per_s

    def _step_s(self) -> float:
        assert self.refused_per_s is not None
        near = NEAR_SHARE * self.refused_per_s
        if near <= self.per_s * 1.0001 and not self.beyond and self.is_measured:
            return self.stay * max(STAY_S, STAY_REQUESTS / self.per_s) * min(1.0, self.told / STAY_REQUESTS)
        return max(STEP_S, STEP_REQUESTS / self.per_s)

    def _grown(self) -> float:
        assert self.refused_per_s is not None
        growth = min(max(UNCERTAIN / max(self.told, 1.0), LEAST_GROWTH), MOST_GROWTH)
        near = NEAR_SHARE * self.refused_per_s
        if self.per_s < near * 0.9999:
            return min(self.per_s * (1 + growth), near)
        self.beyond += 1
        return self.per_s * (1 + min(growth * self.beyond, MOST_GROWTH))
