"""Every call to a provider, layer by layer: cache → single flight → retries → limits → sender.

`Gate.exchange` gives whole answers, `Gate.stream` those whose body is passed on while it arrives. Both
run on the caller's loop; what they share is the process's, and any thread and loop may use it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from evalve.clock import LOOP_CLOCK, Clock
from evalve.contracts import SAMPLE, WAITS_FOR_LIMITS, SampleContext
from evalve.errors import LocalUnavailable, MissingKey
from evalve.gate.budget import BudgetSpent
from evalve.gate.cache import ResponseCache
from evalve.gate.cache_key import content_key, numbered_key
from evalve.gate.estimates import Estimates
from evalve.gate.limiter import Limiter, Permit
from evalve.gate.messages import (
    Call,
    Cost,
    Dialect,
    Dimension,
    Problem,
    Reply,
    Request,
    Sender,
    SendError,
    Stated,
    StreamedReply,
    Usage,
    Withheld,
)
from evalve.gate.metering import Meter
from evalve.gate.opening import Opening, opening_of
from evalve.gate.retry import Retries, Story
from evalve.gate.spending import Spending
from evalve.gate.state import Refusal
from evalve.gate.ungated import Ungated
from evalve.gate.waiting import Waiting

UNSTATED_RETRY_AFTER_S = 1.0
"""A refusal that does not say when to come back."""


@dataclass(slots=True)
class _Errand:
    """One request on its way through the layers."""

    request: Request
    call: Call
    dialect: Dialect
    sender: Sender
    sample: SampleContext | None
    reserved_usd: float = 0.0
    """Of the budget, for the try under way."""

    @property
    def group(self) -> str:
        """Whose turn it is when evaluations compete."""
        return self.sample.evaluation if self.sample is not None else ""

    def is_answer(self, kept: Reply) -> bool:
        """Whether what was kept can be used: earlier versions kept every 200."""
        return self.dialect.problem(kept, self.call) is None


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
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        self._read = read
        self._cache = cache
        self._retries = retries
        self._limiter = limiter
        self._estimates = estimates
        self._meter = meter
        self._clock = clock
        self._spending = Spending(estimates, meter)
        self._ungated = Ungated()

    @property
    def budget_usd(self) -> float | None:
        """What may be spent by this process; `None` for no bound."""
        return self._spending.budget.limit_usd

    @budget_usd.setter
    def budget_usd(self, limit_usd: float | None) -> None:
        self._spending.budget.limit_usd = limit_usd

    def passed_by(self, url: str) -> None:
        """A call goes past that no dialect reads: count it, and tell of its host once."""
        self._meter.ungated(SAMPLE.get())
        self._ungated.tell(url)

    # -- whole answers

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        """The final answer, whatever its status; `SendError` where there is finally none."""
        understood = self._read(request)
        if understood is None:
            return await sender.send(request)  # not a call to a model: none of our business
        dialect, call = understood
        errand = _Errand(request, call, dialect, sender, SAMPLE.get())
        key = self._key(errand)
        if key is None:
            return (await self._with_retries(errand)).final()
        return await self._from_cache(errand, key)

    async def _from_cache(self, errand: _Errand, key: str) -> Reply:
        async with self._cache.turn(key, errand.is_answer) as kept:
            if kept is not None:
                self._meter.hit(errand.sample)
                return kept
            tried = await self._with_retries(errand)
            if tried.problem is None:
                await self._keep(errand, key, tried)
            return tried.final()

    async def _with_retries(self, errand: _Errand) -> _Tried:
        with self._retries.begin(errand.call.host) as story:
            while True:
                with Waiting(errand.sample, "the provider to recover"):
                    await story.may_send()
                tried = await self._once(errand)
                story.note(tried.problem)
                if tried.problem is None or not await self._tries_again(errand, story, tried.problem):
                    return tried

    async def _once(self, errand: _Errand) -> _Tried:
        """One try under the limits: what came, and what was wrong with it."""
        permit = await self._admitted(errand)
        try:
            reply = await errand.sender.send(errand.request)
        except SendError as error:
            return await self._unanswered(errand, permit, error)
        except (MissingKey, LocalUnavailable):
            await self._not_sent(errand, permit)
            raise
        except BaseException:
            # cancelled while the provider may be working: what was booked stays spent
            await self._settle(errand, permit, permit.cost)
            raise
        return await self._answered(errand, permit, reply)

    # -- streams

    @asynccontextmanager
    async def stream(self, request: Request, sender: Sender) -> AsyncIterator[StreamedReply]:
        """Like `exchange`, with the body passed on as it arrives; its end is withheld until it is kept."""
        understood = self._read(request)
        if understood is None:
            async with sender.stream(request) as passed:
                yield passed
            return
        dialect, call = understood
        errand = _Errand(request, call, dialect, sender, SAMPLE.get())
        key = self._key(errand)
        if key is None:
            async with self._live(errand, None) as reply:
                yield reply
            return
        async with self._cache.turn(key, errand.is_answer) as kept:
            if kept is None:
                async with self._live(errand, key) as reply:
                    yield reply
            else:
                self._meter.hit(errand.sample)
                yield StreamedReply(kept.status, kept.headers, self._cache.replayed(kept), cached=True)

    @asynccontextmanager
    async def _live(self, errand: _Errand, key: str | None) -> AsyncIterator[StreamedReply]:
        """A stream from the provider. Until a piece is passed on it is tried again like a whole answer."""
        async with AsyncExitStack() as stack:
            story = stack.enter_context(self._retries.begin(errand.call.host))
            while True:
                with Waiting(errand.sample, "the provider to recover"):
                    await story.may_send()
                begun = await self._begun(errand, stack)
                story.note(begun.problem)
                if begun.live is not None and begun.opening is not None:
                    chunks = self._passed_on(errand, begun, begun.live, begun.opening, key)
                    try:
                        yield StreamedReply(begun.live.status, begun.live.headers, chunks)
                    finally:
                        # not left to the garbage collector; one that was never begun runs no `finally`
                        await chunks.aclose()
                        await self._broken_off(errand, begun)
                    return
                if begun.problem is None or not await self._tries_again(errand, story, begun.problem):
                    final = begun.final()
                    if begun.problem is None and key is not None:
                        await self._keep(errand, key, begun)
                    whole = _one_chunk(final.body)
                    yield StreamedReply(final.status, final.headers, whole, problem=final.problem)
                    return

    async def _begun(self, errand: _Errand, stack: AsyncExitStack) -> _Tried:
        """One try to open a stream; one that begins and goes on stays open on the stack."""
        permit = await self._admitted(errand)
        held = AsyncExitStack()
        try:
            live = await held.enter_async_context(errand.sender.stream(errand.request))
            begins = partial(errand.dialect.begins, errand.call)
            opening = await opening_of(live, begins, errand.dialect.ends)
        except SendError as error:
            await held.aclose()
            return await self._unanswered(errand, permit, error)
        except (MissingKey, LocalUnavailable):
            await held.aclose()
            await self._not_sent(errand, permit)
            raise
        except BaseException:
            await held.aclose()
            await self._settle(errand, permit, permit.cost)
            raise
        if opening.is_over:
            await held.aclose()
            reply = Reply(live.status, live.headers, b"".join(opening.chunks))
            return await self._answered(errand, permit, reply)
        stack.push_async_exit(held)
        return _Tried(live=live, opening=opening, permit=permit)

    async def _passed_on(
        self, errand: _Errand, begun: _Tried, live: StreamedReply, opening: Opening, key: str | None
    ) -> AsyncGenerator[bytes, None]:
        """The stream's chunks as they come; its end is given when the whole is kept and settled.

        Where there is no whole, it is given too, for it may say why, and then the error is raised.
        """
        received = opening.chunks
        passed_on = len(received)
        try:
            for chunk in tuple(received):
                yield chunk
            async for chunk in opening.rest:
                opening.add(chunk)
                if not opening.has_end:
                    passed_on += 1
                    yield chunk
        except SendError:
            await self._broken_off(errand, begun)
            for chunk in received[passed_on:]:
                yield chunk
            raise
        except BaseException:
            await self._broken_off(errand, begun)
            raise
        permit, begun.permit = begun.permit, None
        assert permit is not None
        reply = Reply(live.status, live.headers, b"".join(received))
        tried = await self._answered(errand, permit, reply)
        if tried.problem is None and key is not None:
            await self._keep(errand, key, tried)
        for chunk in received[passed_on:]:
            yield chunk
        if tried.problem is not None:
            raise SendError(tried.problem.message, reached=True)

    async def _broken_off(self, errand: _Errand, begun: _Tried) -> None:
        """A stream that was not read to its end: what was booked for it stays spent."""
        permit, begun.permit = begun.permit, None
        if permit is not None and begun.live is not None:
            stated = errand.dialect.stated(begun.live.headers)
            await self._settle(errand, permit, permit.cost, stated=stated)

    # -- the layers' own steps

    def _key(self, errand: _Errand) -> str | None:
        """The cache key, or `None` where the cache is off."""
        if self._cache.mode == "off":
            errand.request.forget_json()
            return None
        content = content_key(errand.request, meaning_headers=errand.dialect.meaning_headers)
        errand.request.forget_json()
        sample = errand.sample
        if sample is None:
            return numbered_key(content, repeat=0, ordinal=0)
        ordinals = sample.calls.ordinals
        ordinal = ordinals[content] = ordinals.get(content, -1) + 1
        return numbered_key(content, repeat=sample.repeat, ordinal=ordinal)

    async def _admitted(self, errand: _Errand) -> Permit:
        await self._reserve(errand)

        def cost() -> Cost:
            expected = self._estimates.expected(errand.call, errand.group)
            return errand.dialect.booked(
                errand.call, input_tokens=expected.input_tokens, output_tokens=expected.output_tokens
            )

        try:
            with Waiting(errand.sample, WAITS_FOR_LIMITS):
                permit = await self._limiter.admit(errand.call, cost, group=errand.group)
        except BaseException:
            self._spending.budget.release(errand.reserved_usd)
            raise
        self._meter.sent(errand.sample, permit.waited_s)
        return permit

    async def _answered(self, errand: _Errand, permit: Permit, reply: Reply) -> _Tried:
        """An answer came: settle what it took, and see what is wrong with it."""
        dialect, call = errand.dialect, errand.call
        problem = reply.problem = dialect.problem(reply, call)
        stated = dialect.stated(reply.headers)
        # a refused request counts as one; its tokens were never used
        actual: Cost = permit.cost if reply.status < 300 else {"requests": permit.cost.get("requests", 0.0)}
        usage = dialect.usage(call, reply.body) if reply.status < 300 else None
        if usage is not None:  # also where it is no answer: it is paid for
            actual = dialect.charged(call, usage)
            self._estimates.observe(call, usage, errand.group, actual.get("input_tokens"))
            self._meter.used(call, usage, errand.sample)
        elif problem is None:
            self._meter.used_unknown(errand.sample)
            self._spending.budget.keep(errand.reserved_usd)
        if problem is None:
            await self._settle(errand, permit, actual, stated=stated)
            return _Tried(reply=reply, usage=usage)
        self._meter.problem(problem, errand.sample)
        refusal = None
        if problem.kind == "rate_limit":
            refusal = Refusal(problem.dimension, problem.retry_after_s or UNSTATED_RETRY_AFTER_S)
        await self._settle(errand, permit, actual, stated=stated, refusal=refusal)
        if problem.kind == "spent" and errand.sample is not None:
            errand.sample.stop_run(problem.message)
        return _Tried(reply=reply, problem=problem)

    async def _unanswered(self, errand: _Errand, permit: Permit, error: SendError) -> _Tried:
        """No answer came: what the provider may have worked on stays spent."""
        spent: Cost = permit.cost if error.reached else {"requests": permit.cost.get("requests", 0.0)}
        await self._settle(errand, permit, spent)
        return _Tried(error=error, problem=error.as_problem())

    async def _not_sent(self, errand: _Errand, permit: Permit) -> None:
        """There was nothing to send it with: it took nothing, and does not count as a call."""
        self._meter.unsent(errand.sample)
        await self._settle(errand, permit, {})

    async def _tries_again(self, errand: _Errand, story: Story, problem: Problem) -> bool:
        """Wait for the next try, if there is one. Nothing is held meanwhile."""
        delay_s = story.next_delay_s(problem)
        if delay_s is None:
            return False
        self._meter.retry(delay_s, errand.sample)
        with Waiting(errand.sample, problem.kind.replace("_", " ")):
            await self._clock.sleep(delay_s)
        return True

    async def _keep(self, errand: _Errand, key: str, tried: _Tried) -> None:
        experiment = errand.sample.experiment if errand.sample is not None else ""
        await self._cache.keep(key, tried.final(), errand.call, tried.usage, experiment)

    async def _reserve(self, errand: _Errand) -> None:
        """Stop the run before a call that would exceed the person's budget."""
        try:
            errand.reserved_usd = await self._spending.reserve(errand.call, errand.group)
        except BudgetSpent as error:
            if errand.sample is not None:
                errand.sample.stop_run(str(error))
            raise Withheld(str(error)) from None

    async def _settle(
        self,
        errand: _Errand,
        permit: Permit,
        actual: Cost,
        *,
        stated: Mapping[Dimension, Stated] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self._spending.budget.release(errand.reserved_usd)
        await self._limiter.settle(permit, actual, stated=stated, refusal=refusal)


@dataclass(slots=True)
class _Tried:
    """What one try gave: an answer, an open stream, or nothing; and what is wrong with it."""

    reply: Reply | None = None
    live: StreamedReply | None = None
    opening: Opening | None = None
    permit: Permit | None = None
    error: SendError | None = None
    problem: Problem | None = None
    usage: Usage | None = None

    def final(self) -> Reply:
        if self.reply is not None:
            return self.reply
        assert self.error is not None
        raise self.error


async def _one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body
