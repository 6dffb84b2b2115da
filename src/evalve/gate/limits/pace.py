"""A slower pace, where refusals go on although every limit that is known is kept. Pure.

A hundred requests a minute may be counted as one a second: whoever sends what is stated is refused for ever.
Then calls go out evenly, a little slower than they were served, and ever faster while nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

REFUSED = 5.0
"""What a refusal counts for, beside a call that is served: one of six is chance."""
TOO_MANY = 20.0
"""Of that: the fourth in a row. Those of calls that were sent before the last one was known do not count."""
LEAST_SERVED, LEAST_S = 4, 2.0
"""Less, or in a shorter time, tells no rate."""
BELOW = 0.95
"""Of what was served."""
SLOWEST = 0.5
"""Of the rate that is known: whole numbers are lost in counting, and one of less than two is left."""
STEP = 0.05
"""Of the pace: so much slower after a refusal, and so much faster, ever more, without any …"""
STAY_S = 10.0
"""… for so long, the first time; twice as long after each refusal."""


@dataclass(slots=True)
class Pace:
    """Of one scope."""

    per_s: float | None = None
    """Calls go out no faster."""
    last_s: float = 0.0
    """When the last one goes out that was booked."""
    score: float = 0.0
    since_s: float = 0.0
    """When the first of the refusals was known that count; what was served since."""
    served: int = 0
    known_at_s: float = -1e9
    """When the last refusal was known that counts."""
    stay_s: float = STAY_S
    grown_at_s: float = 0.0
    growth: float = STEP

    def earliest_s(self) -> float:
        return self.last_s + 1.0 / self.per_s if self.per_s is not None else 0.0

    def note_sent(self, at_s: float) -> None:
        if self.per_s is not None:
            self.last_s = max(self.last_s, at_s)

    def note_served(self) -> None:
        if self.score:
            self.served += 1
            self.score = max(0.0, self.score - 1.0)

    def note_refused(self, sent_at_s: float, known_per_s: float, now_s: float) -> bool:
        """Whether calls go out more slowly from now on."""
        if sent_at_s <= self.known_at_s:
            return False
        self.known_at_s = now_s
        if self.per_s is not None:
            self.per_s = max(self.per_s * (1 - STEP), SLOWEST * known_per_s)
            self.stay_s, self.grown_at_s, self.growth = 2 * self.stay_s, now_s, STEP
            return True
        if self.score == 0.0:
            self.since_s, self.served = now_s, 0
        self.score += REFUSED
        lasted_s = now_s - self.since_s
        if self.score < TOO_MANY or self.served < LEAST_SERVED or lasted_s < LEAST_S:
            return False
        self.per_s = BELOW * min(max(self.served / lasted_s, SLOWEST * known_per_s), known_per_s)
        self.score, self.grown_at_s, self.growth, self.last_s = 0.0, now_s, STEP, now_s
        return True

    def go_on(self, known_per_s: float, now_s: float) -> None:
        """Faster after a while without a refusal, and no slower than what is known in the end."""
        if self.per_s is None or now_s < self.grown_at_s + self.stay_s:
            return
        self.per_s *= 1 + self.growth
        self.grown_at_s, self.growth = now_s, 2 * self.growth
        if self.per_s >= known_per_s:
            self.per_s = None
