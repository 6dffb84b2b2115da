"""A circuit per host: opened by a storm of failures, closed by one real request that succeeds.

Nothing here waits or reads a clock: instants come in as seconds of any clock that only goes forward.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """A circuit lets a request through; hand it back with the outcome."""

    epoch: int
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A circuit is open: wait until `changed` is done or `until_s` is reached, then ask again."""

    until_s: float
    changed: Future[None]


class Circuit:
    """Opens for a host that mostly fails, and lets one real request at a time find out whether it is back."""

    def __init__(
        self,
        *,
        window_s: float = 30.0,
        least: int = 10,
        share: float = 0.5,
        first_open_s: float = 1.0,
        longest_open_s: float = 30.0,
        probe_s: float = 60.0,
    ) -> None:
        self._window_s = window_s
        self._least = least
        self._share = share
        self._first_open_s = first_open_s
        self._longest_open_s = longest_open_s
        self._probe_s = probe_s
        self._lock = threading.Lock()
        self._outcomes: deque[list[float]] = deque()  # [start of a second, good, bad]
        self._good = 0
        self._bad = 0
        self._closed_pass = Pass(0)
        self._open_s = 0.0  # how long it stays open this time; 0 while closed
        self._until_s = 0.0  # from when on a request may probe
        self._changed: Future[None] = Future()
        self.has_answered = True
        """Whether any request ever got an answer; one that never did is not in a storm but absent."""

    @property
    def is_open(self) -> bool:
        return self._open_s > 0

    def admit(self, now_s: float) -> Pass | Hold:
        if self._open_s == 0:  # without the lock: a request that just missed the opening does no harm
            return self._closed_pass
        with self._lock:
            if self._open_s == 0:
                return self._closed_pass
            if now_s < self._until_s:
                return Hold(self._until_s, self._changed)
            self._until_s = now_s + self._probe_s  # a probe that never comes back blocks nobody for long
            return Pass(self._closed_pass.epoch, probe=True)

    def settle(self, given: Pass, failed: bool | None, now_s: float) -> None:
        """The outcome of a request: `None` where it has none, as when its caller was cancelled.

        Overload, server and connection problems are failures; a refusal, a bad request
        or a 200 with something else in it is an answer.
        """
        with self._lock:
            changed = None
            if given.epoch != self._closed_pass.epoch:
                return
            if given.probe and self._open_s > 0:
                changed = self._after_probe(failed, now_s)
            elif self._open_s == 0 and failed is not None:
                self._count(failed, now_s)
        if changed is not None:
            changed.set_result(None)  # outside the lock: it runs the waiters' callbacks

    def _after_probe(self, failed: bool | None, now_s: float) -> Future[None]:
        self._until_s = now_s
        if failed is False:
            self._open_s = 0.0
        elif failed:
            self._open_s = min(self._open_s * 2, self._longest_open_s)
            self._until_s += self._open_s
        changed, self._changed = self._changed, Future()
        return changed

    def _count(self, failed: bool, now_s: float) -> None:
        if not self._outcomes or now_s - self._outcomes[-1][0] >= 1:
            self._outcomes.append([now_s, 0, 0])
        self._outcomes[-1][2 if failed else 1] += 1
        self._bad += failed
        self._good += not failed
        while now_s - self._outcomes[0][0] >= self._window_s:
            _, good, bad = self._outcomes.popleft()
            self._good -= int(good)
            self._bad -= int(bad)
        total = self._good + self._bad
        if failed and self.has_answered and total >= self._least and self._bad > self._share * total:
            self._open(now_s)

    def _open(self, now_s: float) -> None:
        """A new epoch: what was sent before and fails later belongs to this episode and counts no more."""
        self._closed_pass = Pass(self._closed_pass.epoch + 1)
        self._outcomes.clear()
        self._good = self._bad = 0
        self._open_s = self._first_open_s
        self._until_s = now_s + self._first_open_s
