"""One bucket: how much of one limit is left, when it will hold more, and what headers say about it. Pure.

It is kept as the instant at which it will be full again if nothing more is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
WHOLE = 1.0
"""What remains is told in whole numbers, cut off: up to this much more is there."""
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
TIMES_SEEN = 8
"""Answers after which it is believed that a bucket is no deeper than they said."""
REFUTED_S = 600.0
"""For how long headers are not believed that were refuted; the next time twice as long."""
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

    def refute(self, now_s: float) -> None:
        """What refusals show instead: a second's worth, then less."""
        level = min(0.0, self.level(now_s))
        if now_s < self.refuted_until_s:
            self.depth = max(self.depth / 2, self.per_s * LEAST_SHOWN_S, 1.0)
        else:
            self.depth = min(self.depth, max(self.per_s * ASSUMED_BURST_S, 1.0))
            self.refuted_until_s = now_s + self.refuted_for_s
            self.refuted_for_s *= 2
        self.depth_known = True
        self.others_per_s = 0.0
        self.set_level(level, now_s)

    def rate(self) -> float:
        return max(self.per_s - self.others_per_s, self.per_s * LEAST_SHARE)

    def usable(self) -> float:
        return self.depth - min(self.per_s * RESERVE_S, self.depth * MOST_RESERVED)

    def level(self, now_s: float) -> float:
        """What is in the bucket, less than nothing where it is in debt."""
        return self.depth - max(0.0, self.full_at_s - now_s) * self.rate()

    def earliest_s(self, cost: float) -> float:
        """From when on the bucket holds `cost`; one larger than the bucket starts when it is full."""
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
        self.taken += cost
        if start_s >= self.slot_s + IN_TRANSIT_S:
            self.sent_before = self.sent if start_s < self.slot_s + 2 * IN_TRANSIT_S else 0.0
            self.slot_s, self.sent = start_s, 0.0
        self.sent += cost

    def in_transit(self, now_s: float) -> float:
        """What the provider may not have seen yet of the calls that started."""
        age_s = now_s - self.slot_s
        if age_s >= 2 * IN_TRANSIT_S:
            return 0.0
        return self.sent if age_s >= IN_TRANSIT_S else self.sent + self.sent_before

    def give_back(self, amount: float) -> None:
        """Undo part of a booking; a negative amount takes more."""
        self.full_at_s -= amount / self.rate()

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
        if stated.remaining is None or now_s < self.refuted_until_s:
            return
        self._learn_shape(stated.remaining, now_s)
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
        if excess > 0:
            self.set_level(ours - excess, at_s)
        elif lack > 0:
            self.set_level(ours + min(lack, self.per_s), at_s)

    def _learn_shape(self, remaining: float, now_s: float) -> None:
        """Whether it is shallower than was assumed, and whether it fills steadily."""
        if self.last_seen is not None and self.seen_at_s is not None:
            flowed_in = (now_s - self.seen_at_s) * self.per_s
            if remaining - self.last_seen > flowed_in + max(2.0, JUMP_SHARE * self.depth):
                self.jumps = self.jumps + 1 if now_s < self.jumped_at_s + SHORT_WINDOW_S else 1
                self.jumped_at_s = now_s
                if self.jumps == JUMPS_OF_A_WINDOW:
                    self.others_per_s = 0.0
        self.last_seen = remaining
        self.times_seen += 1
        self.most_seen = max(self.most_seen, remaining)
        if not self.depth_known and self.times_seen >= TIMES_SEEN and self.most_seen < 0.5 * self.depth:
            self.depth = max(self.most_seen + 1.0, self.per_s * LEAST_SHOWN_S, 1.0)
            self.depth_known = True
            self.others_per_s = 0.0
            self.set_level(min(self.level(now_s), remaining), now_s)

    def _learn_drift(self, gap: float, since_s: float, now_s: float, *, was_refused: bool) -> None:
        weight = 1 - math.exp(-since_s / DRIFT_S)
        sample = self.others_per_s + gap / max(since_s, 0.05)
        learnt = self.others_per_s + weight * (sample - self.others_per_s)
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
    bucket.seen_at_s = now_s
    bucket.set_level(min(remaining, depth * TRUSTED_AT_FIRST), now_s)
    return bucket
