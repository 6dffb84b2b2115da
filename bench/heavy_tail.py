"""A heavy tail in dataset order, beside the same schedule without overhead."""

from __future__ import annotations

from bench import tails
from bench.measuring import Figure, in_order_s


def measure() -> list[Figure]:
    """One run against a simulation."""
    wall_s = tails.evaluated(max_concurrency=tails.WINDOW, order="dataset").report["wall_s"]
    ideal_s = in_order_s(tails.durations_s(), tails.WINDOW)
    return [
        Figure("first start to last record, against the in-order schedule", wall_s / ideal_s, target=1.05),
        tails.told("in-order schedule without overhead", ideal_s),
    ]
