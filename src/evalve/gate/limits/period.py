"""How long the time is that a stated limit is for: a minute, unless headers show that it is less. Pure.

`limit 20, remaining 19, reset 50ms` is a bucket of 20 that refills in a second: what was used, over the time
until it is there again, is the rate. In a window that ends for all at once, the time until its end says how
long it is. Numbers are cut to whole ones, so that each answer gives two bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from evalve.gate.limits.stated_window import SAME_S, ToldEnd
from evalve.gate.limits.use import Use
from evalve.gate.limits.window import MORE_USUAL_S, SHORTEST_S, USUAL_S, Window, least_usual_length_s
from evalve.gate.messages import Stated

MINUTE_S = 60.0
NEARLY_A_MINUTE_S = 45.0
LEAST_SEEN = 1
ROUNDED_S = 2.0
"""How much may be added where it is told by dates, in whole seconds: their beginning is cut off, their end
rounded up."""
CUT_S = 1.0
"""… and where only their beginning is, or it is told in whole seconds."""
MOVES = 2
"""So often, before it came: once may be a mistake, as where a clock was set."""
REFUTED = 3
"""Refusals after which a longer length is believed, where the shorter one is likelier."""
APART = 1.2
"""Two answers that differ by more than this share cannot be about the same bucket."""


def rounded_s(stated: Stated) -> float:
    """How much may have been added to the time until a limit is whole again."""
    if stated.full_in_s is None or not float(stated.full_in_s).is_integer():
        return CUT_S * stated.is_dated
    return ROUNDED_S if stated.is_dated else CUT_S


def told_end(stated: Stated, sent_at_s: float, now_s: float) -> ToldEnd:
    """When a limit is whole again, by an answer to a call that was sent then."""
    full_in_s = stated.full_in_s or 0.0
    return ToldEnd(sent_at_s + full_in_s - rounded_s(stated), sent_at_s + full_in_s, now_s + full_in_s)


@dataclass(slots=True)
class Period:
    """Of one dimension."""

    at_least_s: float = 0.0
    """Read as a bucket's."""
    at_most_s: float = 1e9
    surely_at_most_s: float = 1e9
    """The same, if an answer that counts nothing but its own call tells what remained when that came, and
    when it left itself how long it takes until all is there."""
    seen: int = 0
    longest_reset_s: float = 0.0
    longest_told_s: float = 0.0
    """The same with what rounding may have added."""
    is_exact: bool = False
    """Whether any answer was not rounded."""
    full_at_s: float = 1e9
    """When nothing will be missing any more, by the last answer."""
    ends_from_s: float = -1e9
    ends_to_s: float = -1e9
    """Between which nothing will be missing any more, by all answers that can be about the same end."""
    likely_from_s: float = -1e9
    likely_to_s: float = -1e9
    """The same, if what answers say was true when their calls arrived."""
    since_s: float = 0.0
    """When the first of these calls was sent."""
    moved: int = 0
    """How often that was later all of a sudden, before it came: it does not end for all."""
    refused: int = 0
    """Calls that were booked."""
    use: Use = field(default_factory=Use)
    """Whether it is shorter than it is told in whole seconds."""

    def learn(self, stated: Stated, sent_at_s: float, now_s: float, *, cost: float = 1.0) -> None:
        """From an answer to a call that took so much."""
        limit, remaining, full_in_s = stated.per_minute, stated.remaining, stated.full_in_s
        if not limit or remaining is None or not full_in_s or remaining >= limit:
            return
        used = limit - remaining
        was_full = sent_at_s >= self.full_at_s or used <= cost
        self.full_at_s = now_s + full_in_s
        rounding_s = rounded_s(stated)
        self.is_exact = self.is_exact or rounding_s == 0.0
        self.longest_told_s = max(self.longest_told_s, full_in_s)
        self.longest_reset_s = max(self.longest_reset_s, full_in_s - rounding_s)
        self._learn_end(told_end(stated, sent_at_s, now_s), sent_at_s, now_s)
        is_slow = full_in_s + now_s - sent_at_s >= cost * MINUTE_S / limit  # at least that has to come back
        if remaining < limit / 2 and self.at_most_s >= NEARLY_A_MINUTE_S and is_slow:
            return  # the limit may be a minute's, and what remains a shallow bucket's
        self.seen += 1
        self.at_least_s = max(self.at_least_s, (full_in_s - rounding_s) * limit / used)
        surely_used = used if was_full else used - 1
        if surely_used > 0:
            self.at_most_s = min(self.at_most_s, full_in_s * limit / surely_used)
            took_s = now_s - sent_at_s if used <= cost else 0.0
            self.surely_at_most_s = min(self.surely_at_most_s, (full_in_s + took_s) * limit / surely_used)

    def learn_use(
        self, stated: Stated, sent_at_s: float, taken: float, now_s: float, *, cost: float, is_steady: bool
    ) -> None:
        """From an answer to a call by which so much had been taken in all."""
        if not stated.per_minute or stated.remaining is None or self._is_long():
            return
        self.use.learn(
            stated.per_minute - stated.remaining,
            stated.per_minute,
            self.seconds(),
            cost=cost,
            sent_at_s=sent_at_s,
            taken=taken,
            now_s=now_s,
            is_steady=is_steady,
        )

    def note_refused(self, sent_at_s: float, now_s: float) -> None:
        """A call that was booked."""
        self.refused += 1
        self.use.note_refused(sent_at_s, now_s)

    def regraded(self, window: Window | None, before_s: float) -> Window | None:
        """It holds as much, for another time; one that was found while a shorter time was tried is none."""
        if window is None or (self.seconds() > before_s and not self.use.is_believed):
            return None
        window.length_s *= self.seconds() / before_s
        return window

    def _learn_end(self, end: ToldEnd, sent_at_s: float, now_s: float) -> None:
        if end.from_s > self.ends_to_s + SAME_S:
            self.moved += now_s < self.ends_from_s
            self.ends_from_s, self.ends_to_s = end.from_s, end.to_s
        elif end.to_s >= self.ends_from_s - SAME_S:  # otherwise it is about the one before
            self.ends_from_s = max(self.ends_from_s, end.from_s)
            self.ends_to_s = min(self.ends_to_s, end.to_s)
        if end.from_s > self.likely_to_s + SAME_S:
            self.likely_from_s, self.likely_to_s, self.since_s = end.from_s, end.likely_s, sent_at_s
        elif end.likely_s >= self.likely_from_s - SAME_S:
            self.likely_from_s = max(self.likely_from_s, end.from_s)
            self.likely_to_s = min(self.likely_to_s, end.likely_s)
            self.since_s = min(self.since_s, sent_at_s)
        if self._is_long():
            self.longest_reset_s = max(self.longest_reset_s, self.likely_from_s - self.since_s)

    def is_told_window(self) -> bool:
        """Whether it ends for all, and is known well enough to keep to that."""
        return self._is_window() and self._is_long() and self.moved < MOVES

    def _is_long(self) -> bool:
        """Compared with what rounding adds."""
        return self.is_exact or self.longest_told_s > ROUNDED_S

    def _is_window(self) -> bool:
        """Whether it ends for all however much was used."""
        return self.at_least_s > APART * self.surely_at_most_s

    def seconds(self) -> float:
        return min(self._told_s(), self.use.shown_s)

    def _told_s(self) -> float:
        if self._is_window() and self._is_long():
            return least_usual_length_s(max(self.longest_reset_s, SHORTEST_S))
        if self._is_window():
            return max((each_s for each_s in USUAL_S if each_s <= self.longest_told_s), default=SHORTEST_S)
        if self.seen < LEAST_SEEN or self.at_most_s >= NEARLY_A_MINUTE_S:
            return MINUTE_S
        likely = [usual_s for usual_s in USUAL_S if self.at_least_s <= usual_s <= self.at_most_s]
        is_refuted = self.refused >= REFUTED
        if not likely:
            at_least_s = max(self.at_least_s, SHORTEST_S)
            return least_usual_length_s(at_least_s) if is_refuted else at_least_s
        more_usual_s = MORE_USUAL_S.get(likely[-1])
        return more_usual_s if more_usual_s in likely and not is_refuted else likely[-1]
