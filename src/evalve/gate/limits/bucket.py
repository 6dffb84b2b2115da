"""One bucket: how much of one limit is left, when it will hold more, and what headers say about it. Pure.

It is kept as the instant at which it will be full again if nothing more is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from evalve.gate.limits.history import History, together
from evalve.gate.limits.stated_window import StatedWindow, ToldEnd
from evalve.gate.limits.told_window import DATED_S, HALF_FULL, told_window
from evalve.gate.limits.window import (
    LEAST_ASKED,
    MOST_REFUSED,
    SHARE_REFUSED,
    SHORTEST_S,
    Window,
    usual_length_s,
)
from evalve.gate.messages import Stated

ASSUMED_BURST_S = 1.0
"""How much of its rate a bucket is assumed to hold where nobody said; headers widen it."""
RESERVE_S = 0.25
"""Part of a bucket, in seconds of its rate, left alone: calls arrive later than they were booked, and what
a full bucket would have gained meanwhile is lost, while our arithmetic counts it."""
MOST_RESERVED = 0.25
"""… but never more than this share of the bucket."""
MARGIN_SHARE = 0.03
"""Of the time that a cost takes to refill: waited besides where it leaves no reserve, for the same reason."""
TRUSTED_AT_FIRST = 0.5
"""Share of a bucket that is used before an answer has confirmed it: the first calls open connections."""
IN_TRANSIT_S = 0.25
"""What was sent within this time, or twice as long ago, may be missing from what a header says: the level is
not raised by it, or a burst of answers would each give leave to the same calls again."""
DRIFT_S = 5.0
"""Over how long the use by others is averaged."""
SOONEST_S = 0.01
"""Answers that follow each other sooner tell no more than one after so long: calls overtake each other."""
WHOLE = 1.0
"""What remains is told in whole numbers, cut off: up to this much more is there."""
COST_WEIGHT = 0.1
"""Of the latest call in what a call takes on average."""
FORGOTTEN_S = 120.0
"""How fast others are forgotten while nothing is missing."""
SUSPECTED_SHARE = 0.1
"""Of the rate: from so much use by others on, a whole number is believed as it stands."""
SUSPECTED_AT_ONCE = 0.15
"""Of the rate, ascribed to others when a call is refused that should have fitted."""
CERTAIN_GAP = 0.125
"""… by more than what a call that comes a moment early lacks."""
LEAST_SHARE = 0.05
"""However much others use, this share of the rate is tried."""


JUMP_SHARE = 0.3
JUMPS_OF_A_WINDOW, SHORT_WINDOW_S = 2, 3.0
"""So many, and no further apart: what seems to be missing within a window is not what others take."""
OVERTAKEN_S = 0.02
"""Calls that start no further apart may arrive in any order."""
TIMES_SEEN = 8
"""Answers after which it is believed that a bucket is no deeper than they said."""
REFUTED_LEVEL = 0.5
"""Of the reserve: what is left alone after the first refusal, which may be chance; calls soon go on."""
REFUTED_S = 600.0
"""For how long headers are not believed that were refuted; the next time twice as long."""
SUPPORTS, SUPPORTED_WITHIN_S = 2, 30.0
"""Refusals that it takes to count in windows, and how far apart they may be."""
MUCH_FLOWED, AS_MUCH = 0.25, 0.1
"""Of a bucket: what should have flowed in, and how exactly what was sent is all that a window holds."""
WINDOW_SHARE = 0.03
"""Of the rate: so much use by others, soon after a refusal, may be a window instead."""
SHARED_FOR_S = 3.0
"""After so long in which others seem to use much, and nothing is refused, a window is tried instead …"""
TRIED_WINDOWS = 5
"""… which is none if anything is refused within so many of its lengths."""
BUSY_S, BUSY_SHARE = 1.0, 0.6
MOST_SURPRISES = 2
TRIED_SHARE, TRIED_S = 0.3, 1.0
"""From so much use by others on, it is tried whether there are any, with so much of the rate."""
LEAST_SHOWN_S = 0.1
"""No bucket is taken to be shallower, in seconds of its rate."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A call whose answer says what remains."""

    at_s: float
    """Its start."""
    taken: float
    """What had been taken of the bucket in all, by then."""
    beside: float = 0.0
    """What was sent just before it, and may have arrived after it."""
    refused: float = 0.0
    """What it took of ours, and not of theirs."""


@dataclass(slots=True)
class Burst:
    """What was taken since nothing was missing, and what refusals said about it."""

    began_s: float = 0.0
    over_s: float = 0.0
    """When everything taken since will have flowed back in."""
    base: float = 0.0
    """What had been taken in all, before."""
    refused: float = 0.0
    """Of what was taken since, what was refused."""
    refused_at_s: float = -1e9
    """When the last refusal was known."""
    refused_taken: float = 0.0
    """What had been taken in all when the call started that it was about."""
    served_sent_s: float = -1e9
    """When the last call started that was served."""
    length_s: float = 0.0
    """How long a window would be that the burst has filled."""
    log: History = field(default_factory=History)
    """What was taken since, and shortly before."""
    supports: int = 0
    """Refusals that speak for such a window."""

    def take(self, cost: float, per_s: float, start_s: float, taken: float) -> None:
        """`taken` is in all, before."""
        if self.over_s <= start_s:
            self.began_s = self.over_s = start_s
            self.base, self.refused = taken, 0.0
            self.log.forget(start_s - SHORT_WINDOW_S)
        self.over_s += cost / per_s
        self.log.add(cost, start_s)

    def take_unheld(self, sent: History, per_s: float, taken: float) -> None:
        """Before anything was counted; `taken` is in all, since."""
        amount = sent.sum_after(-math.inf)
        if self.over_s <= sent.began_s:
            self.began_s = self.over_s = sent.began_s
            self.base = taken
        self.base -= amount
        self.over_s += amount / per_s
        self.log = together([self.log, sent])

    def is_blocked(self) -> bool:
        """Whether nothing was served that was sent after the last refusal was known."""
        return self.served_sent_s <= self.refused_at_s


@dataclass(slots=True)
class Trial:
    """Whether headers say less than there is: calls go out at the full rate for a moment."""

    empty: int = 0
    """Answers in a row that said that nothing remained."""
    ends_at: float | None = None
    """When so much has been taken in all."""
    again_at_s: float = 0.0
    after_s: float = 5.0
    served: int = 0
    """Calls, since it began."""

    def fail(self, now_s: float) -> None:
        self.ends_at = None
        self.empty = 0
        self.again_at_s = now_s + self.after_s
        self.after_s *= 2


@dataclass(slots=True)
class Bucket:
    """One dimension of one scope."""

    per_s: float
    depth: float
    full_at_s: float = 0.0
    others_per_s: float = 0.0
    """What other users of the key take, as far as headers show it."""
    seen_at_s: float | None = None
    """When headers were last compared with this bucket."""
    depth_known: bool = False
    source: str = ""
    closed_until_s: float = 0.0
    """Nothing starts before: a refusal said so, whatever is given back meanwhile."""
    since_version: int = 0
    """Bookings of an older version are not in it: a refusal has told its level since."""
    slot_s: float = 0.0
    """Begin of the latest time slot, `IN_TRANSIT_S` long, in which calls started."""
    sent: float = 0.0
    sent_before: float = 0.0
    """In the slot before."""
    taken: float = 0.0
    """In all: what was taken between two instants is their difference."""
    refuted_until_s: float = 0.0
    """Headers said that enough remained, and a call was refused: until then they are not believed."""
    refuted_for_s: float = REFUTED_S
    most_seen: float = 0.0
    """The most that headers ever said was in it."""
    times_seen: int = 0
    last_seen: float | None = None
    jumps: int = 0
    """How often more was in it at once than flows in: it is a window, which ends for all together."""
    jumped_at_s: float = 0.0
    burst: Burst = field(default_factory=Burst)
    window: Window | None = None
    """Where refusals have shown that what was taken comes back all at once, instead of flowing in."""
    windows_refuted_until_s: float = 0.0
    trial: Trial = field(default_factory=Trial)
    shared_since_s: float | None = None
    """Since when others seem to use much of it."""
    last_seen_sent_s: float = -1e9
    """When the call started whose answer said what was last seen."""
    usual_cost: float = WHOLE
    """What a call takes of it, on average."""
    stated_window: StatedWindow | None = None
    """Where headers tell when what was taken comes back for all at once."""

    def refuse(
        self,
        sent: Sent,
        cost: float,
        retry_after_s: float,
        now_s: float,
        *,
        remaining: float | None,
        holders: int = 1,
    ) -> None:
        """Learn from a call that was booked, so that it should have fitted, and was refused."""
        if self.stated_window is not None:
            if remaining is None or remaining < cost:
                self.stated_window.refuse(now_s)
                return
            self.stated_window = None
        burst = self.burst
        if sent.at_s <= burst.refused_at_s:  # sent before the refusal of another was known
            if burst.base < sent.taken < burst.refused_taken and not burst.supports:
                burst.length_s -= cost / self.per_s
            burst.refused += cost
            return
        is_empty = remaining is not None and remaining < cost
        served = max(0.0, sent.taken - burst.base - cost - burst.refused)
        if self.trial.ends_at is not None:
            self.trial.fail(now_s)
        if self.window is not None:
            self._refuse_in_window(self.window, sent, cost, retry_after_s, now_s)
        elif now_s >= self.windows_refuted_until_s:
            self._find_window(sent, served, cost, retry_after_s, now_s, is_empty=is_empty, holders=holders)
        burst.refused += cost
        burst.refused_at_s, burst.refused_taken = now_s, sent.taken

    def _find_window(
        self,
        sent: Sent,
        served: float,
        cost: float,
        retry_after_s: float,
        now_s: float,
        *,
        is_empty: bool,
        holders: int,
    ) -> None:
        """Whether a refusal shows that what was taken comes back all at once."""
        shown_s = self._has_not_flowed_in_for_s(now_s) if is_empty else None
        told = None
        if retry_after_s > cost / self.per_s + DATED_S:
            told = told_window(
                self.burst.log,
                self.per_s,
                refused=self.burst.refused,
                sent_at_s=sent.at_s,
                welcome_s=now_s + retry_after_s,
                is_whole=float(retry_after_s).is_integer(),
            )
        if told is not None and (is_empty or served >= HALF_FULL * told.length_s * self.per_s):
            window = self.count_in_windows(told.length_s, now_s)
            if told.ends_s is not None:
                window.end_at(told.ends_s, now_s)
        elif shown_s is not None:
            self.count_in_windows(shown_s, now_s)
        else:
            self._doubt_flow(self._length_s(served, is_empty, now_s), is_empty, now_s)
        if self.window is not None and told is None:
            self._ask_whether_it_is_over(self.window, holders, now_s)

    def _ask_whether_it_is_over(self, window: Window, holders: int, now_s: float) -> None:
        began_s = self.burst.log.first_after(-math.inf)
        if began_s is None:
            return
        refused, calls = self.burst.refused / self.usual_cost, self.taken / self.usual_cost
        allowed = max(LEAST_ASKED, int(max(MOST_REFUSED * holders, SHARE_REFUSED * calls) - refused))
        window.ask(began_s, self.burst.served_sent_s, now_s, allowed=allowed)

    def _length_s(self, served: float, is_empty: bool, now_s: float) -> float:
        """How long a window would be that so much has filled, or that headers say is full."""
        depth = self.depth if self.depth_known and now_s >= self.refuted_until_s else 0.0
        is_ours = self.others_per_s <= WINDOW_SHARE * self.per_s
        if is_empty and is_ours and 0.0 < depth <= SHORT_WINDOW_S * self.per_s:
            return (depth + self.usual_cost) / self.per_s
        return (depth if is_empty and depth else served) / self.per_s

    def _has_not_flowed_in_for_s(self, now_s: float) -> float | None:
        """How long a window is that holds just what was sent, where a bucket would hold much more by now."""
        if not self.depth_known or now_s < self.refuted_until_s:
            return None
        length_s = self.depth / self.per_s
        flowed_in = self.depth - max(0.0, self.burst.over_s - now_s) * self.per_s
        sent = self.burst.log.sum_after(now_s - length_s)
        is_window = flowed_in >= MUCH_FLOWED * self.depth and abs(sent - self.depth) <= AS_MUCH * self.depth
        return length_s if is_window else None

    def _is_busy(self, now_s: float) -> bool:
        """Whether so much was taken lately that a refusal may be about it."""
        lately = self.burst.log.sum_after(now_s - BUSY_S)
        return lately >= BUSY_SHARE * BUSY_S * self.per_s

    def _refuse_in_window(
        self, window: Window, sent: Sent, cost: float, retry_after_s: float, now_s: float
    ) -> None:
        window.answered(sent.at_s, cost, now_s, is_served=False)
        if sent.at_s < window.since_s:
            return
        is_told = retry_after_s > DATED_S
        window.refused(sent.at_s, now_s + retry_after_s if is_told else None)
        if window.surprises >= MOST_SURPRISES or now_s < window.on_trial_until_s:
            self.window = None
            self.windows_refuted_until_s = now_s + REFUTED_S
            self.set_level(0.0, now_s)

    def _doubt_flow(self, length_s: float, is_empty: bool, now_s: float) -> None:
        """Whether what was taken comes back all at once: how long after the burst that filled it?"""
        burst = self.burst
        if is_empty and self.depth_known and length_s <= SHORT_WINDOW_S:
            burst.length_s = length_s  # headers may have shown more than the first refusal
        is_again = now_s - burst.refused_at_s <= SUPPORTED_WITHIN_S
        if not is_again:
            burst.length_s, burst.supports = length_s, 0
        elif burst.is_blocked():
            burst.length_s = length_s
        if is_again and (burst.is_blocked() or (burst.length_s <= SHORT_WINDOW_S and self._is_busy(now_s))):
            burst.supports += 1
        is_short = burst.length_s <= SHORT_WINDOW_S
        if burst.supports >= (SUPPORTS if not is_short else 1):
            self.count_in_windows(burst.length_s, now_s)

    def count_in_windows(self, length_s: float, now_s: float) -> Window:
        """From now on, when one is full."""
        length_s = usual_length_s(max(length_s, SHORTEST_S))
        self.window = Window.of(self.per_s, length_s, now_s, usual_cost=self.usual_cost)
        for last_s, amount in self.burst.log.begun(now_s):
            self.window.take(amount, last_s)
        self.window.fill(now_s)
        self.closed_until_s = 0.0
        self.others_per_s = 0.0
        return self.window

    def keep_to(self, end: ToldEnd, length_s: float, stated: Stated, sent: Sent, now_s: float) -> bool:
        """Headers say when a window ends; whether what is booked must be booked again."""
        if stated.per_minute is None or stated.remaining is None or now_s < self.refuted_until_s:
            return False
        most = stated.per_minute
        used = max(0.0, most - stated.remaining - stated.rounding)
        since = max(0.0, self.taken - sent.taken)
        if self.stated_window is None:
            ours = self.burst.log.sum_after(end.from_s - length_s)
            self.stated_window = StatedWindow(most, length_s, end, max(used + since, ours))
            self.window, self.closed_until_s, self.others_per_s = None, 0.0, 0.0
            return True
        self.stated_window.length_s = length_s
        return self.stated_window.observe(end, used, since, sent.at_s, now_s)

    def forget_window(self, now_s: float) -> bool:
        """Whether windows are counted no more, because nothing was refused for long."""
        if self.window is None or now_s < max(self.window.since_s, self.burst.refused_at_s) + REFUTED_S:
            return False
        self.window = None
        return True

    def serve(self, sent: Sent, now_s: float) -> bool:
        """A call was served; whether it shows that a window was over."""
        self.burst.served_sent_s = max(self.burst.served_sent_s, sent.at_s)
        self.trial.served += 1
        return self.window is not None and self.window.answered(sent.at_s, 0.0, now_s, is_served=True)

    def refute(self, now_s: float) -> bool:
        """Whether it is news that headers promise too much: refusals show a second's worth, then less."""
        level = self.level(now_s)
        self.stated_window = None
        if now_s < self.refuted_until_s:
            shallowest = max(self.per_s * LEAST_SHOWN_S, 1.0)
            if self.depth <= shallowest:  # nor is it about the depth
                if self._is_busy(now_s):
                    self.windows_refuted_until_s = min(self.windows_refuted_until_s, now_s)
                return False
            self.depth, level = max(self.depth / 2, shallowest), min(0.0, level)
        else:
            self.depth = min(self.depth, max(self.per_s * ASSUMED_BURST_S, 1.0))
            self.refuted_until_s = now_s + self.refuted_for_s
            self.refuted_for_s *= 2
            level = min(REFUTED_LEVEL * (self.depth - self.usable()), level)
        self.depth_known = True
        self.others_per_s = 0.0
        self.set_level(level, now_s)
        return True

    def is_depth_shown(self) -> bool:
        """Whether somebody has said it, or the first answer would have shown if it were more."""
        return self.depth_known or self.seen_at_s is not None

    def rate(self) -> float:
        return max(self.per_s - self.others_per_s, self.per_s * LEAST_SHARE)

    def usable(self) -> float:
        return self.depth - min(self.per_s * RESERVE_S, self.depth * MOST_RESERVED)

    def level(self, now_s: float) -> float:
        """What is in the bucket, less than nothing where it is in debt."""
        return self.depth - max(0.0, self.full_at_s - now_s) * self.rate()

    def earliest_s(self, cost: float) -> float:
        """From when on the bucket holds `cost`; one larger than the bucket starts when it is full."""
        if self.stated_window is not None:
            return max(self.closed_until_s, self.stated_window.earliest_s(cost))
        if self.window is not None:
            return max(self.closed_until_s, self.window.earliest_s(cost))
        usable = self.usable()
        if cost > usable:
            return max(self.closed_until_s, self.full_at_s + self._margin_s(cost))
        return max(self.closed_until_s, self.full_at_s + (cost - usable) / self.rate())

    def _margin_s(self, cost: float) -> float:
        """Beside what the cost leaves; none before answers have shown that the bucket is no deeper."""
        if self.seen_at_s is None:
            return 0.0
        wanted_s = min(RESERVE_S, MARGIN_SHARE * cost / self.rate())
        return max(0.0, wanted_s - max(0.0, self.depth - cost) / self.rate())

    def take(self, cost: float, start_s: float) -> None:
        self.full_at_s = max(self.full_at_s, start_s) + cost / self.rate()
        self.burst.take(cost, self.per_s, start_s, self.taken)
        self.usual_cost += COST_WEIGHT * (cost - self.usual_cost) if self.taken else cost - self.usual_cost
        self.taken += cost
        if self.window is not None:
            self.window.take(cost, start_s)
        if self.stated_window is not None:
            self.stated_window.take(cost, start_s)
        if start_s >= self.slot_s + IN_TRANSIT_S:
            self.sent_before = self.sent if start_s < self.slot_s + 2 * IN_TRANSIT_S else 0.0
            self.slot_s, self.sent = start_s, 0.0
        self.sent += cost

    def take_unheld(self, amount: float, sent: History, now_s: float) -> None:
        """What was sent before its process knew of the limit, less what is known to be refused.

        `sent` is all that windows count of it: `amount` leaves out what the first answer knew.
        """
        self.full_at_s = max(self.full_at_s, now_s) + amount / self.rate()
        self.burst.take_unheld(sent, self.per_s, self.taken)

    def give_back_unheld(self, amount: float, sent_at_s: float) -> None:
        """It was refused."""
        self.burst.log.take_back(amount, sent_at_s)
        self.burst.base += amount
        self.give_back(amount, sent_at_s)

    def in_transit(self, now_s: float) -> float:
        """What the provider may not have seen yet of the calls that started."""
        age_s = now_s - self.slot_s
        if age_s >= 2 * IN_TRANSIT_S:
            return 0.0
        return self.sent if age_s >= IN_TRANSIT_S else self.sent + self.sent_before

    def give_back(self, amount: float, started_at_s: float) -> None:
        """Undo part of a booking; a negative amount takes more."""
        self.full_at_s -= amount / self.rate()
        self.burst.over_s -= amount / self.per_s
        if self.window is not None:
            self.window.give_back(amount, started_at_s)
        if self.stated_window is not None:
            self.stated_window.give_back(amount, started_at_s)

    def set_level(self, level: float, now_s: float) -> None:
        self.full_at_s = now_s + (self.depth - min(level, self.depth)) / self.rate()

    def reshape(self, per_s: float, depth: float, now_s: float) -> None:
        """The bucket is another than we thought: what has been taken is kept."""
        taken = max(0.0, self.full_at_s - now_s) * self.rate()
        self.per_s, self.depth = per_s, depth
        self.full_at_s = now_s + taken / self.rate() if taken else self.full_at_s

    def regrade(self, per_s: float, depth: float, now_s: float) -> None:
        """Another limit: what is in the bucket stays, as far as it fits, and more comes at the new rate.

        With what has been taken kept instead, a limit that rose gave leave to a burst that was not there.
        """
        level = self.level(now_s)
        self.per_s, self.depth = per_s, depth
        self.set_level(level, now_s)
        if self.window is not None:
            self.window.most = per_s * self.window.length_s

    def is_counted_in_windows(self) -> bool:
        return self.window is not None or self.stated_window is not None

    def deepen(self, remaining: float | None, now_s: float) -> None:
        """So much was there once: that is all that is certain of it."""
        if remaining is None or now_s < self.refuted_until_s or self.is_counted_in_windows():
            return
        self.most_seen = max(self.most_seen, remaining)
        if remaining > self.depth:
            self.regrade(self.per_s, remaining, now_s)
            self.depth_known = True

    def compare(
        self,
        stated: Stated,
        uncharged: float,
        now_s: float,
        *,
        ahead: Sequence[tuple[float, float]] = (),
        sent: Sent | None = None,
    ) -> None:
        """Believe the provider, as far as it is certain what its answer means.

        Of what is `uncharged`, output that is being written, any part may be in `remaining` already: the
        level falls as if all were, and rises as if nothing were. (Less all of it, answers that take
        longer than the bucket is deep brought everything to a halt: 4 to 14 times the time, simulated.)
        `ahead` is what is booked for later, by start: the comparison is made at the last of these. `sent` is
        the call that was answered: headers may tell the level at its start as well as that at its end.
        """
        if stated.remaining is None or now_s < self.refuted_until_s or self.is_counted_in_windows():
            return
        self._learn_shape(stated.remaining, sent, now_s)
        if self.window is not None or self._is_tried(stated.remaining, now_s):
            return
        sent = sent or Sent(now_s, self.taken)
        since = max(0.0, self.taken - sent.taken)
        unseen = max(self.in_transit(now_s), since + sent.beside - sum(amount for _, amount in ahead))
        if stated.remaining > self.depth:
            self.reshape(self.per_s, stated.remaining, now_s)
            self.depth_known = True
            self.set_level(min(self.level(now_s), stated.remaining - unseen), now_s)
        at_s, theirs = now_s, stated.remaining + stated.rounding
        for start_s, amount in ahead:
            theirs = min(self.depth, theirs + (start_s - at_s) * self.rate()) - amount
            at_s = start_s
        ours = self.level(at_s)
        is_whole = stated.rounding == 0.0
        is_shared = self.others_per_s > SUSPECTED_SHARE * self.per_s
        gained = max(0.0, (now_s - sent.at_s) * self.rate() - since) if not sent.refused else 0.0
        excess = ours - (theirs + (WHOLE if is_whole and not is_shared else 0.0) + gained - sent.refused)
        lack = theirs - 2 * stated.rounding - uncharged - unseen - ours
        if self.seen_at_s is not None and now_s > self.seen_at_s and self.jumps < JUMPS_OF_A_WINDOW:
            doubt = WHOLE / 2 if is_whole and is_shared and not sent.refused else 0.0
            gap = max(0.0, excess - doubt) - max(0.0, lack)
            self._learn_drift(gap, now_s - self.seen_at_s, now_s, was_refused=sent.refused > 0)
        self.seen_at_s = now_s
        if self._seems_a_window(now_s):
            window = self.count_in_windows(self.depth / self.per_s, now_s)
            if self.shared_since_s is not None:
                window.on_trial_until_s, self.shared_since_s = now_s + TRIED_WINDOWS * window.length_s, None
        elif excess > 0:
            self.set_level(ours - excess, at_s)
        elif lack > 0 and stated.remaining > 0 and now_s >= self.closed_until_s:  # nothing may hide a debt
            self.set_level(ours + min(lack, self.per_s), at_s)

    def _seems_a_window(self, now_s: float) -> bool:
        """Less flows in than should, as where others use it, and a refusal has surprised, or none comes."""
        if self.others_per_s <= WINDOW_SHARE * self.per_s or now_s < self.windows_refuted_until_s:
            self.shared_since_s = None
            return False
        if self.depth > SHORT_WINDOW_S * self.per_s or self.times_seen < TIMES_SEEN:
            return False
        if self.depth_known and now_s - self.burst.refused_at_s <= SUPPORTED_WITHIN_S:
            return True
        self.shared_since_s = self.shared_since_s or now_s
        is_long = now_s - self.shared_since_s >= SHARED_FOR_S
        return is_long and self.others_per_s <= TRIED_SHARE * self.per_s

    def _is_tried(self, remaining: float, now_s: float) -> bool:
        """Headers say for long that nothing is there, and calls are served: whether it is true is tried."""
        trial = self.trial
        if trial.ends_at is not None:
            if self.taken < trial.ends_at or trial.served < TIMES_SEEN:
                return True
            trial.ends_at = None
            self.refuted_until_s = now_s + self.refuted_for_s
            self.depth_known, self.others_per_s = True, 0.0
            self.set_level(self.depth - max(0.0, self.burst.over_s - now_s) * self.per_s, now_s)
            return True
        trial.empty = trial.empty + 1 if remaining < WHOLE else 0
        is_shared = trial.empty >= TIMES_SEEN and self.others_per_s > TRIED_SHARE * self.per_s
        is_still = trial.empty > 0 and self._has_not_flowed_in_for_s(now_s) is not None
        if now_s >= trial.again_at_s and (is_shared or is_still):
            trial.ends_at, trial.served = self.taken + TRIED_S * self.per_s, 0
            level = self.level(now_s)
            self.others_per_s = 0.0
            self.set_level(level, now_s)
            return True
        return False

    def _learn_shape(self, remaining: float, sent: Sent | None, now_s: float) -> None:
        """Whether it is shallower than was assumed, and whether it fills steadily."""
        if sent is not None:
            self._learn_jump(remaining, sent.at_s, now_s)
        self.times_seen += 1
        self.most_seen = max(self.most_seen, remaining)
        if not self.depth_known and self.times_seen >= TIMES_SEEN and self.most_seen < 0.5 * self.depth:
            self.depth = max(self.most_seen + self.usual_cost, self.per_s * LEAST_SHOWN_S, 1.0)
            self.depth_known = True
            self.others_per_s = 0.0
            self.set_level(min(self.level(now_s), remaining), now_s)

    def _learn_jump(self, remaining: float, sent_at_s: float, now_s: float) -> None:
        """Whether more is in it than flowed in since the call that was sent before."""
        later_s = sent_at_s - self.last_seen_sent_s
        if self.last_seen is not None and later_s <= OVERTAKEN_S:
            if later_s > -OVERTAKEN_S:
                self.last_seen = min(self.last_seen, remaining)
            return
        if self.last_seen is not None and self.seen_at_s is not None:
            flowed_in = max(later_s, now_s - self.seen_at_s) * self.per_s
            if remaining - self.last_seen > flowed_in + max(2.0, JUMP_SHARE * self.depth):
                self.jumps = self.jumps + 1 if now_s < self.jumped_at_s + SHORT_WINDOW_S else 1
                self.jumped_at_s = now_s
                if self.jumps == JUMPS_OF_A_WINDOW:
                    self.count_in_windows((self.most_seen + self.usual_cost) / self.per_s, now_s)
        self.last_seen, self.last_seen_sent_s = remaining, sent_at_s

    def _learn_drift(self, gap: float, since_s: float, now_s: float, *, was_refused: bool) -> None:
        weight = 1 - math.exp(-since_s / DRIFT_S)
        learnt = self.others_per_s + weight * gap / max(since_s, SOONEST_S)
        if was_refused and gap > CERTAIN_GAP:
            learnt = max(learnt, self.others_per_s + SUSPECTED_AT_ONCE * self.per_s)
        elif gap == 0.0:
            learnt *= math.exp(-since_s / FORGOTTEN_S)
        taken = max(0.0, self.full_at_s - now_s) * self.rate()
        self.others_per_s = min(max(0.0, learnt), self.per_s * (1 - LEAST_SHARE))
        self.full_at_s = now_s + taken / self.rate() if taken else self.full_at_s


def first_seen(stated: Stated, per_s: float, now_s: float) -> Bucket:
    """A bucket that nobody configured, as the first answer shows it."""
    assumed = max(per_s * ASSUMED_BURST_S, 1.0)
    remaining = stated.remaining if stated.remaining is not None else assumed
    depth = max(assumed, remaining)
    bucket = Bucket(per_s, depth, now_s, depth_known=remaining > assumed, source="response headers")
    bucket.seen_at_s, bucket.most_seen = now_s, stated.remaining or 0.0
    bucket.set_level(remaining, now_s)
    return bucket
