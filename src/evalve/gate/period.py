"""How long the time is that a stated limit is for: a minute, unless headers show that it is less. Pure.

`limit 20, remaining 19, reset 50ms` is a bucket of 20 that refills in a second: what was used, over the time
until it is there again, is the rate. In a window that ends for all at once, the time until its end says how
long it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalve.gate.messages import Stated

MINUTE_S = 60.0
NEARLY_A_MINUTE_S = 45.0
WINDOWS_S = (1.0, 10.0, MINUTE_S)
LEAST_SEEN = 2


@dataclass(slots=True)
class Period:
    """Of one dimension."""

    longest_s: float = 0.0
    """Read as a bucket's: the longest is the truest, for what remains is cut to whole numbers."""
    seen: int = 0
    ends_at_s: float = 0.0
    used: float = 0.0
    is_window: bool = False
    longest_reset_s: float = 0.0

    def learn(self, stated: Stated, now_s: float) -> None:
        limit, remaining, full_in_s = stated.per_minute, stated.remaining, stated.full_in_s
        if not limit or remaining is None or not full_in_s or remaining >= limit:
            return
        used, ends_at_s = limit - remaining, now_s + full_in_s
        is_same_end = abs(ends_at_s - self.ends_at_s) < 0.02 + 0.05 * full_in_s
        if not self.used or not is_same_end:
            self.ends_at_s, self.used = ends_at_s, used
        elif used > 1.3 * self.used + 2:  # in a bucket, more would be missing for longer
            self.is_window = True
        self.longest_reset_s = max(self.longest_reset_s, full_in_s)
        if remaining >= limit / 2:  # else the limit may be a minute's, and what remains a shallow bucket's
            self.seen += 1
            self.longest_s = max(self.longest_s, full_in_s * limit / used)

    def seconds(self) -> float:
        if self.is_window and self.seen:
            return next((each for each in WINDOWS_S if each >= 0.98 * self.longest_reset_s), MINUTE_S)
        is_known = self.seen >= LEAST_SEEN and self.longest_s < NEARLY_A_MINUTE_S
        return self.longest_s if is_known else MINUTE_S
