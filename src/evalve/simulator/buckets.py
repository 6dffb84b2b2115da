"""Token buckets with continuous refill: pure arithmetic, every instant is handed in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

ROUNDING = 1e-6
"""A client that waited exactly as long as it was told must not fail by the last bit of a float."""


class Counting(Protocol):
    """One limit, however it is counted: what is left of it, and how long until it covers a need."""

    rate_per_s: float
    depth: float
    level: float

    def resize(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float) -> None: ...

    def refresh(self, now_s: float) -> None: ...

    def covers(self, need: float) -> bool: ...

    def wait_s(self, need: float) -> float: ...

    def charge(self, amount: float) -> None: ...

    def charge_refusal(self) -> None: ...

    def full_in_s(self) -> float: ...

    def start_production(self, tokens_per_s: float, tokens: float) -> None: ...

    def end_production(
        self, tokens_per_s: float, *, produced: float, unproduced: float, correction: float
    ) -> None: ...


class Bucket:
    """One limit: a level that rises at a rate up to a depth, and that may fall below zero.

    Output is charged while it is produced. Every answer in production lowers the level at its own pace, so
    the level is exact at any instant although nothing happens between the start and the end of an answer.
    """

    __slots__ = (
        "_producers",
        "_production_per_s",
        "_unproduced",
        "_updated_s",
        "depth",
        "foreign_share",
        "level",
        "rate_per_s",
    )

    def __init__(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float = 0.0) -> None:
        self.rate_per_s = rate_per_s
        self.depth = depth
        self.level = depth
        self.foreign_share = foreign_share
        self._updated_s = now_s
        self._producers = 0
        self._production_per_s = 0.0
        self._unproduced = 0.0

    def resize(self, *, rate_per_s: float, depth: float, now_s: float, foreign_share: float) -> None:
        """Other limits from now on; what is left stays, as far as it fits."""
        self.refresh(now_s)
        self.rate_per_s, self.depth, self.foreign_share = rate_per_s, depth, foreign_share
        self.level = min(self.level, depth)

    def refresh(self, now_s: float) -> None:
        """Bring the level to this instant."""
        passed_s = now_s - self._updated_s
        if passed_s <= 0:
            return
        self._updated_s = now_s
        self.level = min(self.depth, self.level + (self.refill_per_s - self._production_per_s) * passed_s)
        if self._producers:
            self._unproduced = max(0.0, self._unproduced - self._production_per_s * passed_s)

    @property
    def refill_per_s(self) -> float:
        """What other users of the same limit leave of its rate."""
        return self.rate_per_s * (1.0 - self.foreign_share)

    def covers(self, need: float) -> bool:
        """Whether a request that needs so much may start; a full bucket lets even a larger one start."""
        return self.level + ROUNDING >= min(need, self.depth)

    def wait_s(self, need: float) -> float:
        """At most so many seconds until it covers the need if nobody else comes; output in flight counts."""
        missing = min(need, self.depth) - self.level
        if missing <= ROUNDING:
            return 0.0
        if self.refill_per_s <= 0:
            return math.inf
        if not self._producers:
            return missing / self.refill_per_s
        longest_s = (missing + self._unproduced) / self.refill_per_s
        net_per_s = self.refill_per_s - self._production_per_s
        return min(longest_s, missing / net_per_s) if net_per_s > 0 else longest_s

    def charge(self, amount: float) -> None:
        """Take the amount at once, into debt if need be; a negative amount gives back."""
        self.level = min(self.depth, self.level - amount)

    def charge_refusal(self) -> None:
        """Count a refused request as a request; it empties the bucket at most, and makes no debt."""
        self.level = min(self.level, max(0.0, self.level - 1.0))

    def full_in_s(self) -> float:
        """Seconds until full at the stated rate: a provider does not know what other users will do."""
        return (self.depth - self.level) / self.rate_per_s if self.rate_per_s > 0 else 0.0

    def start_production(self, tokens_per_s: float, tokens: float) -> None:
        """From now on an answer of so many tokens lowers the level at this pace."""
        self._producers += 1
        self._production_per_s += tokens_per_s
        self._unproduced += tokens

    def end_production(
        self, tokens_per_s: float, *, produced: float, unproduced: float, correction: float
    ) -> None:
        """The answer ended; the correction is what it produced beyond (or short of) its pace."""
        self._producers -= 1
        if self._producers:
            self._production_per_s -= tokens_per_s
            self._unproduced = max(0.0, self._unproduced - unproduced)
        else:
            self._production_per_s = self._unproduced = 0.0  # sums of floats would drift
        self.charge(correction)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request takes of one bucket: what must be there for it to start, and what it is charged then."""

    need: float
    charge: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """The dimension that keeps a request waiting longest."""

    dimension: str
    wait_s: float
    level: float


def take(
    buckets: Mapping[str, Counting], costs: Mapping[str, Cost], *, now_s: float, refusals_count: bool = False
) -> Shortage | None:
    """Charge every dimension, or none and say which one is short.

    With `refusals_count` a refused request still uses up a request, as OpenAI documents.
    """
    short = False
    for dimension, bucket in buckets.items():
        bucket.refresh(now_s)
        cost = costs.get(dimension)
        if cost is not None and not bucket.covers(cost.need):
            short = True
    if not short:
        for dimension, cost in costs.items():
            if dimension in buckets:
                buckets[dimension].charge(cost.charge)
        return None
    if refusals_count and "requests" in buckets:
        buckets["requests"].charge_refusal()
    return max(
        (
            Shortage(dimension, buckets[dimension].wait_s(cost.need), buckets[dimension].level)
            for dimension, cost in costs.items()
            if dimension in buckets
        ),
        key=lambda shortage: shortage.wait_s,
    )


class Production:
    """One answer on its way: charges its buckets token by token from now until it is complete."""

    __slots__ = ("_buckets", "_duration_s", "_started_s", "_tokens")

    def __init__(self, buckets: Sequence[Counting], *, tokens: int, duration_s: float, now_s: float) -> None:
        self._buckets = buckets
        self._tokens = tokens
        self._duration_s = duration_s
        self._started_s = now_s
        if duration_s > 0:
            for bucket in buckets:
                bucket.refresh(now_s)
                bucket.start_production(tokens / duration_s, tokens)

    def end(self, *, now_s: float, produced: int | None = None) -> int:
        """Settle with what was produced; without a figure, with what its pace gives until now."""
        charged = 0.0
        if self._duration_s > 0:
            charged = self._tokens * max(0.0, now_s - self._started_s) / self._duration_s
        if produced is None:
            produced = min(self._tokens, int(charged))
        for bucket in self._buckets:
            bucket.refresh(now_s)
            if self._duration_s > 0:
                bucket.end_production(
                    self._tokens / self._duration_s,
                    produced=produced,
                    unproduced=max(0.0, self._tokens - charged),
                    correction=produced - charged,
                )
            else:
                bucket.charge(produced)
        return produced
