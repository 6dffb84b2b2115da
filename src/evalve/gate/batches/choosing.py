"""Live or in batches: by size, price and deadline. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from evalve.gate.batches.shapes import PRICE_SHARE

FEW_CALLS = 100
"""Below, waiting for a batch costs more of a person's time than it saves."""
LITTLE_USD = 0.5
"""What is not worth an hour of waiting."""
TYPICAL_S = 3600.0
"""Most batches have ended by then; after a day, what is not done has expired."""
LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a run will take; `None` is not known."""

    calls: int | None
    rounds: int = 1
    """Calls that a sample makes one after another: each waits for a batch of its own."""
    live_s: float | None = None
    live_usd: float | None = None
    deadline_s: float | None = None

    @property
    def batch_usd(self) -> float | None:
        return None if self.live_usd is None else self.live_usd * PRICE_SHARE

    @property
    def typical_s(self) -> float:
        return self.rounds * TYPICAL_S

    @property
    def longest_s(self) -> float:
        return self.rounds * LONGEST_S


@dataclass(frozen=True, slots=True)
class Choice:
    """How to run, and why, in words."""

    in_batches: bool
    reason: str


def choose(prospect: Prospect) -> Choice:
    """Batches where they save something worth it and end in time."""
    calls, deadline_s, live_s = prospect.calls, prospect.deadline_s, prospect.live_s
    if calls is None:
        return Choice(False, "only reading the dataset tells how many samples there are")
    takes = f"{_rounds(prospect.rounds)} mostly {_time(prospect.typical_s)}"
    in_time = deadline_s is None or prospect.typical_s <= deadline_s
    if deadline_s is not None and in_time and live_s is not None and live_s > deadline_s:
        return Choice(
            True, f"live it would take {_time(live_s)}, longer than the deadline; {takes}{_saving(prospect)}"
        )
    if calls < FEW_CALLS:
        return Choice(False, f"{calls} calls are few: a batch is worth waiting for from {FEW_CALLS} on")
    saved_usd = None if prospect.live_usd is None else prospect.live_usd * (1 - PRICE_SHARE)
    if saved_usd is not None and saved_usd < LITTLE_USD:
        return Choice(False, f"a batch would save {saved_usd:.4f} USD, and take {_time(prospect.typical_s)}")
    if not in_time:
        return Choice(False, f"the deadline is in {_time(deadline_s or 0.0)}, and {takes}")
    worst = "" if deadline_s is None or prospect.longest_s <= deadline_s else ", though it may be a day"
    return Choice(True, f"{calls:,} calls; {takes}{worst}{_saving(prospect)}")


def _rounds(rounds: int) -> str:
    return "a batch takes" if rounds == 1 else f"{rounds} rounds of batches take"


def _saving(prospect: Prospect) -> str:
    if prospect.live_usd is None or prospect.batch_usd is None:
        return "; half price"
    return f"; {prospect.batch_usd:.2f} instead of {prospect.live_usd:.2f} USD"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
