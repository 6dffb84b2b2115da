"""What a person is told about the batches of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalve.gate.batches.runs import RunBatches


def holding_in_words(name: str, lenders: Mapping[str, Any]) -> str:
    """Samples that are parked keep what they were lent."""
    held = [
        argument if (size := settings_of(lender).get("size")) is None else f"{argument} ({size} at once)"
        for argument, lender in lenders.items()
    ]
    return (
        f"{name}: its samples keep {', '.join(held)} while they wait for a batch, so a batch has at most as"
        " many of them as there are to lend"
    )


def settings_of(lender: Any) -> Mapping[str, Any]:
    found = getattr(lender, "settings", None)
    return found if isinstance(found, Mapping) else {}


def left_in_words(batches: RunBatches) -> Iterator[str]:
    """When a run ends: what goes on without it, and what it found out."""
    if batches.changed > 1:
        yield f"{batches.changed} samples are non-deterministic: replayed, they asked for something else"
    for batch in batches.open_batches():
        if batch.state in ("submitted", "ended"):
            where, what = f"{batch.provider_id} goes on at the provider", "come back to it"
        else:
            where, what = "it is not submitted yet", "submit it"
        yield (
            f"batch {batch.intent} with {batch.count:,} requests: {where}. Run the same command again to"
            f" {what} (nothing is paid for twice), or `evalve batch wait {batch.intent}`"
        )
