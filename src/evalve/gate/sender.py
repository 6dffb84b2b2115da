"""The default way onto the network: aiohttp, one session for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import importlib.util
import re
import socket
import ssl
import threading
import urllib.request
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, BinaryIO

import aiohttp
from yarl import URL

from evalve.gate.messages import Reply, Request, SendError, StreamedReply
from evalve.secrecy import Secret

FRAMING = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
"""Headers about how a body travelled; untrue of the decoded body that we hand on."""

_OWN_REQUEST_HEADERS = frozenset({"accept-encoding", "connection", "content-length", "transfer-encoding"})
"""Set by aiohttp: it frames the body, and must be able to decode what comes back."""

_FRAMING_OF_REQUEST = _OWN_REQUEST_HEADERS - {"accept-encoding"}

_NOT_REACHED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)
_MAY_NAME_INSTANT = re.compile(r"retry-after$|rate-?limit")
_LONGEST_HEADER_BYTES = 64 * 1024
_LAST_TURNS = 20
"""How many turns a loop that ends takes for connections that are being closed."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long one try may take."""

    answer_s: float | None = 600.0
    """Until a whole answer is there; for a stream, the longest silence."""
    connect_s: float | None = 10.0


class AiohttpSender:
    """Sends over aiohttp, from any number of loops and threads.

    Bodies come out decoded; cookies are neither kept nor sent; redirects are answers.
    """

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._minds_proxies = True
        self._sessions = _Sessions()
        self._set_timeouts(timeouts or Timeouts())
        weakref.finalize(self._sessions, _close_without_waiting, self._sessions.by_loop)

    def with_timeouts(self, timeouts: Timeouts) -> AiohttpSender:
        """The same sessions under other timeouts."""
        sender = copy.copy(self)
        sender._set_timeouts(timeouts)
        return sender

    def direct(self) -> AiohttpSender:
        """The same sessions past any proxy, for a server that this process has started itself."""
        sender = copy.copy(self)
        sender._minds_proxies = False
        return sender

    def _set_timeouts(self, timeouts: Timeouts) -> None:
        # aiohttp's own types, made once: they are in the way of every request
        self._whole = aiohttp.ClientTimeout(total=timeouts.answer_s, connect=timeouts.connect_s)
        self._streamed = aiohttp.ClientTimeout(
            total=None, connect=timeouts.connect_s, sock_read=timeouts.answer_s
        )

    async def send(self, request: Request) -> Reply:
        with _errors_as_ours(request):
            response = await self._open(request, self._whole)
            body = await response.read()
        return Reply(response.status, _own_headers(response.headers), body)

    async def send_file(
        self, request: Request, file: BinaryIO, *, form: Mapping[str, str] | None = None
    ) -> Reply:
        """The same with a file as the body, read as it goes; with `form`, as its field `file`."""
        data: Any = file
        if form is not None:
            data = aiohttp.FormData(dict(form))
            data.add_field("file", file, filename="requests.jsonl", content_type="application/jsonl")
        with _errors_as_ours(request):
            response = await self._open(request, self._whole, data)
            body = await response.read()
        return Reply(response.status, _own_headers(response.headers), body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedReply]:
        with _errors_as_ours(request):
            response = await self._open(request, self._streamed)
        chunks = _chunks(request, response)
        try:
            yield StreamedReply(response.status, _own_headers(response.headers), chunks)
        finally:
            # closing, not releasing: what was not read must stop coming
            response.close()
            await chunks.aclose()

    async def aclose(self) -> None:
        """Close the sessions of all loops; the next use opens new ones."""
        await self._sessions.aclose()

    async def _open(
        self, request: Request, allowed: aiohttp.ClientTimeout, data: Any = None
    ) -> aiohttp.ClientResponse:
        opened = self._sessions.by_loop.get(asyncio.get_running_loop()) or await self._sessions.open()
        url = URL(request.url, encoded=True)
        # what is signed must arrive as it was signed; aiohttp still frames the body as it likes
        own = _FRAMING_OF_REQUEST if _is_signed(request) else _OWN_REQUEST_HEADERS
        headers = {name: value for name, value in request.headers.items() if name not in own}
        proxy = opened.proxy_for(url) if self._minds_proxies else _NO_PROXY
        return await opened.session.request(
            request.method,
            url,
            data=data or request.body or None,
            headers=headers | proxy.headers_for_http if url.scheme == "http" else headers,
            # a server may take bytes of no type for JSON, but not those of another type; forms name their own
            skip_auto_headers=("content-type",) if data is None else None,
            allow_redirects=False,
            timeout=allowed,
            proxy=proxy.url,
            proxy_headers=proxy.headers_for_https,
            ssl=_tls() if "https" in (url.scheme, proxy.url and proxy.url.scheme) else True,
        )


def _is_signed(request: Request) -> bool:
    """Whether its headers are part of a signature, as Amazon's are."""
    return request.headers.get("authorization", "").startswith("AWS4-")


async def _chunks(request: Request, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    with _errors_as_ours(request):
        async for chunk in response.content.iter_any():
            yield chunk


@contextmanager
def _errors_as_ours(request: Request) -> Iterator[None]:
    try:
        yield
    except _NOT_REACHED as error:
        timed_out = isinstance(error, TimeoutError)
        raise SendError(_message(request, error), reached=False, timed_out=timed_out) from error
    except TimeoutError as error:
        raise SendError(_message(request, error), reached=True, timed_out=True) from error
    except aiohttp.InvalidURL as error:
        raise SendError(_message(request, error), reached=False) from error
    except aiohttp.ClientResponseError as error:
        told = f"what came cannot be read as HTTP: {' '.join(error.message.split())}"
        raise SendError(f"{_place(request)}: {told}", reached=True, is_unreadable=True) from error
    except (aiohttp.ClientError, OSError) as error:
        is_unreadable = "Can not decode content-encoding" in str(error)
        raise SendError(_message(request, error), reached=True, is_unreadable=is_unreadable) from error


def _message(request: Request, error: Exception) -> str:
    told = str(error) or ("timed out" if isinstance(error, TimeoutError) else "no reason given")
    query = request.url.partition("?")[2]
    told = told.replace(query, "***") if query else told  # aiohttp may name the whole address
    return f"{_place(request)}: {told} ({type(error).__name__})"


def _place(request: Request) -> str:
    return f"{request.method} {URL(request.url).origin()}"


def _own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Lower case, without framing; values of a repeated name are joined."""
    own: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower not in FRAMING:
            own[lower] = f"{own[lower]}, {value}" if lower in own else value
    return with_date(own)


def with_date(headers: dict[str, str]) -> dict[str, str]:
    """The headers with the date on which they came, where they name an instant at which a limit ends."""
    if "date" not in headers and any(_MAY_NAME_INSTANT.search(name) for name in headers):
        headers["date"] = formatdate(usegmt=True)
    return headers


@dataclass(frozen=True, slots=True)
class _Proxy:
    url: URL | None = None
    headers_for_http: dict[str, str] = field(default_factory=dict)
    """aiohttp sends `proxy_headers` only with CONNECT, so plain requests carry the password themselves."""
    headers_for_https: dict[str, str] | None = None


_NO_PROXY = _Proxy()


def env_proxy(url_scheme: str, host: str) -> str | None:
    """The proxy that the environment (or the system) names for a host."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url_scheme) or proxies.get("all")
    return proxy if proxy and not urllib.request.proxy_bypass(host) else None


def _proxy_for(url: URL) -> _Proxy:
    named = env_proxy(url.scheme, url.host or "")
    if named is None:
        return _Proxy()
    proxy = URL(named if "://" in named else f"http://{named}")
    if proxy.scheme not in ("http", "https"):
        reason = f"the environment names the proxy {proxy.with_user(None)}, and only HTTP proxies are spoken"
        raise SendError(f"{url.origin()}: {reason}; set NO_PROXY or HTTPS_PROXY", reached=False)
    if proxy.user is None:
        return _Proxy(proxy)
    password = Secret(aiohttp.encode_basic_auth(proxy.user, proxy.password or ""))
    headers: dict[str, str] = {"proxy-authorization": password}
    return _Proxy(proxy.with_user(None), headers, headers)


class _Opened:
    """A loop's session."""

    def __init__(self) -> None:
        # Not `trust_env`: it costs two thread hops a request, ignores ALL_PROXY, and fails when ~/.netrc
        # knows the host of a request that has its own Authorization.
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._new_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_LONGEST_HEADER_BYTES,
            max_field_size=_LONGEST_HEADER_BYTES,
        )
        self._proxies: dict[tuple[str, str | None], _Proxy] = {}
        self.end = self._until_the_end()
        self._thread = threading.current_thread()

    def proxy_for(self, url: URL) -> _Proxy:
        origin = (url.scheme, url.host)
        known = self._proxies.get(origin)
        if known is None:
            known = self._proxies[origin] = _proxy_for(url)
        return known

    def is_nobody_elses(self) -> bool:
        """Whether no other thread can be about to run the session's loop."""
        return self._thread is threading.current_thread() or not self._thread.is_alive()

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes its unfinished async generators, and so this session."""
        try:
            yield
        finally:
            await self.session.close()
            await self._sockets_closed()

    async def _sockets_closed(self) -> None:
        """A TLS connection on which a call was cancelled waits for its peer's goodbye, and nobody for it."""
        still_open = [made for made in self._sockets if made.fileno() != -1]
        for made in still_open:
            with contextlib.suppress(OSError):  # it was never connected
                made.shutdown(socket.SHUT_RDWR)
        for _ in range(_LAST_TURNS):
            if all(made.fileno() == -1 for made in still_open):
                return
            await asyncio.sleep(0)

    def _new_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = _kept_alive_socket(address)
        self._sockets.add(made)
        return made


class _Sessions:
    """Sessions by loop.

    The loops are held, not weakly referred to: a session refers to its loop, so that weak keys would
    never be dropped. An entry goes when its loop ends, at the latest when another one is made.
    """

    def __init__(self) -> None:
        self.by_loop: dict[asyncio.AbstractEventLoop, _Opened] = {}
        self._changing = threading.Lock()

    async def open(self) -> _Opened:
        loop = asyncio.get_running_loop()
        opened = _Opened()
        with self._changing:
            ended = {each: self.by_loop.pop(each) for each in list(self.by_loop) if each.is_closed()}
            self.by_loop[loop] = opened
        _close_without_waiting(ended)
        await anext(opened.end)
        return opened

    async def aclose(self) -> None:
        with self._changing:
            left = dict(self.by_loop)
            self.by_loop.clear()
        own = left.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.end.aclose()
        for closing in _close_without_waiting(left):
            await asyncio.wrap_future(closing)


def _close_without_waiting(by_loop: dict[asyncio.AbstractEventLoop, _Opened]) -> list[Future[None]]:
    """Close sessions from outside their loops; what running loops have yet to finish is returned."""
    under_way: list[Future[None]] = []
    for loop, opened in by_loop.items():
        if loop.is_closed():
            _finish_at_once(opened.session.close())
        elif loop.is_running():
            under_way.append(asyncio.run_coroutine_threadsafe(opened.end.aclose(), loop))
        elif opened.is_nobody_elses() and not _is_any_loop_running_here():
            loop.run_until_complete(opened.end.aclose())
        else:  # a loop between two runs: it closes the session when it goes on
            asyncio.run_coroutine_threadsafe(opened.end.aclose(), loop)
    return under_way


def _is_any_loop_running_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _finish_at_once(closing: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that has nothing to wait for: on a closed loop, closing only marks as closed."""
    with contextlib.suppress(StopIteration):
        closing.send(None)


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all sessions, where one is needed: reading the certificates takes tens of milliseconds."""
    context = ssl.create_default_context()
    if importlib.util.find_spec("certifi"):
        import certifi  # for systems without certificates of their own; not a dependency of ours

        context.load_verify_locations(certifi.where())
    return context


def _kept_alive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """As the SDKs do: an answer may take minutes of silence, which routers otherwise take for the end."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5)):
        if number := getattr(socket, option, None):
            made.setsockopt(socket.IPPROTO_TCP, number, value)
    return made
