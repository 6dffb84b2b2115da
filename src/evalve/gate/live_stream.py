"""A stream that goes on: passed on as it comes, and read ahead where its reader does not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Protocol

from evalve.clock import Clock
from evalve.gate.messages import Reply, SendError, StreamedReply
from evalve.gate.opening import Opening
from evalve.gate.outcomes import Outcome

UNREAD_S = 5.0
"""A stream of which nobody has taken the next piece for so long is not waited for: who waits may be the one
who should read it. Another makes the equal call, a budget counts on no end of it, and it is read ahead, so
that its place among the calls at once falls free."""


class StreamOwner(Protocol):
    """The call that the stream answers."""

    @property
    def is_booked(self) -> bool:
        """Whether what it takes is not settled yet."""

    async def stream_ended(self, whole: Reply) -> Outcome: ...

    async def stream_broke_off(self, live: StreamedReply, so_far: Reply, why: str) -> None:
        """It was not read to its end: what was booked for it stays spent."""

    def stream_stands_still(self) -> None: ...

    def stream_goes_on(self) -> None: ...


class LiveStream:
    """From its first piece to its end. Left, it holds nothing."""

    __slots__ = ("_chunks", "_clock", "_opened", "_opening", "_outcome", "_owner", "_unread")

    def __init__(self, opened: AsyncExitStack, opening: Opening, owner: StreamOwner, clock: Clock) -> None:
        self._opened: AsyncExitStack | None = opened
        self._opening = opening
        self._owner = owner
        self._clock = clock
        self._outcome: Outcome | None = None
        """Once it was read to its end."""
        self._chunks: AsyncGenerator[bytes, None] | None = None
        self._unread: asyncio.TimerHandle | bool = False
        """Runs while its reader has the next piece to ask for; true when it has taken too long."""

    def reply(self) -> StreamedReply:
        live = self._opening.live
        self._chunks = self._passed_on()
        self._expect_reader()
        return StreamedReply(live.status, live.headers, self._chunks)

    async def leave(self) -> None:
        """Whatever of it was read."""
        self._is_read()
        await self._opening.stop_reading_ahead()
        if self._chunks is not None:
            # not left to the garbage collector; one that was never begun runs no `finally`
            await self._chunks.aclose()
        if self._opened is not None:
            await self._broken_off()
            opened, self._opened = self._opened, None
            await opened.aclose()

    async def _passed_on(self) -> AsyncGenerator[bytes, None]:
        """The stream's chunks as they come; its end is given when the whole is kept and settled.

        Where there is no whole, it is given too, for it may say why, and then the error is raised.
        """
        opening = self._opening
        received = opening.chunks
        passed_on = 0
        self._is_read()
        try:
            while passed_on < opening.free or await opening.more():
                if passed_on < opening.free:
                    passed_on += 1
                    self._expect_reader()
                    yield received[passed_on - 1]
                    self._is_read()
                    if passed_on < opening.free:  # read ahead: the reader waits for nothing, and others do
                        await self._clock.sleep(0.0)
        except BaseException as error:
            await self._broken_off(error)
            if isinstance(error, SendError):
                for chunk in received[passed_on:]:
                    yield chunk
            raise
        outcome = self._outcome or await self._ended()
        for chunk in received[passed_on:]:
            yield chunk
        if outcome.problem is not None:
            raise SendError(outcome.problem.message, reached=True)

    async def _ended(self) -> Outcome:
        outcome = self._outcome = await self._owner.stream_ended(self._opening.so_far())
        return outcome

    async def _broken_off(self, error: BaseException | None = None) -> None:
        if self._owner.is_booked:
            why = str(error) if isinstance(error, SendError) else "it was not read to its end"
            await self._owner.stream_broke_off(self._opening.live, self._opening.so_far(), why)

    # -- a reader that does not come

    def _expect_reader(self) -> None:
        loop = asyncio.get_running_loop()
        self._unread = loop.call_later(UNREAD_S, self._is_left_unread)

    def _is_left_unread(self) -> None:
        self._unread = True
        self._owner.stream_stands_still()
        self._opening.read_ahead(self._ended_unread)

    def _is_read(self) -> None:
        unread, self._unread = self._unread, False
        if isinstance(unread, asyncio.TimerHandle):
            unread.cancel()
        elif unread:
            self._owner.stream_goes_on()

    async def _ended_unread(self, error: Exception | None) -> None:
        """It came to its end while its reader was elsewhere."""
        self._is_read()  # by us: a budget that takes it for unread for ever would wait for one call too few
        if error is not None:
            await self._broken_off(error)
        elif self._owner.is_booked:
            await self._ended()
