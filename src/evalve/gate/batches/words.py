"""A batch in words, for progress and for the command. Pure, but for the clock."""

from __future__ import annotations

import time

from evalve.gate.batches.store import BatchRow


def batch_in_words(batch: BatchRow | None, intent: str) -> str:
    if batch is None:
        return "a batch that is being gathered"
    since_s = time.time() - (batch.submitted_s or batch.created_s)
    held_up = f" ({batch.told[:80]})" if batch.told else ""
    if batch.state in ("intent", "sending"):
        return f"{intent}, which is being submitted{held_up}"
    return f"{batch.provider_id}, submitted {lasting(since_s)} ago{held_up}"


def lasting(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
