"""How an answer reaches the client: at once, piece by piece, or after a wait in which it hears a word."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from aiohttp import web
from aiohttp.web_request import BaseRequest

from evalve.gate.doors.gateway import words
from evalve.gate.doors.gateway.outgoing import handed_back, refuses_identity
from evalve.gate.doors.gateway.relay import Head, Relay
from evalve.gate.messages import Call, Request, SendError


class Patience(NamedTuple):
    """How long a call waits in silence. Once a word is sent, the status is 200, whatever follows."""

    stream_s: float = 5.0
    """An error can still be told in a stream, as an event."""
    whole_s: float = 20.0
    """Here the connection is closed, and the client that asks again is told."""
    every_s: float = 10.0


class Stopped(Exception):
    """The call was ended before anything of an answer came, because its run has stopped."""


class Delivery:
    """An answer on its way to a client."""

    def __init__(
        self, request: BaseRequest, outgoing: Request, call: Call, relay: Relay, patience: Patience
    ) -> None:
        self._request = request
        self._url = outgoing.url
        self._call = call
        self._relay = relay
        self._patience = patience
        self._begun: web.StreamResponse | None = None
        """Where a word was sent before the answer came."""

    async def done(self) -> web.StreamResponse:
        try:
            head = await self._head()
        except asyncio.CancelledError:
            if not self._relay.head.cancelled():
                raise  # it is the client that has gone
            if self._begun is None:
                raise Stopped from None
            _hang_up(self._request)
            return self._begun
        if self._begun is not None and head.is_failure:
            return await self._failed_late(self._begun, head)
        if head.body is not None:
            if self._begun is None:
                return _whole(self._request, head)
            await self._begun.write(head.body)
            return self._begun
        response = self._begun or await _begun(self._request, head.status, head.headers)
        try:
            async for chunk in self._relay.chunks():
                await response.write(chunk)
        except SendError:
            _hang_up(self._request)  # the one way to say that this is not the end
        return response

    async def _head(self) -> Head:
        """How the answer begins; until then, a word now and then while we hold the call back."""
        word = words.word_for(self._call, self._url)
        if word is None:
            return await asyncio.shield(self._relay.head)
        wait_s = self._patience.stream_s if word.is_stream else self._patience.whole_s
        while not (await asyncio.wait({self._relay.head}, timeout=wait_s))[0]:
            wait_s = min(wait_s, self._patience.every_s)
            if self._relay.is_sent:
                continue  # how long a provider may take is the client's own affair
            wait_s = self._patience.every_s
            if self._begun is None:
                self._begun = await _begun(self._request, 200, {"content-type": word.content_type})
            await self._begun.write(word.text)
        return self._relay.head.result()

    async def _failed_late(self, response: web.StreamResponse, head: Head) -> web.StreamResponse:
        if self._call.streams:
            await response.write(words.error_event(head.body or b"", self._call, self._url))
        else:
            _hang_up(self._request)
        return response


async def _begun(request: BaseRequest, status: int, headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=handed_back(headers, status))
    if refuses_identity(request.headers.get("accept-encoding", "")):
        response.enable_compression(web.ContentCoding.gzip)
    await response.prepare(request)
    return response


def _whole(request: BaseRequest, head: Head) -> web.Response:
    response = web.Response(
        status=head.status, headers=handed_back(head.headers, head.status), body=head.body
    )
    if refuses_identity(request.headers.get("accept-encoding", "")):
        response.enable_compression(web.ContentCoding.gzip)
    return response


def _hang_up(request: BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
