"""A request comes in: it is understood, admitted or refused, counted, and handed to its delivery."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from evalve.clock import Clock
from evalve.simulator.accounts import Account
from evalve.simulator.answers import output_for
from evalve.simulator.apis.routes import Routes
from evalve.simulator.apis.wire import Api, CountingApi, FailureKind, encoded
from evalve.simulator.asks import Ask, BadRequest, digest_of, hash_of_key
from evalve.simulator.batches.anthropic import AnthropicBatches
from evalve.simulator.batches.book import Book
from evalve.simulator.batches.desk import BatchApi, Desk, parsed
from evalve.simulator.batches.openai import OpenAIBatches
from evalve.simulator.behaviour import Behaviour
from evalve.simulator.delivery import Delivery, Fate
from evalve.simulator.draws import Draw
from evalve.simulator.provider import Admission, Provider, Refusal
from evalve.simulator.recent import Recent, Seen, redacted
from evalve.simulator.replies import failed, reply_headers
from evalve.simulator.stats import Stats


@dataclass(slots=True)
class Arrival:
    """A request as it came, before anybody understood it."""

    request: web.BaseRequest
    api: Api
    raw: bytes
    digest: int
    key_hash: str
    identity: str
    now_s: float
    seen: Seen


class Service:
    """Answers requests under a behaviour, and counts what it sees."""

    def __init__(self, behaviour: Behaviour, clock: Clock) -> None:
        self.stats = Stats()
        self.routes = Routes()
        self.recent = Recent(behaviour.remember_requests)
        self._provider = Provider(behaviour)
        self._clock = clock
        self._arrivals = 0
        self._desk = Desk(lambda: self.behaviour, lambda: self.stats, clock, Book())
        self._batch_apis: tuple[BatchApi, ...] = (AnthropicBatches(self._desk), OpenAIBatches(self._desk))

    @property
    def behaviour(self) -> Behaviour:
        return self._provider.behaviour

    def adopt(self, behaviour: Behaviour) -> None:
        """Behave so from now on; what was used of the limits stays used."""
        self._provider.adopt(behaviour, now_s=self._clock.now_s())
        self.recent.resize(behaviour.remember_requests)

    def reset(self) -> None:
        """Forget all that was seen and used; calls in flight are counted no more."""
        self.stats = Stats()
        self.routes = Routes()
        self.recent.clear()
        self._provider = Provider(self.behaviour)
        self._desk.book = Book()

    async def batch(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """A request about batches or their files; `None` where nobody has such a path."""
        for api in self._batch_apis:
            if (answer := await api.answer(request)) is not None:
                return answer
        return None

    async def answer(self, request: web.BaseRequest, api: Api) -> web.StreamResponse:
        """A request for an answer of the model."""
        arrival = self._arrival(request, api, await request.read())
        try:
            self._check_key(arrival)
            ask = api.read(parsed(arrival.raw), arrival.digest)
        except BadRequest as error:
            return self._rejected(arrival, "invalid", str(error))
        except PermissionError:
            return self._rejected(arrival, "key")
        return await self._answer_understood(arrival, ask)

    async def _answer_understood(self, arrival: Arrival, ask: Ask) -> web.StreamResponse:
        provider, stats = self._provider, self.stats
        seen_before = stats.count_request(
            model=ask.model,
            key_hash=arrival.key_hash,
            digest=arrival.digest,
            size_bytes=len(arrival.raw),
            now_s=arrival.now_s,
        )
        luck: float | None = None
        if self.behaviour.refuse_at_random is not None:
            luck = Draw(self.behaviour.seed, ask.digest, seen_before).of("refusal").random()
        admission = provider.admit(ask, arrival.key_hash, arrival.now_s, luck=luck)
        if isinstance(admission, Refusal):
            return self._refused(arrival, ask, admission)
        stats.count_admission(in_flight=provider.in_flight, now_s=arrival.now_s)
        try:
            return await self._answer_admitted(arrival, admission, seen_before)
        finally:
            admission.release()

    async def _answer_admitted(
        self, arrival: Arrival, admission: Admission, seen_before: int
    ) -> web.StreamResponse:
        delivery = Delivery(
            arrival.request,
            arrival.api,
            arrival.identity,
            admission,
            fate=_fate(admission, self.behaviour, seen_before),
            behaviour=self.behaviour,
            clock=self._clock,
            stats=self.stats,
            seen=arrival.seen,
        )
        try:
            return await delivery.deliver()
        except asyncio.CancelledError:
            delivery.abandon()
            raise
        except ConnectionError:
            delivery.abandon()
            return web.Response()

    async def count_tokens(self, request: web.BaseRequest, api: CountingApi) -> web.StreamResponse:
        """A request for the size of a prompt."""
        arrival = self._arrival(request, api, await request.read())
        self.stats.token_counts += 1
        try:
            self._check_key(arrival)
            ask = api.read_for_count(parsed(arrival.raw), arrival.digest)
        except BadRequest as error:
            return self._rejected(arrival, "invalid", str(error))
        except PermissionError:
            return self._rejected(arrival, "key")
        refusal = self._provider.admit_count(ask, arrival.key_hash, arrival.now_s)
        if refusal is not None:
            return self._refused(arrival, ask, refusal)
        arrival.seen.outcome = "200"
        return web.Response(body=encoded(api.count_body(ask)), headers=self._headers(arrival, None))

    def stored(self, request: web.BaseRequest) -> web.Response | None:
        """What a GET finds: models, or an earlier response; None where there is nothing."""
        path, query = request.rel_url.path, request.rel_url.query_string
        found = self.routes.stored(path, request.headers, self.behaviour.models)
        if found is None:
            return None
        arrival = self._arrival(request, self.routes.nearest(path, query, request.headers), b"")
        try:
            self._check_key(arrival)
        except PermissionError:
            return self._rejected(arrival, "key")
        arrival.seen.outcome = "200"
        return web.Response(body=encoded(found), headers=self._headers(arrival, None))

    def not_found(self, request: web.BaseRequest, api: Api) -> web.Response:
        return self._rejected(self._arrival(request, api, b""), "not_found")

    def too_big(self, request: web.BaseRequest, api: Api) -> web.Response:
        return self._rejected(self._arrival(request, api, b""), "too_big")

    def _arrival(self, request: web.BaseRequest, api: Api, raw: bytes) -> Arrival:
        self._arrivals += 1
        key_hash = hash_of_key(api.key(request.headers))
        now_s = self._clock.now_s()
        seen = Seen(now_s, request.rel_url.path, key_hash, {}, raw)
        if self.behaviour.remember_requests:
            seen.headers = redacted(request.headers)
            self.recent.add(seen)
        identity = f"sim{self._arrivals:012d}"
        return Arrival(request, api, raw, digest_of(raw), key_hash, identity, now_s, seen)

    def _check_key(self, arrival: Arrival) -> None:
        keys = self.behaviour.keys
        if keys is not None and arrival.api.key(arrival.request.headers) not in keys:
            raise PermissionError("the key is not one of those that the behaviour names")

    def _rejected(self, arrival: Arrival, kind: FailureKind, message: str = "") -> web.Response:
        failure = arrival.api.failure(kind, message)
        self.stats.rejections[kind] += 1
        arrival.seen.outcome = str(failure.status)
        return failed(arrival.api, failure, self._headers(arrival, None))

    def _refused(self, arrival: Arrival, ask: Ask, refusal: Refusal) -> web.Response:
        epoch_s = self._clock.utc_now().timestamp() + self.behaviour.clock_skew_s
        failure = arrival.api.refusal(refusal, ask, retry_after=self.behaviour.retry_after, epoch_s=epoch_s)
        known = failure.retry_in_s is not None and refusal.dimension != "count_tokens"
        self.stats.count_refusal(
            refusal.kind,
            refusal.dimension,
            key_hash=arrival.key_hash,
            digest=arrival.digest,
            due_s=arrival.now_s + (failure.retry_in_s or 0.0) if known else None,
        )
        arrival.seen.outcome = f"429 {refusal.dimension or refusal.kind}"
        account = self._provider.account(ask, arrival.key_hash, arrival.now_s)
        return failed(arrival.api, failure, self._headers(arrival, account))

    def _headers(self, arrival: Arrival, account: Account | None) -> dict[str, str]:
        skew_s = self.behaviour.clock_skew_s
        return reply_headers(arrival.api, arrival.identity, account, clock=self._clock, clock_skew_s=skew_s)


def _fate(admission: Admission, behaviour: Behaviour, seen_before: int) -> Fate:
    ask = admission.ask
    draw = Draw(behaviour.seed, ask.digest, seen_before)
    output = output_for(
        ask, script=behaviour.answers, length=behaviour.output, ordinal=admission.ordinal, draw=draw
    )
    fault = behaviour.faults.fault_of(ordinal=admission.ordinal, stream=ask.stream, draw=draw)
    first_token_s, total_s = behaviour.latency.times_s(output.tokens, draw)
    return Fate(output, fault, first_token_s, total_s)
