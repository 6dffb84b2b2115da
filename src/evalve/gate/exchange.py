"""Every call to a provider, layer by layer: cache → single flight → retries → budget → limits → sender.

In batch mode a call that the cache does not have waits for its batch instead of going on by itself.

A whole answer is a stream that was read to its end, so there is one path: `Gate.exchange` reads it all at
once, `Gate.stream` passes it on while it arrives. Both run on the caller's loop; what they share is the
process's, and any thread and loop may use it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TypeVar

from evalve.clock import LOOP_CLOCK, Clock
from evalve.contracts import (
    SAMPLE,
    WAITS_FOR_BATCH,
    WAITS_FOR_BUDGET,
    WAITS_FOR_EQUAL_CALL,
    WAITS_FOR_LIMITS,
    SampleContext,
)
from evalve.errors import LocalUnavailable, MissingKey
from evalve.gate.accounts import REFUSALS_OF_A_KEY, Account
from evalve.gate.batches.calling import BatchedCall, asked_by
from evalve.gate.batches.shapes import PRICE_SHARE
from evalve.gate.budget import NOTHING, Ahead, BudgetSpent
from evalve.gate.cache.cache import CacheTurn, ResponseCache, replayed
from evalve.gate.cache.key import content_key, numbered_key
from evalve.gate.estimates import Estimates
from evalve.gate.limits.limiter import Limiter, Permit
from evalve.gate.limits.state import Refusal
from evalve.gate.live_stream import LiveStream
from evalve.gate.messages import (
    Call,
    Cost,
    Dialect,
    Problem,
    Reply,
    Request,
    Sender,
    SendError,
    StreamedReply,
    Usage,
    Withheld,
)
from evalve.gate.metering import Meter
from evalve.gate.opening import opening_of
from evalve.gate.outcomes import Outcome
from evalve.gate.retry import Retries, RetryState
from evalve.gate.spending import Spending
from evalve.gate.ungated import Ungated

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

UNSTATED_RETRY_AFTER_S = 1.0
"""A refusal that does not say when to come back."""
LONGEST_RETRY_AFTER_S = 300.0
"""However long a refusal asks to wait, one call tries again after this."""

FAILS_AGAIN_S = 60.0
"""For so long a final failure answers equal requests of the same try: clients that do not obey
`x-should-retry` sent 18 requests where 6 are meant. One who asks later may hope for something new."""

WAITS_FOR_RECOVERY = "the provider to recover"


class Gate:
    """The one place that every call passes."""

    def __init__(
        self,
        *,
        read: Callable[[Request], tuple[Dialect, Call] | None],
        cache: ResponseCache,
        retries: Retries,
        limiter: Limiter,
        estimates: Estimates,
        meter: Meter,
        account: Callable[[], Account],
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        """`account` is whose a call is that belongs to no sample of a run."""
        self._read = read
        self.cache = cache
        self.retries = retries
        self.limiter = limiter
        self.estimates = estimates
        self.meter = meter
        self.spending = Spending(estimates, meter)
        self.clock = clock
        self._account = account
        self._ungated = Ungated()
        self._told_of_long_waits: set[str] = set()

    def passed_by(self, url: str, *, is_past_gateway: bool = False) -> None:
        """A call goes past, mostly because no dialect reads it: count it, and tell of its host once."""
        sample = SAMPLE.get()
        account: Account | None = sample.account if sample is not None else None
        self.meter.ungated(account or self._account(), sample)
        self._ungated.tell(url, is_past_gateway=is_past_gateway)

    def tell_of_long_wait(self, host: str, asked_s: float) -> None:
        """Once for each host."""
        if host not in self._told_of_long_waits:
            self._told_of_long_waits.add(host)
            _LOG.warning(
                "%s refuses calls and asks to wait %.0f s; one call tries again every %.0f s, the others wait"
                " for it",
                host,
                asked_s,
                LONGEST_RETRY_AFTER_S,
            )

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        """The final answer, whatever its status; `SendError` where there is finally none."""
        exchange = self._begun(request, sender, is_whole=True)
        if exchange is None:
            return await sender.send(request)  # not a call to a model: none of our business
        async with exchange as outcome:
            return outcome.final()

    @asynccontextmanager
    async def stream(self, request: Request, sender: Sender) -> AsyncIterator[StreamedReply]:
        """Like `exchange`, with the body passed on as it arrives; its end is withheld until it is kept."""
        exchange = self._begun(request, sender, is_whole=False)
        if exchange is None:
            async with sender.stream(request) as passed:
                yield passed
            return
        async with exchange as outcome:
            yield exchange.as_it_comes(outcome)

    def _begun(self, request: Request, sender: Sender, *, is_whole: bool) -> Exchange | None:
        understood = self._read(request)
        if understood is None:
            return None
        dialect, call = understood
        sample = SAMPLE.get()
        account: Account | None = sample.account if sample is not None else None
        return Exchange(self, request, call, dialect, sender, sample, account or self._account(), is_whole)


class Exchange:
    """One request on its way through the layers. Entered, it gives the outcome; left, it holds nothing."""

    __slots__ = (
        "_account",
        "_ahead",
        "_began_s",
        "_call",
        "_dialect",
        "_gate",
        "_group",
        "_is_whole",
        "_permit",
        "_request",
        "_sample",
        "_sender",
        "_started_s",
        "_stream",
        "_tries",
        "_turn",
    )

    def __init__(
        self,
        gate: Gate,
        request: Request,
        call: Call,
        dialect: Dialect,
        sender: Sender,
        sample: SampleContext | None,
        account: Account,
        is_whole: bool,
    ) -> None:
        self._gate = gate
        self._request = request
        self._call = call
        self._dialect = dialect
        self._sender = sender
        self._sample = sample
        self._account = account
        self._is_whole = is_whole
        self._group = sample.evaluation if sample is not None else ""
        """Whose turn it is when evaluations compete."""
        self._turn: CacheTurn | None = None
        self._tries: RetryState | None = None
        self._permit: Permit | None = None
        """Of the try under way, until it is settled."""
        self._ahead = NOTHING
        """What is set aside of the budget, for the same."""
        self._stream: LiveStream | None = None
        """One that goes on."""
        self._started_s = self._began_s = 0.0
        """For the trace: as a date, and by the clock."""

    async def __aenter__(self) -> Outcome:
        sample = self._sample
        if sample is not None and sample.trace is not None:
            self._started_s, self._began_s = time.time(), self._gate.clock.now_s()
        try:
            outcome = self._failed_just_now() or await self._answer_of_sample()
        except BaseException as error:
            await self._left()
            if isinstance(error, SendError | MissingKey | LocalUnavailable):
                self._trace(problem=str(error))
            raise
        if outcome.stream is None:
            self._remember_failure(outcome)
            self._trace_outcome(outcome)
        return outcome

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._left()

    async def _left(self) -> None:
        """Give back whatever is still held: the stream, its booking, the circuit's leave, the flight."""
        try:
            if self._stream is not None:
                await self._stream.leave()
        finally:
            if self._tries is not None:
                self._tries.end()
            if self._turn is not None:
                self._turn.end()
            # they refer to this exchange: circles would be left to the garbage collector
            self._turn = self._stream = None

    # -- a client that asks again although it was told not to

    def _failed_just_now(self) -> Outcome | None:
        """The final failure of an equal request of this try, which the gate has repeated often enough."""
        if self._sample is None or not self._sample.failed_calls:
            return None
        failed_s, outcome = self._sample.failed_calls.get(self._identity(), (0.0, None))
        if outcome is None or self._gate.clock.now_s() - failed_s > FAILS_AGAIN_S:
            return None
        return Outcome(outcome.reply, error=outcome.error, problem=outcome.problem)

    def _remember_failure(self, outcome: Outcome) -> None:
        if self._sample is not None and outcome.problem is not None:
            now_s = self._gate.clock.now_s()
            self._sample.failed_calls.setdefault(self._identity(), (now_s, outcome))

    def _identity(self) -> tuple[str, bytes]:
        return self._request.url, hashlib.sha256(self._request.body).digest()

    # -- the layers, from the outermost to the sender

    async def _answer_of_sample(self) -> Outcome:
        """A call until its answer comes. Reading a stream is the sample's own work, at its own pace."""
        surroundings = None if self._sample is None else self._sample.surroundings
        if surroundings is None:
            return await self._from_cache()
        surroundings.call_begins()
        try:
            return await self._from_cache()
        finally:
            surroundings.call_ends()

    async def _from_cache(self) -> Outcome:
        key = self._key()
        if key is None:
            return await self._with_retries()
        turn = self._gate.cache.turn(key, self._account, is_answer=self._is_answer, park=self._for_equal_call)
        self._turn = turn
        cached = await turn.__aenter__()
        batched = self._in_batches(key)
        if cached is not None:
            paid = batched.found(cached) if batched is not None else None
            if paid is None:
                self._gate.meter.hit(self._account, self._sample)
            return paid or Outcome(cached)
        if batched is not None and batched.may_wait():
            outcome = await self._in_batch(batched, turn)
            if outcome is not None:
                return outcome
        return await self._with_retries()

    def _in_batches(self, key: str) -> BatchedCall | None:
        """The call as one of those that wait for each other; `None` where each goes by itself."""
        batches, sample, gate = self._account.batches, self._sample, self._gate
        if batches is None or sample is None:
            return None
        asked = asked_by(sample, key, self._request, self._call, self._dialect)
        return BatchedCall(asked, batches, sample, self._account, gate.meter, gate.estimates)

    async def _in_batch(self, batched: BatchedCall, turn: CacheTurn) -> Outcome | None:
        """What a batch gives; `None` where the call is to be made by itself after all.

        The sample is parked for as long as it takes. The answer is in the cache before we hear of it.
        """
        await self._reserve(PRICE_SHARE)
        try:
            came = await self._parked(batched.delivered(), WAITS_FOR_BATCH)
            return batched.outcome(came, turn.look_again() if came.fate == "answer" else None)
        finally:
            self._account.budget.release(self._ahead)
            self._ahead = NOTHING

    async def _with_retries(self) -> Outcome:
        """Until a piece of it was passed on, a stream is tried again like a whole answer."""
        tries = self._tries = self._gate.retries.begin(self._call.host)
        while True:
            if not tries.may_send_now():
                await self._parked(tries.may_send(), WAITS_FOR_RECOVERY)
            outcome = await self._once()
            tries.note(outcome.problem)
            if outcome.problem is None or not await self._tries_again(tries, outcome.problem):
                return outcome

    async def _once(self) -> Outcome:
        """One try within the budget and the limits: what came, and what was wrong with it."""
        await self._reserve()
        await self._admit()
        try:
            came = await self._opened()
        except SendError as error:
            return await self._unanswered(error)
        except (MissingKey, LocalUnavailable):
            await self._not_sent()
            raise
        except BaseException:
            # cancelled while the provider may be working: what was booked stays spent
            await self._settle(None, is_unknown=True)
            raise
        return await self._answered(came) if isinstance(came, Reply) else Outcome(stream=came)

    async def _opened(self) -> Reply | LiveStream:
        """What the sender gives: a whole reply, or a stream of which a first piece can be passed on.

        The one place that tells the two apart: a sender reads a whole reply cheaper than a stream.
        """
        if self._is_whole:
            return await self._sender.send(self._request)
        opened = AsyncExitStack()
        try:
            live = await opened.enter_async_context(self._sender.stream(self._request))
            begins = partial(self._dialect.begins, self._call)
            opening = await opening_of(live, begins, self._dialect.ends)
        except BaseException:
            await opened.aclose()
            raise
        if opening.is_over:
            await opened.aclose()
            return opening.so_far()
        self._stream = LiveStream(opened, opening, self, self._gate.clock)
        return self._stream

    # -- a stream that goes on

    def as_it_comes(self, outcome: Outcome) -> StreamedReply:
        if outcome.stream is not None:
            return outcome.stream.reply()
        reply = outcome.final()
        chunks = replayed(reply.body) if reply.cached else _one_chunk(reply.body)
        return StreamedReply(reply.status, reply.headers, chunks, cached=reply.cached, problem=reply.problem)

    @property
    def is_booked(self) -> bool:
        return self._permit is not None

    async def stream_ended(self, whole: Reply) -> Outcome:
        outcome = await self._answered(whole)
        self._trace_outcome(outcome)
        return outcome

    async def stream_broke_off(self, live: StreamedReply, so_far: Reply, why: str) -> None:
        await self._settle(None, headers=live, is_unknown=True)
        self._trace(so_far, problem=why)

    def stream_stands_still(self) -> None:
        if self.is_booked:
            self._account.budget.stand_still(self._ahead)
        if self._turn is not None:
            self._turn.end()

    def stream_goes_on(self) -> None:
        if self.is_booked:
            self._account.budget.go_on(self._ahead)

    # -- the layers' own steps

    def _key(self) -> str | None:
        """The cache key, or `None` where the cache is off."""
        if self._account.mode == "off":
            self._request.forget_json()
            return None
        content = content_key(self._request, meaning_headers=self._dialect.meaning_headers)
        self._request.forget_json()
        sample = self._sample
        if sample is None:
            return numbered_key(content, repeat=0, ordinal=0)
        ordinals = sample.calls.ordinals
        ordinal = ordinals[content] = ordinals.get(content, -1) + 1
        return numbered_key(content, repeat=sample.repeat, ordinal=ordinal)

    def _is_answer(self, cached: Reply) -> bool:
        """Whether what is in the cache can be used: earlier versions kept every 200."""
        return self._dialect.problem(cached, self._call) is None

    async def _keep(self, outcome: Outcome) -> None:
        if self._turn is None or outcome.reply is None or outcome.problem is not None:
            return
        experiment = self._sample.experiment if self._sample is not None else ""
        await self._turn.keep(outcome.reply, self._call, outcome.usage, experiment)

    async def _tries_again(self, tries: RetryState, problem: Problem) -> bool:
        """Wait for the next try, if there is one. Nothing is booked meanwhile."""
        delay_s = tries.next_delay_s(problem)
        if delay_s is None:
            return False
        self._gate.meter.retry(self._account, self._sample, delay_s)
        pause = self._gate.clock.sleep(delay_s)
        if problem.kind == "rate_limit":
            await self._held(pause, WAITS_FOR_LIMITS)
        else:
            await self._parked(pause, problem.kind.replace("_", " "))
        return True

    async def _reserve(self, price_share: float = 1.0) -> None:
        """Stop the run before a call that would exceed the person's budget."""
        budget = self._account.budget
        look_ahead = partial(self._look_ahead, price_share)
        self._ahead = look_ahead()
        try:
            if not budget.reserve_now(self._ahead):
                # in batch mode those who have reserved are parked, and need a slot to go on
                wait = self._held if self._account.batches is None else self._parked
                self._ahead = await wait(budget.reserve(look_ahead), WAITS_FOR_BUDGET)
        except BudgetSpent as error:
            if self._sample is not None:
                self._sample.stop_run(str(error), drops_sample=True)
            raise Withheld(str(error)) from None

    def _look_ahead(self, price_share: float = 1.0) -> Ahead:
        """What may be spent on the call, where somebody asks."""
        if self._account.budget.limit_usd is None:
            return NOTHING
        ahead = self._gate.spending.ahead(self._call, self._group, self._request.body)
        if price_share == 1.0:
            return ahead
        return replace(ahead, usd=ahead.usd * price_share, is_in_batch=True)

    async def _admit(self) -> None:
        limiter = self._gate.limiter
        try:
            permit = limiter.admit_now(self._call, self._booked)
            if permit is None:
                self._account.scopes.add(self._call.scope)
                admitted = limiter.admit(self._call, self._booked, group=self._group)
                permit = await self._held(admitted, WAITS_FOR_LIMITS)
                self._account.note_admitted(permit.scope, permit.started_at_s, permit.cost)
        except BaseException:
            self._account.budget.release(self._ahead)
            raise
        self._permit = permit
        self._gate.meter.sent(self._account, self._sample, permit.waited_s)

    def _booked(self) -> Cost:
        expected = self._gate.estimates.expected(self._call, self._group)
        return self._dialect.booked(
            self._call, input_tokens=expected.input_tokens, output_tokens=expected.output_tokens
        )

    async def _answered(self, reply: Reply) -> Outcome:
        """An answer came: see what is wrong with it, keep it, and settle what it took.

        It is kept first: whatever happens while it is settled, it was paid for.
        """
        dialect, call, meter = self._dialect, self._call, self._gate.meter
        assert self._permit is not None
        problem = reply.problem = self._bounded(dialect.problem(reply, call))
        # a refused request counts as one; its tokens were never used
        actual = None if reply.status < 300 else self._only_the_request()
        usage = dialect.usage(call, reply.body) if reply.status < 300 else None
        cost_usd: float | None = None
        if usage is not None:  # also where it is no answer: it is paid for
            actual = dialect.charged(call, usage)
            self._gate.estimates.observe(call, usage, self._group, actual.get("input_tokens"))
            cost_usd = meter.used(self._account, self._sample, call, usage)
            self._gate.spending.note(call, self._group, self._ahead, usage)
        elif problem is None:
            meter.used_unknown(self._account, self._sample)
        outcome = Outcome(reply, problem=problem, usage=usage, cost_usd=cost_usd)
        if problem is None:
            self._account.note_key_taken(self._call.scope)
            try:
                await self._keep(outcome)
            finally:
                await self._settle(actual, headers=reply, is_unknown=usage is None)
            return outcome
        meter.problem(self._account, self._sample, problem)
        refusal = None
        if problem.kind == "rate_limit":
            refusal = Refusal(problem.dimension, problem.retry_after_s or UNSTATED_RETRY_AFTER_S)
        # what broke off on its way was made, and is paid for
        is_unknown = reply.status < 300 and usage is None and problem.kind == "server"
        await self._settle(actual, headers=reply, refusal=refusal, is_unknown=is_unknown)
        if problem.kind == "spent" and self._sample is not None:
            self._sample.stop_run(problem.message)
        if problem.refuses_key and self._account.note_key_refused(self._call.scope):
            self._stop_for_key(problem)
        return outcome

    def _bounded(self, problem: Problem | None) -> Problem | None:
        """Nobody is made to wait for years: some servers give an instant where a span of time belongs."""
        if problem is None or (problem.retry_after_s or 0.0) <= LONGEST_RETRY_AFTER_S:
            return problem
        self._gate.tell_of_long_wait(self._call.host, problem.retry_after_s or 0.0)
        return replace(problem, retry_after_s=LONGEST_RETRY_AFTER_S)

    def _stop_for_key(self, problem: Problem) -> None:
        if self._sample is not None:
            self._sample.stop_run(
                f"the provider has refused the key {REFUSALS_OF_A_KEY} times in a row: {problem.message}"
            )

    async def _unanswered(self, error: SendError) -> Outcome:
        """No answer came: what the provider may have worked on stays spent."""
        await self._settle(None if error.reached else self._only_the_request(), is_unknown=error.reached)
        return Outcome(error=error, problem=error.as_problem())

    async def _not_sent(self) -> None:
        """There was nothing to send it with: it took nothing, and does not count as a call."""
        self._gate.meter.unsent(self._account, self._sample)
        await self._settle({})

    def _only_the_request(self) -> Cost:
        assert self._permit is not None
        return {"requests": self._permit.cost.get("requests", 0.0)}

    async def _settle(
        self,
        actual: Cost | None,
        *,
        headers: Reply | StreamedReply | None = None,
        refusal: Refusal | None = None,
        is_unknown: bool = False,
    ) -> None:
        """Give back what the try was lent; `actual` is `None` where what was booked stays spent.

        `is_unknown`: it may have cost something, and nobody says what.
        """
        permit, self._permit = self._permit, None
        assert permit is not None
        self._account.budget.release(self._ahead, is_unknown=is_unknown)
        stated = None if headers is None else self._dialect.stated(headers.headers)
        await self._gate.limiter.settle(
            permit, permit.cost if actual is None else actual, stated=stated, refusal=refusal
        )

    # -- what the sample around it is told

    def _parked(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        return awaitable if self._sample is None else self._sample.parked(awaitable, reason)

    def _held(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        return awaitable if self._sample is None else self._sample.held(awaitable, reason)

    def _for_equal_call(self, awaitable: Awaitable[T]) -> Awaitable[T]:
        return self._parked(awaitable, WAITS_FOR_EQUAL_CALL)

    def _trace_outcome(self, outcome: Outcome) -> None:
        told = outcome.problem.message if outcome.problem is not None else None
        self._trace(outcome.reply, problem=told, usage=outcome.usage, cost_usd=outcome.cost_usd)

    def _trace(
        self,
        reply: Reply | None = None,
        *,
        problem: str | None = None,
        usage: Usage | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """The call is over. Bodies are handed over as they are; headers, which have keys in them, never."""
        if self._sample is None or self._sample.trace is None:
            return
        call = self._call
        self._sample.trace.call(
            provider=call.provider,
            model=call.model,
            endpoint=call.endpoint,
            request=self._request.body,
            answer=None if reply is None else reply.body,
            status=None if reply is None else reply.status,
            problem=problem,
            cached=reply is not None and reply.cached,
            streamed=not self._is_whole,
            tries=0 if self._tries is None else self._tries.sent,
            started_s=self._started_s,
            wall_s=self._gate.clock.now_s() - self._began_s,
            usage=None if usage is None else _plain(usage),
            cost_usd=cost_usd,
            role=self._sample.role,
        )


async def _one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _plain(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
