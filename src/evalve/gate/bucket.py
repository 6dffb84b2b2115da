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
TRUSTED_AT_FIRST = 0.5
"""Share of a bucket that is used before an answer has confirmed it: the first calls open connections."""
IN_TRANSIT_S = 0.25
"""What was sent within this time, or twice as long ago, may be missing from what a header says: the level is
not raised by it, or a burst of answers would each give leave to the same calls again."""
DRIFT_S = 5.0
"""Over how long the use by others is averaged."""
LEAST_SHARE = 0.05
"""However much others use, this share of the rate is tried."""


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
        short = min(cost, usable) - usable
        return max(self.closed_until_s, self.full_at_s + short / self.rate())

    def take(self, cost: float, start_s: float) -> None:
        self.full_at_s = max(self.full_at_s, start_s) + cost / self.rate()
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
        """Another rate or depth, with what has been taken kept."""
        taken = max(0.0, self.full_at_s - now_s) * self.rate()
        self.per_s, self.depth = per_s, depth
        self.full_at_s = now_s + taken / self.rate() if taken else self.full_at_s

    def compare(
        self, stated: Stated, uncharged: float, now_s: float, *, ahead: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Believe the provider, as far as it is certain what its answer means.

        Of what is `uncharged`, output that is being written, any part may be in `remaining` already: the
        level falls as if all were, and rises as if nothing were. (Less all of it, answers that take
        longer than the bucket is deep brought everything to a halt: 4 to 14 times the time, simulated.)
        `ahead` is what is booked for later, by start: the comparison is made at the last of these.
        """
        if stated.remaining is None:
            return
        if stated.remaining > self.depth:
            self.reshape(self.per_s, stated.remaining, now_s)
            self.depth_known = True
        at_s, theirs = now_s, stated.remaining + stated.rounding
        for start_s, amount in ahead:
            theirs = min(self.depth, theirs + (start_s - at_s) * self.rate()) - amount
            at_s = start_s
        ours = self.level(at_s)
        since_s = now_s - self.seen_at_s if self.seen_at_s is not None else None
        if since_s is not None and since_s > 0:
            self._learn_drift(ours - theirs, since_s, now_s)
        self.seen_at_s = now_s
        if theirs < ours:
            self.set_level(theirs, at_s)
            return
        at_least = theirs - 2 * stated.rounding - uncharged - self.in_transit(now_s)
        if at_least > ours:
            self.set_level(min(at_least, ours + self.per_s), at_s)

    def _learn_drift(self, gap: float, since_s: float, now_s: float) -> None:
        weight = 1 - math.exp(-since_s / DRIFT_S)
        sample = self.others_per_s + gap / max(since_s, 0.05)
        learnt = self.others_per_s + weight * (sample - self.others_per_s)
        taken = max(0.0, self.full_at_s - now_s) * self.rate()
        self.others_per_s = min(max(0.0, learnt), self.per_s * (1 - LEAST_SHARE))
        self.full_at_s = now_s + taken / self.rate() if taken else self.full_at_s


def first_seen(stated: Stated, per_s: float, now_s: float) -> Bucket:
    """A bucket that nobody configured, as the first answer shows it."""
    assumed = max(per_s * ASSUMED_BURST_S, 1.0)
    remaining = stated.remaining if stated.remaining is not None else assumed
    depth = max(assumed, remaining)
    bucket = Bucket(per_s, depth, now_s, depth_known=remaining > assumed, source="response headers")
    bucket.set_level(min(remaining, depth * TRUSTED_AT_FIRST), now_s)
    return bucket
