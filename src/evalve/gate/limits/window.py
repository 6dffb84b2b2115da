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
FIRST_SLACK, MOST_SLACK = 0.04, 0.1
"""… but at first no more than this share of the length, and never more than that."""
NEARLY_FULL = 0.8
"""A refusal when so much of the window was used comes from a call that arrived a moment early."""
HALF_FULL = 0.5
"""… and when less was used, but so much, from one that holds less."""

ROUNDING = 1e-9
"""Of lengths, where instants are sums: a window that is told to end just one length from now begins now."""
MUCH_WASTED = 0.9
"""Of what a window holds: what fits wholly, if it is less."""

LEAST_OF = 0.95
"""What was measured may be so much too long: calls arrive later than they were sent."""
TRY_S, MOST_TRIES = 0.25, 8
"""After a window is first said to be over, so many calls try whether it is: the second so long after the
first, and then each sooner than the one before."""

MOST_LOST, SHORT_RUN_S = 0.07, 30.0
"""Of a window that was filled at once, and of whose end nobody told, calls ask now and then whether it is
over: it may have begun before us. So often that no more than this share of a run is lost, if it is no
shorter …"""
MOST_REFUSED, SHARE_REFUSED, LEAST_ASKED = 11.0, 0.01, 3
"""… and no more often than leaves so many refusals in all, or such a share of the calls."""
AT_ONCE = 0.25
"""Of its length: within how long it was filled."""

SHORTEST_S = 0.25
USUAL_S = (SHORTEST_S, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0)
MORE_USUAL_S = {2.0: 1.0, 15.0: 10.0}
"""Few providers count in two or in fifteen seconds."""


def usual_length_s(measured_s: float) -> float:
    """The length that a provider is likely to count in: what was measured misses what was under way."""
    nearest_s = min(USUAL_S, key=lambda usual_s: abs(math.log(usual_s / measured_s)))
    return MORE_USUAL_S.get(nearest_s, nearest_s) if measured_s < LEAST_OF * nearest_s else nearest_s


def least_usual_length_s(at_least_s: float) -> float:
    """The shortest length that a provider is likely to count in, of those that are no shorter."""
    return next((usual_s for usual_s in USUAL_S if usual_s >= LEAST_OF * at_least_s), USUAL_S[-1])


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
    ends_s: float | None = None
    """When it ends for all at once, and after every length again; `None` where it slides, or nobody told."""
    tries: int | None = None
    """Calls since it was first said to be over, until it is believed."""
    asks: list[float] = field(default_factory=list)
    """When a call asks whether it is over, although there is no room …"""
    asked: list[float] = field(default_factory=list)
    """… and when calls do of which nobody knows yet whether they are served."""

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
        if self.ends_s is not None:
            return self._earliest_of_fixed_s(cost, self.ends_s)
        free_s = self._free_s(cost)
        return min(free_s, self.asks[0]) if self.asks else free_s

    def _free_s(self, cost: float) -> float:
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

    def _earliest_of_fixed_s(self, cost: float, ends_s: float) -> float:
        last_s = self.taken[-1][0] if self.taken else 0.0
        begun_s = self._begun_s(last_s, ends_s)
        free_s = last_s
        if self.used(last_s) + cost > self.most + 1e-9:
            free_s = begun_s + self.length_s + self.slack_s
        if self.tries and last_s >= ends_s:
            free_s = max(free_s, last_s + TRY_S / self.tries)
        return free_s

    def _begun_s(self, at_s: float, ends_s: float) -> float:
        """When the window began that holds then."""
        return ends_s + math.floor((at_s - ends_s) / self.length_s + ROUNDING) * self.length_s

    def end_at(self, ends_s: float, now_s: float) -> None:
        """It was told when it ends for all at once; until then there is no room."""
        self.ends_s, self.tries, self.asks = ends_s, 0, []
        self.fill(now_s)

    def ask(self, began_s: float, last_s: float, now_s: float, *, allowed: int) -> None:
        """Single calls ask from now on whether it is over, if it was filled at once."""
        if last_s - began_s <= AT_ONCE * self.length_s:
            asked_s = asked_after_s(self.length_s, now_s - began_s, allowed)
            self.asks = [began_s + after_s for after_s in asked_s]

    def answered(self, at_s: float, cost: float, now_s: float, *, is_served: bool) -> bool:
        """Whether what a call that asked was told shows that it was over for all."""
        if at_s not in self.asked:
            return False
        self.asked.remove(at_s)
        if not is_served:
            self.give_back(cost, at_s)
            return False
        self.taken = [part for part in self.taken if at_s <= part[0] <= now_s]
        self.ends_s, self.tries, self.asks, self.asked = at_s, 1, [], []
        return True

    def take(self, cost: float, start_s: float) -> None:
        if self.asks and self.asks[0] <= start_s:
            if self._free_s(cost) > start_s:
                self.asked.append(start_s)
            self.asks = [at_s for at_s in self.asks if at_s > start_s]
        if self.tries is not None and self.ends_s is not None and start_s >= self.ends_s:
            self.tries = self.tries + 1 if self.tries < MOST_TRIES else None
        over_s = start_s - 2 * (self.length_s + self.slack_s)  # it may be for later, and be given back
        while self.taken and self.taken[0][0] <= over_s:
            del self.taken[0]
        part_s = self.length_s / SLOTS
        if self.taken and start_s // part_s <= self.taken[-1][0] // part_s and not self._is_over(start_s):
            self.taken[-1][0] = max(self.taken[-1][0], start_s)
            self.taken[-1][1] += cost
        else:
            self.taken.append([start_s, cost])

    def _is_over(self, start_s: float) -> bool:
        """Whether it has ended for all since the last call."""
        return self.ends_s is not None and self.taken[-1][0] < self._begun_s(start_s, self.ends_s)

    def give_back(self, amount: float, started_at_s: float) -> None:
        """Of what started then; a negative amount takes more."""
        for place, part in enumerate(self.taken):
            if part[0] >= started_at_s:
                part[1] -= amount
                if part[1] <= 0:
                    del self.taken[place]
                return

    def forget_after(self, now_s: float) -> None:
        """What is booked for later: it is booked again."""
        self.taken = [part for part in self.taken if part[0] <= now_s]

    def fill(self, now_s: float) -> None:
        """There is no room now, whatever is known of what was taken."""
        missing = self.most - self.used(now_s)
        if missing > 0:
            self.take(missing, now_s)

    def used(self, at_s: float) -> float:
        """Within the length that ends there, or since it last ended for all."""
        until_s = at_s + self.length_s / SLOTS  # the last part may go on beyond it
        after_s = at_s - self.length_s
        if self.ends_s is not None:  # calls that started just before may have arrived after it
            after_s = self._begun_s(at_s, self.ends_s) - self.slack_s
        return sum(amount for last_s, amount in self.taken if after_s < last_s <= until_s)

    def refused(self, sent_at_s: float, told_s: float | None = None) -> None:
        """A call that there was room for; `told_s` is when calls are welcome again, if that was told.

        A shorter window keeps within a longer one too, and only makes its bursts smaller.
        """
        if self.ends_s is not None:
            if sent_at_s < self.ends_s:
                return
            if self.tries is None and told_s is not None:
                self.ends_s = told_s
                self.fill(sent_at_s)
                return
            held = self.used(sent_at_s) / self.most
            if HALF_FULL <= held < NEARLY_FULL:  # it holds less: several were taken for one
                self._shorten(held * self.length_s)
            else:
                self.ends_s, self.tries = None, None
            self.since_s = sent_at_s
            self.fill(sent_at_s)
            return
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


def asked_after_s(length_s: float, from_s: float, allowed: int, most_lost: float = MOST_LOST) -> list[float]:
    """When to ask, so long after a window was begun to be filled, until it is over for certain."""
    while True:
        asked_s: list[float] = []
        at_s = _asked_next_s(from_s, length_s, most_lost)
        while at_s < length_s:
            asked_s.append(at_s)
            at_s = _asked_next_s(at_s, length_s, most_lost)
        if len(asked_s) <= allowed:
            return asked_s
        most_lost *= 1.02


def _asked_next_s(asked_s: float, length_s: float, most_lost: float) -> float:
    """What is over before half a minute has passed holds up only runs that go on into the window after it."""
    run_s = asked_s if asked_s >= SHORT_RUN_S else max(SHORT_RUN_S, asked_s + length_s)
    return asked_s + most_lost * run_s


def _whole_s(calls_per_s: float, length_s: float) -> float:
    """Less, where much would be wasted: of five a second, a quarter of a second holds one and a fifth."""
    whole = max(1.0, math.floor(calls_per_s * length_s + 1e-9))
    return whole / calls_per_s if whole < MUCH_WASTED * calls_per_s * length_s else length_s
