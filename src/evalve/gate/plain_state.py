"""A scope's state as plain values, for where it is stored; what earlier versions wrote is read too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from evalve.gate.booking import Holder, ScopeState
from evalve.gate.bucket import Bucket
from evalve.gate.doubt import Doubt
from evalve.gate.learnt_rate import LearntRate
from evalve.gate.period import Period
from evalve.gate.places import Line, ShownCeiling


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
        "doubt": astuple(state.doubt),
        "periods": {name: astuple(period) for name, period in state.periods.items()},
        "learnt": astuple(state.learnt) if state.learnt else None,
        "probing_from": state.probing_from_s,
        "ramp": state.ramp,
        "version": state.version,
        "ahead": state.ahead,
        "unlimited": state.unlimited,
        "begun": state.begun,
    }


def from_plain(plain: Mapping[str, Any]) -> ScopeState:
    return ScopeState(
        buckets={name: Bucket(*values) for name, values in plain["buckets"].items()},
        stated={name: (values[0], values[1]) for name, values in plain["stated"].items()},
        holders={name: Holder(*values) for name, values in plain["holders"].items()},
        line=Line.from_plain(plain.get("line", {})),  # rows from before there was one
        pause_until_s=plain["pause"][0],
        pause_reason=plain["pause"][1],
        penalised_at_s=plain["penalised"],
        concurrency=plain["concurrency"],
        shown_concurrency=ShownCeiling(*shown) if (shown := plain["shown_concurrency"]) else None,
        doubt=Doubt(*plain.get("doubt", ())),
        periods={name: Period(*values) for name, values in plain.get("periods", {}).items()},
        learnt=LearntRate(*learnt) if (learnt := plain.get("learnt")) else None,  # nor was there this
        probing_from_s=plain.get("probing_from"),
        ramp=tuple(plain["ramp"]) if plain["ramp"] else None,
        version=plain["version"],
        ahead=[(values[0], values[1], values[2]) for values in plain["ahead"]],
        unlimited=plain["unlimited"],
        begun=plain["begun"],
    )


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
    ]
