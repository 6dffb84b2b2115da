"""HTTP clients for SDKs: `AsyncAnthropic(http_client=async_http_client(gate))` passes the gate unchanged.

Calls that a dialect reads go through the gate; everything else goes the way it would go without us.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, overload

from evalve.gate.background import SHARED, BackgroundLoop
from evalve.gate.dialects.finding import recognised
from evalve.gate.doors.gateway.leases import is_own_gateway
from evalve.gate.doors.httpx_parts import (
    Library,
    LibraryName,
    as_gate_request,
    async_stream,
    final_headers,
    library_named,
    may_be_json_post,
    misfit_response,
    sync_stream,
    timeouts_of,
    unanswered_response,
    whole_response,
)
from evalve.gate.doors.httpx_senders import (
    AsyncTransportSender,
    Network,
    ThreadTransportSender,
    has_own_network,
)
from evalve.gate.messages import Call, Reply, Request, Sender, SendError, StreamedReply
from evalve.gate.sender import AiohttpSender, Timeouts
from evalve.gate.ungated import gives_a_file_to_a_model, may_ask_a_model

if TYPE_CHECKING:
    import httpx
    import httpx2

_NETWORK_OPTIONS = frozenset(
    {"transport", "proxy", "mounts", "verify", "cert", "trust_env", "http1", "http2", "limits"}
)


class GateLike(Protocol):
    """The gate, as doors see it."""

    async def exchange(self, request: Request, sender: Sender) -> Reply: ...

    def stream(self, request: Request, sender: Sender) -> AbstractAsyncContextManager[StreamedReply]: ...

    def passed_by(self, url: str) -> None: ...


@overload
def async_http_client(
    gate: GateLike,
    *,
    library: Literal["httpx2"] | None = None,
    sender: AiohttpSender | None = None,
    **client_options: Any,
) -> httpx2.AsyncClient: ...


@overload
def async_http_client(
    gate: GateLike, *, library: Literal["httpx"], sender: AiohttpSender | None = None, **client_options: Any
) -> httpx.AsyncClient: ...


def async_http_client(
    gate: GateLike,
    *,
    library: LibraryName | None = None,
    sender: AiohttpSender | None = None,
    **client_options: Any,
) -> Any:
    """An `AsyncClient` whose calls to models pass the gate.

    `client_options` are the client's own. With a transport, proxy, mounts, verify, cert, trust_env or
    http2 among them, calls are sent over what these say; without, over `sender`.
    """
    module = library_named(library)

    def through_gate(network_options: dict[str, Any]) -> AsyncGateTransport:
        network = Network(module, "AsyncHTTPTransport", network_options)
        return AsyncGateTransport(gate, module, network, _Senders(network_options, sender))

    return module.AsyncClient(**_options_with(module, client_options, through_gate))


@overload
def http_client(
    gate: GateLike,
    *,
    library: Literal["httpx2"] | None = None,
    sender: AiohttpSender | None = None,
    background: BackgroundLoop = SHARED,
    **client_options: Any,
) -> httpx2.Client: ...


@overload
def http_client(
    gate: GateLike,
    *,
    library: Literal["httpx"],
    sender: AiohttpSender | None = None,
    background: BackgroundLoop = SHARED,
    **client_options: Any,
) -> httpx.Client: ...


def http_client(
    gate: GateLike,
    *,
    library: LibraryName | None = None,
    sender: AiohttpSender | None = None,
    background: BackgroundLoop = SHARED,
    **client_options: Any,
) -> Any:
    """A `Client` like `async_http_client`'s; the gate runs on the background loop."""
    module = library_named(library)

    def through_gate(network_options: dict[str, Any]) -> GateTransport:
        network = Network(module, "HTTPTransport", network_options)
        return GateTransport(gate, module, network, _Senders(network_options, sender), background)

    return module.Client(**_options_with(module, client_options, through_gate))


def _options_with(
    library: Library, options: dict[str, Any], through_gate: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """The client's options, with our transport around those it would have used."""
    network_options = {name: value for name, value in options.items() if name in _NETWORK_OPTIONS}
    mounts = network_options.get("mounts") or {}
    # what the SDKs set on clients of their own making; httpx's five seconds are too short for a model
    usual = {"timeout": library.Timeout(600.0, connect=10.0), "follow_redirects": True}
    rest = {name: value for name, value in options.items() if name not in _NETWORK_OPTIONS}
    return {
        **usual,
        **rest,
        "transport": through_gate(network_options),
        "mounts": {
            pattern: None if mounted is None else through_gate({"transport": mounted})
            for pattern, mounted in mounts.items()
        },
    }


class _Senders:
    """Who carries a request: our sender, under the request's timeouts, or nobody of ours."""

    def __init__(self, network_options: dict[str, Any], sender: AiohttpSender | None) -> None:
        self._is_used = not has_own_network(network_options)
        self.owned = AiohttpSender() if self._is_used and sender is None else None
        self._sender = sender or self.owned
        self._by_timeouts: dict[Timeouts, AiohttpSender] = {}

    def for_timeouts(self, timeouts: Timeouts) -> AiohttpSender | None:
        if not self._is_used or self._sender is None:
            return None
        known = self._by_timeouts.get(timeouts)
        if known is None:
            known = self._by_timeouts[timeouts] = self._sender.with_timeouts(timeouts)
        return known


class AsyncGateTransport:
    """Stands where an `AsyncClient` expects a transport."""

    def __init__(self, gate: GateLike, library: Library, network: Network, senders: _Senders) -> None:
        self._gate = gate
        self._library = library
        self._network = network
        self._senders = senders

    async def handle_async_request(self, request: Any) -> Any:
        ours, call = _understood(self._library, request, self._gate)
        if ours is None or call is None:
            return await self._network.transport_for(request.url).handle_async_request(request)
        sender = self._senders.for_timeouts(timeouts_of(request)) or AsyncTransportSender(
            self._library, self._network.transport_for(request.url), request.extensions
        )
        try:
            if call.streams:
                return await self._begin_stream(ours, sender)
            return whole_response(self._library, await self._gate.exchange(ours, sender))
        except SendError as error:
            return unanswered_response(self._library, error)

    async def _begin_stream(self, request: Request, sender: Sender) -> Any:
        context = self._gate.stream(request, sender)
        live = await context.__aenter__()

        async def leave() -> None:
            await context.__aexit__(None, None, None)

        if live.problem is not None and live.status < 300:
            await leave()
            return misfit_response(self._library, live.problem)
        return self._library.Response(
            live.status,
            headers=final_headers(live.status, live.headers),
            stream=async_stream(self._library, live.chunks, leave),
        )

    async def aclose(self) -> None:
        if self._senders.owned is not None:
            await self._senders.owned.aclose()
        for transport in self._network.transports():
            await transport.aclose()

    async def __aenter__(self) -> Self:
        if self._network.given is not None:
            await self._network.given.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()


class GateTransport:
    """Stands where a `Client` expects a transport."""

    def __init__(
        self,
        gate: GateLike,
        library: Library,
        network: Network,
        senders: _Senders,
        background: BackgroundLoop,
    ) -> None:
        self._gate = gate
        self._library = library
        self._network = network
        self._senders = senders
        self._background = background

    def handle_request(self, request: Any) -> Any:
        ours, call = _understood(self._library, request, self._gate)
        if ours is None or call is None:
            return self._network.transport_for(request.url).handle_request(request)
        sender = self._senders.for_timeouts(timeouts_of(request)) or ThreadTransportSender(
            self._library, self._network.transport_for(request.url), request.extensions
        )
        try:
            if call.streams:
                return self._begin_stream(ours, sender)
            reply = self._background.call(self._gate.exchange(ours, sender))
            return whole_response(self._library, reply)
        except SendError as error:
            return unanswered_response(self._library, error)

    def _begin_stream(self, request: Request, sender: Sender) -> Any:
        stream = self._background.open(self._gate.stream(request, sender), lambda live: live.chunks)
        if stream.opened.problem is not None and stream.opened.status < 300:
            stream.close()
            return misfit_response(self._library, stream.opened.problem)
        return self._library.Response(
            stream.opened.status,
            headers=final_headers(stream.opened.status, stream.opened.headers),
            stream=sync_stream(self._library, stream, stream.close),
        )

    def close(self) -> None:
        if self._senders.owned is not None:
            self._background.call(self._senders.owned.aclose())
        for transport in self._network.transports():
            transport.close()

    def __enter__(self) -> Self:
        if self._network.given is not None:
            self._network.given.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()


def _understood(library: Library, request: Any, gate: GateLike) -> tuple[Request | None, Call | None]:
    """The request and the call in it, where there is one; what goes past the gate is told to it."""
    if is_own_gateway(str(request.url)):
        return None, None
    if not may_be_json_post(request):
        url, content_type = str(request.url), request.headers.get("content-type", "")
        if request.method == "POST" and gives_a_file_to_a_model(url, content_type):
            gate.passed_by(url)
        return None, None
    ours = as_gate_request(library, request)
    found = recognised(ours) if ours is not None else None
    if found is None and (ours is None or may_ask_a_model(ours)):
        gate.passed_by(str(request.url))
    return ours, found[1] if found is not None else None
