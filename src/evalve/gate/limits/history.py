"""What was sent lately, in parts: short ones at first, longer ones when it goes on. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_PARTS = 16
FIRST_PART_S = 0.01
LONGEST_S = 60.0
"""What was sent earlier matters to nobody: no provider counts in more."""


@dataclass(slots=True)
class History:
    """Amounts and when they were sent."""

    parts: list[list[float]] = field(default_factory=list)
    """For each: when the last of it was sent, and how much it was. In order."""
    part_s: float = FIRST_PART_S
    began_s: float = 0.0
    """When the first of it was sent."""

    def add(self, amount: float, at_s: float) -> None:
        parts = self.parts
        if parts and at_s // self.part_s <= parts[-1][0] // self.part_s:
            parts[-1][0] = max(parts[-1][0], at_s)
            parts[-1][1] += amount
            return
        if not parts or at_s > parts[-1][0] + LONGEST_S:
            self.parts, self.part_s, self.began_s = [[at_s, amount]], FIRST_PART_S, at_s
            return
        parts.append([at_s, amount])
        if len(parts) > MOST_PARTS:
            self._shorten(at_s - LONGEST_S)

    def copy(self) -> History:
        """Written out, because a copy is made for every call that no limit holds."""
        return History([part[:] for part in self.parts], self.part_s, self.began_s)

    def times(self, amount: float) -> History:
        """So much for each that was counted."""
        return History([[last_s, count * amount] for last_s, count in self.parts], self.part_s, self.began_s)

    def take_back(self, amount: float, sent_at_s: float) -> None:
        """It was sent then, and was refused."""
        for part in self.parts:
            if part[0] >= sent_at_s and part[1] > 0:
                part[1] = max(0.0, part[1] - amount)
                return

    def forget(self, before_s: float) -> None:
        """What was sent until then."""
        while self.parts and self.parts[0][0] <= before_s:
            self.began_s = self.parts.pop(0)[0]
        if not self.parts:
            self.part_s = FIRST_PART_S

    def _shorten(self, before_s: float) -> None:
        self.forget(before_s)
        while len(self.parts) > MOST_PARTS:
            self.part_s *= 2
            self.parts = _joined(self.parts, self.part_s)

    def sum_after(self, instant_s: float) -> float:
        return sum(amount for last_s, amount in self.parts if last_s > instant_s)

    def begun(self, now_s: float) -> list[tuple[float, float]]:
        """Parts of which something was sent already; what is to be sent later with that counts as well."""
        return [
            (min(last_s, now_s), amount)
            for last_s, amount in self.parts
            if last_s // self.part_s * self.part_s <= now_s
        ]

    def most_within(self, length_s: float) -> float:
        """In any time of that length."""
        return max(
            (
                sum(amount for last_s, amount in self.parts if begin_s <= last_s < begin_s + length_s)
                for begin_s, _ in self.parts
            ),
            default=0.0,
        )

    def first_after(self, instant_s: float) -> float | None:
        """When the first was sent after that, at the earliest."""
        first_s = self.began_s
        for place, (last_s, _) in enumerate(self.parts):
            if place:
                first_s = max(self.parts[place - 1][0], last_s // self.part_s * self.part_s)
            if last_s > instant_s:
                return max(first_s, instant_s)
        return None

    def per_s(self, now_s: float) -> float:
        """Over the last second or more."""
        amount = 0.0
        for place in range(len(self.parts) - 1, -1, -1):
            amount += self.parts[place][1]
            since_s = self.parts[place - 1][0] if place else self.began_s
            if now_s - since_s >= 1.0:
                return amount / (now_s - since_s) if now_s - self.parts[-1][0] < 2.0 else 0.0
        return amount


def together(histories: Iterable[History]) -> History:
    """What several have sent."""
    told = [each for each in histories if each.parts]
    if not told:
        return History()
    part_s = max(each.part_s for each in told)
    parts = _joined(sorted(part for each in told for part in each.parts), part_s)
    whole = History(parts, part_s, min(each.began_s for each in told))
    whole._shorten(parts[-1][0] - LONGEST_S)
    return whole


def _joined(parts: list[list[float]], part_s: float) -> list[list[float]]:
    joined: list[list[float]] = []
    for last_s, amount in parts:
        if joined and last_s // part_s <= joined[-1][0] // part_s:
            joined[-1] = [last_s, joined[-1][1] + amount]
        else:
            joined.append([last_s, amount])
    return joined
