"""The opening of a stream: what is held back until a piece of the answer itself can be passed on.

Until then nobody has seen anything, so a stream that fails can be asked for again like a whole answer. One
whose reader does not come is read ahead: it would hold its place among the calls at once for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from evalve.gate.events import ServerEvents
from evalve.gate.messages import Reply, StreamedReply

FARTHEST_AHEAD_BYTES = 64 * 2**20
"""What is read of a stream before its reader comes: more than any answer, for some streams have no end."""


@dataclass(slots=True)
class Opening:
    """The chunks that have come, and the rest, which is still to come unless the body `is_over`."""

    live: StreamedReply
    rest: AsyncIterator[bytes]
    ends: Callable[[bytes], bool]
    chunks: list[bytes] = field(default_factory=list)
    is_over: bool = False
    has_end: bool = False
    """Whether the event has come with which the stream says that it ends, well or with an error."""
    free: int = 0
    """How many chunks came before that event."""
    _events: ServerEvents = field(default_factory=ServerEvents)
    _ahead: asyncio.Task[None] | None = None
    _has_come: asyncio.Event = field(default_factory=asyncio.Event)
    _error: Exception | None = None

    def add(self, chunk: bytes) -> list[bytes]:
        """Takes the next chunk, and gives the data of the events that are complete with it."""
        self.chunks.append(chunk)
        complete = self._events.feed(chunk)
        self.has_end = self.has_end or any(self.ends(data) for data in complete)
        if not self.has_end:
            self.free = len(self.chunks)
        return complete

    async def more(self) -> bool:
        """Wait for what comes next; false where nothing does."""
        if self._ahead is None:
            return await self._take_one()
        if self._ahead.done():
            if self._error is not None:
                raise self._error
            self._ahead = None
            return not self.is_over
        self._has_come.clear()
        await self._has_come.wait()
        return True

    async def _take_one(self) -> bool:
        chunk = await anext(self.rest, None)
        if chunk is None:
            self.is_over = True
            return False
        self.add(chunk)
        return True

    def read_ahead(self, then: Callable[[Exception | None], Awaitable[None]]) -> None:
        """Read on without a reader; `then` is told of the end, with the error where it was one."""
        if self._ahead is None and not self.is_over:
            self._ahead = asyncio.get_running_loop().create_task(self._read_ahead(then))

    async def _read_ahead(self, then: Callable[[Exception | None], Awaitable[None]]) -> None:
        left_bytes = FARTHEST_AHEAD_BYTES
        try:
            while left_bytes > 0 and await self._take_one():
                left_bytes -= len(self.chunks[-1])
                self._has_come.set()
            if self.is_over:
                await then(None)
        except Exception as error:  # for the reader, when it comes
            self._error = error
            await then(error)
        finally:
            self._has_come.set()

    async def stop_reading_ahead(self) -> None:
        if self._ahead is not None and not self._ahead.done():
            self._ahead.cancel()
            with suppress(asyncio.CancelledError):
                await self._ahead

    def so_far(self) -> Reply:
        """What has come, as a reply."""
        return Reply(self.live.status, self.live.headers, b"".join(self.chunks))


async def opening_of(
    live: StreamedReply, begins: Callable[[bytes], bool], ends: Callable[[bytes], bool]
) -> Opening:
    """Read until the answer begins; errors, and what ends in the same chunk, come whole."""
    opening = Opening(live, aiter(live.chunks), ends)
    is_success = 200 <= live.status < 300
    async for chunk in opening.rest:
        complete = opening.add(chunk)
        if is_success and not opening.has_end and any(begins(data) for data in complete):
            return opening
    opening.is_over = True
    return opening
