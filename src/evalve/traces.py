"""What an attempt leaves behind as it goes: events in order, bounded in size."""

from __future__ import annotations

import time
from collections.abc import Iterable
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

    def events(self) -> list[dict[str, Any]]:
        """Plain values, in order; they may be handed to another process."""
        return list(self._events)

    def extend(self, events: Iterable[dict[str, Any]]) -> None:
        """Take over what the attempt left in another process."""
        self._events.extend(events)

    def to_json(self) -> str | None:
        """`None` where nothing happened."""
        return to_json(self._events) if self._events else None
