"""One attempt, from its first try to its record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from evalve.contracts import SAMPLE, CallLog, RecordDraft, SampleContext, Store, Tally
from evalve.errors import EvalveError, SampleTimeout
from evalve.jsontext import to_json
from evalve.runner.attempted import Attempted
from evalve.runner.calling import Call
from evalve.runner.retries import STOP, RetryPolicy, Tried, Verdict
from evalve.runner.scoring import ScoreWriter
from evalve.runner.turns import Body, Ending, Turns

MOST_UNCOMMITTED = 1000
"""A body waits for the store before it ends its turn where more records than this are on their way."""


class SampleRunner:
    """Runs attempts of one evaluation and hands their records to the store."""

    def __init__(
        self,
        *,
        experiment: str,
        evaluation: str,
        evaluation_id: int,
        run_id: str,
        call: Call,
        retries: RetryPolicy,
        timeout_s: float | None,
        store: Store,
        tally: Tally,
    ) -> None:
        self.turns: Turns | None = None
        self.first_start_s: float | None = None
        self.last_commit_s: float | None = None
        self._experiment = experiment
        self._evaluation = evaluation
        self._evaluation_id = evaluation_id
        self._run_id = run_id
        self._call = call
        self._retries = retries
        self._timeout_s = timeout_s
        self._store = store
        self._tally = tally
        self._writer = ScoreWriter()
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()

    async def run(self, body: Body) -> Ending:
        """Try, wait, try again; then record."""
        attempt = Attempted(self._loop.time())
        if self.first_start_s is None:
            self.first_start_s = attempt.first_started_s
        while True:
            tried = await self._try(body, attempt)
            verdict = await self._judge(tried, attempt)
            if verdict.delay_s is None:
                break
            attempt.scored = None
            attempt.note_try(self._run_id, asked_again=tried.error is None)
            if tried.error is not None:
                attempt.calls.ordinals.clear()  # the same questions again; a result asks for new answers
            waits_from_s = self._loop.time()
            goes_on = await self._turns.wait(body, verdict.delay_s, "retry")
            attempt.waited_s += self._loop.time() - waits_from_s
            if not goes_on:
                attempt.give_up()
                break
        draft = self._draft(body, attempt)
        await self._record(draft)
        return draft.status

    async def _judge(self, tried: Tried, attempt: Attempted) -> Verdict:
        """Ask the retry policy. A predicate or callback of it that raises is this sample's failure too."""
        if not attempt.may_retry:
            return STOP
        try:
            verdict = await self._retries.after(tried)
            if verdict.replaced:
                attempt.take(verdict.value)
            return verdict
        except Exception as error:
            attempt.fail(error)
            return STOP

    @property
    def _turns(self) -> Turns:
        assert self.turns is not None
        return self.turns

    async def _try(self, body: Body, attempt: Attempted) -> Tried:
        """Call the function once. Every exception but a cancellation ends here: it is this sample's alone."""
        sample = body.attempt.sample
        attempt.begin_try(self._loop.time())
        SAMPLE.set(
            SampleContext(
                self._experiment,
                self._evaluation,
                sample.id,
                body.attempt.repeat,
                attempt.tries,
                attempt.calls,
                self._tally,
                self._stop_run,
            )
        )
        value = None
        try:
            value = await self._called(sample.values, attempt)
            attempt.take(value)
        except asyncio.CancelledError as error:
            if self._turns.is_cancelling():
                raise
            _forget_cancellation()
            attempt.fail(error)  # raised by the function itself, not asked for by us
        except KeyboardInterrupt:
            if not self._turns.stopping:
                raise
            raise asyncio.CancelledError from None  # the second Ctrl-C, in a function on this thread
        except GeneratorExit as error:
            if not _is_running(body):
                raise  # Python closes what is left of a loop that is gone
            attempt.fail(error)
        except BaseException as error:
            attempt.fail(error)
        attempt.end_try(self._loop.time())
        return attempt.as_tried(value)

    async def _called(self, values: dict[str, Any], attempt: Attempted) -> Any:
        if self._timeout_s is None:
            return await self._call(values)
        left_s = self._timeout_s - attempt.working_s
        try:
            async with asyncio.timeout(left_s) as deadline:
                return await self._call(values)
        except TimeoutError:
            if not deadline.expired():
                raise
            attempt.may_retry = False
            raise SampleTimeout(
                f"ran for {self._timeout_s:g} s without an end (timeout_s={self._timeout_s:g})"
            ) from None

    def _draft(self, body: Body, attempt: Attempted) -> RecordDraft:
        scores_json = self._scores_json(attempt)
        scored, failure = attempt.scored, attempt.failure
        history = None
        if attempt.history or failure is not None:
            if attempt.try_is_open:
                attempt.note_try(self._run_id)
            history = to_json([asdict(one) for one in attempt.history])
        return RecordDraft(
            evaluation_id=self._evaluation_id,
            sample=body.attempt.sample,
            repeat=body.attempt.repeat,
            status="done" if scored is not None else "failed",
            scores_json=scores_json,
            failure_json=None if scored is not None or failure is None else to_json(asdict(failure)),
            prompt_json=None if scored is None or scored.prompt is None else to_json(scored.prompt),
            response_json=None if scored is None or scored.response is None else to_json(scored.response),
            started_at=attempt.started_at,
            wall_s=self._loop.time() - attempt.first_started_s,
            working_s=attempt.working_s,
            tries=attempt.tries,
            history_json=history,
            run_id=self._run_id,
            calls_json=_calls_json(attempt.calls),
        )

    def _scores_json(self, attempt: Attempted) -> str:
        if attempt.scored is None:
            return "[]"
        try:
            return self._writer.to_json(attempt.scored.scores)
        except EvalveError as error:  # a score names a metric that does not exist
            attempt.fail(error)
            return "[]"

    def _stop_run(self, reason: str) -> None:
        """Any thread may ask for it: no further call can succeed."""
        self._loop.call_soon_threadsafe(self._turns.stop, reason)

    async def _record(self, draft: RecordDraft) -> None:
        turns = self._turns
        turns.will_commit()
        self._store.add(draft, self)
        while turns.uncommitted() > MOST_UNCOMMITTED:
            self._room.clear()
            await self._room.wait()

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        """Called by the store on its own thread, once per transaction."""
        self._loop.call_soon_threadsafe(self._count, drafts, error)

    def _count(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        if error is None:
            failed = sum(draft.status == "failed" for draft in drafts)
            self._tally.failed += failed
            self._tally.done += len(drafts) - failed
            self.last_commit_s = self._loop.time()
        else:
            self._turns.fail(error)
        self._turns.committed(len(drafts))
        self._room.set()


def _forget_cancellation() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _calls_json(calls: CallLog) -> str | None:
    if not calls.requests and not calls.cached:
        return None
    plain = asdict(calls)
    del plain["ordinals"]
    return to_json(plain)


def _is_running(body: Body) -> bool:
    try:
        return asyncio.current_task() is body.task
    except RuntimeError:
        return False
