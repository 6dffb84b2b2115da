"""Which engine serves which evaluation."""

from __future__ import annotations

from evalve.concurrency import Sequential, workers_for
from evalve.contracts import Engine, Runnable, Strategy
from evalve.engines.inline import InlineEngine
from evalve.engines.loop import LoopEngine
from evalve.engines.threads import ThreadEngine


def engine_for(evaluation: Runnable, strategy: Strategy) -> Engine:
    """An async function on the loop; a sync one in processes where these are asked for.

    Otherwise it runs where its fixtures were made, if it runs alone there, and else in threads.
    """
    if evaluation.is_async:
        return LoopEngine(evaluation.call)
    workers = workers_for(evaluation.options)
    if workers is not None:
        from evalve.engines.processes import ProcessEngine  # a quarter of what evalve takes to load

        return ProcessEngine(evaluation, workers)
    if isinstance(strategy, Sequential) and evaluation.options.timeout_s is None:
        return InlineEngine(evaluation.call)
    return ThreadEngine(evaluation.call)
