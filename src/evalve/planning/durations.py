"""How long the agents of an experiment take in one order or another. Pure arithmetic."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalve.experiments.ordering import Order
from evalve.show.figures import duration
from evalve.show.tables import Column, table


@dataclass(frozen=True, slots=True)
class AgentTime:
    """What an agent takes alone."""

    name: str
    alone_s: float | None
    """`None` where nothing tells."""
    limited_s: Mapping[str, float] = field(default_factory=dict)
    """How long its calls take by each limit that it shares with others, if nothing else held them."""


def work_off(lengths: Iterable[float], at_once: int) -> float:
    """How long lanes of these lengths take, so many at a time, in the given order."""
    workers = [0.0] * max(1, at_once)
    for length in lengths:
        heapq.heapreplace(workers, workers[0] + length)
    return max(workers)


def order_s(order: Order, times: Mapping[str, AgentTime]) -> float | None:
    """Phases add up. In a phase agents run beside each other, and wait for each other at a shared limit."""
    total_s = 0.0
    for phase in order.phases:
        own = [times[name] for name in phase]
        alone = [one.alone_s for one in own if one.alone_s is not None]
        if len(alone) < len(own):
            return None
        together: dict[str, float] = {}
        for one in own:
            for scope, limited_s in one.limited_s.items():
                together[scope] = together.get(scope, 0.0) + limited_s
        total_s += max(work_off(alone, order.at_once or len(phase)), *together.values(), 0.0)
    return total_s


@dataclass(frozen=True, slots=True)
class NamedOrder:
    """An order in words, with how long it takes."""

    name: str
    order: Order
    duration_s: float | None


def orders_of(
    times: Sequence[AgentTime], declared: Order, *, has_phases: bool, in_lanes: Sequence[str]
) -> list[NamedOrder]:
    """One by one, in phases, all at once. Where no phases are said, those in lanes come after the others."""
    names = tuple(one.name for one in times)
    by_name = {one.name: one for one in times}
    phases = declared.phases
    if not has_phases:
        split = (tuple(n for n in names if n not in in_lanes), tuple(n for n in names if n in in_lanes))
        phases = tuple(phase for phase in split if phase)
    orders = [("one by one", Order((names,), 1))]
    if len(phases) > 1:
        words = "; ".join(", ".join(phase) for phase in phases)
        orders.append((f"phases: {words}", Order(phases, declared.at_once if has_phases else None)))
    if declared.at_once not in (None, 1) and declared.at_once < len(names):
        orders.append((f"{declared.at_once} at a time", Order((names,), declared.at_once)))
    orders.append(("all at once", Order((names,))))
    return [NamedOrder(name, order, order_s(order, by_name)) for name, order in orders]


def order_lines(
    orders: Sequence[NamedOrder], times: Sequence[AgentTime], calls: Mapping[str, int]
) -> Iterator[str]:
    """Calls and duration of each agent alone, then the duration of all in each order."""
    agents = [Column("agent"), Column("calls", align="right"), Column("alone", align="right")]
    yield from table(agents, [[one.name, f"{calls[one.name]:,}", _about(one.alone_s)] for one in times])
    yield ""
    columns = [Column("order", flexible=True, minimum=20), Column("duration", align="right")]
    yield from table(columns, [[one.name, _about(one.duration_s)] for one in orders])
    if any(one.duration_s is None for one in orders):
        yield "Durations come from records, or from --latency-s: run some (--samples 5), or say it."


def _about(takes_s: float | None) -> str:
    return "not known" if takes_s is None else duration(takes_s)


def orders_plain(orders: Sequence[NamedOrder]) -> list[dict[str, Any]]:
    return [
        {
            "order": one.name,
            "phases": [list(phase) for phase in one.order.phases],
            "models_at_once": one.order.at_once,
            "duration_s": one.duration_s,
        }
        for one in orders
    ]
