"""Which engine serves which evaluation."""

from __future__ import annotations

from evalve.concurrency import Sequential
from evalve.contracts import Engine, Runnable, Strategy
from evalve.engines.inline import InlineEngine
from evalve.engines.loop import LoopEngine
from evalve.engines.threads import ThreadEngine


def engine_for(evaluation: Runnable, strategy: Strategy) -> Engine:
    """An async function on the loop; a sync one where its fixtures were made, if it runs alone there."""
    if evaluation.is_async:
        return LoopEngine(evaluation.call)
    if isinstance(strategy, Sequential) and evaluation.options.timeout_s is None:
        return InlineEngine(evaluation.call)
    return ThreadEngine(evaluation.call)
