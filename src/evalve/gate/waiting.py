"""What a sample waits for, counted for whoever shows progress."""

from __future__ import annotations

from evalve.contracts import SampleContext


class Waiting:
    """Counts the sample as waiting in a `with` block. Not a generator: that costs three times as much."""

    __slots__ = ("_reason", "_waiting")

    def __init__(self, sample: SampleContext | None, reason: str) -> None:
        tally = sample.tally if sample is not None else None
        self._waiting = tally.waiting if tally is not None else None
        self._reason = reason

    def __enter__(self) -> None:
        if self._waiting is not None:
            self._waiting[self._reason] = self._waiting.get(self._reason, 0) + 1

    def __exit__(self, *_: object) -> None:
        if self._waiting is not None:
            self._waiting[self._reason] -= 1
