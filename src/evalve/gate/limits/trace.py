"""What was served and what was refused, call by call, where nobody states a limit. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from evalve.gate.limits.history import History

PART_S, PART_SHARE = 0.02, 0.04
"""What was served lately is kept by parts so short, and earlier by longer ones: a share of their age."""
MOST_PARTS, MOST_REFUSED = 128, 64
KEPT_S = 130.0
"""Two of the longest windows, and a little."""

DIGITS = 4
"""Of instants, for they are stored with every booking."""

Part = list[float]
"""When the first and the last of it were sent, and how many."""


@dataclass(slots=True)
class Trace:
    """Since calls were first refused, and what was sent before."""

    served: list[Part] = field(default_factory=list)
    """In order. Who was not refused is taken to be served."""
    refused: list[float] = field(default_factory=list)
    """When calls were sent that were refused. In order."""

    def add_unheld(self, histories: Iterable[History]) -> None:
        """What was sent before anything was refused, by whatever process."""
        for history in histories:
            before_s = history.began_s
            for last_s, amount in history.parts:
                if amount > 0:
                    first_s = max(before_s, last_s // history.part_s * history.part_s)
                    self.served.append([round(first_s, DIGITS), round(last_s, DIGITS), amount])
                before_s = last_s
        self.served.sort()

    def add(self, at_s: float) -> None:
        """A call that is sent then, in the order in which calls are booked."""
        at_s = round(at_s, DIGITS)
        last = self.served[-1] if self.served else None
        if last is not None and at_s < last[1]:
            insort(self.served, [at_s, at_s, 1.0])
        elif last is not None and at_s - last[0] <= PART_S and not self._is_refused_between(last[1], at_s):
            last[1], last[2] = at_s, last[2] + 1.0
        else:
            self.served.append([at_s, at_s, 1.0])
            if len(self.served) > MOST_PARTS:
                self._shorten(self.served[-2][1])  # this one may be for much later

    def take_back(self, at_s: float) -> bool:
        """Whether a call that was to be sent then was counted."""
        at_s = round(at_s, DIGITS)
        place = bisect_left(self.served, [at_s, math.inf]) - 1
        if place < 0 or self.served[place][1] < at_s:
            return False
        self.served[place][2] -= 1.0
        if self.served[place][2] <= 0:
            del self.served[place]
        return True

    def refuse(self, at_s: float) -> None:
        insort(self.refused, round(at_s, DIGITS))
        del self.refused[:-MOST_REFUSED]

    def resumed(self) -> list[float]:
        """When calls were first served again after some were refused."""
        return [
            later[0]
            for before, later in zip(self.served, self.served[1:], strict=False)
            if self._is_refused_between(before[1], later[0])
        ]

    def longest_blocked_s(self) -> float:
        """From the first refusal to the last between which nothing was served."""
        instants = [first_s for first_s, _, _ in self.served]
        longest_s, began_s = 0.0, self.refused[0]
        for before_s, at_s in zip(self.refused, self.refused[1:], strict=False):
            if bisect_left(instants, before_s) != bisect_left(instants, at_s):
                began_s = at_s
            longest_s = max(longest_s, at_s - began_s)
        return longest_s

    def blocked_s(self, now_s: float) -> float:
        """For how long nothing has been served, since a call was refused."""
        place = bisect_left(self.refused, self.served[-1][1] if self.served else 0.0)
        return max(0.0, now_s - self.refused[place]) if place < len(self.refused) else 0.0

    def until(self, now_s: float) -> Trace:
        """Without what is booked for later."""
        return Trace([part for part in self.served if part[0] <= now_s], self.refused)

    def _is_refused_between(self, from_s: float, to_s: float) -> bool:
        place = bisect_left(self.refused, from_s)
        return place < len(self.refused) and self.refused[place] < to_s

    def _shorten(self, now_s: float) -> None:
        kept: list[Part] = []
        for first_s, last_s, amount in self.served:
            longest_s = PART_S + PART_SHARE * (now_s - last_s)
            if last_s < now_s - KEPT_S:
                continue
            if (
                kept
                and last_s - kept[-1][0] <= longest_s
                and not self._is_refused_between(kept[-1][1], first_s)
            ):
                kept[-1][1], kept[-1][2] = max(kept[-1][1], last_s), kept[-1][2] + amount
            else:
                kept.append([first_s, last_s, amount])
        self.served = kept[-MOST_PARTS:]
        self.refused = [at_s for at_s in self.refused if at_s >= self.served[0][0]]
