"""A call that is made for a client and does not depend on it: a client that goes away loses nothing.

What has been sent to a provider is paid for, so it is read to its end and kept, whoever still listens. A
client that asks the same again, because its own patience ended, gets the call that is under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass

from evalve.contracts import SAMPLE, SampleContext
from evalve.errors import ModelError
from evalve.gate.dialects.answer_parts import legible
from evalve.gate.doors.gateway import words
from evalve.gate.doors.gateway.usage import WithoutUsage
from evalve.gate.doors.transport import GateLike
from evalve.gate.messages import Call, Reply, Request, Sender, SendError, StreamedReply, Withheld

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins; of one that is whole, all of it."""

    status: int
    headers: dict[str, str]
    body: bytes | None = None
    """`None` for a stream, whose chunks follow."""

    @property
    def is_failure(self) -> bool:
        return self.status >= 400


class Relay:
    """One call under way. Made, awaited and read on the gateway's loop."""

    def __init__(
        self,
        gate: GateLike,
        request: Request,
        call: Call,
        sender: Sender,
        sample: SampleContext | None,
        *,
        hides_usage: bool = False,
    ) -> None:
        """`hides_usage`: we asked for it, the client did not."""
        loop = asyncio.get_running_loop()
        self._gate = gate
        self._request = request
        self._call = call
        self._hidden = WithoutUsage() if hides_usage else None
        self._sender = _WatchedSender(sender)
        self.head: asyncio.Future[Head] = loop.create_future()
        self._chunks: list[bytes] = []
        self._broken: SendError | None = None
        self._news = asyncio.Event()
        context = copy_context()
        context.run(SAMPLE.set, sample)
        self.task = loop.create_task(self._run(), context=context)

    @property
    def is_sent(self) -> bool:
        """Whether the provider is at work on it now."""
        return self._sender.is_sending

    @property
    def is_over(self) -> bool:
        return self.task.done()

    @property
    def has_failed(self) -> bool:
        """Whether it is finally answered with an error."""
        head = self.head
        return head.done() and not head.cancelled() and head.exception() is None and head.result().is_failure

    def abandon(self) -> None:
        """Nobody will read it: what is sent is read to its end, and nothing more is sent."""
        self._sender.is_abandoned = True
        if not self.is_sent:
            self.task.cancel()

    async def chunks(self) -> AsyncIterator[bytes]:
        """A stream's, from its beginning, as they come; a `SendError` where it breaks off."""
        given = 0
        while True:
            while given < len(self._chunks):
                given += 1
                yield self._chunks[given - 1]
            if self.is_over or self._broken is not None:
                break
            self._news.clear()
            await self._news.wait()
        if self._broken is not None:
            raise self._broken
        if self.task.cancelled():
            raise SendError("the call was ended", reached=True)

    async def _run(self) -> None:
        try:
            if self._call.streams:
                await self._streamed()
            else:
                self.head.set_result(self._whole(await self._gate.exchange(self._request, self._sender)))
        except SendError as error:
            self._failed(error)
        except ModelError as error:  # no key, or what the embedded model cannot do
            self._failed(Withheld(str(error)))
        except Exception as error:  # the boundary of one call: it is told where the call is awaited
            if self.head.done():
                _LOG.exception("a stream broke off by a mistake of the gate")
                self._broken = SendError(str(error), reached=True)
            else:
                self.head.set_exception(error)
        finally:
            if not self.head.done():
                self.head.cancel()
            asyncio.get_running_loop().call_soon(self._news.set)  # then the task is done

    async def _streamed(self) -> None:
        async with self._gate.stream(self._request, self._sender) as live:
            if live.problem is not None or live.status >= 300:
                whole = b"".join([chunk async for chunk in live.chunks])
                reply = Reply(live.status, live.headers, whole, live.cached, live.problem)
                self.head.set_result(self._whole(reply))
                return
            self.head.set_result(Head(live.status, dict(live.headers)))
            async for chunk in live.chunks:
                self._hand_on(chunk if self._hidden is None else self._hidden.feed(chunk))
            if self._hidden is not None:
                self._hand_on(self._hidden.end())

    def _hand_on(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._news.set()

    def _whole(self, reply: Reply) -> Head:
        if reply.problem is not None and reply.status < 300:
            return self._error(*words.misfit(reply.problem))
        body = legible(reply.body) if reply.status < 300 else reply.body
        return Head(reply.status, dict(reply.headers), body)

    def _failed(self, error: SendError) -> None:
        if self.head.done():
            self._broken = error
        else:
            self.head.set_result(self._error(*words.unanswered(error)))

    def _error(self, status: int, message: str) -> Head:
        body = words.error_body(status, message, is_google=self._call.dialect == "gemini")
        return Head(status, {"content-type": "application/json"}, body)


async def finish(relays: set[Relay], *, within_s: float) -> None:
    """Abandon these, and wait a while for those that providers are at work on."""
    left = {relay.task for relay in relays}
    for relay in list(relays):
        relay.abandon()
    if left:
        await asyncio.wait(left, timeout=within_s)


async def cancel(relays: set[Relay]) -> None:
    for relay in list(relays):
        relay.task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*(relay.task for relay in list(relays)), return_exceptions=True)


class _WatchedSender:
    """Knows whether something is being sent, and sends nothing more once nobody waits for it."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.is_sending = False
        self.is_abandoned = False

    async def send(self, request: Request) -> Reply:
        self._begin()
        try:
            return await self._sender.send(request)
        finally:
            self.is_sending = False

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedReply]:
        self._begin()
        try:
            async with self._sender.stream(request) as live:
                yield live
        finally:
            self.is_sending = False

    def _begin(self) -> None:
        if self.is_abandoned:
            raise Withheld("the client that asked has gone")
        self.is_sending = True
