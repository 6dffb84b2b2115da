"""How long the time is that a stated limit is for: a minute, unless headers show that it is less. Pure.

`limit 20, remaining 19, reset 50ms` is a bucket of 20 that refills in a second: what was used, over the time
until it is there again, is the rate. In a window that ends for all at once, the time until its end says how
long it is. Numbers are cut to whole ones, so that each answer gives two bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalve.gate.limits.window import SHORTEST_S, USUAL_S, usual_length_s
from evalve.gate.messages import Stated

MINUTE_S = 60.0
NEARLY_A_MINUTE_S = 45.0
LEAST_SEEN = 2
ROUNDED_S = 2.0
"""How much may be added where it is told by dates, in whole seconds: their beginning is cut off, their end
rounded up."""
CUT_S = 1.0
"""… and where only their beginning is."""
APART = 1.2
"""Two answers that differ by more than this share cannot be about the same bucket."""


@dataclass(slots=True)
class Period:
    """Of one dimension."""

    at_least_s: float = 0.0
    """Read as a bucket's."""
    at_most_s: float = 1e9
    seen: int = 0
    longest_reset_s: float = 0.0
    full_at_s: float = 1e9
    """When nothing will be missing any more, by the last answer."""

    def learn(self, stated: Stated, now_s: float) -> None:
        limit, remaining, full_in_s = stated.per_minute, stated.remaining, stated.full_in_s
        if not limit or remaining is None or not full_in_s or remaining >= limit:
            return
        was_full = now_s >= self.full_at_s
        self.full_at_s = now_s + full_in_s
        used = limit - remaining
        rounding_s = ROUNDED_S if float(full_in_s).is_integer() else CUT_S * stated.is_dated
        self.longest_reset_s = max(self.longest_reset_s, full_in_s - rounding_s)
        if remaining < limit / 2 and self.at_most_s >= NEARLY_A_MINUTE_S:
            return  # the limit may be a minute's, and what remains a shallow bucket's
        self.seen += 1
        self.at_least_s = max(self.at_least_s, (full_in_s - rounding_s) * limit / used)
        surely_used = used if was_full else used - 1
        if surely_used > 0:
            self.at_most_s = min(self.at_most_s, full_in_s * limit / surely_used)

    def seconds(self) -> float:
        if self.at_least_s > APART * self.at_most_s:  # a window, which ends for all however much was used
            return usual_length_s(max(self.longest_reset_s, SHORTEST_S))
        if self.seen < LEAST_SEEN or self.at_most_s >= NEARLY_A_MINUTE_S:
            return MINUTE_S
        likely = [usual_s for usual_s in USUAL_S if self.at_least_s <= usual_s <= self.at_most_s]
        return max(likely, default=self.at_least_s)
