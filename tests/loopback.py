"""Servers on the loopback interface that misbehave, encrypt or forward, and a gate that only passes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from evalve.gate.messages import Reply, Request, Sender, StreamedReply

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class PassThrough:
    """A gate without limits, cache and retries."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.passed: list[str] = []

    def passed_by(self, url: str) -> None:
        self.passed.append(url)

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        self.requests.append(request)
        return await sender.send(request)

    def stream(self, request: Request, sender: Sender) -> AbstractAsyncContextManager[StreamedReply]:
        self.requests.append(request)
        return sender.stream(request)


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A raw server on this loop; gives its port."""
    under_way: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            under_way.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(under_way):
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await server.wait_closed()


@contextmanager
def serving_in_thread(handler: Handler, *, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The same on a loop and a thread of its own."""
    ports: list[int] = []
    started = threading.Event()
    stops: list[Callable[[], object]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with serving(handler, tls=tls) as port:
            ports.append(port)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait(60)
    try:
        yield ports[0]
    finally:
        stops[0]()
        thread.join()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Request line, headers in lower case, body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    return line, headers, await reader.readexactly(int(headers.get("content-length", "0")))


def answering(response: bytes) -> Handler:
    """Gives every request of a connection the same bytes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(response)
            await writer.drain()

    return handle


def refusing_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class CountingProxy:
    """An HTTP proxy for plain requests and tunnels; remembers the first lines and passwords it saw."""

    lines: list[str] = field(default_factory=list)
    passwords: list[str | None] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.decode("latin-1").partition("\r\n")
        self.lines.append(line)
        headers = dict(each.lower().split(": ", 1) for each in rest.rstrip().split("\r\n"))
        self.passwords.append(headers.get("proxy-authorization"))
        method, target, version = line.split()
        authority = target if method == "CONNECT" else target.split("/")[2]
        host, _, port = authority.partition(":")
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + target.split("/", 3)[3]
            upstream_writer.write(f"{method} {path} {version}\r\n{rest}".encode("latin-1"))
        try:
            await asyncio.gather(_pour(reader, upstream_writer), _pour(upstream_reader, writer))
        finally:
            upstream_writer.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def make_certificates(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that only itself vouches for, and its key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    subprocess.run(
        [
            *command.split(),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
