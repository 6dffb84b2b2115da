"""A heavy tail whose durations are known from an earlier experiment, beside what no schedule can beat."""

from __future__ import annotations

from bench import tails
from bench.measuring import Figure, bound_s, in_order_s


def measure() -> list[Figure]:
    """One run against a bound that is computed; the run before it, all at once, is only there to learn."""
    durations_s = tails.durations_s()
    tails.evaluated(max_concurrency=tails.SAMPLES, experiment="learns")
    wall_s = tails.evaluated(max_concurrency=tails.WINDOW, order="auto", experiment="knows").report["wall_s"]
    least_s = bound_s(durations_s, tails.WINDOW)
    in_order = in_order_s(durations_s, tails.WINDOW)
    sorted_s = in_order_s(sorted(durations_s, reverse=True), tails.WINDOW)
    return [
        Figure("longest first, against max(longest, sum/window)", wall_s / least_s, target=1.10),
        Figure("longest first without overhead, against the same", sorted_s / least_s),
        Figure("dataset order without overhead, against the same", in_order / least_s),
        tails.told("max(longest, sum/window)", least_s),
    ]
