"""Sends over the transports of `httpx2` or `httpx`, where a client brings network settings of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import importlib.util
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from evalve.gate.doors.httpx_parts import Library
from evalve.gate.messages import Reply, Request, SendError, StreamedReply
from evalve.gate.sender import FRAMING, env_proxy, with_date

T = TypeVar("T")

_DEFAULTS = {
    "transport": None,
    "proxy": None,
    "mounts": None,
    "verify": True,
    "cert": None,
    "trust_env": True,
    "http2": False,
}
_HUNG_UP = ("disconnected", "closed connection", "terminated", "ConnectionTerminated")
_CONNECTION_OPTIONS = ("verify", "cert", "trust_env", "http1", "http2", "limits")


def has_own_network(options: Mapping[str, Any]) -> bool:
    """Whether a client's options say how to connect, so that our own sender would not obey them."""
    return any(options.get(name, default) is not default for name, default in _DEFAULTS.items())


class Network:
    """The transports that a client would have without us: its proxy's, its own, or the environment's."""

    def __init__(self, library: Library, transport_type: str, options: Mapping[str, Any]) -> None:
        self._make = getattr(library, transport_type)
        self._options = {name: options[name] for name in _CONNECTION_OPTIONS if name in options}
        self._trusts_env = options.get("trust_env", True)
        self._making = threading.Lock()
        self._by_proxy: dict[str | None, Any] = {}
        proxy, self.given = options.get("proxy"), options.get("transport")
        self._only = self.given if proxy is None else self._make(proxy=proxy, **self._options)

    def transport_for(self, url: Any) -> Any:
        if self._only is not None:
            return self._only
        proxy = env_proxy(url.scheme, url.host) if self._trusts_env else None
        with self._making:
            if proxy not in self._by_proxy:
                self._by_proxy[proxy] = self._make(proxy=proxy, **self._options)
            return self._by_proxy[proxy]

    def transports(self) -> list[Any]:
        """All that there are by now, for closing."""
        every = (self.given, self._only, *self._by_proxy.values())
        return list({id(each): each for each in every if each is not None}.values())


class AsyncTransportSender:
    """Sends over an async transport. `extensions` are httpx's: timeouts, and what else a caller asked for."""

    def __init__(self, library: Library, transport: Any, extensions: Mapping[str, Any]) -> None:
        self._library = library
        self._transport = transport
        self._extensions = extensions

    async def send(self, request: Request) -> Reply:
        async with self.stream(request) as live:
            body = b"".join([chunk async for chunk in live.chunks])
        return Reply(live.status, live.headers, body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedReply]:
        theirs = _as_their_request(self._library, request, self._extensions)
        with _errors_as_ours(self._library, request):
            response = await self._transport.handle_async_request(theirs)
        try:
            _refuse_unknown_packing(request, response)
            chunks = self._chunks(request, response)
            yield StreamedReply(response.status_code, _own_headers(response), chunks)
        finally:
            await response.aclose()

    async def _chunks(self, request: Request, response: Any) -> AsyncIterator[bytes]:
        with _errors_as_ours(self._library, request):
            async for chunk in response.aiter_bytes():
                yield chunk


class ThreadTransportSender:
    """The same over a transport that blocks: each step gets a thread.

    Not a pool's: its size would be a hidden limit, and an interpreter that ends waits for its threads.
    """

    def __init__(self, library: Library, transport: Any, extensions: Mapping[str, Any]) -> None:
        self._library = library
        self._transport = transport
        self._extensions = extensions

    async def send(self, request: Request) -> Reply:
        async with self.stream(request) as live:
            body = b"".join([chunk async for chunk in live.chunks])
        return Reply(live.status, live.headers, body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedReply]:
        response = await _in_thread(functools.partial(self._open, request), _hang_up)
        try:
            _refuse_unknown_packing(request, response)
            chunks = self._chunks(request, response)
            yield StreamedReply(response.status_code, _own_headers(response), chunks)
        finally:
            _hang_up(response)

    def _open(self, request: Request) -> Any:
        theirs = _as_their_request(self._library, request, self._extensions)
        with _errors_as_ours(self._library, request):
            return self._transport.handle_request(theirs)

    async def _chunks(self, request: Request, response: Any) -> AsyncIterator[bytes]:
        chunks = response.iter_bytes()
        with _errors_as_ours(self._library, request):
            while (chunk := await _in_thread(lambda: next(chunks, None))) is not None:
                yield chunk


async def _in_thread(step: Callable[[], T], drop: Callable[[T], None] = lambda _: None) -> T:
    """A blocking step's result; `drop` gets it when nobody waits for it any more."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(_settle, future, step), daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda done: None if done.exception() else drop(done.result()))
        raise


def _settle(future: Future[T], step: Callable[[], T]) -> None:
    try:
        future.set_result(step())
    except BaseException as error:  # raised again where it is awaited
        future.set_exception(error)


def _hang_up(response: Any) -> None:
    """Close a response, also while another thread reads it: a plain close would wait for that read."""
    network = response.extensions.get("network_stream")
    if not response.is_closed and network is not None and response.http_version == "HTTP/1.1":
        with contextlib.suppress(OSError):
            network.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    response.close()


def _as_their_request(library: Library, request: Request, extensions: Mapping[str, Any]) -> Any:
    return library.Request(
        request.method,
        request.url,
        headers=dict(request.headers),
        content=request.body,
        extensions=dict(extensions),
    )


def _own_headers(response: Any) -> dict[str, str]:
    return with_date({name: value for name, value in response.headers.items() if name not in FRAMING})


@contextmanager
def _errors_as_ours(library: Library, request: Request) -> Iterator[None]:
    not_reached = (
        library.ConnectError,
        library.ConnectTimeout,
        library.PoolTimeout,
        library.ProxyError,
        library.UnsupportedProtocol,
        library.LocalProtocolError,
    )
    try:
        yield
    except library.RequestError as error:
        told = str(error) or "no reason given"
        raise SendError(
            f"{request.method} {request.url.partition('?')[0]}: {told} ({type(error).__name__})",
            reached=not isinstance(error, not_reached),
            timed_out=isinstance(error, library.TimeoutException),
            is_unreadable=_is_unreadable(library, error),
        ) from error


def _is_unreadable(library: Library, error: Exception) -> bool:
    """What came is not HTTP, or packed as nobody asked for; a server that hung up may yet answer."""
    if isinstance(error, library.RemoteProtocolError):
        return not any(sign in str(error) for sign in _HUNG_UP)
    return isinstance(error, library.DecodingError)


def _refuse_unknown_packing(request: Request, response: Any) -> None:
    """Both libraries hand on as it is what they cannot unpack."""
    packed = {each.strip().lower() for each in response.headers.get("content-encoding", "").split(",")}
    if unknown := packed - _unpacked():
        raise SendError(
            f"{request.method} {request.url.partition('?')[0]}: the answer is packed as"
            f" {', '.join(sorted(unknown))}, which nobody asked for and nobody here can read",
            reached=True,
            is_unreadable=True,
        )


@functools.cache
def _unpacked() -> frozenset[str]:
    modules = {"br": ("brotli", "brotlicffi"), "zstd": ("zstandard",)}
    found = [name for name, places in modules.items() if any(map(importlib.util.find_spec, places))]
    return frozenset({"", "identity", "gzip", "deflate", *found})
