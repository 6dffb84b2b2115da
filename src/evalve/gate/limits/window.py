"""A window: at most so much within any time of a length, as many providers count. Pure.

It suits whoever counts so much in a window that slides, in one that ends for all at once, or in a bucket
that holds as much and refills in that time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SLOTS = 32
"""What was taken is remembered in so many parts of the length; what was taken within one counts until the
last of it is over."""
SLACK_S = 0.02
"""Added to the length: calls arrive later than they were sent, and not all of them equally late."""
FIRST_SLACK, MOST_SLACK = 0.05, 0.1
"""… but at first no more than this share of the length, and never more than that."""
NEARLY_FULL = 0.8
"""A refusal when so much of the window was used comes from a call that arrived a moment early."""

MUCH_WASTED = 0.9
"""Of what a window holds: what fits wholly, if it is less."""

SHORTEST_S = 0.25
USUAL_S = (SHORTEST_S, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0)


def usual_length_s(measured_s: float) -> float:
    """The length that a provider is likely to count in: what was measured misses what was under way."""
    return min(USUAL_S, key=lambda usual_s: abs(math.log(usual_s / measured_s)))


@dataclass(slots=True)
class Window:
    """What may still start."""

    most: float
    length_s: float
    slack_s: float = 0.0
    taken: list[list[float]] = field(default_factory=list)
    """For every part: when the last of it started, and how much it was. In order."""
    since_s: float = 0.0
    """What was taken before is known roughly."""
    surprises: int = 0
    """Refusals although there was much room."""
    on_trial_until_s: float = 0.0
    """A refusal before that refutes it."""
    usual_cost: float = 1.0
    """What a call takes of it, on average."""

    def __post_init__(self) -> None:
        self.slack_s = self.slack_s or min(SLACK_S, FIRST_SLACK * self.length_s)

    @classmethod
    def of(cls, per_s: float, length_s: float, since_s: float, *, usual_cost: float = 1.0) -> Window:
        whole_s = _whole_s(per_s / usual_cost, length_s)
        return cls(per_s * whole_s, whole_s, since_s=since_s, usual_cost=usual_cost)

    def earliest_s(self, cost: float) -> float:
        """From when on there is room for it, never before what was booked already.

        For more than fits at all, when the window is empty.
        """
        free_s, missing = (
            self.taken[-1][0] if self.taken else 0.0,
            sum(amount for _, amount in self.taken) + cost - self.most,
        )
        for last_s, amount in self.taken:
            if missing <= 1e-9:
                break
            free_s = max(free_s, last_s + self.length_s + self.slack_s)
            missing -= amount
        return free_s

    def take(self, cost: float, start_s: float) -> None:
        over_s = start_s - self.length_s - self.slack_s
        while self.taken and self.taken[0][0] <= over_s:
            del self.taken[0]
        part_s = self.length_s / SLOTS
        if self.taken and start_s // part_s <= self.taken[-1][0] // part_s:
            self.taken[-1][0] = max(self.taken[-1][0], start_s)
            self.taken[-1][1] += cost
        else:
            self.taken.append([start_s, cost])

    def give_back(self, amount: float, started_at_s: float) -> None:
        """Of what started then; a negative amount takes more."""
        for place, part in enumerate(self.taken):
            if part[0] >= started_at_s:
                part[1] -= amount
                if part[1] <= 0:
                    del self.taken[place]
                return

    def fill(self, now_s: float) -> None:
        """There is no room now, whatever is known of what was taken."""
        missing = self.most - self.used(now_s)
        if missing > 0:
            self.take(missing, now_s)

    def used(self, at_s: float) -> float:
        """Within the length that ends there."""
        until_s = at_s + self.length_s / SLOTS  # the last part may go on beyond it
        return sum(amount for last_s, amount in self.taken if at_s - self.length_s < last_s <= until_s)

    def refused(self, sent_at_s: float) -> None:
        """A call that there was room for.

        A shorter window keeps within a longer one too, and only makes its bursts smaller.
        """
        if sent_at_s < self.since_s + self.length_s:
            return
        used = self.used(sent_at_s)
        if used >= NEARLY_FULL * self.most:
            self.slack_s *= 2
            if self.slack_s <= MOST_SLACK * self.length_s:
                return
            self._shorten(0.7 * self.length_s)
            self.slack_s = min(self.slack_s, FIRST_SLACK * self.length_s)
        else:
            self.surprises += 1
            self._shorten(used / self.most * self.length_s)
        self.since_s = sent_at_s
        self.fill(sent_at_s)

    def _shorten(self, length_s: float) -> None:
        per_s = self.most / self.length_s
        whole_s = _whole_s(per_s / self.usual_cost, usual_length_s(max(length_s, SHORTEST_S)))
        self.length_s = min(self.length_s, whole_s)
        self.most = per_s * self.length_s


def _whole_s(calls_per_s: float, length_s: float) -> float:
    """Less, where much would be wasted: of five a second, a quarter of a second holds one and a fifth."""
    whole = max(1.0, math.floor(calls_per_s * length_s + 1e-9))
    return whole / calls_per_s if whole < MUCH_WASTED * calls_per_s * length_s else length_s
