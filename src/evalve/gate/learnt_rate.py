"""A rate that nobody states, learnt from refusals. Pure.

A provider that refuses has just been asked for more than it gives. So what it served from one refusal to the
next, over the time between them, is its rate: its bucket was empty at both. Calls then go out a little below
that rate, and a little more is tried, ever more seldom.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_PER_S = 0.5
"""Tried at first, however little went through before the first refusal."""
LEAST_LEFT = 0.85
"""Of a rate, after a refusal: where calls went out below the provider's rate for long, its bucket ran over,
and what was served is less than it gives."""
LEAST_TELLING = 5
"""Calls; what fewer tell about the rate is as much chance, such as another process that has just begun."""
SOON_S = 3.0
"""After calls were resumed: of a refusal that comes sooner, what was served tells all."""
RESUMED_SHARE = 0.85
"""Of the rate that was refused, used at first."""
NEAR_SHARE = 0.95
"""Of the rate that was refused: where growth stops for a while."""
GROWTH = 1.03
MOST_GROWTH = 1.12
"""Beyond the rate that was refused, each step is as large as all before it together, up to this."""
FAST_GROWTH = 1.5
"""Until calls at the rate itself were refused."""
LEAST_USED = 0.5
"""Of a rate; where less was called for, that nothing was refused says nothing about more."""
STEP_S, STEP_REQUESTS = 1.0, 2.0
"""Growth takes a step after so long and so many."""
STAY_S, STAY_REQUESTS = 10.0, 20.0
"""… and stops near the rate that was refused, the first time; then twice as long, and so on."""
LONGEST_STAY = 8


@dataclass(slots=True)
class LearntRate:
    """Requests a second that are tried where the provider refuses and states no limit."""

    per_s: float
    refused_at_s: float
    resumed_at_s: float
    refused_per_s: float | None = None
    """What the provider gave when it last refused calls that went out at this rate; `None` before."""
    admitted: int = 0
    """Since it last refused."""
    stepped_at_s: float = 0.0
    admitted_then: int = 0
    stay: int = 1
    """How often as long as the first time growth stops near the rate that was refused."""
    below: int = 0
    """Refusals in a row below the rate that was refused."""
    is_suspicion: bool = False
    """Whether nothing but single refusals speaks for it."""

    @classmethod
    def suspected(cls, per_s: float, now_s: float) -> LearntRate:
        """Single refusals, and many: a little less is tried, to see whether they become fewer."""
        rate = max(per_s, LEAST_PER_S)
        return cls(RESUMED_SHARE * rate, now_s, now_s, rate, stepped_at_s=now_s, is_suspicion=True)

    @classmethod
    def guessed(cls, per_s: float, now_s: float, retry_after_s: float) -> LearntRate:
        """From what went through before the first refusal, when nothing was held back."""
        resumed_at_s = now_s + retry_after_s
        return cls(max(per_s, LEAST_PER_S), now_s, resumed_at_s, stepped_at_s=resumed_at_s)

    def guess_lower(self, per_s: float) -> None:
        """Of fifty calls sent at once only the last that is refused tells how many were served."""
        if self.refused_per_s is None and self.admitted == 0:
            self.per_s = min(self.per_s, max(per_s, LEAST_PER_S))

    def note_admitted(self, number: int, now_s: float) -> None:
        """Also less than none, for those that were refused or have not gone."""
        self.admitted = max(0, self.admitted + number)
        if number > 0:
            self._grow(now_s)

    def refused(self, now_s: float, retry_after_s: float) -> None:
        """At this rate: the first refusal of an episode."""
        served_per_s = max(self.admitted, 0.5) / max(now_s - self.refused_at_s, 0.1)
        least = 0.0 if now_s < self.resumed_at_s + SOON_S else LEAST_LEFT * self.per_s
        given = min(self.per_s, max(served_per_s, least))
        is_told = self.refused_per_s is not None or self.admitted >= LEAST_TELLING
        was_just_beyond = self.refused_per_s is not None and self.per_s < 1.5 * self.refused_per_s
        self.stay = min(2 * self.stay, LONGEST_STAY) if was_just_beyond else 1
        self.refused_per_s = given if is_told else None
        self.per_s = RESUMED_SHARE * given
        self.refused_at_s, self.resumed_at_s = now_s, now_s + retry_after_s
        self.stepped_at_s = self.resumed_at_s
        self.admitted = self.admitted_then = 0

    def _grow(self, now_s: float) -> None:
        near = None if self.refused_per_s is None else NEAR_SHARE * self.refused_per_s
        is_near = near is not None and near <= self.per_s * 1.0001 and self.per_s < near * GROWTH
        wait_s = max(STEP_S, STEP_REQUESTS / self.per_s)
        if is_near:
            wait_s = self.stay * max(STAY_S, STAY_REQUESTS / self.per_s)
        passed_s = now_s - self.stepped_at_s
        if passed_s < wait_s:
            return
        used = (self.admitted - self.admitted_then) / (self.per_s * passed_s)
        self.stepped_at_s, self.admitted_then = now_s, self.admitted
        if used < LEAST_USED:
            return
        self.per_s = self._grown()

    def _grown(self) -> float:
        if self.refused_per_s is None:
            return self.per_s * FAST_GROWTH
        near = NEAR_SHARE * self.refused_per_s
        if self.per_s < near:
            return min(self.per_s * GROWTH, near)
        return self.per_s * min(max(self.per_s / self.refused_per_s, GROWTH), MOST_GROWTH)
