"""Tells the store how far a run is, about once a second, so that other processes can follow it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from evalve.clock import utc_text
from evalve.contracts import LiveProgress, RunInfo, RunningStore, Tally

EVERY_S = 1.0
FIRST_S = 0.1
"""A run that is over sooner has told everything by its end."""


@contextmanager
def telling_progress(store: RunningStore, run: RunInfo, tally: Tally) -> Iterator[None]:
    """Soon, and from then on as long as the block lasts. Telling only queues: it keeps nobody waiting."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def tell() -> None:
        nonlocal timer
        store.tell_progress(as_progress(run, tally))
        timer = loop.call_later(EVERY_S, tell)

    timer = loop.call_later(FIRST_S, tell)
    try:
        yield
    finally:
        timer.cancel()


def as_progress(run: RunInfo, tally: Tally) -> LiveProgress:
    return LiveProgress(
        run_id=run.id,
        evaluation_id=run.evaluation_id,
        evaluation=tally.evaluation,
        started_at=run.started_at,
        updated_at=utc_text(time.time()),
        total=tally.total,
        before=tally.skipped,
        done=tally.done,
        failed=tally.failed,
        skipped=tally.skipped_now,
        in_flight=tally.in_flight,
        limit=tally.limit,
        waiting={reason: count for reason, count in tally.waiting.items() if count},
        held_by=tally.held_by(),
        spent=tally.spent(),
        stopping=tally.stopping,
        failures=dict(tally.failures),
    )


def agents_in_words(tally: Tally) -> str:
    """`3 agents are running, the longest for 12 min`; empty where none is. One that starts counts, too."""
    now_s = time.monotonic()
    ran_s = [now_s - (agent.started_s or now_s) for agent in list(tally.agents.values())]
    if not ran_s:
        return ""
    longest = f"{max(ran_s):.0f} s" if max(ran_s) < 60 else f"{max(ran_s) / 60:.0f} min"
    if len(ran_s) == 1:
        return f"1 agent has been running for {longest}"
    return f"{len(ran_s)} agents are running, the longest for {longest}"
