"""Places under a ceiling on concurrent calls: who has the next one that falls free. Pure.

It goes to who has the fewest, and of those to who waits longest: shares even out, and what cannot be
divided goes round. No place is kept for somebody who does not come: who is first in line is told, has a
moment, and is then passed over until it asks again (its process was stopped, or killed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ONE_MORE_AFTER_S = 1.0
LONGEST_BEFORE_ONE_MORE_S = 60.0
OFFERED_FOR_S = 0.25
"""How long a free place is kept for who was told of it: a busy event loop needs a while to come."""


@dataclass(frozen=True, slots=True)
class ShownCeiling:
    """How many calls at once a provider was seen to serve, and how soon one more is tried.

    Processes that begin without a limit see only their own share, so the first figure is often too low: it
    rises fast until one more is refused, and then ever more seldom.
    """

    served: int
    since_s: float
    one_more_every_s: float = ONE_MORE_AFTER_S

    def at(self, now_s: float) -> int:
        return self.served + self._more(now_s)

    def lowered(self, served: int, now_s: float) -> ShownCeiling:
        more = self._more(now_s)
        every_s = ONE_MORE_AFTER_S
        if more == 0:  # of the same episode
            every_s = self.one_more_every_s
        elif more == 1:  # the very next was refused
            every_s = min(2 * self.one_more_every_s, LONGEST_BEFORE_ONE_MORE_S)
        return ShownCeiling(min(served, self.served + more), now_s, every_s)

    def rises_at_s(self, now_s: float) -> float:
        return self.since_s + (self._more(now_s) + 1) * self.one_more_every_s

    def _more(self, now_s: float) -> int:
        return int(max(0.0, now_s - self.since_s) / self.one_more_every_s)


@dataclass(slots=True)
class Wait:
    """One holder that was denied a place."""

    ceiling: int
    """The one that it was denied under: processes may be configured differently."""
    offered_at_s: float | None = None
    """When it was told of a place; `None` while there is none for it."""


@dataclass(slots=True)
class Line:
    """The holders that wait for a place. `in_flight` is what each holder has, also those that do not wait."""

    waits: dict[str, Wait] = field(default_factory=dict)
    """Who waits longest comes first."""

    def join(self, holder: str, ceiling: int) -> None:
        """Denied; who waits already keeps its turn."""
        self.waits[holder] = Wait(ceiling)

    def leave(self, holder: str) -> None:
        self.waits.pop(holder, None)

    def leaves_one_for(self, holder: str, ceiling: int, in_flight: Mapping[str, int]) -> bool:
        """Whether a place is free for a holder that asks now, when all before it have been served."""
        return self._is_turn(holder, ceiling, in_flight)

    def offer(self, in_flight: Mapping[str, int], now_s: float, *, but: str | None) -> list[str]:
        """Who is to be told, as there is a place for it: not who asks just now, nor who knows already."""
        told = [
            name
            for name, wait in self.waits.items()
            if name != but and wait.offered_at_s is None and self._is_turn(name, wait.ceiling, in_flight)
        ]
        for name in told:
            self.waits[name].offered_at_s = now_s
        return told

    def pass_over(self, now_s: float, *, but: str) -> None:
        """Those that were told of a place and have not come."""
        for name, wait in list(self.waits.items()):
            if name != but and wait.offered_at_s is not None and now_s >= wait.offered_at_s + OFFERED_FOR_S:
                del self.waits[name]

    def _is_turn(self, holder: str, ceiling: int, in_flight: Mapping[str, int]) -> bool:
        """Somebody is always first, so no place stays free while anybody waits who may have it."""
        taken = sum(in_flight.values())
        free, is_earlier = ceiling - taken, True
        for name, other in self.waits.items():
            if name == holder:
                is_earlier = False
            else:
                before_us = in_flight.get(holder, 0) - in_flight.get(name, 0) + is_earlier
                free -= max(0, min(before_us, other.ceiling - taken))
        return free > 0

    # -- as plain values

    def to_plain(self) -> dict[str, Any]:
        return {name: [wait.ceiling, wait.offered_at_s] for name, wait in self.waits.items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Line:
        return cls({name: Wait(*values) for name, values in plain.items()})
