"""A sync function on the loop's own thread, one sample after another."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable
from typing import Any

from evalve.contracts import SampleContext


class InlineEngine:
    """The thread that its fixtures were made on runs the function.

    While it runs, the thread seems to have no running loop: such functions may call `asyncio.run`. Some take
    the thread's current loop (pydantic-ai's `run_sync`): that is one of its own, the same for all samples,
    because connections belong to it.
    """

    lends_slots = False  # the loop that would lend them stands still meanwhile
    may_block_loop = False
    leaves_behind = ""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_running = False
        self._current: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None: ...

    async def call(self, values: dict[str, Any], context: SampleContext) -> Any:
        loop = asyncio.get_running_loop()
        if self._current is None or self._current.is_closed():
            self._current = asyncio.new_event_loop()
        events._set_running_loop(None)
        asyncio.set_event_loop(self._current)
        self._is_running = True
        try:
            return self._function(**values)
        finally:
            self._is_running = False
            asyncio.set_event_loop(loop)
            events._set_running_loop(loop)

    def occupies_loop(self) -> bool:
        return self._is_running

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
