"""What answers say of a scope's limits, taken into its state. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from evalve.gate.limits.booking import RAISED, REFUSALS, ScopeState
from evalve.gate.limits.bucket import Bucket, Sent, first_seen
from evalve.gate.limits.history import History, together
from evalve.gate.limits.period import MINUTE_S, Period, told_end
from evalve.gate.messages import Cost, Dimension, Stated


def observe(
    scope: ScopeState,
    stated: Mapping[Dimension, Stated],
    now_s: float,
    sent: Mapping[Dimension, Sent] = MappingProxyType({}),
    *,
    cost: Cost = MappingProxyType({}),
    sent_at_s: float | None = None,
    was_held: bool = True,
) -> None:
    """Take in what the headers of an answer to a call of that cost say; `sent` is from its booking.

    What remains for a call that no limit held is of a time before the calls that are counted since.
    """
    scope.begun = True
    if not stated and not scope.stated:
        scope.unlimited = scope.learnt is None
        return
    scope.unlimited = False
    if scope.learnt is not None:  # headers know better
        scope.learnt = None
        if (bucket := scope.buckets.get("requests")) is not None and bucket.source == REFUSALS:
            del scope.buckets["requests"]
    for dimension, said in stated.items():
        at_s = now_s if sent_at_s is None else sent_at_s
        one = _by_the_minute(
            scope, dimension, said, cost.get(dimension, 1.0), at_s, now_s, sent.get(dimension)
        )
        if one.per_minute is not None and one.per_minute > 0:
            scope.stated[dimension] = (one.per_minute / 60.0, now_s)
        bucket = scope.buckets.get(dimension)
        if bucket is None:
            if one.per_minute is not None and one.per_minute > 0:
                scope.buckets[dimension] = first_seen(one, one.per_minute / 60.0, now_s)
            continue
        if not was_held:
            bucket.deepen(one.remaining, now_s)
            continue
        ahead, uncharged = scope.booked_ahead(dimension, now_s), 0.0
        if dimension == "output_tokens":
            uncharged = sum(held.uncharged.get(dimension, 0.0) for held in scope.holders.values())
            uncharged = max(0.0, uncharged - sum(amount for _, amount in ahead))
        had, rate = bucket.window, bucket.rate()
        _keep_to_window(scope, bucket, scope.periods.get(dimension), said, sent.get(dimension), now_s)
        bucket.compare(one, uncharged, now_s, ahead=ahead, sent=sent.get(dimension))
        if bucket.window is had and bucket.rate() > RAISED * rate:  # what is booked may go earlier
            for start_s, amount in ahead:
                bucket.give_back(amount, start_s)
        elif bucket.window is had:
            continue
        scope.version += 1  # what waits is not in it
        bucket.since_version = scope.version


def _keep_to_window(
    scope: ScopeState, bucket: Bucket, period: Period | None, said: Stated, sent: Sent | None, now_s: float
) -> None:
    """Where headers say when a window ends for all at once."""
    if period is None or said.per_minute is None or said.full_in_s is None:
        return
    if not period.is_told_window():
        bucket.stated_window = None
        return
    sent = sent or Sent(now_s, bucket.taken)
    if bucket.keep_to(told_end(said, sent.at_s, now_s), period.seconds(), said, sent, now_s):
        scope.version += 1  # who waits books again


def _by_the_minute(
    scope: ScopeState,
    dimension: Dimension,
    said: Stated,
    cost: float,
    sent_at_s: float,
    now_s: float,
    sent: Sent | None,
) -> Stated:
    """What a limit for another time comes to."""
    if said.full_in_s is None or said.per_minute is None:
        return said
    period, bucket = scope.periods.setdefault(dimension, Period()), scope.buckets.get(dimension)
    before_s = period.seconds()
    period.learn(said, sent_at_s, now_s, cost=cost)
    if bucket is not None:
        if sent is not None:
            is_steady = not bucket.is_counted_in_windows()
            period.learn_use(said, sent.at_s, sent.taken, now_s, cost=cost, is_steady=is_steady)
        bucket.window = period.regraded(bucket.window, before_s)
    return replace(said, per_minute=said.per_minute * MINUTE_S / period.seconds())


def note_unheld(
    scope: ScopeState, holder: str, sent: History, each: Cost, *, sent_at_s: float, now_s: float
) -> None:
    """Before it knew of any limit; `each` is what the call took that was sent at that instant."""
    before = scope.doubt.unheld.get(holder, History())
    if scope.learnt is None:
        scope.doubt.note_unheld(holder, sent, now_s)
    elif scope.learnt.is_suspicion or (scope.learnt.try_at_s is not None and not scope.learnt.resumed_at_s):
        scope.learnt.unheld[holder] = sent
    if scope.stated:
        _take_unheld(scope, before, sent, each, sent_at_s, now_s)


def _take_unheld(
    scope: ScopeState, before: History, sent: History, each: Cost, sent_at_s: float, now_s: float
) -> None:
    """What was sent while the answer was on its way that first stated a limit is not in what it said.

    In a window it counts all the same, from when it was sent.
    """
    if scope.unheld_since_s is None:
        scope.unheld_since_s = sent_at_s
        before, sent = History(), together(scope.doubt.unheld.values())
    more = sent.sum_after(-math.inf) - before.sum_after(-math.inf)
    unknown = sent.sum_after(scope.unheld_since_s) - before.sum_after(scope.unheld_since_s)
    if before.parts:
        sent = History([[sent_at_s, more]], began_s=sent_at_s)
    for dimension, amount in each.items():
        if (bucket := scope.buckets.get(dimension)) is None:
            continue
        if more > 0:
            bucket.take_unheld(unknown * amount, sent.times(amount), now_s)
        elif more < 0:
            bucket.give_back_unheld(amount, sent_at_s)


def note_served(scope: ScopeState, sent: Mapping[Dimension, Sent], started_at_s: float, now_s: float) -> None:
    """A call was answered and not refused: nobody has to try any more."""
    scope.pace.note_served()
    if scope.learnt is not None and scope.learnt.out_at_s == started_at_s:
        scope.resume(scope.learnt, started_at_s, now_s)
    for dimension, one in sent.items():
        if (bucket := scope.buckets.get(dimension)) is not None and bucket.serve(one, now_s):
            scope.version += 1  # who waits for its end books again
            bucket.since_version = scope.version
    if scope.probing_from_s is not None:
        scope.probing_from_s = None
        scope.version += 1
