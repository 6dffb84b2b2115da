"""`evalve limits`: what every provider's limits are now, what holds them up, and who uses them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from evalve.show import figures
from evalve.show.tables import Column, shortened, table, visible, width_of

STATED = "response headers"
"""The source of what nobody configured."""
SHOWN = "refusals"
"""The source of what nobody stated either."""
_INDENT = "  "
_LEAST_SHOWN_SHARE = 0.01
"""Of a limit: less than this by others is what rounding in headers looks like."""
_LEAST_SHOWN_S = 0.05


@dataclass(frozen=True, slots=True)
class LimitNow:
    """One limit of a scope, and its bucket."""

    dimension: str
    """`requests`, `input_tokens`, `output_tokens`, `tokens`."""
    per_minute: float
    source: str
    """Who said so: a variable, a file, a tier, or the answers themselves."""
    burst: float | None = None
    level: float | None = None
    """What is in the bucket, less than nothing where it is in debt; `None` where that is not known yet."""
    in_flight: float = 0.0
    """Booked by calls that are not settled."""
    others_per_minute: float = 0.0
    """Taken by other users of the key, as far as answers showed it."""
    next_in_s: float = 0.0
    """Until the bucket holds a unit that may be used."""


@dataclass(frozen=True, slots=True)
class HolderNow:
    """A process that has calls in flight."""

    who: str
    in_flight: int
    booked: Mapping[str, float] = field(default_factory=dict)
    """By dimension."""


@dataclass(frozen=True, slots=True)
class ScopeNow:
    """What one provider's host holds a key and a pool of models to."""

    scope: str
    host: str
    key_hash: str
    pool: str
    limits: Sequence[LimitNow] = ()
    in_flight: int = 0
    concurrency: int | None = None
    """Calls at once at most; `None` for no such limit."""
    paused_until_at: datetime | None = None
    paused_for_s: float = 0.0
    paused_by: str = ""
    ramp_share: float | None = None
    """Of its rates, used since a ramp refusal; `None` where all of them is."""
    unlimited: bool = False
    """Answers came, and stated no limit."""
    holders: Sequence[HolderNow] = ()


def limits_lines(scopes: Sequence[ScopeNow], *, path: str, width: int | None = None) -> list[str]:
    if not scopes:
        return [f"no limits yet: they appear with the first call to a model ({path})"]
    lines: list[str] = []
    for scope in scopes:
        lines += [*([""] if lines else []), *_scope_lines(scope, width)]
    return lines


def limits_json(scopes: Sequence[ScopeNow], *, path: str) -> str:
    return json.dumps({"path": path, "scopes": [_plain(scope) for scope in scopes]}, indent=2)


def forgotten_line(scope: str, in_flight: int) -> str:
    running = f"; {figures.plural(in_flight, 'call')} in flight not disturbed" if in_flight else ""
    return visible(f"forgot {scope}: its limits are learnt anew{running}")


# -- one scope


def _scope_lines(scope: ScopeNow, width: int | None) -> list[str]:
    key = "no key" if scope.key_hash == "none" else f"key {scope.key_hash}"
    notes = [*_sources(scope.limits), *_holding_up(scope), _in_flight(scope)]
    holders = [_holder(holder, width) for holder in scope.holders]
    return [
        visible(f"{scope.host} · {key} · {scope.pool}"),
        *(_table(scope.limits, width) if scope.limits else [f"{_INDENT}{_without_limits(scope)}"]),
        *(f"{_INDENT}{visible(note)}" for note in notes),
        *(f"{_INDENT}{_INDENT}{holder}" for holder in holders),
    ]


def _table(limits: Sequence[LimitNow], width: int | None) -> list[str]:
    others = any(_is_shared(limit) for limit in limits)
    titles = ["per minute", "burst", "free now", "in flight", *(["by others"] if others else [])]
    rows = [
        [
            _words(limit.dimension),
            f"{limit.per_minute:,.0f}",
            _amount(limit.burst),
            _amount(limit.level),
            _amount(limit.in_flight),
            *([f"{limit.others_per_minute:,.0f}" if _is_shared(limit) else "–"] if others else []),
        ]
        for limit in limits
    ]
    columns = [Column("limit"), *(Column(title, align="right") for title in titles)]
    return table(columns, rows, width=width, indent=_INDENT)


def _without_limits(scope: ScopeNow) -> str:
    if scope.unlimited:
        return "no limits: none is configured, and the answers state none"
    return "no limits yet: none is configured, and no answer has come"


def _sources(limits: Sequence[LimitNow]) -> list[str]:
    """One line where all limits come from the same place, else one for each place."""
    by_source: dict[str, list[str]] = {}
    for limit in limits:
        by_source.setdefault(limit.source, []).append(_words(limit.dimension))
    return [
        f"source{'' if len(by_source) == 1 else ' of ' + ', '.join(dimensions)}: {_said_by(source)}"
        for source, dimensions in by_source.items()
    ]


def _said_by(source: str) -> str:
    if source in ("", "configured"):
        return "configured"
    if source == SHOWN:
        return "learnt from refusals"
    return source if source == STATED else f"configured by {source}"


def _holding_up(scope: ScopeNow) -> list[str]:
    lines = []
    if scope.paused_until_at is not None:
        why = "" if scope.paused_by in ("", "refused") else f" ({_words(scope.paused_by)})"
        until = f"{scope.paused_until_at.astimezone():%H:%M:%S}"
        lines.append(f"paused until {until} (in {figures.duration(scope.paused_for_s)}) by a 429{why}")
    else:
        lines += [
            f"{_words(limit.dimension)}: next in {figures.duration(limit.next_in_s)}"
            for limit in scope.limits
            if limit.next_in_s > _LEAST_SHOWN_S
        ]
    if scope.ramp_share is not None:
        lines.append(f"{scope.ramp_share:.0%} of the rates, growing again after a refusal for speeding up")
    return lines


def _in_flight(scope: ScopeNow) -> str:
    most = "" if scope.concurrency is None else f" of at most {scope.concurrency}"
    return f"in flight: {figures.plural(scope.in_flight, 'call')}{most}"


def _holder(holder: HolderNow, width: int | None) -> str:
    who, holds = visible(holder.who), f": {figures.plural(holder.in_flight, 'call')}"
    if width is not None:
        who = shortened(who, max(20, width - width_of(_INDENT + _INDENT + holds)))
    return who + holds


# -- one figure


def _is_shared(limit: LimitNow) -> bool:
    return limit.others_per_minute > limit.per_minute * _LEAST_SHOWN_SHARE


def _words(dimension: str) -> str:
    return dimension.replace("_", " ")


def _share(limit: LimitNow) -> float | None:
    if limit.level is None or not limit.burst:
        return None
    return round(min(1.0, max(0.0, limit.level / limit.burst)), 3)


def _amount(number: float | None) -> str:
    """`33`, `9,500`, `33.3k`, `2M`; a small one with a decimal."""
    if number is None:
        return "–"
    size = abs(number)
    if size >= 999_950:
        return f"{number / 1e6:,.1f}".removesuffix(".0") + "M"
    if size >= 9_999.5:
        return f"{number / 1e3:.1f}".removesuffix(".0") + "k"
    text = f"{number:,.1f}".removesuffix(".0") if size < 10 else f"{number:,.0f}"
    return "0" if text == "-0" else text


def _plain(scope: ScopeNow) -> dict[str, Any]:
    paused_until_at = scope.paused_until_at
    return {
        **asdict(scope),
        "limits": [{**asdict(limit), "full_share": _share(limit)} for limit in scope.limits],
        "paused_until_at": None if paused_until_at is None else paused_until_at.isoformat(),
    }
