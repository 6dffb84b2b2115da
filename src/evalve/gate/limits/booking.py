"""Arithmetic of several buckets at once: when may a call start, and what does it leave behind. Pure.

A booking is made for the instant at which the call will start, in every dimension; booking at the instant
of asking would debit the dimensions that do not bind too early, and by the time of sending they have
refilled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from evalve.gate.limits.bucket import ASSUMED_BURST_S, TRUSTED_AT_FIRST, Bucket, Sent, first_seen
from evalve.gate.limits.doubt import Doubt
from evalve.gate.limits.history import History, together
from evalve.gate.limits.learnt_rate import DEEPEST_S, LearntRate
from evalve.gate.limits.pace import Pace
from evalve.gate.limits.period import MINUTE_S, Period, told_end
from evalve.gate.limits.places import OFFERED_FOR_S, Line, ShownCeiling
from evalve.gate.limits.told_window import DATED_S
from evalve.gate.limits.window import Window, usual_length_s
from evalve.gate.messages import Cost, Dimension, Limits, Stated

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
MOST_BELOW = 3
"""Refusals below a rate that nothing but a suspicion speaks for …"""
MOST_BELOW_TOLD = 4.0
"""… or below one that refusals have told: they are not about the rate."""
RAISED = 1.5
"""A rate that is so many times the one before: what waits is booked again."""
PROBED_AFTER_S, PROBED_EVERY_S = 300.0, 5.0
"""After so long a pause calls try one by one, so far apart, until one is served: they may all be refused."""
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
                    for start_s, amount in self._ahead(dimension, now_s):
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
                self._resume(self.learnt, served_try_s, now_s)
            self._hold_learnt(self.learnt.per_s * scale, now_s)
        if self.pace.per_s is not None:
            self.pace.go_on(self._known_per_s(), now_s)
        ceilings = (configured.concurrency, shown.at(now_s) if (shown := self.shown_concurrency) else None)
        self.concurrency = min((each for each in ceilings if each is not None), default=None)

    def _known_per_s(self) -> float:
        """Calls a second, by the limit that leaves the fewest."""
        return min((each.per_s / each.usual_cost for each in self.buckets.values()), default=math.inf)

    def _hold_learnt(self, per_s: float, now_s: float) -> None:
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
        if self.learnt is not None and not actual:
            self.learnt.note_unsent(started_at_s)
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

    def _ahead(self, dimension: Dimension, now_s: float) -> list[tuple[float, float]]:
        """What a bucket holds back for bookings that start later, by start."""
        self.ahead = [booked for booked in self.ahead if booked[0] > now_s]
        since = self.buckets[dimension].since_version
        return sorted(
            (start_s, cost.get(dimension, 0.0)) for start_s, version, cost in self.ahead if version >= since
        )

    def _in_flight(self) -> int:
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
        if self._in_flight() >= ceiling:
            return False
        return not self.line.waits or self.line.leaves_one_for(holder, ceiling, self._by_holder())

    def _ask_again_s(self, ceiling: int, now_s: float) -> float:
        """When a place may be free without anybody's doing: one that is kept for others, one more at once."""
        if self._in_flight() < ceiling:
            return now_s + OFFERED_FOR_S
        if self.shown_concurrency is None or self.shown_concurrency.at(now_s) != ceiling:
            return math.inf
        return self.shown_concurrency.rises_at_s(now_s)

    def _by_holder(self) -> dict[str, int]:
        return {name: held.in_flight for name, held in self.holders.items()}

    # -- feedback

    def observe(
        self,
        stated: Mapping[Dimension, Stated],
        now_s: float,
        sent: Mapping[Dimension, Sent] = MappingProxyType({}),
        *,
        cost: Cost = MappingProxyType({}),
        sent_at_s: float | None = None,
        was_held: bool = True,
    ) -> None:
        """Take in what the headers of an answer to a call of that cost say; `sent` is from its booking.

        What remains for a call that no limit held is of a time before the calls that are counted since.
        """
        self.begun = True
        if not stated and not self.stated:
            self.unlimited = self.learnt is None
            return
        self.unlimited = False
        if self.learnt is not None:  # headers know better
            self.learnt = None
            if (bucket := self.buckets.get("requests")) is not None and bucket.source == REFUSALS:
                del self.buckets["requests"]
        for dimension, said in stated.items():
            at_s = now_s if sent_at_s is None else sent_at_s
            one = self._by_the_minute(
                dimension, said, cost.get(dimension, 1.0), at_s, now_s, sent.get(dimension)
            )
            if one.per_minute is not None and one.per_minute > 0:
                self.stated[dimension] = (one.per_minute / 60.0, now_s)
            bucket = self.buckets.get(dimension)
            if bucket is None:
                if one.per_minute is not None and one.per_minute > 0:
                    self.buckets[dimension] = first_seen(one, one.per_minute / 60.0, now_s)
                continue
            if not was_held:
                bucket.deepen(one.remaining, now_s)
                continue
            ahead, uncharged = self._ahead(dimension, now_s), 0.0
            if dimension == "output_tokens":
                uncharged = sum(held.uncharged.get(dimension, 0.0) for held in self.holders.values())
                uncharged = max(0.0, uncharged - sum(amount for _, amount in ahead))
            had, rate = bucket.window, bucket.rate()
            self._keep_to_window(bucket, self.periods.get(dimension), said, sent.get(dimension), now_s)
            bucket.compare(one, uncharged, now_s, ahead=ahead, sent=sent.get(dimension))
            if bucket.window is had and bucket.rate() > RAISED * rate:  # what is booked may go earlier
                for start_s, amount in ahead:
                    bucket.give_back(amount, start_s)
            elif bucket.window is had:
                continue
            self.version += 1  # what waits is not in it
            bucket.since_version = self.version

    def _keep_to_window(
        self, bucket: Bucket, period: Period | None, said: Stated, sent: Sent | None, now_s: float
    ) -> None:
        """Where headers say when a window ends for all at once."""
        if period is None or said.per_minute is None or said.full_in_s is None:
            return
        if not period.is_told_window():
            bucket.stated_window = None
            return
        sent = sent or Sent(now_s, bucket.taken)
        if bucket.keep_to(told_end(said, sent.at_s, now_s), period.seconds(), said, sent, now_s):
            self.version += 1  # who waits books again

    def _by_the_minute(
        self,
        dimension: Dimension,
        said: Stated,
        cost: float,
        sent_at_s: float,
        now_s: float,
        sent: Sent | None,
    ) -> Stated:
        """What a limit for another time comes to."""
        if said.full_in_s is None or said.per_minute is None:
            return said
        period, bucket = self.periods.setdefault(dimension, Period()), self.buckets.get(dimension)
        before_s = period.seconds()
        period.learn(said, sent_at_s, now_s, cost=cost)
        if bucket is not None:
            if sent is not None:
                is_steady = not bucket.is_counted_in_windows()
                period.learn_use(said, sent.at_s, sent.taken, now_s, cost=cost, is_steady=is_steady)
            _regrade_window(bucket, before_s, period)
        return replace(said, per_minute=said.per_minute * MINUTE_S / period.seconds())

    def refute(
        self,
        dimension: str | None,
        stated: Mapping[Dimension, Stated],
        cost: Cost,
        sent_at_s: float,
        now_s: float,
    ) -> bool:
        """Whether a refusal's own headers say that enough remains; then they are believed no more."""
        named = [name for name in stated if dimension is None or name == dimension]
        for name in named:
            remaining = stated[name].remaining
            if remaining is None or remaining < max(1.0, cost.get(name, 1.0)):
                return False
        if not named:
            return False
        if sent_at_s > self.penalised_at_s.get("refuted", -math.inf):
            self.penalised_at_s["refuted"] = now_s
            others = [bucket for name in named if (bucket := self.buckets.get(name)) and bucket.refute(now_s)]
            self.version += bool(others)
            for bucket in others:
                bucket.since_version = self.version
        return True

    def learn_rate(
        self, dimension: str | None, retry_after_s: float, *, sent: Sent | None, now_s: float
    ) -> bool:
        """Whether calls go on at the pace that is known now, after a refusal that nobody had foretold.

        `sent` is `None` for a call that nothing held back: it tells nothing about the rate that others keep.
        """
        if self.stated or dimension == "ramp":
            return False
        if self.learnt is None:
            if self.buckets and (
                dimension is None or dimension in self.buckets or "requests" in self.buckets
            ):
                return False  # calls are held to a rate already
            self.learnt = LearntRate.blocked(self.doubt.unheld, retry_after_s, now_s, self.doubt.ever)
            self.unlimited = False
            self._hold_learnt(self.learnt.per_s * self.ramp_share(now_s), now_s)
            self.version += 1
        elif sent is not None:
            self._learn_more(self.learnt, sent, retry_after_s, now_s)
        return True

    def _learn_more(self, learnt: LearntRate, sent: Sent, retry_after_s: float, now_s: float) -> None:
        bucket = self.buckets["requests"]
        learnt.note_unsent(sent.at_s)
        if bucket.window is not None and learnt.refused_more(bucket.window, sent.at_s, retry_after_s, now_s):
            self.version += 1  # who was to try next books again
            if learnt.known_at_s == now_s and bucket.window.ends_s is not None:
                bucket.since_version = self.version  # and is in the window no more
            return
        if sent.at_s <= learnt.known_at_s:
            return
        if bucket.window is not None:
            if not learnt.doubt_window(bucket.window, sent.at_s, now_s):
                bucket.refuse(sent, 1.0, retry_after_s, now_s, remaining=None)
                return
            bucket.window = None
        learnt.refused(sent.at_s, retry_after_s, now_s)
        if learnt.below >= MOST_BELOW_TOLD:
            self._absolve(now_s)
            return
        self._hold_learnt(learnt.per_s * self.ramp_share(now_s), now_s)
        bucket.set_level(0.0, now_s)
        self.version += 1  # what was booked at the old rate is booked again
        bucket.since_version = self.version

    def _resume(self, learnt: LearntRate, served_try_s: float, now_s: float) -> None:
        """Calls are served again, after a while in which none was."""
        full = learnt.resume(served_try_s)
        bucket = self.buckets["requests"]
        if full is not None:
            most = full.most or full.sent.sum_after(full.began_s)
            learnt.settle(most / full.length_s)
            bucket.window = Window(most, full.length_s, since_s=now_s, ends_s=full.ends_s)
            if learnt.welcome_s is not None:
                learnt.more_until_s, learnt.more_from_s = now_s + DEEPEST_S, None
            elif most <= FEW_IN_WINDOW and full.most is None:
                learnt.more_until_s, learnt.more_from_s = now_s + full.length_s, None
            for last_s, amount in [*full.sent.parts, *learnt.history.parts]:
                bucket.window.take(amount, last_s)
        bucket.set_level(0.0, now_s)
        self.version += 1
        bucket.since_version = self.version

    def note_unheld(self, holder: str, sent: History, each: Cost, *, sent_at_s: float, now_s: float) -> None:
        """Before it knew of any limit; `each` is what the call took that was sent at that instant."""
        before = self.doubt.unheld.get(holder, History())
        if self.learnt is None:
            self.doubt.note_unheld(holder, sent, now_s)
        elif self.learnt.is_suspicion or self.learnt.try_at_s is not None:
            self.learnt.unheld[holder] = sent
        if self.stated:
            self._take_unheld(before, sent, each, sent_at_s, now_s)

    def _take_unheld(
        self, before: History, sent: History, each: Cost, sent_at_s: float, now_s: float
    ) -> None:
        """What was sent while the answer was on its way that first stated a limit is not in what it said.

        In a window it counts all the same, from when it was sent.
        """
        if self.unheld_since_s is None:
            self.unheld_since_s = sent_at_s
            before, sent = History(), together(self.doubt.unheld.values())
        more = sent.sum_after(-math.inf) - before.sum_after(-math.inf)
        unknown = sent.sum_after(self.unheld_since_s) - before.sum_after(self.unheld_since_s)
        if before.parts:
            sent = History([[sent_at_s, more]], began_s=sent_at_s)
        for dimension, amount in each.items():
            if (bucket := self.buckets.get(dimension)) is None:
                continue
            if more > 0:
                bucket.take_unheld(unknown * amount, sent.times(amount), now_s)
            elif more < 0:
                bucket.give_back_unheld(amount, sent_at_s)

    def is_about_rate(
        self,
        served_per_s: float,
        sent_at_s: float,
        booked_for_s: float | None,
        now_s: float,
        *,
        in_a_row: bool = False,
    ) -> bool:
        """Whether a refusal that states no limit tells that calls come too fast."""
        verdict = self.doubt.judge(sent_at_s, now_s, in_a_row=in_a_row, is_booked=booked_for_s is not None)
        learnt = self.learnt
        if verdict == "too fast":
            if learnt is not None:
                learnt.confirm()
            return True
        if learnt is None:
            if verdict == "perhaps":
                share, unheld = self.doubt.single_share(), self.doubt.unheld
                served_per_s = max(served_per_s, self.doubt.served_per_s(now_s))
                per_s = served_per_s or together(unheld.values()).per_s(now_s)
                self.learnt = LearntRate.suspected(max(per_s, 1.0), share, unheld, now_s)
                self.unlimited = False
                self._hold_learnt(self.learnt.per_s, now_s)
                self.buckets["requests"].set_level(0.0, now_s)
            return False
        if not learnt.is_suspicion or learnt.is_confirmed():
            learnt.confirm()
            return True
        if booked_for_s is not None and booked_for_s > learnt.known_at_s:
            learnt.below += 1
            learnt.known_at_s = now_s
            if learnt.below >= MOST_BELOW:
                self._absolve(now_s)
        return False

    def _absolve(self, now_s: float) -> None:
        self.doubt.absolve(now_s)
        self.learnt = None
        bucket = self.buckets.get("requests")
        if bucket is not None and bucket.source == REFUSALS:
            del self.buckets["requests"]
        self.version += 1

    def penalise(self, dimension: str | None, retry_after_s: float, sent_at_s: float, now_s: float) -> None:
        """A refusal: nothing of that dimension before `retry_after_s`; once for all calls of one episode."""
        episode = dimension or "pause"
        if sent_at_s <= self.penalised_at_s.get(episode, -math.inf):
            return
        self.penalised_at_s[episode] = now_s
        self.version += 1
        if retry_after_s <= DATED_S and (known := [b for b in self.buckets.values() if b.is_depth_shown()]):
            # whatever they count in, after so long all is there again: more was added by rounding
            retry_after_s = min(retry_after_s, max(usual_length_s(b.depth / b.per_s) for b in known))
        if retry_after_s >= PROBED_AFTER_S:
            self.probing_from_s = now_s + retry_after_s
        if dimension == "ramp":
            self.ramp = (0.5 * self.ramp_share(now_s), now_s + retry_after_s)
        bucket = self.buckets.get(dimension) if dimension else None  # type: ignore[call-overload]
        if bucket is not None:
            # the first unit is there exactly then, and the others follow at the rate: no herd
            bucket.closed_until_s = now_s + retry_after_s
            bucket.full_at_s = bucket.closed_until_s + max(0.0, bucket.usable() - 1) / bucket.rate()
            bucket.since_version = self.version
            return
        self.pause_until_s = max(self.pause_until_s, now_s + retry_after_s)
        self.pause_reason = dimension or "refused"
        for name, each in self.buckets.items():
            for start_s, amount in self._ahead(name, now_s):
                each.give_back(amount, start_s)  # they book again
            each.since_version = self.version
            each.closed_until_s = max(each.closed_until_s, self.pause_until_s)
            each.full_at_s = max(
                each.full_at_s, self.pause_until_s + max(0.0, each.usable() - 1) / each.rate()
            )

    def refuse(
        self,
        dimension: str | None,
        stated: Mapping[Dimension, Stated],
        sent: Mapping[Dimension, Sent],
        cost: Cost,
        sent_at_s: float,
        retry_after_s: float,
        now_s: float,
    ) -> bool:
        """Whether windows are counted, so that it is known when calls are welcome again."""
        if not sent:  # no limit held it back
            sent = {
                name: Sent(sent_at_s, each.taken + cost.get(name, 1.0)) for name, each in self.buckets.items()
            }
        if self.stated and not self._asked(sent_at_s):
            self.version += self.pace.note_refused(sent_at_s, self._known_per_s(), now_s)
        named = [name for name in sent if dimension in (None, name) and self._is_told_of(name)]
        for name in named:
            bucket = self.buckets[name]
            had = bucket.window
            said = stated.get(name)
            period = self.periods.setdefault(name, Period())
            before_s = period.seconds()
            period.note_refused(sent_at_s, now_s)
            bucket.refuse(
                sent[name],
                cost.get(name, 1.0),
                retry_after_s,
                now_s,
                remaining=said.remaining if said is not None else None,
                holders=len(self.holders),
            )
            _regrade_window(bucket, before_s, period)
            if bucket.window is not had:
                self.version += 1
                bucket.since_version = self.version
        return any(self.buckets[name].is_counted_in_windows() for name in named)

    def _asked(self, sent_at_s: float) -> bool:
        """Whether a call was to ask whether a window is over: that it is refused tells nothing about pace."""
        windows = [bucket.window for bucket in self.buckets.values() if bucket.window is not None]
        return any(sent_at_s in window.asked for window in windows)

    def _is_told_of(self, dimension: Dimension) -> bool:
        """Whether headers tell of it, or windows of it are counted because of them."""
        bucket = self.buckets.get(dimension)
        return bucket is not None and (
            dimension in self.stated or (bucket.window is not None and self.learnt is None)
        )

    def note_served(self, sent: Mapping[Dimension, Sent], started_at_s: float, now_s: float) -> None:
        """A call was answered and not refused: nobody has to try any more."""
        self.pace.note_served()
        if self.learnt is not None and self.learnt.out_at_s == started_at_s:
            self._resume(self.learnt, started_at_s, now_s)
        for dimension, one in sent.items():
            if (bucket := self.buckets.get(dimension)) is not None and bucket.serve(one, now_s):
                self.version += 1  # who waits for its end books again
                bucket.since_version = self.version
        if self.probing_from_s is not None:
            self.probing_from_s = None
            self.version += 1

    def lower_ceiling(self, unrefused: int, now_s: float) -> None:
        """Too many at once: no more from now on than are in flight without the one that was refused.

        Every refusal counts, also those of one episode: of fifty calls sent at once the first that is
        refused leaves 49, and only the last leaves as many as are served. Rates have nothing to do with it.
        """
        served = max(1, unrefused, self._in_flight())
        shown = self.shown_concurrency
        self.shown_concurrency = shown.lowered(served, now_s) if shown else ShownCeiling(served, now_s)

    def is_ahead_of(self, now_s: float) -> bool:
        """Whether it speaks of later instants than any booking does: another clock than ours was read."""
        until_s = [self.pause_until_s, *(bucket.full_at_s for bucket in self.buckets.values())]
        return max(until_s) > now_s + FURTHEST_S

    def after_reboot(self) -> ScopeState:
        """Clocks begin anew with the machine: limits are kept, levels are not."""
        return ScopeState(stated={name: (per_s, 0.0) for name, (per_s, _) in self.stated.items()})


def _regrade_window(bucket: Bucket, before_s: float, period: Period) -> None:
    """It holds as much, for another time; one that was found while a shorter time was tried is none."""
    if bucket.window is None:
        return
    if period.seconds() > before_s and not period.use.is_believed:
        bucket.window = None
    else:
        bucket.window.length_s *= period.seconds() / before_s


def _lower(configured: Any, stated: tuple[float, float] | None, now_s: float) -> tuple[float, str]:
    if configured is None:
        assert stated is not None
        return stated[0], "response headers"
    per_s = configured.per_minute / 60.0
    if stated is None or stated[0] >= per_s or now_s - stated[1] > LONGEST_TRUST_S:
        return per_s, configured.source
    return stated[0], "response headers"
