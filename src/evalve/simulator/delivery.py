"""An admitted request gets its answer, as slowly as a model gives it; or it fails as a provider fails."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from aiohttp import web

from evalve.clock import Clock
from evalve.simulator.answers import Output
from evalve.simulator.apis.wire import Api, Events, encoded
from evalve.simulator.behaviour import Behaviour
from evalve.simulator.faults import Fault
from evalve.simulator.provider import Admission
from evalve.simulator.recent import Seen
from evalve.simulator.replies import failed, reply_headers
from evalve.simulator.stats import Stats


@dataclass(frozen=True, slots=True)
class Fate:
    """What was drawn for one request: what is said, when, and what goes wrong."""

    output: Output
    fault: Fault | None
    first_token_s: float
    total_s: float


@dataclass(slots=True)
class Delivery:
    """One answer on its way to one client."""

    request: web.BaseRequest
    api: Api
    identity: str
    admission: Admission
    fate: Fate
    behaviour: Behaviour
    clock: Clock
    stats: Stats
    seen: Seen

    async def deliver(self) -> web.StreamResponse:
        fault = self.fate.fault
        if fault is not None:
            self.stats.faults[fault] += 1
            self.seen.outcome = fault
        if fault in ("error", "overloaded"):
            return await self._answer_with_error()
        if fault in ("reset", "hang"):
            return await self._leave_unanswered()
        return await (self._stream() if self.admission.ask.stream else self._answer_whole())

    def abandon(self) -> None:
        """The client went away: what was produced until now stays charged."""
        self.stats.abandoned += 1
        self.seen.outcome = "abandoned"
        self._end_output(None)

    async def _answer_with_error(self) -> web.StreamResponse:
        await self._wait(self.fate.first_token_s)
        self.admission.give_tokens_back(self.clock.now_s())
        kind = self.api.failure("error" if self.fate.fault == "error" else "overloaded")
        return failed(self.api, kind, self._headers())

    async def _leave_unanswered(self) -> web.StreamResponse:
        hang_s = self.behaviour.faults.hang_s if self.fate.fault == "hang" else 0.0
        await self._wait(self.fate.first_token_s + hang_s)
        _reset_connection(self.request)
        return web.Response()

    async def _answer_whole(self) -> web.StreamResponse:
        await self._wait(self.fate.first_token_s)
        duration_s = self.fate.total_s - self.fate.first_token_s
        self._start_output(duration_s)
        await self._wait(duration_s)
        self._end_output(self._tokens)
        admission = self.admission
        body = encoded(self.api.whole(admission.ask, self.fate.output, admission.input, self.identity))
        headers = self._headers()
        if self.fate.fault == "truncated":
            return await self._send_half(body, headers)
        self._count_whole_answer(len(body))
        return web.Response(body=body, headers=headers)

    async def _send_half(self, body: bytes, headers: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        response.content_length = len(body)
        await response.prepare(self.request)
        await response.write(body[: len(body) // 2])
        _close_connection(self.request)
        return response

    async def _stream(self) -> web.StreamResponse:
        admission, chunk_tokens = self.admission, self.behaviour.stream_chunk_tokens
        events = self.api.events(
            admission.ask, self.fate.output, admission.input, self.identity, chunk_tokens=chunk_tokens
        )
        duration_s = self.fate.total_s - self.fate.first_token_s
        if self.fate.fault == "slow_stream":
            duration_s += self.behaviour.faults.slow_stream_s * len(events.pieces)
        await self._wait(self.fate.first_token_s)
        self._start_output(duration_s)
        headers = {**self._headers(), "content-type": events.content_type}
        response = web.StreamResponse(headers=headers)
        await response.prepare(self.request)
        await response.write(events.opening)
        if self.fate.fault in ("cut_stream", "error_event"):
            half = len(events.pieces) // 2
            await self._send_pieces(response, events.pieces[:half], duration_s / 2)
            return await self._break_stream(response)
        await self._send_pieces(response, events.pieces, duration_s)
        self._end_output(self._tokens)
        await response.write(events.closing)
        await response.write_eof()
        self._count_whole_answer(_size(events))
        return response

    async def _send_pieces(
        self, response: web.StreamResponse, pieces: list[bytes], duration_s: float
    ) -> None:
        """Evenly over the time; each is due by the start, so that delays do not add up."""
        if duration_s <= 0:
            await response.write(b"".join(pieces))
            return
        started_s = self.clock.now_s()
        for place, piece in enumerate(pieces, start=1):
            await self._wait(started_s + duration_s * place / len(pieces) - self.clock.now_s())
            await response.write(piece)

    async def _break_stream(self, response: web.StreamResponse) -> web.StreamResponse:
        self._end_output(self._tokens // 2)
        if self.fate.fault == "error_event":
            await response.write(self.api.error_event())
            await response.write_eof()
        else:
            _close_connection(self.request)
        return response

    @property
    def _tokens(self) -> int:
        return self.fate.output.tokens * self.admission.ask.choices

    async def _wait(self, delay_s: float) -> None:
        if delay_s > 0:
            await self.clock.sleep(delay_s)

    def _start_output(self, duration_s: float) -> None:
        self.admission.start_output(tokens=self._tokens, duration_s=duration_s, now_s=self.clock.now_s())

    def _end_output(self, produced: int | None) -> None:
        self.stats.output_tokens += self.admission.end_output(now_s=self.clock.now_s(), produced=produced)

    def _headers(self) -> dict[str, str]:
        return reply_headers(
            self.api,
            self.identity,
            self.admission.account,
            clock=self.clock,
            clock_skew_s=self.behaviour.clock_skew_s,
        )

    def _count_whole_answer(self, size_bytes: int) -> None:
        if self.fate.fault is None:
            self.seen.outcome = "200"
        stats, usage = self.stats, self.admission.input
        stats.input_tokens += usage.fresh_tokens
        stats.cache_written_tokens += usage.written_tokens
        stats.cache_read_tokens += usage.read_tokens
        digest = self.admission.ask.digest
        stats.count_answer(digest=digest, size_bytes=size_bytes, now_s=self.clock.now_s())


def _size(events: Events) -> int:
    return len(events.opening) + sum(map(len, events.pieces)) + len(events.closing)


def _reset_connection(request: web.BaseRequest) -> None:
    """Let the client see a reset rather than an orderly end."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()


def _close_connection(request: web.BaseRequest) -> None:
    """End the connection in an orderly way, after what was written and before what was promised."""
    if request.transport is not None:
        request.transport.close()
