"""A scope's state as plain values, for where it is stored; what earlier versions wrote is read too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

from evalve.gate.limits.booking import REFUSALS, Holder, ScopeState
from evalve.gate.limits.bucket import Bucket, Burst, Trial
from evalve.gate.limits.doubt import Doubt
from evalve.gate.limits.history import History
from evalve.gate.limits.learnt_rate import LearntRate
from evalve.gate.limits.pace import Pace
from evalve.gate.limits.period import Period
from evalve.gate.limits.places import Line, ShownCeiling
from evalve.gate.limits.stated_window import StatedWindow, ToldEnd
from evalve.gate.limits.trace import Trace
from evalve.gate.limits.use import Use
from evalve.gate.limits.window import Window

_DOUBT = [each.name for each in fields(Doubt)][:-1]
_LEARNT = [each.name for each in fields(LearntRate)][:-4]
"""What is plain already; histories come last."""
_WINDOW = [each.name for each in fields(Window)]


def to_plain(state: ScopeState) -> dict[str, Any]:
    return {
        "buckets": {name: _bucket(bucket) for name, bucket in state.buckets.items()},
        "stated": state.stated,
        "holders": {
            name: [held.in_flight, held.uncharged, held.heard_at_s]
            for name, held in state.holders.items()
            if held.in_flight or any(held.uncharged.values())
        },
        "line": state.line.to_plain(),
        "pause": [state.pause_until_s, state.pause_reason],
        "penalised": state.penalised_at_s,
        "concurrency": state.concurrency,
        "shown_concurrency": astuple(state.shown_concurrency) if state.shown_concurrency else None,
        "refusals": _doubt(state.doubt),
        "periods": {name: astuple(period) for name, period in state.periods.items()},
        "unheld_since": state.unheld_since_s,
        "learnt": _learnt(state.learnt) if state.learnt else None,
        "probing_from": state.probing_from_s,
        "pace": astuple(state.pace) if state.pace != Pace() else (),
        "ramp": state.ramp,
        "version": state.version,
        "ahead": state.ahead,
        "unlimited": state.unlimited,
        "begun": state.begun,
    }


def from_plain(plain: Mapping[str, Any]) -> ScopeState:
    learnt = _learnt_of(values) if (values := plain.get("learnt")) else None  # rows from before have another
    buckets = {name: _bucket_of(values) for name, values in plain["buckets"].items()}
    return ScopeState(
        buckets={name: each for name, each in buckets.items() if learnt or each.source != REFUSALS},
        stated={name: (values[0], values[1]) for name, values in plain["stated"].items()},
        holders={name: Holder(*values) for name, values in plain["holders"].items()},
        line=Line.from_plain(plain.get("line", {})),  # rows from before there was one
        pause_until_s=plain["pause"][0],
        pause_reason=plain["pause"][1],
        penalised_at_s=plain["penalised"],
        concurrency=plain["concurrency"],
        shown_concurrency=ShownCeiling(*shown) if (shown := plain["shown_concurrency"]) else None,
        doubt=_doubt_of(plain.get("refusals", ())),
        periods={name: _period_of(values) for name, values in plain.get("periods", {}).items()},
        unheld_since_s=plain.get("unheld_since"),
        learnt=learnt,
        probing_from_s=plain.get("probing_from"),
        pace=Pace(*plain.get("pace", ())),
        ramp=tuple(plain["ramp"]) if plain["ramp"] else None,
        version=plain["version"],
        ahead=[(values[0], values[1], values[2]) for values in plain["ahead"]],
        unlimited=plain["unlimited"],
        begun=plain["begun"],
    )


def _period_of(values: Sequence[Any]) -> Period:
    *plain, use = values
    period = Period(*plain)
    period.use = Use(*use)
    return period


def _bucket(bucket: Bucket) -> list[Any]:
    """In the order of its fields; written out, because `astuple` copies everything deeply."""
    return [
        bucket.per_s,
        bucket.depth,
        bucket.full_at_s,
        bucket.others_per_s,
        bucket.seen_at_s,
        bucket.depth_known,
        bucket.source,
        bucket.closed_until_s,
        bucket.since_version,
        bucket.slot_s,
        bucket.sent,
        bucket.sent_before,
        bucket.taken,
        bucket.refuted_until_s,
        bucket.refuted_for_s,
        bucket.most_seen,
        bucket.times_seen,
        bucket.last_seen,
        bucket.jumps,
        bucket.jumped_at_s,
        _burst(bucket.burst),
        _window(bucket.window) if bucket.window is not None else None,
        bucket.windows_refuted_until_s,
        astuple(bucket.trial),
        bucket.shared_since_s,
        bucket.last_seen_sent_s,
        bucket.usual_cost,
        astuple(bucket.stated_window) if bucket.stated_window is not None else None,
    ]


def _burst(burst: Burst) -> list[Any]:
    return [
        burst.began_s,
        burst.over_s,
        burst.base,
        burst.refused,
        burst.refused_at_s,
        burst.refused_taken,
        burst.served_sent_s,
        burst.length_s,
        _history(burst.log),
        burst.supports,
    ]


def _history(history: History) -> list[Any]:
    return [history.parts, history.part_s, history.began_s]


def _histories(histories: Mapping[str, History]) -> dict[str, list[Any]]:
    return {name: _history(history) for name, history in histories.items()}


def _histories_of(values: Mapping[str, list[Any]]) -> dict[str, History]:
    return {name: History(*history) for name, history in values.items()}


def _doubt(doubt: Doubt) -> list[Any]:
    values = [getattr(doubt, name) for name in _DOUBT]
    return [*values, _histories(doubt.unheld)]


def _doubt_of(values: Sequence[Any]) -> Doubt:
    doubt = Doubt(*values[:-1])
    if values:
        doubt.unheld = _histories_of(values[-1])
    return doubt


def _learnt(learnt: LearntRate) -> list[Any]:
    values = [getattr(learnt, name) for name in _LEARNT]
    histories = [_history(learnt.history), _history(learnt.past), _histories(learnt.unheld)]
    return [*values, *histories, [learnt.trace.served, learnt.trace.refused]]


def _learnt_of(values: list[Any]) -> LearntRate:
    *plain, history, past, unheld, trace = values
    learnt = LearntRate(*plain)
    learnt.history, learnt.past = History(*history), History(*past)
    learnt.unheld, learnt.trace = _histories_of(unheld), Trace(*trace)
    return learnt


def _window(window: Window) -> list[Any]:
    return [getattr(window, name) for name in _WINDOW]


def _bucket_of(values: list[Any]) -> Bucket:
    """What earlier versions wrote has fewer values."""
    bucket = Bucket(*values[:20])
    if len(values) > 20:
        burst, window, bucket.windows_refuted_until_s, trial = values[20:24]
        if len(burst) == len(fields(Burst)):
            *plain, log, supports = burst
            bucket.burst = Burst(*plain)
            bucket.burst.log, bucket.burst.supports = History(*log), supports
        bucket.window = Window(*window) if window is not None else None
        bucket.trial = Trial(*trial)
        bucket.shared_since_s = values[24] if len(values) > 24 else None
        if len(values) > 26:
            bucket.last_seen_sent_s, bucket.usual_cost = values[25:27]
        if len(values) > 27 and (values := values[27]) is not None:
            most, length_s, end, *others = values
            bucket.stated_window = StatedWindow(most, length_s, ToldEnd(*end), *others)
    return bucket
