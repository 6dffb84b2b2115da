"""The opening of a stream: what is held back until a piece of the answer itself can be passed on.

Until then nobody has seen anything, so a stream that fails can be asked for again like a whole answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from evalve.gate.events import ServerEvents
from evalve.gate.messages import StreamedReply


@dataclass(slots=True)
class Opening:
    """The chunks that have come, and the rest, which is still to come unless it has `ended`."""

    rest: AsyncIterator[bytes]
    chunks: list[bytes] = field(default_factory=list)
    ended: bool = False


async def opening_of(live: StreamedReply, begins: Callable[[bytes], bool]) -> Opening:
    """Read until a chunk follows the one in which the answer begins; errors come whole."""
    opening = Opening(aiter(live.chunks))
    events, has_begun = ServerEvents(), False
    async for chunk in opening.rest:
        opening.chunks.append(chunk)
        if has_begun:
            return opening
        if 200 <= live.status < 300:
            has_begun = any(begins(data) for data in events.feed(chunk))
    opening.ended = True
    return opening
