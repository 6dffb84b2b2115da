"""Tallies that are running now, and the thread that has them shown."""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from evalve.contracts import Tally
from evalve.show.live.status_line import Pace, Usage, ended_now

log = logging.getLogger(__name__)

USAGE_INTERVAL_S = 1.0


@dataclass(slots=True, eq=False)
class Watched:
    """A running evaluation and what a view needs to remember about it."""

    tally: Tally
    pace: Pace
    rate_per_s: float | None = None
    spoken_s: float = 0.0
    """When a line about it was last written to a log."""
    milestone: int = 0
    """How many quarters were behind it then."""
    decided: str = ""
    """What was last written of what its strategy has decided."""


class View(Protocol):
    """A way of showing; called by one thread at a time, except for `note`."""

    interval_s: float

    def open(self) -> None: ...
    def draw(self, running: Sequence[Watched], now_s: float) -> None: ...
    def note(self, text: str) -> None: ...
    def ended(self, watched: Watched, now_s: float) -> None: ...
    def close(self) -> None: ...


_IDLE_LOOKS = 3
"""How often the drawing thread finds nothing to draw before it ends."""


class LiveProgress:
    """Progress over a view: opened with the first tally, closed with the last, drawn in between.

    A display that breaks is given up; the evaluation goes on without it.
    """

    def __init__(self, view: View, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.view = view
        self._now_s = now_s
        self._running: list[Watched] = []
        self._broken = False
        # re-entrant: a signal handler may stop a run while its thread is in here
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def started(self, tally: Tally) -> None:
        with self._lock:
            self._running.append(Watched(tally, Pace(tally.started_s), spoken_s=tally.started_s))
            if len(self._running) == 1:
                with self._giving_up_if_it_breaks():
                    self.view.open()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._watch, name="evalve-progress", daemon=True)
                    self._thread.start()

    def note(self, text: str) -> None:
        if self._broken:
            log.warning("%s", text)
            return
        with self._giving_up_if_it_breaks():
            self.view.note(text)

    def finished(self, tally: Tally) -> None:
        with self._lock:
            watched = next((one for one in self._running if one.tally is tally), None)
            if watched is None:
                return
            self._running.remove(watched)
            with self._giving_up_if_it_breaks():
                if not self._broken:
                    self.view.ended(watched, self._now_s())
            if not self._running:
                with self._giving_up_if_it_breaks():
                    self.view.close()

    def tick(self, now_s: float) -> None:
        """Show the numbers as they are now."""
        with self._lock, self._giving_up_if_it_breaks():
            for watched in self._running:
                watched.rate_per_s = watched.pace.rate_per_s(ended_now(watched.tally), now_s)
            if self._running and not self._broken:
                self.view.draw(self._running, now_s)

    def _watch(self) -> None:
        """One thread for runs that follow each other: starting one for each would cost more than they do."""
        idle = 0
        wait = threading.Event().wait
        while True:
            wait(self.view.interval_s)
            with self._lock:
                idle = 0 if self._running else idle + 1
                if idle > _IDLE_LOOKS:
                    self._thread = None
                    return
                self.tick(self._now_s())

    @contextmanager
    def _giving_up_if_it_breaks(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            # the one place where any error of a display ends
            if not self._broken:
                log.warning("the progress display broke; the run goes on without it", exc_info=True)
            self._broken = True


class UsageMeter:
    """Own CPU since the last look and memory now, looked up at most once a second."""

    def __init__(self) -> None:
        self._looked_s: float | None = None
        self._cpu_s = time.process_time()
        self._usage: Usage | None = None

    def read(self, now_s: float) -> Usage | None:
        """`None` until a second has passed: there is no share of no time."""
        if self._looked_s is None:
            self._looked_s, self._cpu_s = now_s, time.process_time()
        elif now_s - self._looked_s >= USAGE_INTERVAL_S:
            cpu_s = time.process_time()
            percent = 100 * (cpu_s - self._cpu_s) / (now_s - self._looked_s)
            self._looked_s, self._cpu_s = now_s, cpu_s
            self._usage = Usage(percent, memory_bytes())
        return self._usage


def memory_bytes() -> int:
    """Resident memory of this process; its peak where psutil cannot be imported."""
    try:
        import psutil  # late: only a display that is looked at pays for it
    except ImportError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return int(psutil.Process().memory_info().rss)
