"""The gateway of a process: started when it is first needed, lent to attempts and to whole processes."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from evalve.contracts import GatewayLease, SampleContext
from evalve.gate.background import BackgroundLoop
from evalve.gate.doors.gateway.leases import Holder, Leases, Tag, calling_from_outside
from evalve.gate.doors.gateway.relay import finish
from evalve.gate.doors.gateway.server import HOST, GatewayServer

LAST_ANSWERS_S = 5.0
"""For so long an attempt that has ended waits for answers that it has paid for, so that they count as its
own. What comes later counts for the run."""


class Gateway:
    """Serves on the background loop, which goes on while a sync client blocks any other. From any thread."""

    def __init__(
        self, server_with: Callable[[Leases], GatewayServer], background: BackgroundLoop, *, port: int = 0
    ) -> None:
        self._leases = Leases()
        self._server = server_with(self._leases)
        self._background = background
        self._asked_port = port
        self._starting = threading.Lock()
        self._is_started = False

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        with self._starting:
            if not self._is_started:
                # in an empty context: a server goes on in that of its start, and would take every call for
                # one of the sample that happened to need it first
                start = self._server.start(self._asked_port)
                contextvars.Context().run(self._background.call, start)
                self._is_started = True

    def close(self) -> None:
        with self._starting:
            if self._is_started:
                self._is_started = False
                with suppress(
                    RuntimeError, asyncio.CancelledError
                ):  # the loop has ended, and the server with it
                    self._background.call(self._server.close())

    def lender(self, *, caches: bool = False) -> GatewayLender:
        return GatewayLender(self, caches=caches)

    def lent_to_process(self) -> GatewayLease:
        """For a whole process: its calls are tagged with their sample, or belong to none."""
        self.start()
        return self._lease(self._leases.add(None, keeps_own_keys=True))

    def tag(self, context: SampleContext) -> Tag:
        return self._leases.tag(context)

    @asynccontextmanager
    async def lent(self, context: SampleContext, *, caches: bool) -> AsyncIterator[GatewayLease]:
        if not self._is_started:
            await asyncio.to_thread(self.start)
        holder = self._leases.add(calling_from_outside(context, caches=caches), keeps_own_keys=False)
        try:
            yield self._lease(holder)
        finally:
            self._leases.remove(holder)
            if holder.relays:
                with suppress(RuntimeError):  # the loop has ended
                    ending = self._background.submit(finish(holder.relays, within_s=LAST_ANSWERS_S))
                    await asyncio.wrap_future(ending)

    def _lease(self, holder: Holder) -> GatewayLease:
        address = f"http://{HOST}:{self.port}/t/{holder.token}"
        return GatewayLease(address, holder.token, last_error=lambda: holder.last_error)


class GatewayLender:
    """Lends each attempt an address of its own, under which its programs call their providers.

    With `caches`, answers come from the cache and are kept in it, as the run's mode says. That is not the
    rule: what an agent does between two equal calls is no part of them.
    """

    def __init__(self, gateway: Gateway, *, caches: bool) -> None:
        self._gateway = gateway
        self._caches = caches

    @property
    def settings(self) -> dict[str, str]:
        return {"cache": "on"} if self._caches else {}

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[GatewayLease]:
        async with self._gateway.lent(context, caches=self._caches) as lease:
            yield lease
