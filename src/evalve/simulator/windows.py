"""Fixed and sliding windows, which some providers keep instead of buckets: pure, time is handed in."""

from __future__ import annotations

import math
from collections import deque

from evalve.simulator.buckets import ROUNDING


class _Windowed:
    """What both windows share. Others use up their share of every window before anybody else comes."""

    def __init__(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float = 0.0) -> None:
        self.rate_per_s = rate_per_s
        self.depth = depth
        self._free = depth * (1.0 - foreign_share)
        self.level = self._free
        self._now_s = now_s

    @property
    def _window_s(self) -> float:
        return self.depth / self.rate_per_s

    def covers(self, need: float) -> bool:
        """A window of which nothing is used lets even a larger request start."""
        return self.level + ROUNDING >= min(need, self._free)

    def charge_refusal(self) -> None:
        if self.level > 0:
            self.charge(min(1.0, self.level))

    def charge(self, amount: float) -> None:
        raise NotImplementedError

    def start_production(self, tokens_per_s: float, tokens: float) -> None:
        """Output counts when its answer is complete."""

    def end_production(
        self, tokens_per_s: float, *, produced: float, unproduced: float, correction: float
    ) -> None:
        self.charge(produced)


class FixedWindow(_Windowed):
    """All is there again when the next window starts; the first one starts when the limit does.

    What a request took beyond its window is missing in the next ones, so that the rate holds all the same.
    """

    def __init__(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float = 0.0) -> None:
        super().__init__(rate_per_s=rate_per_s, depth=depth, now_s=now_s, foreign_share=foreign_share)
        self._began_s = now_s

    def resize(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float) -> None:
        self.refresh(now_s)
        self.rate_per_s, self.depth = rate_per_s, depth
        self._free = depth * (1.0 - foreign_share)
        self.level = min(self.level, self._free)

    def refresh(self, now_s: float) -> None:
        self._now_s = max(self._now_s, now_s)
        passed = int((self._now_s - self._began_s) / self._window_s + ROUNDING)
        if passed:
            self._began_s += passed * self._window_s
            self.level = min(self._free, min(0.0, self.level) + passed * self._free)

    def wait_s(self, need: float) -> float:
        if self.covers(need):
            return 0.0
        windows = math.ceil((min(need, self._free) - min(0.0, self.level)) / self._free - ROUNDING)
        return self._next_in_s() + (windows - 1) * self._window_s

    def charge(self, amount: float) -> None:
        self.level = min(self._free, self.level - amount)

    def full_in_s(self) -> float:
        return self._next_in_s() + math.ceil(max(0.0, -self.level) / self._free - ROUNDING) * self._window_s

    def _next_in_s(self) -> float:
        return max(0.0, self._began_s + self._window_s - self._now_s)


class SlidingWindow(_Windowed):
    """Each request counts for as long as the window, from the instant when it came.

    One that is larger than the window counts for as long as the rate needs to give so much.
    """

    def __init__(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float = 0.0) -> None:
        super().__init__(rate_per_s=rate_per_s, depth=depth, now_s=now_s, foreign_share=foreign_share)
        self._used: deque[tuple[float, float]] = deque()
        """When it counts no longer, and how much."""

    def resize(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float) -> None:
        self.refresh(now_s)
        free = depth * (1.0 - foreign_share)
        self.level += free - self._free
        self.rate_per_s, self.depth, self._free = rate_per_s, depth, free

    def refresh(self, now_s: float) -> None:
        self._now_s = max(self._now_s, now_s)
        while self._used and self._used[0][0] <= self._now_s + ROUNDING:
            self.level += self._used.popleft()[1]
        if not self._used:
            self.level = self._free  # sums of floats would drift

    def wait_s(self, need: float) -> float:
        missing = min(need, self._free) - self.level
        if missing <= ROUNDING:
            return 0.0
        for leaves_s, amount in self._used:
            missing -= amount
            if missing <= ROUNDING:
                return max(0.0, leaves_s - self._now_s)
        return math.inf

    def charge(self, amount: float) -> None:
        """What is given back is taken off the latest requests."""
        if amount >= 0:
            leaves_s = self._now_s + max(self._window_s, amount / self.rate_per_s)
            self._used.append((max(leaves_s, self._used[-1][0] if self._used else 0.0), amount))
            self.level -= amount
            return
        back = -amount
        while back > 0 and self._used:
            leaves_s, used = self._used.pop()
            taken = min(used, back)
            if used > taken:
                self._used.append((leaves_s, used - taken))
            self.level += taken
            back -= taken

    def full_in_s(self) -> float:
        """Until the latest request counts no longer."""
        return max(0.0, self._used[-1][0] - self._now_s) if self._used else 0.0
