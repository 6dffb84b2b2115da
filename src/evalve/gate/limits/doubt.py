"""What a refusal is about: the rate of calls, or nothing that a slower pace would change. Pure.

A bucket that is empty refuses nearly everything that comes, until it fills. A provider that refuses at random
serves the calls just before and after. So refusals count for, and calls that were sent since against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from evalve.gate.limits.history import LONGEST_S, History

REFUSED = 3
"""What a refusal counts for: with more than one refused of three, the score rises."""
TOO_FAST, TOO_FAST_WHILE_IMMUNE = 8, 20
"""Scores: four in a row, after the first. Where one in ten is refused at random, that is one in 10,000."""
MOST_SENT = 64
"""Calls after which an episode is over in any case."""
OVER = -4
"""The score of calls that are served: the next refusal is the first again."""
MANY, MANY_WITHIN_S = 10, 30.0
"""Single refusals after which a slower pace is tried all the same."""
IMMUNE_S, LONGEST_IMMUNE_S = 60.0, 1800.0

BOOKED = ""
"""No process's name."""

Verdict = Literal["too fast", "perhaps", "chance"]


@dataclass(slots=True)
class Doubt:
    """What is counted in one scope."""

    began_s: float = -1e9
    """When the first refusal was known of those that count."""
    refused: int = 0
    """Since then, of the calls sent since."""
    sent: list[float] = field(default_factory=list)
    """When calls started since then."""
    single: int = 0
    """Refusals that told nothing."""
    single_since_s: float = -1e9
    sent_since: int = 0
    """Calls that were sent since then."""
    immune_until_s: float = -1e9
    """A slower pace was tried and refused as often: until then only a clump counts."""
    immune_for_s: float = IMMUNE_S
    ever: int = 0
    """Refusals in all."""
    unheld: dict[str, History] = field(default_factory=dict)
    """What each process has sent that no limit held back; and what was booked while no limit was known."""

    def note_unheld(self, holder: str, sent: History, now_s: float) -> None:
        """What others sent so long ago that nobody counts it is forgotten: their processes may be gone."""
        lately = {name: each for name, each in self.unheld.items() if each.sum_after(now_s - LONGEST_S)}
        self.unheld = {**lately, holder: sent}

    def note_booked(self, at_s: float) -> None:
        """As long as it is not known what limits calls."""
        self.unheld.setdefault(BOOKED, History()).add(1, at_s)

    def note_unsent(self, at_s: float) -> None:
        """One that was booked was refused, or has not gone."""
        if BOOKED in self.unheld:
            self.unheld[BOOKED].take_back(1, at_s)

    def note_sent(self, at_s: float) -> None:
        if len(self.sent) < MOST_SENT:
            self.sent.append(at_s)
        self.sent_since += 1

    def served_per_s(self, now_s: float) -> float:
        """Lately, to all who share the scope."""
        return max(0, self.sent_since - self.single) / max(now_s - self.single_since_s, 0.1)

    def single_share(self) -> float:
        """Of calls, lately: those that were refused; 0 where it is not known how many there were."""
        return self.single / self.sent_since if self.sent_since > self.single else 0.0

    def judge(
        self, sent_at_s: float, now_s: float, *, in_a_row: bool = False, is_booked: bool = True
    ) -> Verdict:
        """Calls that nobody booked are not known when they are served: their process tells `in_a_row`."""
        self.ever += 1
        if in_a_row and now_s >= self.immune_until_s:
            return "too fast"
        if sent_at_s < self.began_s:
            return "chance"  # sent before the first was known: all of a clump may be refused for one reason
        is_immune = now_s < self.immune_until_s
        if (score := self._score(sent_at_s)) <= OVER:
            self.began_s, self.refused, self.sent = now_s, 1, []
        elif is_booked:
            self.refused += 1
        if is_booked and score >= (TOO_FAST_WHILE_IMMUNE if is_immune else TOO_FAST):
            return "too fast"
        if now_s - self.single_since_s > MANY_WITHIN_S:
            self.single, self.single_since_s, self.sent_since = 0, now_s, 0
        self.single += 1
        return "perhaps" if self.single >= MANY and not is_immune else "chance"

    def _score(self, sent_at_s: float) -> int:
        """Calls sent later tell nothing yet: their refusals may be on their way."""
        if len(self.sent) == MOST_SENT or self.began_s < 0:
            return OVER
        sent = sum(at_s <= sent_at_s for at_s in self.sent) - (sent_at_s in self.sent)
        return REFUSED * self.refused - sent

    def absolve(self, now_s: float) -> None:
        """A slower pace was refused as well: it is not about pace."""
        is_again = now_s - self.immune_until_s < LONGEST_IMMUNE_S
        self.immune_for_s = min(2 * self.immune_for_s, LONGEST_IMMUNE_S) if is_again else IMMUNE_S
        self.immune_until_s = now_s + self.immune_for_s
        self.single, self.began_s = 0, -1e9


def calls_to_tell(refused: int, served: int) -> int:
    """How many more calls show that they come too fast, if all are refused; 0 where too many were served.

    With the one at hand, after so many refusals, and so many since the first that were served.
    """
    score = (REFUSED - 1) * refused + 1 - served
    if score <= 0 or not refused:
        return 0
    return 1 + max(0, math.ceil((TOO_FAST - score) / (REFUSED - 1)))
