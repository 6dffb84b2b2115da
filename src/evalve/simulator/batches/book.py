"""The batches that there are, and what becomes of their requests. Pure: time is handed in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evalve.simulator.asks import ApiName
from evalve.simulator.batches.settings import Batches

Fate = Literal["succeeded", "errored", "expired", "canceled", "missing"]


class QueueFull(Exception):
    """More requests than may wait at once."""


@dataclass(frozen=True, slots=True)
class BatchedRequest:
    """One request of a batch."""

    custom_id: str
    body: Mapping[str, Any]
    digest: int
    url: str = ""


@dataclass(slots=True)
class Batch:
    """One batch. What its requests come to is drawn when it is made, and shows when it has ended."""

    id: str
    api: ApiName
    key_hash: str
    requests: list[BatchedRequest]
    created_s: float
    created_at_s: float
    """As a date; `created_s` is by the clock that goes only forward."""
    settings: Batches
    seed: int
    endpoint: str = ""
    input_file_id: str = ""
    metadata: Mapping[str, Any] | None = None
    cancelled_s: float | None = None
    failure: tuple[str, str] | None = None
    """Code and message, where it was not even begun."""
    is_counted: bool = False
    """Whether what it came to is in the statistics."""

    @property
    def due_s(self) -> float:
        """When it ends by itself."""
        return self.created_s + min(self.settings.delay_s, self.settings.expires_after_s)

    @property
    def ends_s(self) -> float:
        return self.due_s if self.cancelled_s is None else min(self.due_s, self.cancelled_s)

    @property
    def expires_at_s(self) -> float:
        return self.created_at_s + self.settings.expires_after_s

    @property
    def is_expired(self) -> bool:
        return self.settings.delay_s > self.settings.expires_after_s and self.cancelled_s is None

    def ended_at_s(self) -> float:
        return self.created_at_s + self.ends_s - self.created_s

    def has_ended(self, now_s: float) -> bool:
        return self.failure is not None or now_s >= self.ends_s

    def fates(self) -> Iterator[tuple[BatchedRequest, Fate]]:
        """Of every request once it has ended, in the order in which results are given."""
        settings, draw = self.settings, random.Random(f"{self.seed}/{self.id}")
        share_done = 1.0
        if self.cancelled_s is not None and settings.delay_s > 0:
            share_done = min(1.0, (self.cancelled_s - self.created_s) / settings.delay_s)
        elif self.is_expired:
            share_done = settings.expires_after_s / settings.delay_s
        left: Fate = "expired" if self.is_expired else "canceled"
        order = list(range(len(self.requests)))
        drawn = [draw.random() for _ in order]
        done = round(share_done * len(order))
        if not settings.in_order:
            draw.shuffle(order)
        for place in order:
            fate = _drawn(drawn[place], settings) if place < done else left
            yield self.requests[place], fate

    def counts(self) -> dict[Fate, int]:
        counted: dict[Fate, int] = dict.fromkeys(
            ("succeeded", "errored", "expired", "canceled", "missing"), 0
        )
        for _, fate in self.fates():
            counted[fate] += 1
        return counted


def _drawn(number: float, settings: Batches) -> Fate:
    fates: tuple[tuple[Fate, float], ...] = (
        ("errored", settings.errored),
        ("expired", settings.expired),
        ("missing", settings.missing),
    )
    for fate, of_all in fates:
        number -= of_all
        if number < 0:
            return fate
    return "succeeded"


class Book:
    """All batches and files of the simulator."""

    def __init__(self) -> None:
        self._batches: dict[str, Batch] = {}
        self._files: dict[str, bytes] = {}

    def add(self, batch: Batch) -> Batch:
        self._batches[batch.id] = batch
        return batch

    def next_id(self, prefix: str) -> str:
        return f"{prefix}sim{len(self._batches) + 1:06d}"

    def waiting(self, api: ApiName, key_hash: str, now_s: float) -> int:
        """Requests in batches that have not ended."""
        return sum(
            len(batch.requests)
            for batch in self._batches.values()
            if (batch.api, batch.key_hash) == (api, key_hash) and not batch.has_ended(now_s)
        )

    def find(self, api: ApiName, key_hash: str, batch_id: str) -> Batch | None:
        batch = self._batches.get(batch_id)
        return batch if batch is not None and (batch.api, batch.key_hash) == (api, key_hash) else None

    def latest_first(self, api: ApiName, key_hash: str) -> list[Batch]:
        of_key = [one for one in self._batches.values() if (one.api, one.key_hash) == (api, key_hash)]
        return of_key[::-1]

    def forget(self, batch: Batch) -> None:
        self._batches.pop(batch.id, None)

    def keep_file(self, content: bytes) -> str:
        file_id = f"file-sim{len(self._files) + 1:06d}"
        self._files[file_id] = content
        return file_id

    def file(self, file_id: str) -> bytes | None:
        return self._files.get(file_id)
