"""One attempt, from its first try to its record."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from evalve.clock import LOOP_CLOCK
from evalve.contracts import (
    SAMPLE,
    Answered,
    Engine,
    Host,
    InFlight,
    Lender,
    RunningSample,
    SampleContext,
    Tally,
)
from evalve.errors import LenderError, ProcessDied, SampleTimeout
from evalve.runner.alarm import Alarm
from evalve.runner.asking import asks_anew, recall
from evalve.runner.attempted import Attempted
from evalve.runner.commits import Commits
from evalve.runner.drafting import draft_of, draft_of_answer
from evalve.runner.failing import is_skip
from evalve.runner.leaving import AFTER_CANCEL_S, AFTER_DEADLINE_S, Leavable
from evalve.runner.loans import Loans
from evalve.runner.owning import own_values
from evalve.runner.plan import MOST_DEATHS, Attempt
from evalve.runner.retries import OF_MACHINE, STOP, InfrastructureRetries, RetryPolicy, Verdict
from evalve.runner.scoring import ScoreWriter
from evalve.runner.surroundings import AttemptSurroundings, RunSurroundings, WaitEnded
from evalve.runner.turns import Body, Ending, nothing
from evalve.traces import Trace

_OWN = ("code", "answer", "agent")
"""Classes of failures that say nothing about provider or machine."""


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """What holds for every attempt of one run."""

    experiment: str
    evaluation: str
    evaluation_key: str
    evaluation_id: int
    run_id: str
    timeout_s: float | None
    new_trace: Callable[[], Trace] | None
    """`None` where tracing is off."""
    account: Any
    """The gate's: cache mode, budget and totals of the run."""
    function: str = ""
    """What it is made of, as `asking.made_of` names it."""
    may_ask: bool = True
    """Whether a provider may be asked for what is not in the cache."""
    host: Host | None = None
    answered: Callable[[str, int], Awaitable[Answered | None]] | None = None
    """What an earlier run recorded of a sample that was answered and lacks scores; `None` where a function
    does more than to score answers."""


class SampleRunner:
    """Runs attempts of one evaluation and hands their records over."""

    def __init__(
        self,
        settings: SampleSettings,
        *,
        engine: Engine,
        lenders: Mapping[str, Lender],
        retries: RetryPolicy,
        commits: Commits,
        tally: Tally,
        in_flight: InFlight,
    ) -> None:
        self.first_start_s: float | None = None
        self.first_error: BaseException | None = None
        self.left_behind = 0
        """Samples whose function goes on, or would, although nobody waits for it any more."""
        self.tell: Callable[[str], None] = lambda text: None
        self.refused = 0
        """Samples that were not started, because processes have died of them."""
        self._has_said_alone = self._has_said_broken = self._has_said_answered = False
        self._settings = settings
        self._engine = engine
        self._lenders = lenders
        self._retries = retries
        self._infrastructure = InfrastructureRetries()
        self._commits = commits
        self._in_flight = in_flight
        self._tally = tally
        self._writer = ScoreWriter()
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm()
        self._run = RunSurroundings(tally, lends_slots=engine.lends_slots, in_flight=in_flight)

    async def run(self, body: Body) -> Ending:
        """Try, wait, try again; then record."""
        new_trace = self._settings.new_trace
        trace = None if new_trace is None else new_trace()
        attempt = Attempted(self._loop.time(), AttemptSurroundings(self._run, body), trace)
        if body.attempt.failed_calls_json is not None and self._settings.may_ask:
            recall(attempt.calls, body.attempt.failed_calls_json, self._settings.function)
        await self._begin_with_answer(body.attempt, attempt)
        if self.first_start_s is None:
            self.first_start_s = attempt.first_started_s
        key = body.attempt.sample.id, body.attempt.repeat
        running = RunningSample(*key, time.monotonic(), attempt.surroundings.waits_for)
        self._tally.running[id(body)] = running
        self._in_flight.begins(*key)
        if body.attempt.runs_alone and not self._has_said_alone:
            self._has_said_alone = True
            self.tell(
                f"{self._settings.evaluation}: an earlier process died while sample {key[0]!r} was under way:"
                " it runs after the others now, and alone, and so do those that were under way beside it"
            )
        try:
            if body.attempt.is_deadly:
                self._refuse(body.attempt, attempt)
            else:
                while (verdict := await self._try(body, attempt)).delay_s is not None:
                    if not await self._may_try_again(verdict.delay_s, verdict.reason, body, attempt):
                        break
        except BaseException:
            self._commits.call_back(attempt.surroundings.callbacks)
            raise
        finally:
            # or the task holds, in its context, what holds the task: garbage to collect for every sample
            SAMPLE.set(None)
            self._tally.running.pop(id(body), None)
        draft = draft_of(attempt, body.attempt, self._settings, now_s=self._loop.time())
        if draft.status == "failed":
            self._tally.own_failures += draft.failure_class in _OWN
            self.first_error = self.first_error or attempt.error
        self._in_flight.ended(*key)
        surroundings = attempt.surroundings
        is_awaited = body.attempt.lane is not None  # by those that follow it
        callbacks = surroundings.callbacks + surroundings.callbacks_of_record
        await self._commits.add(draft, callbacks, is_awaited=is_awaited)
        return "failed" if draft.status == "failed" else "done"

    async def _begin_with_answer(self, planned: Attempt, attempt: Attempted) -> None:
        """Where only scores are missing: begin with all that is recorded, the answer included."""
        settings = self._settings
        if not planned.is_answered or settings.answered is None:
            return
        earlier = await settings.answered(planned.sample.id, planned.repeat)
        if earlier is None:
            return
        attempt.answer, attempt.lent = earlier.answer, dict(earlier.lent)
        attempt.worked_before_s = earlier.working_s
        if attempt.trace is not None:
            attempt.trace.go_on_from(earlier.events, earlier.artefacts)
        if earlier.calls_json is not None:
            if settings.may_ask:
                recall(attempt.calls, earlier.calls_json, settings.function)
            attempt.calls.add_plain(json.loads(earlier.calls_json))
        if not self._has_said_answered:
            self._has_said_answered = True
            self.tell(
                f"{settings.evaluation}: samples that were answered before and lack a score are scored now,"
                " without being asked again"
            )

    async def _keep_answer(self, planned: Attempt, attempt: Attempted, context: SampleContext) -> None:
        """Before it is scored, which may take long: who kills the process then need not pay for it again."""
        attempt.answer = context.answer
        await self._commits.keep(draft_of_answer(attempt, planned, self._settings, now_s=self._loop.time()))

    def _refuse(self, planned: Attempt, attempt: Attempted) -> None:
        """It would end the process again, and nothing behind it would ever run."""
        said = (
            f"{MOST_DEATHS} processes have died while this sample ran: it may exit, crash, or take more"
            " memory than there is. So that the others run, it was not started again: mend it, or say"
            " --accept-changes or --fresh"
        )
        self.refused += 1
        attempt.begin_try(self._loop.time())
        attempt.fail(ProcessDied(said))
        self.tell(f"{self._settings.evaluation}, sample {planned.sample.id!r}: {said}")

    async def _may_try_again(self, delay_s: float, reason: str, body: Body, attempt: Attempted) -> bool:
        """Wait for the next try; false where the run stops first."""
        asked_again = attempt.error is None
        attempt.note_try(self._settings.run_id, asked_again=asked_again)
        if reason == OF_MACHINE and not self._has_said_broken:
            self._has_said_broken = True
            self.tell(
                f"{self._settings.evaluation}: sample {body.attempt.sample.id!r} is tried again, because it"
                f" may not be to blame (said once): {attempt.failure}"
            )
        if not attempt.keeps_answer:
            attempt.answer = None
        if not asks_anew(attempt):
            attempt.calls.ordinals.clear()  # the same questions again
        waits_from_s = self._loop.time()
        try:
            await attempt.surroundings.parked_between_tries(LOOP_CLOCK.sleep(delay_s), reason)
        except WaitEnded:
            if body.is_cancelling():
                raise
            _forget_cancellation()
            attempt.give_up()
            return False
        finally:
            attempt.waited_s += self._loop.time() - waits_from_s
        return True

    async def _try(self, body: Body, attempt: Attempted) -> Verdict:
        """Call the function once, with what it is lent, and see what follows.

        Every exception but a cancellation ends here: it is this sample's alone.
        """
        sample, settings = body.attempt.sample, self._settings
        attempt.begin_try(self._loop.time())
        context = SampleContext(
            settings.experiment,
            settings.evaluation,
            sample.id,
            body.attempt.repeat,
            attempt.tries,
            attempt.calls,
            self._tally,
            attempt.surroundings,
            attempt.trace,
            settings.account,
            evaluation_key=settings.evaluation_key,
            host=settings.host,
            answer=attempt.answer,
            lane=body.attempt.lane,
        )
        is_answered = attempt.answer is not None
        if is_answered and attempt.lent:
            context.lent = attempt.lent  # what the try noted that was answered
        if settings.answered is not None:
            context.keep = partial(self._keep_answer, body.attempt, attempt)
        SAMPLE.set(context)
        attempt.lent, attempt.lost_calls = context.lent, context.failed_calls
        if not self._lenders or is_answered:
            value = await self._called(body, attempt, context, own_values(sample.values))
            if attempt.status == "done" and not self._retries.reads_results:
                return STOP  # the usual case, without another coroutine
            return await self._judge(value, attempt)
        return await self._try_with_loans(body, attempt, context)

    async def _try_with_loans(self, body: Body, attempt: Attempted, context: SampleContext) -> Verdict:
        loans = Loans(self._lenders, context)
        error: BaseException | None = None
        verdict = STOP
        not_returned: LenderError | None = None
        try:
            value = None
            try:
                lent = await _taken(body, loans)
            except BaseException as not_lent:
                if not isinstance(not_lent, LenderError) and not is_skip(not_lent):
                    raise
                attempt.fail(not_lent)
            else:
                attempt.begin_call(self._loop.time())
                values = {**own_values(body.attempt.sample.values), **lent}
                value = await self._called(body, attempt, context, values)
            error = attempt.error
            verdict = await self._judge(value, attempt)
            context.ended = attempt.status if verdict.delay_s is None else "retried"
        except BaseException as raised:
            error = raised
            raise
        finally:
            not_returned = await loans.give_back(error)
        if not_returned is None:
            return verdict
        attempt.fail(not_returned)
        return await self._judge(None, attempt)

    async def _judge(self, value: Any, attempt: Attempted) -> Verdict:
        """Ask the retry policy. A predicate or callback of it that raises is this sample's failure too."""
        if not attempt.may_retry:
            return STOP
        failure = attempt.failure
        if failure is not None and failure.failure_class == "infrastructure":
            return self._infrastructure.after(attempt.error, attempt.infrastructure_failures)
        try:
            verdict = await self._retries.after(attempt.as_tried(value))
            if verdict.replaced:
                attempt.take(verdict.value, self._writer)
            return verdict
        except Exception as error:
            attempt.fail(error)
            return STOP

    async def _called(
        self, body: Body, attempt: Attempted, context: SampleContext, values: dict[str, Any]
    ) -> Any:
        value = None
        try:
            if self._settings.timeout_s is None:
                value = await self._engine.call(values, context)
            else:
                value = await self._within(self._settings.timeout_s, body, values, attempt, context)
            attempt.take(value, self._writer)
        except asyncio.CancelledError as error:
            if body.is_cancelling():
                raise
            attempt.fail(error)  # raised by the function itself, not asked for by us
            _forget_cancellation()
        except KeyboardInterrupt:
            if not body.is_stopping():
                raise
            raise asyncio.CancelledError from None  # the second Ctrl-C, in a function on this thread
        except GeneratorExit as error:
            if not _is_running(body):
                raise  # Python closes what is left of a loop that is gone
            attempt.fail(error)
        except BaseException as error:
            if self._alarm.has_raised(error):
                raise
            attempt.fail(error)
        attempt.end_call(self._loop.time())
        attempt.answer = context.answer
        if attempt.surroundings.wait_ended:
            raise WaitEnded  # whatever it made of that, it lacks what it waited for
        return value

    async def _within(
        self, timeout_s: float, body: Body, values: dict[str, Any], attempt: Attempted, context: SampleContext
    ) -> Any:
        """The same under a deadline, which counts the time that the attempt works."""
        left_before = self.left_behind
        try:
            async with asyncio.timeout(timeout_s - attempt.working_s) as deadline:
                with attempt.surroundings.under(deadline):
                    return await self._until_left(deadline, body, values, context)
        except TimeoutError:
            if not deadline.expired():
                raise
            attempt.may_retry = False
            said = f"ran for {timeout_s:g} s without an end (timeout_s={timeout_s:g})"
            if self._engine.leaves_behind:
                said += f"; {self._engine.leaves_behind}"
                self._say_left(context, said)
            elif self.left_behind > left_before:
                said += "; it did not end when it was cancelled, and was left behind"
            raise SampleTimeout(said) from None

    async def _until_left(
        self, deadline: asyncio.Timeout, body: Body, values: dict[str, Any], context: SampleContext
    ) -> Any:
        """What the engine makes of it. A coroutine that outlives its cancellation is left behind."""
        if not self._engine.may_block_loop:
            return await self._engine.call(values, context)
        call = Leavable(
            self._engine.call(values, context),
            lambda: AFTER_CANCEL_S if body.is_cancelling() else AFTER_DEADLINE_S,
        )
        body.expect_end = call.expect_end
        call.expect_end_after(deadline)
        try:
            return await call
        finally:
            body.expect_end = nothing
            if call.is_left:
                self._say_left(context, "it did not end when it was cancelled, and was left behind")

    def _say_left(self, context: SampleContext, text: str) -> None:
        self.left_behind += 1
        if self.left_behind == 1:
            self.tell(f"{context.evaluation}, sample {context.sample_id!r}: {text}")


async def _taken(body: Body, loans: Loans) -> dict[str, Any]:
    body.takes_loans = True
    try:
        return await loans.take()
    finally:
        body.takes_loans = False


def _forget_cancellation() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _is_running(body: Body) -> bool:
    try:
        return asyncio.current_task() is body.task
    except RuntimeError:
        return False
