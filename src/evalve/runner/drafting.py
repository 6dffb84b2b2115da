"""What is recorded of an attempt: its record when it has ended, and before that its answer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Protocol

from evalve.contracts import CallLog, RecordDraft
from evalve.jsontext import to_json
from evalve.runner.asking import noted
from evalve.runner.attempted import Attempted
from evalve.runner.plan import Attempt


class OfRun(Protocol):
    """What a record says about the run that it is of."""

    @property
    def evaluation_id(self) -> int: ...
    @property
    def run_id(self) -> str: ...
    @property
    def function(self) -> str: ...


def draft_of(attempt: Attempted, planned: Attempt, run: OfRun, *, now_s: float) -> RecordDraft:
    """The record of an attempt that has ended."""
    scored, failure = attempt.scored, attempt.failure
    response = scored.response if scored is not None else None
    if attempt.status == "failed" and attempt.keeps_answer:
        response = attempt.answer
    history = None
    if attempt.history or failure is not None:
        if attempt.try_is_open:
            attempt.note_try(run.run_id)
        history = to_json([asdict(one) for one in attempt.history])
    return RecordDraft(
        evaluation_id=run.evaluation_id,
        sample=planned.sample,
        repeat=planned.repeat,
        status=attempt.status,
        scores_json=attempt.scores_json,
        failure_json=None if scored is not None or failure is None else to_json(asdict(failure)),
        prompt_json=None if scored is None or scored.prompt is None else to_json(scored.prompt),
        response_json=None if response is None else to_json(response),
        started_at=attempt.started_at,
        wall_s=now_s - attempt.first_started_s,
        working_s=attempt.working_s + attempt.worked_before_s,
        tries=attempt.tries,
        history_json=history,
        run_id=run.run_id,
        calls_json=_calls_json(attempt.calls, noted(attempt, run.function)),
        failure_class=failure.failure_class if failure is not None and attempt.status == "failed" else None,
        lent_json=to_json(attempt.lent) if attempt.lent else None,
        trace_json=None if attempt.trace is None else attempt.trace.to_json(),
        artefacts=() if attempt.trace is None else attempt.trace.artefacts,
    )


def draft_of_answer(attempt: Attempted, planned: Attempt, run: OfRun, *, now_s: float) -> RecordDraft:
    """What there is while the answer is scored. Its try goes on, so none is counted."""
    return RecordDraft(
        evaluation_id=run.evaluation_id,
        sample=planned.sample,
        repeat=planned.repeat,
        status="answered",
        scores_json="[]",
        failure_json=None,
        prompt_json=None,
        response_json=to_json(attempt.answer),
        started_at=attempt.started_at,
        wall_s=now_s - attempt.first_started_s,
        working_s=attempt.worked_s(now_s) + attempt.worked_before_s,
        tries=0,
        history_json=None,
        run_id=run.run_id,
        calls_json=_calls_json(attempt.calls, {}),
        lent_json=to_json(attempt.lent) if attempt.lent else None,
        trace_json=None if attempt.trace is None else attempt.trace.to_json(),
        artefacts=() if attempt.trace is None else attempt.trace.artefacts,
    )


def _calls_json(calls: CallLog, asked: dict[str, Any]) -> str | None:
    return to_json(calls.to_plain() | asked) if calls.made_any else None
