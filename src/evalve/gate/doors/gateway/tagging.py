"""Calls of this process say which sample they belong to: a header, added by its HTTP libraries.

One client may serve all samples, so that neither its address nor its key can tell them apart. Where a request
is about to leave, the sample is known. There the libraries that SDKs send with add the header: one method of
each is wrapped, for as long as the gateway is used. Calls of other libraries belong to the run.
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

TagFor = Callable[[str | None, int | None], Tag | None]
"""The tag of a call to a host and port: of the sample that is under way, if the gateway is there."""


@contextmanager
def tagging(tag_for: TagFor) -> Iterator[None]:
    """In the block, calls to the gateway are tagged."""
    with ExitStack() as wrapped:
        for name in ("httpx2", "httpx"):
            if importlib.util.find_spec(name):
                library = importlib.import_module(name)
                wrapped.enter_context(_wrapping(library.Client, "send", _httpx_send, tag_for))
                wrapped.enter_context(_wrapping(library.AsyncClient, "send", _httpx_async_send, tag_for))
        wrapped.enter_context(_wrapping(aiohttp.ClientSession, "_request", _aiohttp_request, tag_for))
        wrapped.enter_context(_wrapping(http.client.HTTPConnection, "putrequest", _putrequest, tag_for))
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


def _httpx_send(original: Method, tag_for: TagFor) -> Method:
    def send(client: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        tag = tag_for(request.url.host, request.url.port)
        if tag is not None:
            request.headers[SAMPLE_HEADER] = tag.value
        return original(client, request, *args, **kwargs)

    return send


def _httpx_async_send(original: Method, tag_for: TagFor) -> Method:
    async def send(client: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        tag = tag_for(request.url.host, request.url.port)
        if tag is not None:
            request.headers[SAMPLE_HEADER] = tag.value
        return await original(client, request, *args, **kwargs)

    return send


def _aiohttp_request(original: Method, tag_for: TagFor) -> Method:
    async def request(session: Any, method: str, url: Any, **kwargs: Any) -> Any:
        to = URL(url)
        tag = tag_for(to.host, to.port)
        if tag is not None:
            kwargs["headers"] = {**dict(kwargs.get("headers") or {}), SAMPLE_HEADER: tag.value}
        return await original(session, method, url, **kwargs)

    return request


def _putrequest(original: Method, tag_for: TagFor) -> Method:
    """Of `requests`, `urllib3` and `urllib`."""

    def putrequest(connection: Any, *args: Any, **kwargs: Any) -> None:
        original(connection, *args, **kwargs)
        tag = connection.__evalve_tag__ = tag_for(connection.host, connection.port)
        if tag is not None:
            connection.putheader(SAMPLE_HEADER, tag.value)

    return putrequest
