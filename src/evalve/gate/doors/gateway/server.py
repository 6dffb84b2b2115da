"""The gateway's server: who may pass, where it goes, and how the answer reaches the client."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from aiohttp import web
from aiohttp.web_request import BaseRequest

from evalve.contracts import SampleContext
from evalve.errors import OptionError
from evalve.gate.dialects.finding import recognised
from evalve.gate.doors.gateway import words
from evalve.gate.doors.gateway.delivery import Delivery, Patience, Stopped
from evalve.gate.doors.gateway.leases import PORTS, Holder, Leases, calling_from_outside
from evalve.gate.doors.gateway.outgoing import (
    SAMPLE_HEADER,
    keys_in,
    with_real_key,
)
from evalve.gate.doors.gateway.passing import pass_on
from evalve.gate.doors.gateway.relay import Head, Relay, cancel
from evalve.gate.doors.gateway.upstreams import Upstream
from evalve.gate.doors.gateway.usage import asking_for_usage
from evalve.gate.doors.gateway.waiting import Underway
from evalve.gate.doors.transport import GateLike
from evalve.gate.messages import Call, Request, Sender
from evalve.gate.ungated import may_ask_a_model
from evalve.options import suggestion
from evalve.secrecy import without_secrets

_LOG = logging.getLogger(__name__)

HOST = "127.0.0.1"
LARGEST_BODY_BYTES = 64 * 1024 * 1024
"""Twice what the largest of the providers takes; a whole request is held in memory."""
_LONGEST_HEADER_BYTES = 64 * 1024


class Refused(Exception):
    """The gateway itself says no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Asked(NamedTuple):
    """What the address of a request says."""

    holder: Holder
    upstream: Upstream
    path: str
    """Below the upstream's prefix."""
    query: str


class GatewayServer:
    """Serves on the loop that it is started on, on the loopback interface only."""

    def __init__(
        self,
        gate: GateLike,
        senders: Mapping[str, Sender],
        upstreams: Mapping[str, Upstream],
        leases: Leases,
        *,
        patience: Patience | None = None,
    ) -> None:
        """`senders` are by upstream; the one under "" serves the others."""
        self._gate = gate
        self._senders = senders
        self._upstreams = upstreams
        self._leases = leases
        self._patience = patience or Patience()
        self._underway = Underway()
        self._runner: web.ServerRunner | None = None
        self._hosts: frozenset[str] = frozenset()
        self.port = 0

    async def start(self, port: int = 0) -> None:
        # without `handler_cancellation` nobody would notice that a client has gone
        server = web.Server(
            self._handle,
            request_factory=_make_request,
            handler_cancellation=True,
            access_log=None,
            max_line_size=_LONGEST_HEADER_BYTES,
            max_field_size=_LONGEST_HEADER_BYTES,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, HOST, port, backlog=1024).start()
        except OSError as error:
            await self._runner.cleanup()
            raise OptionError(f"the gateway cannot have port {port}: {error}") from error
        self.port = self._runner.addresses[0][1]
        self._hosts = frozenset(f"{host}:{self.port}" for host in (HOST, "localhost"))
        PORTS.add(self.port)

    async def close(self) -> None:
        PORTS.discard(self.port)
        await cancel(self._underway.relays)
        if self._runner is not None:
            await self._runner.cleanup()

    # -- one request

    async def _handle(self, request: BaseRequest) -> web.StreamResponse:
        try:
            self._refuse_foreigners(request)
            asked = self._asked(request)
            try:
                return await self._answered(request, asked)
            except Refused as refusal:
                asked.holder.last_error = refusal.status, str(refusal)
                raise
        except ConnectionError:
            return web.Response()  # for nobody: the client has gone
        except Refused as refusal:
            return _error(request, refusal.status, str(refusal))
        except web.HTTPRequestEntityTooLarge:
            return _error(request, 413, f"the body is larger than {LARGEST_BODY_BYTES >> 20} MB")
        except Exception:  # the boundary of one request: another's must not end with it
            _LOG.exception("the gateway failed at a request")
            return _error(request, 500, "the gateway failed at this request; evalve's log says why")

    def _refuse_foreigners(self, request: BaseRequest) -> None:
        """A page in a browser that has made its name point here says its own name."""
        if request.headers.get("host", "").lower() not in self._hosts:
            raise Refused(403, f"this gateway serves {HOST}:{self.port} only")
        if request.headers.get("upgrade", "").lower() == "websocket":
            raise Refused(426, "the gateway speaks HTTP, not WebSocket")
        if (request.content_length or 0) > LARGEST_BODY_BYTES:
            raise Refused(413, f"the body is larger than {LARGEST_BODY_BYTES >> 20} MB")

    def _asked(self, request: BaseRequest) -> _Asked:
        path, _, query = request.raw_path.partition("?")
        first, *rest = path.split("/")[1:]
        if first == "t" and rest:
            token, *rest = rest
            holder = self._leases.holder(unquote(token))
        else:
            rest = [first, *rest]
            keys = [key for _, key in keys_in(_lower(request), query)]
            holder = next((found for key in keys if (found := self._leases.holder(key))), None)
        if holder is None:
            raise Refused(
                401,
                "this token is unknown to the gateway: it is made anew for every run and every sample;"
                " use the address that evalve gave",
            )
        name = unquote(rest[0]) if rest else ""
        upstream = self._upstreams.get(name)
        if upstream is None:
            known = ", ".join(self._upstreams)
            hint = suggestion(name, list(self._upstreams)) or f"; there are: {known}"
            raise Refused(404, f"the gateway has no upstream {name!r}{hint}; evalve.yaml's models: adds more")
        if upstream.address_variable:
            raise Refused(
                404,
                f"the address of {name!r} is not known: set {upstream.address_variable} where evalve runs",
            )
        return _Asked(holder, upstream, "/" + "/".join(rest[1:]), query)

    async def _answered(self, request: BaseRequest, asked: _Asked) -> web.StreamResponse:
        if request.method == "HEAD" and asked.path == "/":
            return web.Response()  # Claude Code looks first whether anybody is there
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body = await request.read()
        sample = self._sample(request, asked.holder)
        outgoing = self._outgoing(request, asked, body)
        if asking := asking_for_usage(outgoing, asked.upstream):
            outgoing = asking
        sender = self._senders.get(asked.upstream.name) or self._senders[""]
        found = recognised(outgoing) if request.method == "POST" else None
        if found is None:
            is_told = request.method == "POST" and may_ask_a_model(outgoing)
            return await pass_on(request, outgoing, sender, sample, self._gate if is_told else None)
        self._refuse_keyless(asked.upstream, outgoing)
        relay = partial(Relay, self._gate, outgoing, found[1], sender, sample, hides_usage=asking is not None)
        return await self._relayed(request, outgoing, found[1], asked.holder, sample, relay)

    def _sample(self, request: BaseRequest, holder: Holder) -> SampleContext | None:
        tag = request.headers.get(SAMPLE_HEADER)
        tagged = self._leases.tagged(tag) if tag is not None and holder.context is None else None
        return calling_from_outside(tagged) if tagged is not None else holder.context

    def _outgoing(self, request: BaseRequest, asked: _Asked, body: bytes) -> Request:
        headers, query = with_real_key(
            _lower(request),
            asked.query,
            asked.upstream,
            is_token=lambda key: self._leases.holder(key) is not None,
            keeps_own=asked.holder.keeps_own_keys,
        )
        return Request(request.method, asked.upstream.url_for(asked.path, query), headers, body)

    def _refuse_keyless(self, upstream: Upstream, outgoing: Request) -> None:
        if upstream.key_variable and not keys_in(outgoing.headers, outgoing.url.partition("?")[2]):
            raise Refused(
                401,
                f"the gateway has no key for {upstream.name}: set {upstream.key_variable} where evalve runs",
            )

    async def _relayed(
        self,
        request: BaseRequest,
        outgoing: Request,
        call: Call,
        holder: Holder,
        sample: SampleContext | None,
        start: Callable[[], Relay],
    ) -> web.StreamResponse:
        key = _identity(holder, sample, outgoing)
        relay = self._underway.adopted(key)
        if relay is None:
            relay = start()
            relay.head.add_done_callback(partial(_note_error, holder, outgoing))
            self._underway.add(key, relay, holder)
        delivery = Delivery(request, outgoing, call, relay, self._patience)
        try:
            return await delivery.done()
        except Stopped:
            raise Refused(503, "the run has stopped, and its calls with it") from None
        except (asyncio.CancelledError, ConnectionError):
            self._underway.client_gone(key, relay)
            raise


def _note_error(holder: Holder, outgoing: Request, head: asyncio.Future[Head]) -> None:
    """Before the client is told: its program may fail of it, and say little."""
    if head.cancelled() or head.exception() is not None:
        return
    told = head.result()
    keys = [key for _, key in keys_in(outgoing.headers, outgoing.url.partition("?")[2])]
    text = without_secrets(words.error_text(told.body or b""), keys) if told.is_failure else ""
    holder.last_error = (told.status, text) if told.is_failure else None


def _identity(holder: Holder, sample: SampleContext | None, outgoing: Request) -> tuple[Any, ...]:
    """What makes a request the same as another one of the same try."""
    whose = (
        () if sample is None else (sample.evaluation_key, sample.sample_id, sample.repeat, sample.try_number)
    )
    return (holder.token, whose, outgoing.url, hashlib.sha256(outgoing.body).digest())


def _error(request: BaseRequest, status: int, message: str) -> web.Response:
    body = words.error_body(
        status, f"evalve's gateway: {message}", is_google=":" in request.path.rpartition("/")[2]
    )
    response = web.Response(status=status, body=body, content_type="application/json")
    response.headers["x-should-retry"] = "false"
    if not request.content.is_eof():
        response.force_close()  # what is left of the body is not read
    return response


def _make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: Any, loop: Any = None
) -> BaseRequest:
    running = asyncio.get_running_loop()
    return BaseRequest(message, payload, protocol, writer, task, running, client_max_size=LARGEST_BODY_BYTES)


def _lower(request: BaseRequest) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}
