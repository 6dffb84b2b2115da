"""What refusals say of a scope's limits, taken into its state. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from evalve.gate.limits.booking import REFUSALS, ScopeState
from evalve.gate.limits.bucket import Sent
from evalve.gate.limits.history import together
from evalve.gate.limits.learnt_rate import LearntRate
from evalve.gate.limits.period import Period
from evalve.gate.limits.places import ShownCeiling
from evalve.gate.limits.told_window import DATED_S
from evalve.gate.limits.window import usual_length_s
from evalve.gate.messages import Cost, Dimension, Stated

MOST_BELOW = 3
"""Refusals below a rate that nothing but a suspicion speaks for …"""
MOST_BELOW_TOLD = 4.0
"""… or below one that refusals have told: they are not about the rate."""
PROBED_AFTER_S = 300.0
"""After so long a pause calls try one by one."""


def refuse(
    scope: ScopeState,
    dimension: str | None,
    stated: Mapping[Dimension, Stated],
    sent: Mapping[Dimension, Sent],
    cost: Cost,
    sent_at_s: float,
    retry_after_s: float,
    now_s: float,
) -> bool:
    """Whether windows are counted, so that it is known when calls are welcome again."""
    if not sent:  # no limit held it back
        sent = {
            name: Sent(sent_at_s, each.taken + cost.get(name, 1.0)) for name, each in scope.buckets.items()
        }
    if scope.stated and not _asked(scope, sent_at_s):
        scope.version += scope.pace.note_refused(sent_at_s, scope.known_per_s(), now_s)
    named = [name for name in sent if dimension in (None, name) and _is_told_of(scope, name)]
    for name in named:
        bucket = scope.buckets[name]
        had = bucket.window
        said = stated.get(name)
        period = scope.periods.setdefault(name, Period())
        before_s = period.seconds()
        period.note_refused(sent_at_s, now_s)
        bucket.refuse(
            sent[name],
            cost.get(name, 1.0),
            retry_after_s,
            now_s,
            remaining=said.remaining if said is not None else None,
            holders=len(scope.holders),
        )
        bucket.window = period.regraded(bucket.window, before_s)
        if bucket.window is not had:
            scope.version += 1
            bucket.since_version = scope.version
    return any(scope.buckets[name].is_counted_in_windows() for name in named)


def _asked(scope: ScopeState, sent_at_s: float) -> bool:
    """Whether a call was to ask whether a window is over: that it is refused tells nothing about pace."""
    windows = [bucket.window for bucket in scope.buckets.values() if bucket.window is not None]
    return any(sent_at_s in window.asked for window in windows)


def _is_told_of(scope: ScopeState, dimension: Dimension) -> bool:
    """Whether headers tell of it, or windows of it are counted because of them."""
    bucket = scope.buckets.get(dimension)
    return bucket is not None and (
        dimension in scope.stated or (bucket.window is not None and scope.learnt is None)
    )


def refute(
    scope: ScopeState,
    dimension: str | None,
    stated: Mapping[Dimension, Stated],
    cost: Cost,
    sent_at_s: float,
    now_s: float,
) -> bool:
    """Whether a refusal's own headers say that enough remains; then they are believed no more."""
    named = [name for name in stated if dimension is None or name == dimension]
    for name in named:
        remaining = stated[name].remaining
        if remaining is None or remaining < max(1.0, cost.get(name, 1.0)):
            return False
    if not named:
        return False
    if sent_at_s > scope.penalised_at_s.get("refuted", -math.inf):
        scope.penalised_at_s["refuted"] = now_s
        others = [bucket for name in named if (bucket := scope.buckets.get(name)) and bucket.refute(now_s)]
        scope.version += bool(others)
        for bucket in others:
            bucket.since_version = scope.version
    return True


def is_about_rate(
    scope: ScopeState,
    served_per_s: float,
    sent_at_s: float,
    booked_for_s: float | None,
    now_s: float,
    *,
    in_a_row: bool = False,
) -> bool:
    """Whether a refusal that states no limit tells that calls come too fast."""
    verdict = scope.doubt.judge(sent_at_s, now_s, in_a_row=in_a_row, is_booked=booked_for_s is not None)
    learnt = scope.learnt
    if verdict == "too fast":
        if learnt is not None:
            learnt.confirm()
        return True
    if learnt is None:
        if verdict == "perhaps":
            share, unheld = scope.doubt.single_share(), scope.doubt.unheld
            served_per_s = max(served_per_s, scope.doubt.served_per_s(now_s))
            per_s = served_per_s or together(unheld.values()).per_s(now_s)
            scope.learnt = LearntRate.suspected(max(per_s, 1.0), share, unheld, now_s)
            scope.unlimited = False
            scope.hold_learnt(scope.learnt.per_s, now_s)
            scope.buckets["requests"].set_level(0.0, now_s)
        return False
    if not learnt.is_suspicion or learnt.is_confirmed():
        learnt.confirm()
        return True
    if booked_for_s is not None and booked_for_s > learnt.known_at_s:
        learnt.below += 1
        learnt.known_at_s = now_s
        if learnt.below >= MOST_BELOW:
            _absolve(scope, now_s)
    return False


def learn_rate(
    scope: ScopeState, dimension: str | None, retry_after_s: float, *, sent: Sent | None, now_s: float
) -> bool:
    """Whether calls go on at the pace that is known now, after a refusal that nobody had foretold.

    `sent` is `None` for a call that nothing held back: it tells nothing about the rate that others keep.
    """
    if scope.stated or dimension == "ramp":
        return False
    if scope.learnt is None:
        if scope.buckets and (dimension is None or dimension in scope.buckets or "requests" in scope.buckets):
            return False  # calls are held to a rate already
        scope.learnt = LearntRate.blocked(scope.doubt.unheld, retry_after_s, now_s, scope.doubt.ever)
        scope.learnt.note_refused(sent.at_s if sent is not None else now_s)
        scope.unlimited = False
        scope.hold_learnt(scope.learnt.per_s * scope.ramp_share(now_s), now_s)
        scope.version += 1
    elif sent is not None:
        _learn_more(scope, scope.learnt, sent, retry_after_s, now_s)
    return True


def _learn_more(
    scope: ScopeState, learnt: LearntRate, sent: Sent, retry_after_s: float, now_s: float
) -> None:
    bucket = scope.buckets["requests"]
    learnt.note_unsent(sent.at_s)
    learnt.note_refused(sent.at_s)
    if bucket.window is not None and learnt.refused_more(bucket.window, sent.at_s, retry_after_s, now_s):
        scope.version += 1  # who was to try next books again
        if learnt.known_at_s == now_s and bucket.window.ends_s is not None:
            bucket.since_version = scope.version  # and is in the window no more
        return
    found = learnt.explain(bucket.window, retry_after_s, now_s, sent_at_s=sent.at_s)
    if found is not None:
        if bucket.window is not None and found.is_as(bucket.window):
            bucket.refuse(sent, 1.0, retry_after_s, now_s, remaining=None)  # it came a moment early
            return
        bucket.window = found.window(learnt.trace.served, now_s, is_full=True)
        scope.version += 1
        bucket.since_version = scope.version
        return
    if sent.at_s <= learnt.known_at_s:
        return
    if bucket.window is not None:
        if not learnt.doubt_window(bucket.window, sent.at_s, now_s):
            bucket.refuse(sent, 1.0, retry_after_s, now_s, remaining=None)
            return
        bucket.window = None
    learnt.refused(sent.at_s, retry_after_s, now_s)
    if learnt.below >= MOST_BELOW_TOLD:
        _absolve(scope, now_s)
        return
    scope.hold_learnt(learnt.per_s * scope.ramp_share(now_s), now_s)
    bucket.set_level(0.0, now_s)
    scope.version += 1  # what was booked at the old rate is booked again
    bucket.since_version = scope.version


def _absolve(scope: ScopeState, now_s: float) -> None:
    scope.doubt.absolve(now_s)
    scope.learnt = None
    bucket = scope.buckets.get("requests")
    if bucket is not None and bucket.source == REFUSALS:
        del scope.buckets["requests"]
    scope.version += 1


def penalise(
    scope: ScopeState, dimension: str | None, retry_after_s: float, sent_at_s: float, now_s: float
) -> None:
    """A refusal: nothing of that dimension before `retry_after_s`; once for all calls of one episode."""
    episode = dimension or "pause"
    if sent_at_s <= scope.penalised_at_s.get(episode, -math.inf):
        return
    scope.penalised_at_s[episode] = now_s
    scope.version += 1
    if retry_after_s <= DATED_S and (known := [b for b in scope.buckets.values() if b.is_depth_shown()]):
        # whatever they count in, after so long all is there again: more was added by rounding
        retry_after_s = min(retry_after_s, max(usual_length_s(b.depth / b.per_s) for b in known))
    if retry_after_s >= PROBED_AFTER_S:
        scope.probing_from_s = now_s + retry_after_s
    if dimension == "ramp":
        scope.ramp = (0.5 * scope.ramp_share(now_s), now_s + retry_after_s)
    bucket = scope.buckets.get(dimension) if dimension else None  # type: ignore[call-overload]
    if bucket is not None:
        # the first unit is there exactly then, and the others follow at the rate: no herd
        bucket.closed_until_s = now_s + retry_after_s
        bucket.full_at_s = bucket.closed_until_s + max(0.0, bucket.usable() - 1) / bucket.rate()
        bucket.since_version = scope.version
        return
    scope.pause_until_s = max(scope.pause_until_s, now_s + retry_after_s)
    scope.pause_reason = dimension or "refused"
    for name, each in scope.buckets.items():
        for start_s, amount in scope.booked_ahead(name, now_s):
            each.give_back(amount, start_s)  # they book again
        each.since_version = scope.version
        each.closed_until_s = max(each.closed_until_s, scope.pause_until_s)
        each.full_at_s = max(each.full_at_s, scope.pause_until_s + max(0.0, each.usable() - 1) / each.rate())


def lower_ceiling(scope: ScopeState, unrefused: int, now_s: float) -> None:
    """Too many at once: no more from now on than are in flight without the one that was refused.

    Every refusal counts, also those of one episode: of fifty calls sent at once the first that is
    refused leaves 49, and only the last leaves as many as are served. Rates have nothing to do with it.
    """
    served = max(1, unrefused, scope.in_flight())
    shown = scope.shown_concurrency
    scope.shown_concurrency = shown.lowered(served, now_s) if shown else ShownCeiling(served, now_s)
