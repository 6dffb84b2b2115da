"""What an attempt leaves behind as it goes: events in order, bounded in size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from evalve.jsontext import to_json


class Trace:
    """The events of one attempt, all its tries included. Any thread may add to it."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []

    def add(self, kind: str, **data: Any) -> None:
        """Note an event: a call, a tool call, a turn, a note, a file."""
        self._events.append({"kind": kind, "at_s": time.time(), **data})

    def call(
        self,
        *,
        provider: str,
        model: str,
        endpoint: str,
        request: bytes,
        answer: bytes | None,
        status: int | None,
        problem: str | None,
        cached: bool,
        streamed: bool,
        tries: int,
        started_s: float,
        wall_s: float,
        usage: Mapping[str, int] | None,
        cost_usd: float | None,
    ) -> None:
        """Note a call to a provider that has ended, with its bodies as they were sent and received.

        `started_s` is in seconds since 1970. `tries` is 0 where nothing was sent; then, and for an answer
        from the cache, `usage` and `cost_usd` are `None`.
        """
        self._events.append(
            {
                "kind": "call",
                "at_s": started_s,
                "provider": provider,
                "model": model,
                "endpoint": endpoint,
                "request": request,
                "answer": answer,
                "status": status,
                "problem": problem,
                "cached": cached,
                "streamed": streamed,
                "tries": tries,
                "wall_s": wall_s,
                "usage": usage,
                "cost_usd": cost_usd,
            }
        )

    def to_json(self) -> str | None:
        """`None` where nothing happened."""
        return to_json(self._events) if self._events else None
