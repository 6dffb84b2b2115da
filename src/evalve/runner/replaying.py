"""Lanes that run again from their first attempt: what their attempts left to each other was lost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from evalve.clock import utc_text
from evalve.contracts import RecordDraft, RunInfo
from evalve.jsontext import to_json
from evalve.records import Failure
from evalve.runner.plan import Attempt


def replay_in_words(evaluation: str, run_again: int) -> str:
    samples = "1 recorded sample runs" if run_again == 1 else f"{run_again} recorded samples run"
    return (
        f"{evaluation}: {samples} again, with the rest of a lane that was not recorded to its end: what"
        " samples of a lane left to each other was lost with the earlier run (the cache answers their calls)"
    )


def outdated_drafts(attempts: Sequence[Attempt], run: RunInfo) -> Iterator[RecordDraft]:
    """In place of what was recorded after an attempt that is missing: it was made in another state.

    Should this run be interrupted before it comes to them, the next one begins their lane again.
    """
    failure = Failure(
        kind="OutdatedInLane",
        message="a sample before this one, in its lane, runs again; this one was not reached yet",
        failure_class="infrastructure",
    )
    for attempt in attempts:
        yield RecordDraft(
            evaluation_id=run.evaluation_id,
            sample=attempt.sample,
            repeat=attempt.repeat,
            status="failed",
            scores_json="[]",
            failure_json=to_json(asdict(failure)),
            prompt_json=None,
            response_json=None,
            started_at=utc_text(time.time()),
            wall_s=0.0,
            working_s=0.0,
            tries=0,
            history_json=None,
            run_id=run.id,
            failure_class="infrastructure",
        )
