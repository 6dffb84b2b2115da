"""How `Adaptive` decides: pure arithmetic on what one interval showed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

SATURATED = 0.8
"""Growth is worth a try only where at least this share of the limit was in use."""
CUT = 0.7
WORTHWHILE = 0.1
"""A growth pays if it brought at least this share of what proportional growth would have brought."""
PATIENCE = 10
"""Intervals to hold after a growth that did not pay, before the next probe."""
HELD_BACK = 0.25
"""From this share of samples on that wait for a provider's limits, more samples at once bring nothing."""
HEADROOM = 1.3
"""Times the calls really under way, which by Little's law are the admitted rate times the latency."""
MOST_LOST = 0.1
"""Calls that may be lost to overload, server errors and time-outs, as a share of all, without a cut."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What was seen since the last decision."""

    per_second: float
    success_share: float
    saturated: bool
    in_flight: float = 0.0
    """On average, over the turns that ended."""
    held_back: float = 0.0
    """How many of those waited for a provider's limits."""
    lost_share: float = 0.0
    """Calls that the provider lost, of all that were sent."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier intervals taught."""

    limit: int
    probing_from: tuple[int, float] | None = None
    """The limit and the throughput before a growth that is being tried out."""
    doubling: bool = True
    hold: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    minimum: int
    maximum: int
    increase_threshold: float
    decrease_threshold: float


def decide(memory: Memory, seen: Interval, bounds: Bounds) -> tuple[Memory, str]:
    """The next limit, and why."""
    if seen.success_share < bounds.decrease_threshold:
        lower = max(bounds.minimum, min(memory.limit - 1, math.floor(memory.limit * CUT)))
        reason = f"only {seen.success_share:.0%} of turns succeeded"
        return Memory(limit=lower, doubling=False, hold=1), reason
    if seen.lost_share > MOST_LOST:
        lower = max(bounds.minimum, min(memory.limit - 1, math.floor(memory.limit * CUT)))
        return Memory(limit=lower, doubling=False, hold=1), f"{seen.lost_share:.0%} of calls were lost"
    if seen.in_flight and seen.held_back >= HELD_BACK * seen.in_flight:
        enough = max(bounds.minimum, math.ceil(HEADROOM * (seen.in_flight - seen.held_back)))
        reason = f"limits hold {seen.held_back:.0f} of {seen.in_flight:.0f} back: {enough} use them up"
        return Memory(limit=min(memory.limit, enough), doubling=False, hold=1), reason
    if memory.probing_from is not None:
        before, per_second_before = memory.probing_from
        gain = seen.per_second / per_second_before if per_second_before > 0 else math.inf
        if gain < bounds.increase_threshold:
            reason = f"{memory.limit} at once gave {gain:.2f} × the throughput of {before}"
            return Memory(limit=before, doubling=False, hold=PATIENCE), reason
        if gain < 1 + WORTHWHILE * (memory.limit / before - 1):
            # staying would ratchet: each later probe would again bring nothing, and stay
            reason = f"{memory.limit} at once gave no more than {before}"
            return Memory(limit=before, doubling=False, hold=PATIENCE), reason
    memory = replace(memory, probing_from=None)
    if memory.hold > 0:
        return replace(memory, hold=memory.hold - 1), "holding"
    if not seen.saturated:
        return memory, "the limit is not in use"
    if seen.success_share < bounds.increase_threshold or memory.limit >= bounds.maximum:
        return memory, "holding"
    step = memory.limit if memory.doubling else max(1, memory.limit // 10)
    higher = min(bounds.maximum, memory.limit + step)
    grown = replace(memory, limit=higher, probing_from=(memory.limit, seen.per_second))
    return grown, f"{seen.per_second:.1f}/s with all in use"


@dataclass(slots=True)
class Controller:
    """Counts between decisions and keeps their history."""

    limit: int
    minimum: int
    maximum: int
    interval_s: float
    increase_threshold: float
    decrease_threshold: float
    history: list[dict[str, Any]] = field(default_factory=list)
    _initial: int = 0
    _memory: Memory | None = None
    _began_s: float = 0.0
    _since_s: float = 0.0
    _ended: int = 0
    _succeeded: int = 0
    _peak: int = 0
    _in_flight: int = 0
    _held_back: int = 0
    _lost: int = 0
    _sent: int = 0
    _lost_before: int = 0
    _sent_before: int = 0
    _stale: int = 0
    """Turns still to end that say nothing about the limit: the first ones, which all started at once, and
    after a change those that were started before it."""

    def __post_init__(self) -> None:
        self._initial = self.limit

    def anew(self, *, minimum: int, maximum: int) -> Controller:
        return Controller(
            limit=min(max(self._initial, minimum), maximum),
            minimum=minimum,
            maximum=maximum,
            interval_s=self.interval_s,
            increase_threshold=self.increase_threshold,
            decrease_threshold=self.decrease_threshold,
        )

    def start(self, now_s: float) -> None:
        if self._memory is None:
            self._memory = Memory(limit=self.limit)
            self._began_s = now_s
        self._stale = self.limit
        self._forget(now_s)

    def observe(self, *, succeeded: bool, in_flight: int, held_back: int = 0) -> None:
        self._ended += 1
        self._succeeded += succeeded
        self._peak = max(self._peak, in_flight)
        self._in_flight += in_flight
        self._held_back += held_back

    def adapt(self, now_s: float, *, lost: int = 0, sent: int = 0) -> bool:
        """Decide, if an interval has passed and a whole window has ended in it; true if the limit changed.

        `lost` and `sent` count calls to providers since the beginning.
        """
        self._lost, self._sent = lost, sent
        if self._stale > 0:
            self._stale -= 1
            self._forget(now_s)
            return False
        elapsed_s = now_s - self._since_s
        if self._memory is None or elapsed_s < self.interval_s or self._ended < self.limit:
            return False
        seen = Interval(
            per_second=self._ended / elapsed_s if elapsed_s > 0 else math.inf,
            success_share=self._succeeded / self._ended,
            saturated=self._peak >= SATURATED * self.limit,
            in_flight=self._in_flight / self._ended,
            held_back=self._held_back / self._ended,
            lost_share=(lost - self._lost_before) / max(1, sent - self._sent_before),
        )
        bounds = Bounds(self.minimum, self.maximum, self.increase_threshold, self.decrease_threshold)
        self._memory, reason = decide(self._memory, seen, bounds)
        if self._memory.limit == self.limit:
            self._forget(now_s)
            return False
        self.history.append(
            {
                "at_s": round(now_s - self._began_s, 3),
                "from": self.limit,
                "to": self._memory.limit,
                "per_second": round(seen.per_second, 3),
                "success_share": round(seen.success_share, 4),
                "reason": reason,
            }
        )
        self._stale = min(self.limit, self._peak)
        self.limit = self._memory.limit
        self._forget(now_s)
        return True

    def _forget(self, now_s: float) -> None:
        self._since_s = now_s
        self._ended = self._succeeded = self._peak = self._in_flight = self._held_back = 0
        self._lost_before, self._sent_before = self._lost, self._sent
