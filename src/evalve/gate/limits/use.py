"""Whether a time that is told in whole seconds is shorter, by how much answers call used. Pure.

A window of a quarter of a second is told as one of a second, and then less is used than was sent within a
second. Less is used of a bucket, too, into which as much flows as is taken. So calls go out faster, and it is
seen whether more comes back.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalve.gate.limits.window import SHORTEST_S, USUAL_S

LEAST_SENT, LITTLE_USED = 5.0, 0.6
"""Calls within a length that it takes to tell that it is shorter; and how little of them must be used."""
BURSTS = 3
"""So often in a row, where calls go out in bursts: one may fall into two windows."""
MORE = 1.4
"""Comes back, if it is shorter, than its length allows."""
SURELY = 4.0
"""Shorter lengths until so little has come back that it is not: how much is used swings by a whole limit."""
MOST_REFUSED, SHARE_REFUSED = 1, 0.05
"""So often may calls be refused while it is tried, and so many of them later."""
WHOLE_S = 1.0
"""A length below that was seen to be shorter than it is told: then the shortest is tried, too, with one
refusal more."""
LONG_AGO_S, UNKNOWN_S = -1e9, 1e9


@dataclass(slots=True)
class Use:
    """Of one dimension."""

    shown_s: float = UNKNOWN_S
    """Its limit's time is no longer."""
    watched_from_s: float = LONG_AGO_S
    watched_taken: float = 0.0
    """What had been taken in all by then."""
    most_used: float = 0.0
    """By the answers to calls sent since."""
    in_a_row: int = 0
    """How often little of what was sent was used."""
    tried_from_s: float | None = None
    """What comes back since then decides, while a shorter time is tried …"""
    tried_taken: float | None = None
    tried_used: float = 0.0
    """… beside what had been taken, and was used, by the first call then …"""
    before_s: float | None = None
    """… and how long it was before."""
    answered: int = 0
    refused: int = 0
    """Since it was tried last; calls that were sent before a refusal was known do not count again."""
    refused_at_s: float = LONG_AGO_S
    is_believed: bool = True

    def learn(
        self,
        used: float,
        limit: float,
        length_s: float,
        *,
        cost: float,
        sent_at_s: float,
        taken: float,
        now_s: float,
        is_steady: bool = True,
    ) -> None:
        """From an answer to a call by which so much had been taken in all."""
        self.answered += 1
        if not self.is_believed:
            return
        if self.tried_from_s is not None and self.before_s is not None:
            if sent_at_s >= self.tried_from_s:
                allowed = limit * (sent_at_s - self.tried_from_s) / self.before_s
                self._learn_from_trial(used, MORE * allowed, sent_at_s, taken)
            return
        passed_s = sent_at_s - self.watched_from_s
        if passed_s >= length_s:
            sent = min((taken - self.watched_taken) * length_s / passed_s, limit)
            is_little = self.most_used - cost < LITTLE_USED * sent  # one may have overtaken the others
            is_told = self.most_used > 0 and sent >= LEAST_SENT * cost
            self.in_a_row = self.in_a_row + 1 if is_told and is_little else 0
            is_shorter = self.in_a_row >= (1 if is_steady else BURSTS) or self.shown_s < WHOLE_S
            if is_shorter and length_s > SHORTEST_S:
                self._try_shorter(length_s, now_s)
            self.watched_from_s, self.watched_taken, self.most_used = sent_at_s, taken, 0.0
        self.most_used = max(self.most_used, used)

    def _try_shorter(self, length_s: float, now_s: float) -> None:
        self.before_s, self.shown_s = length_s, max(each_s for each_s in USUAL_S if each_s < length_s)
        # in a window that slides, what comes back is what was sent a length before
        self.tried_from_s, self.tried_taken = now_s + self.shown_s, None
        self.refused = self.answered = 0

    def _learn_from_trial(self, used: float, more: float, sent_at_s: float, taken: float) -> None:
        """`more` should have come back since it began, if the time is shorter."""
        passed_s = sent_at_s - (self.tried_from_s or 0.0)
        sent = taken - (self.tried_taken or 0.0)
        is_over = self.tried_taken is not None and passed_s >= self.shown_s
        if self.tried_taken is None or (is_over and sent < more):  # too few to tell
            self.tried_from_s, self.tried_taken, self.tried_used = sent_at_s, taken, used
        elif is_over and sent - (used - self.tried_used) >= more:
            self.tried_from_s, self.watched_from_s = None, LONG_AGO_S
        elif passed_s >= SURELY * self.shown_s:
            self._refute()

    def note_refused(self, sent_at_s: float, now_s: float) -> None:
        """A call that was booked."""
        if sent_at_s <= self.refused_at_s or self.before_s is None:
            return
        self.refused, self.refused_at_s = self.refused + 1, now_s
        most: float = MOST_REFUSED + (self.before_s < WHOLE_S)
        if self.tried_from_s is None:
            most += SHARE_REFUSED * self.answered
        else:  # who waits is booked again, so that more was taken than sent
            self.tried_from_s, self.tried_taken = now_s + self.shown_s, None
        if self.refused > most:
            self._refute()

    def _refute(self) -> None:
        """Nothing is read from what is used again, and no more is believed than was seen."""
        is_seen = self.tried_from_s is not None and self.before_s is not None and self.before_s < WHOLE_S
        self.shown_s = self.before_s if is_seen and self.before_s else UNKNOWN_S
        self.is_believed, self.tried_from_s = False, None
        self.answered = self.refused = 0
