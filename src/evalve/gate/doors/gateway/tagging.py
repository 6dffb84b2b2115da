"""Calls of this process say which sample they belong to: a header, added by its HTTP libraries.

One client may serve all samples, so that neither its address nor its key can tell them apart. Where a request
is about to leave, the sample is known. There the libraries that SDKs send with add the header: one method of
each is wrapped, for as long as the gateway is used. Calls of other libraries belong to the run.

There it is seen, too, which calls go elsewhere: their client does not take its address from the environment.
"""

from __future__ import annotations

import functools
import http.client
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import aiohttp
from yarl import URL

from evalve.gate.doors.gateway.leases import Tag
from evalve.gate.doors.gateway.outgoing import SAMPLE_HEADER
from evalve.gate.doors.transport import AsyncGateTransport, GateTransport

TagFor = Callable[[str | None, int | None], Tag | None]
"""The tag of a call to a host and port: of the sample that is under way, if the gateway is there."""
Leaves = Callable[[str, str], None]
"""Is told the method and the address of what leaves, except by clients that pass the gate themselves."""


@contextmanager
def tagging(tag_for: TagFor, leaves: Leaves = lambda method, url: None) -> Iterator[None]:
    """In the block, calls to the gateway are tagged."""
    sync_send, async_send, put = (
        functools.partial(wrapper, leaves=leaves) for wrapper in (_httpx_send, _httpx_async_send, _putrequest)
    )
    with ExitStack() as wrapped:
        for name in ("httpx2", "httpx"):
            if importlib.util.find_spec(name):
                library = importlib.import_module(name)
                wrapped.enter_context(_wrapping(library.Client, "send", sync_send, tag_for))
                wrapped.enter_context(_wrapping(library.AsyncClient, "send", async_send, tag_for))
        wrapped.enter_context(_wrapping(aiohttp.ClientSession, "_request", _aiohttp_request, tag_for))
        wrapped.enter_context(_wrapping(http.client.HTTPConnection, "putrequest", put, tag_for))
        yield


Method = Callable[..., Any]


@contextmanager
def _wrapping(
    owner: type, name: str, wrapper: Callable[[Method, TagFor], Method], tag_for: TagFor
) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrapper(original, tag_for)))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _httpx_send(original: Method, tag_for: TagFor, leaves: Leaves) -> Method:
    def send(client: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        tag = _tagged(client, request, tag_for, leaves)  # noqa: F841 - it lives as long as it is held
        return original(client, request, *args, **kwargs)

    return send


def _httpx_async_send(original: Method, tag_for: TagFor, leaves: Leaves) -> Method:
    async def send(client: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        tag = _tagged(client, request, tag_for, leaves)  # noqa: F841
        return await original(client, request, *args, **kwargs)

    return send


def _tagged(client: Any, request: Any, tag_for: TagFor, leaves: Leaves) -> Tag | None:
    tag = tag_for(request.url.host, request.url.port)
    if tag is not None:
        request.headers[SAMPLE_HEADER] = tag.value
    elif not isinstance(client._transport_for_url(request.url), AsyncGateTransport | GateTransport):
        leaves(request.method, str(request.url))
    return tag


def _aiohttp_request(original: Method, tag_for: TagFor) -> Method:
    async def request(session: Any, method: str, url: Any, **kwargs: Any) -> Any:
        to = URL(url)
        tag = tag_for(to.host, to.port)
        if tag is not None:
            kwargs["headers"] = {**dict(kwargs.get("headers") or {}), SAMPLE_HEADER: tag.value}
        return await original(session, method, url, **kwargs)

    return request


def _putrequest(original: Method, tag_for: TagFor, leaves: Leaves) -> Method:
    """Of `requests`, `urllib3`, `urllib` and boto3."""

    def putrequest(connection: Any, method: str, url: str, *args: Any, **kwargs: Any) -> None:
        original(connection, method, url, *args, **kwargs)
        tag = connection.__evalve_tag__ = tag_for(connection.host, connection.port)
        if tag is not None:
            connection.putheader(SAMPLE_HEADER, tag.value)
        else:
            leaves(method, _address(connection, url))

    return putrequest


def _address(connection: Any, url: str) -> str:
    """Of a request over a proxy, `url` has the host in it; in a tunnel the connection knows it."""
    if not url.startswith("/"):
        return url
    is_tls = connection.default_port == http.client.HTTPS_PORT
    host, port = connection._tunnel_host or connection.host, connection._tunnel_port or connection.port
    named = host if port in (None, connection.default_port) else f"{host}:{port}"
    return f"{'https' if is_tls else 'http'}://{named}{url}"
