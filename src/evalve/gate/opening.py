"""The opening of a stream: what is held back until a piece of the answer itself can be passed on.

Until then nobody has seen anything, so a stream that fails can be asked for again like a whole answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from evalve.gate.events import ServerEvents
from evalve.gate.messages import Reply, StreamedReply


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
    _events: ServerEvents = field(default_factory=ServerEvents)

    def add(self, chunk: bytes) -> list[bytes]:
        """Takes the next chunk, and gives the data of the events that are complete with it."""
        self.chunks.append(chunk)
        complete = self._events.feed(chunk)
        self.has_end = self.has_end or any(self.ends(data) for data in complete)
        return complete

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
