"""A pool: clients or connections, made when they are needed, each lent to one attempt at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from evalve.callers import caller
from evalve.contracts import SampleContext
from evalve.errors import DeclarationError, LenderError

_LOG = logging.getLogger(__name__)

WAITS_FOR_POOL = "pool"
"""Why a sample waits (`Tally.waiting`) while others have everything that the pool holds."""
_CLOSED_WITHIN_S = 10.0
"""A client that does not close must not hold up the run that discards it."""


class Pool:
    """Lends each attempt a client that no other attempt has meanwhile.

    `make` makes one: a function, sync or async. A context manager that it returns is entered, and left when
    the client is closed. At most `size` clients exist at once for an event loop, and they are closed with
    it: a client of asyncio works on the loop that it was made on, and on no other.

    A client comes back after `reset(client)`, if given. After a try that raised, it is closed and replaced:
    a connection may be in the middle of something. `close(client)` closes what is not a context manager.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        size: int = 4,
        *,
        reset: Callable[[Any], Any] | None = None,
        close: Callable[[Any], Any] | None = None,
    ) -> None:
        for name, function in (("make", make), ("reset", reset), ("close", close)):
            if not callable(function) and (name == "make" or function is not None):
                raise DeclarationError(
                    f"{caller()}: Pool({name}=…) takes a function, as in Pool(connect, size=4); "
                    f"got {function!r}"
                )
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise DeclarationError(f"{caller()}: Pool(size=…) is a whole number, 1 or more; got {size!r}")
        self._make = make
        self._size = size
        self._reset = reset
        self._close = close
        self._lock = threading.Lock()
        self._shelves: dict[asyncio.AbstractEventLoop, _Shelf] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """What it was told, not what it holds."""
        return {"make": _name(self._make), "size": self._size}

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[Any]:
        shelf = await self._shelf()
        async with shelf.place(context):
            client = shelf.idle.pop() if shelf.idle else await self._made()
            try:
                yield client.value
            except BaseException:
                if context.ended != "skipped":
                    await self._closed(client)
                    raise
                await self._returned(client, shelf)
                raise
            else:
                await self._returned(client, shelf)

    async def aclose(self) -> None:
        """Close the clients of the running loop; those that are lent now, when they come back."""
        shelf = self._shelves.get(asyncio.get_running_loop())
        if shelf is not None:
            await shelf.watch.aclose()

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _shelf(self) -> _Shelf:
        """The clients of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            shelf = self._shelves.get(loop)
            if shelf is not None:
                return shelf
            shelf = self._shelves[loop] = _Shelf(self._size)
        shelf.watch = self._until_the_loop_ends(shelf)
        await anext(shelf.watch)
        return shelf

    async def _until_the_loop_ends(self, shelf: _Shelf) -> AsyncGenerator[None, None]:
        """A loop that ends closes the async generators that began on it; it tells nobody else."""
        try:
            yield
        finally:
            with self._lock:
                self._shelves = {loop: one for loop, one in self._shelves.items() if one is not shelf}
            shelf.is_closed = True
            await self._emptied(shelf)

    async def _made(self) -> _Client:
        made = await _awaited(self._make())
        if self._close is None:
            if isinstance(made, AbstractAsyncContextManager):
                return _Client(await made.__aenter__(), lambda: made.__aexit__(None, None, None))
            if isinstance(made, AbstractContextManager):
                return _Client(made.__enter__(), lambda: made.__exit__(None, None, None))
            return _Client(made, lambda: None)
        close = self._close
        return _Client(made, lambda: close(made))

    async def _returned(self, client: _Client, shelf: _Shelf) -> None:
        try:
            if self._reset is not None:
                await _awaited(self._reset(client.value))
        except Exception as error:  # the sample has ended, and does not need it any more
            _LOG.warning(
                "a client of the pool was replaced: reset raised %s: %s", type(error).__name__, error
            )
            await self._closed(client)
        except BaseException:
            await self._closed(client)
            raise
        else:
            if shelf.is_closed:
                await self._closed(client)
            else:
                shelf.idle.append(client)

    async def _emptied(self, shelf: _Shelf) -> None:
        while shelf.idle:
            await self._closed(shelf.idle.pop())

    async def _closed(self, client: _Client) -> None:
        try:
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                await _awaited(client.close())
        except Exception as error:  # it is not used any more
            _LOG.warning("a client of the pool did not close: %s: %s", type(error).__name__, error)


@dataclass(frozen=True, slots=True)
class _Client:
    value: Any
    close: Callable[[], Any]


class _Shelf:
    """The clients of one loop, touched on that loop alone."""

    watch: AsyncGenerator[None, None]

    def __init__(self, size: int) -> None:
        self.idle: list[_Client] = []
        self.is_closed = False
        self._places = asyncio.Semaphore(size)
        self._holders: set[tuple[Any, ...]] = set()

    @asynccontextmanager
    async def place(self, context: SampleContext) -> AsyncIterator[None]:
        """One of the places, in the order of asking."""
        attempt = (context.experiment, context.evaluation_key, context.sample_id, context.repeat)
        if context.surroundings is not None and attempt in self._holders:
            raise LenderError(
                f"{context.argument!r} and another argument are one Pool: samples would wait for each other; "
                "give each argument a Pool of its own"
            )
        self._holders.add(attempt)
        try:
            if self._places.locked():
                await context.held(self._places.acquire(), WAITS_FOR_POOL)
            else:
                await self._places.acquire()
            try:
                yield
            finally:
                self._places.release()
        finally:
            self._holders.discard(attempt)


async def _awaited(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


def _name(function: Callable[..., Any]) -> str:
    inner = inspect.unwrap(getattr(function, "func", function))
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"
