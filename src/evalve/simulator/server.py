"""The simulator as an HTTP server on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.web_request import BaseRequest

from evalve.clock import LOOP_CLOCK, Clock
from evalve.errors import OptionError
from evalve.simulator.behaviour import Behaviour
from evalve.simulator.reading import read_behaviour
from evalve.simulator.service import Service
from evalve.simulator.stats import Stats

_HOST = "127.0.0.1"
_LARGEST_BODY_BYTES = 32 * 1024 * 1024
_LARGEST_BATCH_BYTES = 256 * 1024 * 1024


class Simulator:
    """A provider that behaves like one, at `url` while it runs.

    `async with Simulator(behaviour) as sim:` serves on the caller's loop, and
    `with Simulator(behaviour).start_in_thread() as sim:` on a loop of its own.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        host: str = _HOST,
        port: int = 0,
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        if host not in (_HOST, "localhost"):
            raise OptionError(f"the simulator serves on {_HOST} only, not on {host!r}")
        self._service = Service(behaviour or Behaviour(), clock)
        self._port = port
        self._runner: web.ServerRunner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self.url = ""

    @property
    def stats(self) -> Stats:
        """What it saw since its start or its last reset; live."""
        return self._service.stats

    def adopt(self, behaviour: Behaviour) -> None:
        """Behave so from now on; what was used of the limits stays used. From any thread."""
        self._on_loop(lambda: self._service.adopt(behaviour))

    def reset(self) -> None:
        """Forget all that was seen and used. From any thread."""
        self._on_loop(self._service.reset)

    def recent_requests(self, limit: int = 100) -> list[dict[str, Any]]:
        """The latest requests, oldest first, with hashed keys."""
        return self._service.recent.latest(limit)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        # without `handler_cancellation` an answer would go on for a client that went away
        server = web.Server(
            self._handle, request_factory=_make_request, handler_cancellation=True, access_log=None
        )
        # a client that hangs on a hung answer must not keep the simulator from ending
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, _HOST, self._port, backlog=4096).start()
        except OSError as error:
            await self._runner.cleanup()
            raise OptionError(f"port {self._port} cannot be had: {error}") from error
        self.url = f"http://{_HOST}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = self._loop = None

    @contextmanager
    def start_in_thread(self) -> Iterator[Self]:
        """Serve on a thread of its own until the block ends."""
        started = threading.Event()
        failures: list[BaseException] = []
        stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

        async def serve() -> None:
            async with self:
                stop = asyncio.Event()
                stops.append((asyncio.get_running_loop(), stop))
                started.set()
                await stop.wait()

        def run() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:  # handed to the thread that waits for the start
                failures.append(error)
                started.set()

        thread = threading.Thread(target=run, name="evalve-simulator", daemon=True)
        thread.start()
        started.wait()
        if failures:
            raise failures[0]
        try:
            yield self
        finally:
            loop, stop = stops[0]
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    async def _handle(self, request: BaseRequest) -> web.StreamResponse:
        path, query, routes = request.rel_url.path, request.rel_url.query_string, self._service.routes
        if path.startswith("/_simulator/"):
            return await self._control(request, f"{request.method} {path}")
        try:
            if request.method == "POST" and (api := routes.answering(path, query)) is not None:
                return await self._service.answer(request, api)
            if request.method == "POST" and (counting := routes.counting(path, query)) is not None:
                return await self._service.count_tokens(request, counting)
            if (batch := await self._service.batch(request)) is not None:
                return batch
        except web.HTTPRequestEntityTooLarge:
            return self._service.too_big(request, routes.nearest(path, query, request.headers))
        if request.method == "HEAD" and path == "/":
            return web.Response()  # Claude Code asks before its first call whether anybody is there
        if request.headers.get("upgrade", "").lower() == "websocket":
            return web.Response(status=426)  # Codex then goes on over HTTP
        if request.method == "GET" and (stored := self._service.stored(request)) is not None:
            return stored
        return self._service.not_found(request, routes.nearest(path, query, request.headers))

    async def _control(self, request: BaseRequest, what: str) -> web.StreamResponse:
        """The back door: statistics, reset, another behaviour, the latest requests."""
        match what:
            case "GET /_simulator/stats":
                return web.json_response({**self.stats.as_dict(), "cpu_s": time.process_time()})
            case "GET /_simulator/requests":
                limit = request.query.get("limit", "100")
                if not limit.isdecimal():
                    return web.json_response(
                        {"error": f"limit is {limit!r}; it must be a number"}, status=400
                    )
                return web.json_response(self.recent_requests(int(limit)))
            case "POST /_simulator/reset":
                self._service.reset()
                return web.json_response({"reset": True})
            case "POST /_simulator/behaviour":
                try:
                    self._service.adopt(read_behaviour(json.loads(await request.read())))
                except (OptionError, ValueError) as error:
                    return web.json_response({"error": str(error)}, status=400)
                return web.json_response({"adopted": True})
        return web.json_response({"error": f"the simulator knows no {what}"}, status=404)

    def _on_loop(self, act: Callable[[], None]) -> None:
        async def acted() -> None:
            act()

        loop = self._loop
        if loop is None:
            raise RuntimeError("the simulator is not running")
        if threading.get_ident() == self._thread_id:
            act()
        else:
            asyncio.run_coroutine_threadsafe(acted(), loop).result()


def _make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> BaseRequest:
    """As aiohttp makes it, but for bodies as large as a provider takes."""
    is_batch = message.path.endswith(("/batches", "/files"))
    largest = _LARGEST_BATCH_BYTES if is_batch else _LARGEST_BODY_BYTES
    return BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=largest)
