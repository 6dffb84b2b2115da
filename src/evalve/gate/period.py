"""How long the time is that a stated limit is for: a minute, unless headers show that it is less. Pure.

`limit 20, remaining 19, reset 50ms` is a bucket of 20 that refills in a second: what was used, over the time
until it is there again, is the rate. In a window that ends for all at once, the time until its end says how
long it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalve.gate.messages import Stated
from evalve.gate.window import SHORTEST_S, usual_length_s

MINUTE_S = 60.0
NEARLY_A_MINUTE_S = 45.0
LEAST_SEEN = 2
ROUNDED_S = 2.0
"""How much may be added where it is told by dates, in whole seconds: the beginning is cut off, the end rounded up."""
APART = 1.2
"""Two answers that differ by more than this share cannot be about the same bucket."""


@dataclass(slots=True)
class Period:
    """Of one dimension."""

    at_least_s: float = 0.0
    """Read as a bucket's: what remains is cut to whole numbers, so that each answer gives two bounds."""
    at_most_s: float = 1e9
    seen: int = 0
    longest_reset_s: float = 0.0

    def learn(self, stated: Stated) -> None:
        limit, remaining, full_in_s = stated.per_minute, stated.remaining, stated.full_in_s
        if not limit or remaining is None or not full_in_s or remaining >= limit:
            return
        used = limit - remaining
        rounding_s = ROUNDED_S if float(full_in_s).is_integer() else 0.0
        self.longest_reset_s = max(self.longest_reset_s, full_in_s - rounding_s)
        if remaining >= limit / 2:  # else the limit may be a minute's, and what remains a shallow bucket's
            self.seen += 1
            self.at_least_s = max(self.at_least_s, (full_in_s - rounding_s) * limit / used)
            if used > 1:
                self.at_most_s = min(self.at_most_s, full_in_s * limit / (used - 1))

    def seconds(self) -> float:
        if (
            self.at_least_s > APART * self.at_most_s
        ):  # a window: however much was used, it ends for all at once
            return usual_length_s(self.longest_reset_s)
        if self.seen < LEAST_SEEN or self.at_most_s >= NEARLY_A_MINUTE_S:
            return MINUTE_S
        likely_s = usual_length_s(max(self.at_least_s, SHORTEST_S))
        return min(max(self.at_least_s, likely_s), self.at_most_s)
