"""The latest requests, for a person who wonders what a client sent; keys are never kept."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SECRET = re.compile("auth|key|token|cookie|secret", re.IGNORECASE)
_LARGEST_BODY = 64 * 1024


@dataclass(slots=True)
class Seen:
    """One request and what became of it: its status, or the fault that it met."""

    at_s: float
    path: str
    key_hash: str
    headers: dict[str, str]
    body: bytes
    outcome: str = "in flight"

    def as_dict(self) -> dict[str, Any]:
        body = self.body.decode(errors="replace") if len(self.body) <= _LARGEST_BODY else None
        return {
            "at_s": self.at_s,
            "path": self.path,
            "key_hash": self.key_hash,
            "headers": self.headers,
            "body": body,
            "outcome": self.outcome,
        }


class Recent:
    """A bounded list, the latest last."""

    def __init__(self, most: int) -> None:
        self._seen: deque[Seen] = deque(maxlen=most)

    def add(self, seen: Seen) -> Seen:
        if len(seen.body) > _LARGEST_BODY:
            seen.body = b""
        self._seen.append(seen)
        return seen

    def resize(self, most: int) -> None:
        self._seen = deque(self._seen, maxlen=most)

    def clear(self) -> None:
        self._seen.clear()

    def latest(self, limit: int) -> list[dict[str, Any]]:
        return [seen.as_dict() for seen in list(self._seen)[-limit:]] if limit > 0 else []


def redacted(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers without those whose names speak of secrets."""
    return {name: "…" if _SECRET.search(name) else value for name, value in headers.items()}
