"""An async function, awaited on the run's own event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from evalve.contracts import SampleContext


class LoopEngine:
    """The function's coroutines run beside each other on one thread."""

    lends_slots = True
    may_block_loop = True
    leaves_behind = ""

    def __init__(self, function: Callable[..., Awaitable[Any]]) -> None:
        self._function = function

    async def start(self) -> None: ...

    def call(self, values: dict[str, Any], context: SampleContext) -> Awaitable[Any]:
        return self._function(**values)

    def occupies_loop(self) -> bool:
        return False

    def close(self) -> None: ...
