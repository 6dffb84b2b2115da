"""What a refusal is about: the rate of calls, or nothing that a slower pace would change. Pure.

A bucket that is empty refuses nearly everything that comes, until it fills. A provider that refuses at random
serves the calls just before and after. So refusals are counted against the calls that were sent since the
first of them was known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from evalve.gate.history import History

EPISODE_S = 2.0
"""Refusals further apart have nothing to do with each other."""
LEAST_REFUSED, LEAST_WHILE_IMMUNE = 4, 10
CLUMP_SHARE = 0.5
"""Of the calls sent since: as many refused as this, and calls come too fast."""
UNANSWERED = 2
"""The latest calls, whose refusals are still on their way."""
MANY = 10
"""Single refusals, within `MANY_WITHIN_S`, after which a slower pace is tried all the same."""
MANY_WITHIN_S = 30.0
IMMUNE_S, LONGEST_IMMUNE_S = 60.0, 1800.0

Verdict = Literal["too fast", "perhaps", "chance"]


@dataclass(slots=True)
class Doubt:
    """What is counted in one scope."""

    began_s: float = -1e9
    sent: int = 0
    refused: int = 0
    single: int = 0
    """Refusals that told nothing."""
    single_since_s: float = -1e9
    sent_since: int = 0
    """Calls that were sent since then."""
    immune_until_s: float = -1e9
    """A slower pace was tried and refused as often: until then only a clump counts."""
    immune_for_s: float = IMMUNE_S
    unheld: dict[str, History] = field(default_factory=dict)
    """What each process has sent that no limit held back."""

    def note_sent(self) -> None:
        self.sent += 1
        self.sent_since += 1

    def sent_per_s(self, now_s: float) -> float:
        """Lately, by all who share the scope."""
        return self.sent_since / max(now_s - self.single_since_s, 0.1)

    def judge(self, sent_at_s: float, now_s: float) -> Verdict:
        if now_s - self.began_s > EPISODE_S:
            self.began_s, self.sent, self.refused = now_s, 0, 0
        elif sent_at_s >= self.began_s:
            self.refused += 1
        else:
            return "chance"  # sent before the first was known: all of a clump may be refused for one reason
        least = LEAST_REFUSED if now_s >= self.immune_until_s else LEAST_WHILE_IMMUNE
        if self.refused >= least and self.refused >= CLUMP_SHARE * (self.sent - UNANSWERED):
            return "too fast"
        if now_s - self.single_since_s > MANY_WITHIN_S:
            self.single, self.single_since_s, self.sent_since = 0, now_s, 0
        self.single += 1
        return "perhaps" if self.single >= MANY and now_s >= self.immune_until_s else "chance"

    def absolve(self, now_s: float) -> None:
        """A slower pace was refused as well: it is not about pace."""
        is_again = now_s - self.immune_until_s < LONGEST_IMMUNE_S
        self.immune_for_s = min(2 * self.immune_for_s, LONGEST_IMMUNE_S) if is_again else IMMUNE_S
        self.immune_until_s = now_s + self.immune_for_s
        self.single = 0
