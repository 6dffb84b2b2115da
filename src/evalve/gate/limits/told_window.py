"""What it tells that calls are welcome again only after long: it is a window, no bucket takes so long. Pure.

It is over when they are welcome, and holds what was served from its beginning until the refusal. At the rate
that is known, that leaves one of the usual lengths, whenever the window has begun.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evalve.gate.limits.history import History
from evalve.gate.limits.window import least_usual_length_s

LIKELIEST_S = (60.0, 10.0, 30.0, 15.0, 5.0, 2.0, 1.0)
"""Lengths that are tried first where several would hold what was served. Of two, the longer: the other would
have begun in the middle of a burst."""
DATED_S = 2.0
"""Up to so much is added to when calls are welcome again, where it is told by a date in whole seconds."""
UNKNOWN_S = 0.25
"""Calls that were sent so shortly before a refusal may be refused as well."""
AS_MUCH = 0.1
"""How exactly what was served is what a window of a usual length holds."""
LATE = 0.05
"""Of its length: calls arrive so much later than they were sent that fill it."""
HALF_FULL = 0.5
"""Of a window, sent by us. Where it is less, and headers do not say that nothing remains, it is about
something else."""


@dataclass(frozen=True, slots=True)
class Told:
    """A window that was full."""

    length_s: float
    ends_s: float | None
    """When it ends for all at once; `None` where it slides, or has begun with our first call."""


def told_window(
    log: History, per_s: float, *, refused: float, sent_at_s: float, welcome_s: float, is_whole: bool
) -> Told:
    """By a call that was refused, with all that was sent lately and how much of it was refused before."""
    first_s = log.first_after(-math.inf)
    first_s = sent_at_s if first_s is None else first_s
    soonest_s = welcome_s - (DATED_S if is_whole else 0.0)
    in_transit = log.sum_after(sent_at_s - UNKNOWN_S)
    surely_served = log.sum_after(-math.inf) - in_transit - refused
    length_s = least_usual_length_s(max(surely_served / per_s, soonest_s - first_s))
    for usual_s in LIKELIEST_S:
        least = log.sum_after(welcome_s - usual_s) - in_transit - refused
        most = sum(amount for last_s, amount in log.begun(sent_at_s) if last_s > soonest_s - usual_s)
        if least * (1 - AS_MUCH) <= usual_s * per_s <= most * (1 + AS_MUCH):
            length_s = usual_s
            break
    has_begun_before = welcome_s < first_s + (1 - LATE) * length_s
    has_ended_since = soonest_s > first_s + (1 + LATE) * length_s
    holds_less = surely_served > (1 + AS_MUCH) * length_s * per_s
    return Told(length_s, welcome_s if has_begun_before or has_ended_since or holds_less else None)
