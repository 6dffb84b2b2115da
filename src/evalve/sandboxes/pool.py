"""A pool: clients or connections, made when they are needed, each lent to one attempt at a time."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from typing import Any

from evalve.callers import caller
from evalve.contracts import SAMPLE, WAITS_FOR_POOL, SampleContext
from evalve.errors import DeclarationError, LenderError

_LOG = logging.getLogger(__name__)

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
        __tracebackhide__ = True  # of a mistake, pytest shows the line that a person wrote
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
        shelf = self._shelf()
        async with shelf.place(context):
            client = shelf.idle.pop() if shelf.idle else await self._made()
            is_fit = False
            try:
                yield client.value
                is_fit = True
            except BaseException:
                is_fit = context.ended == "skipped"
                raise
            finally:
                if is_fit and await self._is_reset(client) and not shelf.is_closed:
                    shelf.idle.append(client)
                else:
                    await client.close()

    async def aclose(self) -> None:
        """Close the clients of the running loop; those that are lent now, when they come back."""
        with self._lock:
            shelf = self._shelves.pop(asyncio.get_running_loop(), None)
        if shelf is not None:
            shelf.is_closed = True
            while shelf.idle:
                await shelf.idle.pop().close()

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _shelf(self) -> _Shelf:
        """The clients of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._shelves:
                alive = {other: shelf for other, shelf in self._shelves.items() if not other.is_closed()}
                self._shelves = {**alive, loop: _Shelf(self._size)}
            return self._shelves[loop]

    async def _made(self) -> _Client:
        client = _Client(self._opened)
        client.value = await client.opened()
        return client

    async def _opened(self, stack: AsyncExitStack) -> Any:
        """Make a client; the stack knows how to close it."""
        made = await _awaited(self._make())
        if self._close is not None:
            stack.push_async_callback(_called, self._close, made)
        elif isinstance(made, AbstractAsyncContextManager):
            return await stack.enter_async_context(made)
        elif isinstance(made, AbstractContextManager):
            return stack.enter_context(made)
        return made

    async def _is_reset(self, client: _Client) -> bool:
        try:
            if self._reset is not None:
                await _awaited(self._reset(client.value))
            return True
        except Exception as error:  # the sample has ended, and does not need it any more
            _LOG.warning(
                "a client of the pool was replaced: reset raised %s: %s", type(error).__name__, error
            )
            return False
        except BaseException:
            await client.close()
            raise


class _Client:
    """Opened and closed by one task of its own, as what is written with `async with` may need it.

    A loop that ends cancels the tasks that are left on it, which is how a client hears of it.
    """

    value: Any

    def __init__(self, open_it: Callable[[AsyncExitStack], Awaitable[Any]]) -> None:
        loop = asyncio.get_running_loop()
        self._open = open_it
        self._value: asyncio.Future[Any] = loop.create_future()
        self._no_longer_needed: asyncio.Future[None] = loop.create_future()
        nobodys = contextvars.copy_context()
        nobodys.run(SAMPLE.set, None)  # it outlives the sample for which it is made
        self._life = loop.create_task(self._live(), context=nobodys)

    async def opened(self) -> Any:
        try:
            return await self._value
        except asyncio.CancelledError:
            self._life.cancel()
            raise

    async def close(self) -> None:
        if not self._no_longer_needed.done():
            self._no_longer_needed.set_result(None)
        await asyncio.wait({self._life})

    async def _live(self) -> None:
        stack = AsyncExitStack()
        try:
            value = await self._open(stack)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._value.cancel()
                raise
            if not self._value.done():
                self._value.set_exception(error)
            return
        if not self._value.done():
            self._value.set_result(value)
            with suppress(asyncio.CancelledError):
                await self._no_longer_needed
        try:
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                await stack.aclose()
        except Exception as error:  # it is not used any more
            _LOG.warning("a client of the pool did not close: %s: %s", type(error).__name__, error)


class _Shelf:
    """The clients of one loop, touched on that loop alone."""

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
        has_place = False

        async def take() -> None:
            nonlocal has_place
            await self._places.acquire()
            has_place = True

        try:
            # who has a place may be parked, and need a slot to go on and give it back
            await (context.parked(take(), WAITS_FOR_POOL) if self._places.locked() else take())
            yield
        finally:
            if has_place:
                self._places.release()
            self._holders.discard(attempt)


async def _called(function: Callable[[Any], Any], client: Any) -> None:
    await _awaited(function(client))


async def _awaited(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


def _name(function: Callable[..., Any]) -> str:
    inner = inspect.unwrap(getattr(function, "func", function))
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"
