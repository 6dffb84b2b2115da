"""An answer while it arrives."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import Any, Self

from evalve.gate.dialects.answer_parts import read_json
from evalve.gate.doors.answers import Answer, TextDelta
from evalve.gate.doors.wires import MISSHAPEN, Assembly
from evalve.gate.events import ServerEvents

_LOG = logging.getLogger(__name__)


class ModelStream:
    """Gives `TextDelta`s and, last, the whole `Answer`, which also stays in `answer`.

    `async with` ends the request when the block is left early; without it, that waits for the collector.
    """

    def __init__(self, events: AsyncGenerator[TextDelta | Answer, None]) -> None:
        self._events = events
        self.answer: Answer | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TextDelta | Answer:
        event = await anext(self._events)
        if isinstance(event, Answer):
            self.answer = event
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._events.aclose()


class Flow:
    """Bytes in, pieces of text out; at the end, the whole."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._events = ServerEvents()
        self.error: bytes | None = None
        """The event with which the provider gave up, or one that is none of its kind."""

    def texts(self, chunk: bytes) -> Iterator[str]:
        """The texts in what has become complete with this chunk."""
        for data in self._events.feed(chunk):
            text = self._add(data)
            if text:
                yield text

    def whole(self) -> dict[str, Any] | None:
        """The answer; `None` where it broke off."""
        for data in self._events.end():
            self._add(data)
        return self._assembly.whole() if self.error is None else None

    def _add(self, data: bytes) -> str:
        if data == b"[DONE]" or self.error is not None:
            return ""
        try:
            event = read_json(data)
            if not event.get("error"):
                return self._assembly.add(event)
        except MISSHAPEN:
            _LOG.debug("an event of a stream cannot be read: %r", data[:200])
        self.error = data
        return ""
