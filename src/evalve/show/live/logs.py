"""A log of one agent's evaluations: what is told about them, each line with its time."""

from __future__ import annotations

import time
from collections.abc import Callable

from evalve.contracts import Progress
from evalve.show.live.progress import SampleLinesView, Workers
from evalve.show.live.running import LiveProgress
from evalve.show.live.terminal import write_all


class TimedLines(SampleLinesView):
    """Lines for a file, which somebody reads later."""

    def __init__(self, fd: int, at_once: Workers, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(fd, at_once)
        self._now = now

    def _write(self, line: str) -> None:
        if self._fd is None:
            return
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._now()))
        try:
            write_all(
                self._fd, "".join(f"{at}  {one}\n" for one in line.splitlines()).encode(errors="replace")
            )
        except OSError:
            self._fd = None  # the disk is full: the run goes on

    def tell(self, line: str) -> None:
        self._write(line)


def log_progress(view: TimedLines) -> Progress:
    return LiveProgress(view)
