"""What earlier samples took of their models, as means: what a plan of the next run starts from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evalve.contracts import all_roles, split_roles
from evalve.records import Record


@dataclass(frozen=True, slots=True)
class PastCalls:
    """Means over records. Per call, unless said otherwise; `None` is not known."""

    records: int
    calls_per_sample: float
    input_tokens: float | None
    """Read at full price."""
    output_tokens: float | None
    cache_read_tokens: float | None
    cache_write_tokens: float | None
    latency_s: float | None
    """A sample's time, waiting for limits left out, divided by its calls."""
    cost_usd: float | None


def past_calls(records: Iterable[Record], role: str = "") -> PastCalls | None:
    """The means over those records that called a model; `None` where none did.

    A call that evalve's own cache answered is a call of the sample, but says nothing about tokens and time.
    With a `role`, only the calls that were made in it.
    """
    made = [
        (record, calls) for record in records if record.calls and (calls := _calls_of(record.calls, role))
    ]
    if not made:
        return None
    answered = sum(_answered(calls) for _, calls in made)
    uncached = [(record.working_s, _answered(calls)) for record, calls in made if not calls["cached"]]
    timed = sum(count for _, count in uncached)

    def mean(name: str) -> float | None:
        return sum(calls[name] for _, calls in made) / answered if answered else None

    unpriced = any(calls["unpriced"] for _, calls in made)
    return PastCalls(
        records=len(made),
        calls_per_sample=sum(_answered(calls) + calls["cached"] for _, calls in made) / len(made),
        input_tokens=mean("input_tokens"),
        output_tokens=mean("output_tokens"),
        cache_read_tokens=mean("cache_read_tokens"),
        cache_write_tokens=mean("cache_write_tokens"),
        latency_s=sum(working_s for working_s, _ in uncached) / timed if timed else None,
        cost_usd=None if unpriced else mean("cost_usd"),
    )


def _calls_of(calls: Mapping[str, float], role: str) -> dict[str, float]:
    return split_roles(calls).get(role, {}) if role else all_roles(calls)


def _answered(calls: dict[str, float]) -> float:
    """Calls that the provider answered; `requests` counts every try."""
    return max(0.0, calls["requests"] - calls["retries"])
