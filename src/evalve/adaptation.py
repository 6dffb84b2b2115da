"""How `Adaptive` decides: pure arithmetic on what one interval showed.

Two sides are kept apart. The provider's side grows while more at once brings more, and shrinks where calls
are refused or lost. The host's side is no bound as long as the machine is well, and shrinks under its
pressure. The smaller of the two holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from evalve.contracts import NO_CALLS, CallCounts, HostPressure

SATURATED = 0.8
"""Growth is worth a try only where at least this share of the limit was in use."""
CUT = 0.7
WORTHWHILE = 0.1
"""A growth pays if it brought at least this share of what proportional growth would have brought."""
PATIENCE = 10
"""Intervals to hold after a growth that did not pay, before the next probe."""
HELD_BACK, HELD_SOME = 0.15, 0.05
"""From these shares of samples on that wait for a provider's limits, fewer at once bring as much, and more at
once bring nothing."""
HEADROOM = 1.1
"""Times the samples really at work: by Little's law, what the limits admit times how long each takes. Not
rounded up: of four, one more would be a quarter more at once, for limits that are used a tenth better."""
MOST_LOST = 0.1
"""Calls that may be lost to overload, server errors and time-outs, as a share of all, without a cut."""
MOST_REFUSED = 0.2
"""Calls that may be refused. The gate spaces calls out after a refusal, so few are; one in ten at random is
no reason for fewer samples."""
STEADY_TURNS = 10
"""Once it does not double any more, at least so many turns are seen: of five, one says too much."""
CALM_LOOKS = 15
"""How often in a row the machine must be well before more samples run again."""

Side = Literal["provider", "host"]


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
    refused_share: float = 0.0
    """Calls that the provider refused."""


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
    if seen.refused_share > MOST_REFUSED:
        lower = max(bounds.minimum, min(memory.limit - 1, math.floor(memory.limit * CUT)))
        return Memory(limit=lower, doubling=False, hold=1), f"{seen.refused_share:.0%} of calls were refused"
    if seen.in_flight and seen.held_back >= HELD_BACK * seen.in_flight:
        enough = max(bounds.minimum, round(HEADROOM * (seen.in_flight - seen.held_back)))
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
    if seen.in_flight and seen.held_back >= HELD_SOME * seen.in_flight:
        return memory, "the provider's limits are used up"
    if seen.success_share < bounds.increase_threshold or memory.limit >= bounds.maximum:
        return memory, "holding"
    step = memory.limit if memory.doubling else max(1, memory.limit // 10)
    higher = min(bounds.maximum, memory.limit + step)
    grown = replace(memory, limit=higher, probing_from=(memory.limit, seen.per_second))
    return grown, f"{seen.per_second:.1f}/s with all in use"


@dataclass(frozen=True, slots=True)
class HostSide:
    """What the machine allows."""

    limit: int | None = None
    """`None` while it sets no bound."""
    calm: int = 0
    """How often in a row it has been well."""


def decide_for_host(
    side: HostSide, pressure: HostPressure, *, in_flight: int, bounds: Bounds
) -> tuple[HostSide, str]:
    """What the machine allows from now on, and why."""
    if pressure.level == "clear":
        return _recovered(side, bounds)
    if pressure.level == "tight" or (side.limit is not None and in_flight > side.limit):
        # a cut takes effect when samples end; until then the machine cannot be better
        limit = max(bounds.minimum, in_flight) if side.limit is None else side.limit
        return HostSide(limit), f"no more: {pressure.reason}"
    least = max(bounds.minimum, min(pressure.at_least, in_flight))
    base = in_flight if side.limit is None else min(side.limit, max(in_flight, 1))
    lower = max(least, min(base - 1, math.floor(base * CUT)))
    return HostSide(lower if side.limit is None else min(side.limit, lower)), pressure.reason


def _recovered(side: HostSide, bounds: Bounds) -> tuple[HostSide, str]:
    if side.limit is None:
        return side, ""
    if side.calm + 1 < CALM_LOOKS:
        return replace(side, calm=side.calm + 1), ""
    higher = side.limit + max(1, side.limit // 4)
    return HostSide(None if higher >= bounds.maximum else higher), "the machine has room again"


@dataclass(slots=True)
class Controller:
    """Counts between decisions and keeps their history."""

    limit: int
    """The provider's side."""
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
    _calls: CallCounts = NO_CALLS
    _calls_before: CallCounts = NO_CALLS
    _host: HostSide = field(default_factory=HostSide)
    _stale: int = 0
    """Turns still to end that say nothing about the limit: the first ones, which all started at once, and
    after a change those that were started before it."""

    def __post_init__(self) -> None:
        self._initial = self.limit

    @property
    def allowed(self) -> int:
        """How many may be in flight: the smaller of both sides."""
        return self.limit if self._host.limit is None else min(self.limit, self._host.limit)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.minimum, self.maximum, self.increase_threshold, self.decrease_threshold)

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

    def adapt(self, now_s: float, calls: CallCounts = NO_CALLS) -> bool:
        """Decide, if an interval has passed and a whole window has ended in it; true if the limit changed."""
        self._calls = calls
        if self._stale > 0:
            self._stale -= 1
            self._forget(now_s)
            return False
        elapsed_s = now_s - self._since_s
        if self._memory is None or elapsed_s < self.interval_s:
            return False
        if self._ended < (self.limit if self._memory.doubling else max(self.limit, STEADY_TURNS)):
            return False
        seen = self._seen(elapsed_s)
        self._memory, reason = decide(self._memory, seen, self.bounds)
        before, self.limit = self.limit, self._memory.limit
        if self.limit != before:
            self._stale = min(before, self._peak)
            self._note(now_s, "provider", before, reason, seen)
        self._forget(now_s)
        return self.limit != before

    def look(self, now_s: float, pressure: HostPressure, *, in_flight: int) -> bool:
        """Take the machine into account; true if what it allows has changed."""
        allowed, before = self.allowed, self._host.limit
        self._host, reason = decide_for_host(self._host, pressure, in_flight=in_flight, bounds=self.bounds)
        if self._host.limit == before:
            return False
        if self.allowed != allowed or (before is None and pressure.level == "over"):
            self._note(now_s, "host", allowed, reason)
        return True

    def _seen(self, elapsed_s: float) -> Interval:
        calls, before = self._calls, self._calls_before
        sent = max(1, calls.sent - before.sent)
        return Interval(
            per_second=self._ended / elapsed_s if elapsed_s > 0 else math.inf,
            success_share=self._succeeded / self._ended,
            saturated=self._peak >= SATURATED * self.limit,
            in_flight=self._in_flight / self._ended,
            held_back=self._held_back / self._ended,
            lost_share=(calls.lost - before.lost) / sent,
            refused_share=(calls.refused - before.refused) / sent,
        )

    def _note(self, now_s: float, side: Side, before: int, reason: str, seen: Interval | None = None) -> None:
        decision: dict[str, Any] = {
            "at_s": round(now_s - self._began_s, 3),
            "from": before,
            "to": self.allowed,
            "side": side,
        }
        if seen is not None:
            decision["per_second"] = round(seen.per_second, 3)
            decision["success_share"] = round(seen.success_share, 4)
        self.history.append({**decision, "reason": reason})

    def _forget(self, now_s: float) -> None:
        self._since_s = now_s
        self._ended = self._succeeded = self._peak = self._in_flight = self._held_back = 0
        self._calls_before = self._calls
