"""Arithmetic of several buckets at once: when may a call start, and what does it leave behind. Pure.

A booking is made for the instant at which the call will start, in every dimension; booking at the instant
of asking would debit the dimensions that do not bind too early, and by the time of sending they have
refilled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evalve.gate.limits.bucket import ASSUMED_BURST_S, TRUSTED_AT_FIRST, Bucket, Sent
from evalve.gate.limits.doubt import Doubt
from evalve.gate.limits.learnt_rate import DEEPEST_S, LearntRate
from evalve.gate.limits.pace import Pace
from evalve.gate.limits.period import Period
from evalve.gate.limits.places import OFFERED_FOR_S, Line, ShownCeiling
from evalve.gate.limits.window import Window
from evalve.gate.messages import Cost, Dimension, Limits

AS_GOOD_AS_SENT_S = 0.025
"""What is booked for later than this is certainly missing from it."""
LONGEST_TRUST_S = 600.0
"""Stated limits that were not repeated for this long are no longer held against a configured one."""
FURTHEST_S = 86_400.0
"""No call is booked for a later instant from now, and no refusal closes a scope for so long."""
REFUSALS = "refusals"
"""The source of a limit that was neither configured nor stated."""
ALONE = "holder 0"
"""The first holder of a state that one process keeps to itself."""
RAISED = 1.5
"""A rate that is so many times the one before: what waits is booked again."""
PROBED_EVERY_S = 5.0
"""After a long pause calls try one by one, so far apart, until one is served: they may all be refused."""
FEW_IN_WINDOW = 30.0
"""Where no more have filled a window, it is tried whether it holds more than was told."""
LEARNT_BURST_S = 0.25
"""How much of a learnt rate may come at once: what makes up for a busy event loop, and no more."""


@dataclass(slots=True)
class Holder:
    """What one process has in flight in a scope."""

    in_flight: int = 0
    uncharged: dict[str, float] = field(default_factory=dict)
    """Booked and not yet settled, by dimension."""
    heard_at_s: float = 0.0
    """When it last told anything: all that is known of a process that cannot be seen from here."""


@dataclass(frozen=True, slots=True)
class Booking:
    """A start instant, or the reason why there is none yet."""

    start_s: float
    """Where no place is free: when to ask again if nobody has told by then."""
    cost: Cost
    version: int
    binding: str
    """The dimension that set the start; `pause`, `concurrency`, or empty where nothing did."""
    granted: bool = True
    per_s: float = 0.0
    """The binding dimension's rate."""
    under_ceiling: bool = False
    """Whether concurrent calls are limited, so that others may wait for this one to end."""
    sent: Mapping[Dimension, Sent] = field(default_factory=dict)
    """By bucket, for the comparison with what the answer will state."""


@dataclass(slots=True)
class ScopeState:
    """Everything that is shared about one scope."""

    buckets: dict[Dimension, Bucket] = field(default_factory=dict)
    stated: dict[Dimension, tuple[float, float]] = field(default_factory=dict)
    """Rate per second that headers gave, and when."""
    holders: dict[str, Holder] = field(default_factory=dict)
    line: Line = field(default_factory=Line)
    """The holders that wait for one of `concurrency` places."""
    pause_until_s: float = 0.0
    pause_reason: str = ""
    penalised_at_s: dict[str, float] = field(default_factory=dict)
    concurrency: int | None = None
    """How many calls may be in flight: what is configured, or less where refusals have shown it."""
    shown_concurrency: ShownCeiling | None = None
    """What refusals have shown."""
    doubt: Doubt = field(default_factory=Doubt)
    """What refusals are about."""
    periods: dict[Dimension, Period] = field(default_factory=dict)
    """The time that stated limits are for."""
    unheld_since_s: float | None = None
    """When the call was sent whose answer first stated a limit: it does not know of those sent since."""
    learnt: LearntRate | None = None
    """Requests a second, where refusals have shown them and nobody states a limit."""
    probing_from_s: float | None = None
    """After a long pause: when the next call may try, alone, whether calls are served again."""
    pace: Pace = field(default_factory=Pace)
    """To which calls are slowed while refusals go on."""
    ramp: tuple[float, float] | None = None
    """Share of the rates that is used since a ramp refusal, and since when."""
    ahead: list[tuple[float, int, Cost]] = field(default_factory=list)
    """Bookings that have not started yet: instant, version, cost. About one for each process."""
    version: int = 0
    """Raised when what is already booked must be booked again."""
    sources: dict[str, str] = field(default_factory=dict)
    begun: bool = False
    """Whether anything was ever booked, or answered."""
    unlimited: bool = False
    """An answer came, and it stated no limit."""
    is_configured: bool = field(default=False, compare=False)
    """Whether a person has said a rate; told anew with every exchange."""

    # -- limits

    def hold(self, configured: Limits, now_s: float) -> None:
        """Bring rates and depths in line: of what is configured and what is stated, the lower holds."""
        scale = self.ramp_share(now_s)
        self.is_configured = bool(configured.by_dimension)
        for dimension in {*configured.by_dimension, *self.stated}:
            wanted = configured.by_dimension.get(dimension)
            per_s, source = _lower(wanted, self.stated.get(dimension), now_s)
            per_s *= scale
            bucket = self.buckets.get(dimension)
            if wanted is not None and wanted.burst is not None:
                is_refuted = bucket is not None and now_s < bucket.refuted_until_s
                depth = max(min(wanted.burst, bucket.depth) if bucket and is_refuted else wanted.burst, 1.0)
            elif bucket is not None and bucket.depth_known:
                depth = bucket.depth
            else:
                depth = max(per_s * ASSUMED_BURST_S, 1.0)
            if bucket is None:
                is_known = wanted is not None and wanted.burst is not None
                bucket = self.buckets[dimension] = Bucket(per_s, depth, depth_known=is_known, source=source)
                bucket.set_level(depth * TRUSTED_AT_FIRST, now_s)
            elif abs(bucket.per_s - per_s) > 1e-9 or abs(bucket.depth - depth) > 1e-9:
                if per_s > RAISED * bucket.per_s:  # what is booked may go earlier
                    for start_s, amount in self.booked_ahead(dimension, now_s):
                        bucket.give_back(amount, start_s)
                    self.version += 1
                    bucket.since_version = self.version
                bucket.regrade(per_s, depth, now_s)
                bucket.source = source
        for bucket in self.buckets.values():
            if bucket.stated_window is not None:
                bucket.stated_window.most = bucket.per_s * bucket.stated_window.length_s
                bucket.stated_window.go_on(now_s)
        forgotten = [name for name, bucket in self.buckets.items() if bucket.forget_window(now_s)]
        if self.learnt is not None:
            if "requests" in forgotten:
                self.learnt.unsettle(now_s)
            if (served_try_s := self.learnt.accepted(now_s)) is not None:
                self.resume(self.learnt, served_try_s, now_s)
            self.hold_learnt(self.learnt.per_s * scale, now_s)
        if self.pace.per_s is not None:
            self.pace.go_on(self.known_per_s(), now_s)
        ceilings = (configured.concurrency, shown.at(now_s) if (shown := self.shown_concurrency) else None)
        self.concurrency = min((each for each in ceilings if each is not None), default=None)

    def known_per_s(self) -> float:
        """Calls a second, by the limit that leaves the fewest."""
        return min((each.per_s / each.usual_cost for each in self.buckets.values()), default=math.inf)

    def hold_learnt(self, per_s: float, now_s: float) -> None:
        depth = max(per_s * LEARNT_BURST_S, 1.0)
        bucket = self.buckets.get("requests")
        if bucket is None:
            bucket = self.buckets["requests"] = Bucket(per_s, depth, now_s, source=REFUSALS)
        elif bucket.source == REFUSALS:
            bucket.per_s, bucket.depth = per_s, depth  # who comes next goes when it would have gone
            if bucket.window is not None:
                bucket.window.most = per_s * bucket.window.length_s

    def ramp_share(self, now_s: float) -> float:
        if self.ramp is None:
            return 1.0
        share, since_s = self.ramp
        grown: float = share * 1.5 ** ((now_s - since_s) / 10.0)
        if grown >= 1.0:
            self.ramp = None
            return 1.0
        return grown

    # -- booking

    def book(self, cost: Cost, holder: str, now_s: float, *, not_after_s: float) -> Booking:
        """Book the earliest start; one later than `not_after_s` is told and not booked."""
        if self.concurrency is not None and not self._has_place(holder, self.concurrency):
            again_s = self._ask_again_s(self.concurrency, now_s)
            return Booking(again_s, cost, self.version, "concurrency", granted=False, under_ceiling=True)
        start_s, binding = now_s, ""
        if self.pause_until_s > start_s:
            start_s, binding = self.pause_until_s, "pause"
        if self.probing_from_s is not None and self.probing_from_s > start_s:
            start_s, binding = self.probing_from_s, "pause"
        if self.learnt is not None and (earliest_s := self.learnt.earliest_s()) > start_s:
            start_s, binding = earliest_s, "requests"
        if (earliest_s := self.pace.earliest_s()) > start_s:
            start_s, binding = earliest_s, "requests"
        for dimension, amount in cost.items():
            bucket = self.buckets.get(dimension) if self.begun else None  # the very first call just goes
            if bucket is not None and (earliest_s := bucket.earliest_s(amount)) > start_s:
                if self._tries_more(bucket, start_s):
                    continue
                start_s, binding = earliest_s, dimension
        if start_s > not_after_s:
            return Booking(start_s, cost, self.version, binding, granted=False)
        self.begun = True
        version = self.version
        if self.learnt is not None and self.learnt.out_at_s is not None:
            version -= 1  # it books again when it is known what comes of the try that is out
        if self.probing_from_s is not None:
            self.probing_from_s = start_s + PROBED_EVERY_S
        held = self.holders.setdefault(holder, Holder())
        held.in_flight += 1
        held.heard_at_s = now_s
        sent: dict[Dimension, Sent] = {}
        for dimension, amount in cost.items():
            if (bucket := self.buckets.get(dimension)) is not None:
                bucket.take(amount, start_s)
                sent[dimension] = Sent(start_s, bucket.taken, bucket.in_transit(start_s) - amount)
                held.uncharged[dimension] = held.uncharged.get(dimension, 0.0) + amount
        if start_s > now_s + AS_GOOD_AS_SENT_S:
            self.ahead = [booked for booked in self.ahead if booked[0] > now_s]
            self.ahead.append((start_s, version, dict(cost)))
        self.doubt.note_sent(start_s)
        self.pace.note_sent(start_s)
        if self.learnt is not None:
            self.learnt.note_sent(start_s)
        elif not self.buckets:
            self.doubt.note_booked(start_s)
        bound = self.buckets.get(binding)  # type: ignore[call-overload]  # or none, as for a pause
        return Booking(
            start_s,
            cost,
            version,
            binding,
            per_s=bound.per_s if bound else 0.0,
            under_ceiling=self.concurrency is not None,
            sent=sent,
        )

    def _tries_more(self, bucket: Bucket, at_s: float) -> bool:
        learnt, window = self.learnt, bucket.window
        return learnt is not None and window is not None and learnt.tries_more(window, at_s)

    def settle(self, booked: Cost, actual: Cost, holder: str, *, version: int, started_at_s: float) -> None:
        """Replace what was booked by what it took; also how a booking is given back."""
        if self.ahead and (started_at_s, version, booked) in self.ahead:
            self.ahead.remove((started_at_s, version, booked))
        if not actual:
            (self.learnt or self.doubt).note_unsent(started_at_s)
        held = self.holders.get(holder)
        if held is not None:
            held.in_flight = max(0, held.in_flight - 1)
        for dimension, amount in booked.items():
            if (bucket := self.buckets.get(dimension)) is not None:
                too_much = amount - actual.get(dimension, 0.0)
                if too_much < 0 or version >= bucket.since_version:
                    bucket.give_back(too_much, started_at_s)
                if bucket.stated_window is not None and bucket.stated_window.has_room_for_later():
                    self.version += 1
            if held is not None:
                held.uncharged[dimension] = max(0.0, held.uncharged.get(dimension, 0.0) - amount)

    def forget_holder(self, holder: str) -> None:
        """Its process is dead: its calls hold no slot; what it booked stays spent, for it may have been."""
        self.holders.pop(holder, None)
        self.line.leave(holder)

    def unheard_s(self, holder: str, now_s: float) -> float:
        """For how long a holder has told nothing; one that only waits for a place asks every second."""
        held = self.holders.get(holder)
        return now_s - held.heard_at_s if held is not None else 0.0

    def only_of(self, holder: str) -> ScopeState:
        """The same for a process that goes on alone: what others hold is not known any more."""
        mine = self.holders.get(holder)
        return replace(self, holders={} if mine is None else {ALONE: mine}, line=Line())

    def booked_ahead(self, dimension: Dimension, now_s: float) -> list[tuple[float, float]]:
        """What a bucket holds back for bookings that start later, by start."""
        self.ahead = [booked for booked in self.ahead if booked[0] > now_s]
        since = self.buckets[dimension].since_version
        return sorted(
            (start_s, cost.get(dimension, 0.0)) for start_s, version, cost in self.ahead if version >= since
        )

    def in_flight(self) -> int:
        return sum(held.in_flight for held in self.holders.values())

    # -- places

    def queue(self, holder: str, *, granted: bool) -> None:
        """Who asked stands in the line from now on, or no longer."""
        if granted:
            self.line.leave(holder)
        elif self.concurrency is not None:
            self.line.join(holder, self.concurrency)

    def offer_places(self, now_s: float, *, but: str | None = None) -> list[str]:
        """The holders that are to be told of a free place."""
        return self.line.offer(self._by_holder(), now_s, but=but) if self.line.waits else []

    def _has_place(self, holder: str, ceiling: int) -> bool:
        if self.in_flight() >= ceiling:
            return False
        return not self.line.waits or self.line.leaves_one_for(holder, ceiling, self._by_holder())

    def _ask_again_s(self, ceiling: int, now_s: float) -> float:
        """When a place may be free without anybody's doing: one that is kept for others, one more at once."""
        if self.in_flight() < ceiling:
            return now_s + OFFERED_FOR_S
        if self.shown_concurrency is None or self.shown_concurrency.at(now_s) != ceiling:
            return math.inf
        return self.shown_concurrency.rises_at_s(now_s)

    def _by_holder(self) -> dict[str, int]:
        return {name: held.in_flight for name, held in self.holders.items()}

    def resume(self, learnt: LearntRate, served_try_s: float, now_s: float) -> None:
        """Calls are served again, after a while in which none was."""
        full = learnt.resume(served_try_s)
        bucket = self.buckets["requests"]
        if (found := learnt.explain(bucket.window, 0.0, now_s)) is not None:
            bucket.window = found.window(learnt.trace.served, served_try_s, is_full=False)
        elif full is not None:
            most = full.sent.sum_after(full.began_s)
            learnt.settle(most / full.length_s)
            bucket.window = Window(most, full.length_s, since_s=now_s, ends_s=full.ends_s)
            if learnt.welcome_s is not None:
                learnt.more_until_s, learnt.more_from_s = now_s + DEEPEST_S, None
            elif most <= FEW_IN_WINDOW:
                learnt.more_until_s, learnt.more_from_s = now_s + full.length_s, None
            # who was to try next has booked, and books again
            for last_s, amount in [*full.sent.parts, [served_try_s, 1.0]]:
                bucket.window.take(amount, last_s)
        bucket.set_level(0.0, now_s)
        self.version += 1
        bucket.since_version = self.version

    def is_ahead_of(self, now_s: float) -> bool:
        """Whether it speaks of later instants than any booking does: another clock than ours was read."""
        until_s = [self.pause_until_s, *(bucket.full_at_s for bucket in self.buckets.values())]
        return max(until_s) > now_s + FURTHEST_S

    def after_reboot(self) -> ScopeState:
        """Clocks begin anew with the machine: limits are kept, levels are not."""
        return ScopeState(stated={name: (per_s, 0.0) for name, (per_s, _) in self.stated.items()})


def _lower(configured: Any, stated: tuple[float, float] | None, now_s: float) -> tuple[float, str]:
    if configured is None:
        assert stated is not None
        return stated[0], "response headers"
    per_s = configured.per_minute / 60.0
    if stated is None or stated[0] >= per_s or now_s - stated[1] > LONGEST_TRUST_S:
        return per_s, configured.source
    return stated[0], "response headers"
