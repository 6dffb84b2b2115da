"""Progress while evaluations run: status lines on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from evalve.contracts import Progress, Tally
from evalve.show.live.notebook import NotebookView, in_notebook
from evalve.show.live.running import LiveProgress, UsageMeter, View, Watched
from evalve.show.live.status_line import (
    Style,
    ended_now,
    fraction,
    last_line,
    legible,
    plain_line,
    shortened,
    status_line,
)
from evalve.show.live.terminal import OutputGuard, StatusArea, write_all
from evalve.show.live.workers import worker_lines

Mode = Literal["auto", "plain", "workers", "off"]
Workers = Mapping[tuple[str, str], str]
"""How many samples run at once, in words, by experiment and evaluation."""

MOST_LINES = 12
QUIET_S = 2.0
"""A log hears nothing of runs shorter than this, nor two milestones within it."""
REMINDER_S = 30.0
REMINDER_OF_WORKERS_S = 5.0


def make_progress(
    *,
    mode: Mode,
    stream_fd: int | None,
    environ: Mapping[str, str],
    now_s: Callable[[], float] = time.monotonic,
    every_sample: Workers | None = None,
) -> Progress:
    """The progress that suits where it is shown. The descriptor stays the caller's, to close afterwards.

    With `every_sample` a log has a line for each, because they take minutes; it says how many run at once.
    """
    workers = mode == "workers"
    kind = choose(mode, tty=_is_terminal(stream_fd), notebook=in_notebook(), environ=environ)
    unicode = speaks_unicode(environ)
    view: View
    if kind == "notebook":
        view = NotebookView()
    elif kind == "off" or stream_fd is None:
        return SilentProgress()
    elif kind == "terminal":
        style = Style(unicode=unicode, colour=not environ.get("NO_COLOR"))
        view = TerminalView(stream_fd, style, workers=workers)
    elif every_sample is not None and not workers:
        view = SampleLinesView(stream_fd, every_sample, unicode=unicode)
    else:
        view = PlainView(stream_fd, unicode=unicode, workers=workers)
    return LiveProgress(view, now_s=now_s)


def choose(
    mode: Mode, *, tty: bool, notebook: bool, environ: Mapping[str, str]
) -> Literal["off", "plain", "terminal", "notebook"]:
    """Which view: status lines only where someone looks at them and they can be drawn."""
    if mode in ("plain", "off"):
        return mode
    if notebook:
        return "notebook"
    in_ci = environ.get("CI", "").lower() not in ("", "0", "false")
    one_of_many = "PYTEST_XDIST_WORKER" in environ
    if not tty or in_ci or one_of_many or environ.get("TERM", "dumb") == "dumb":
        return "plain"
    return "terminal"


def speaks_unicode(environ: Mapping[str, str]) -> bool:
    """Whether what reads our output expects UTF-8. Streams do not tell: pytest's stand-ins always say so."""
    names = ("PYTHONIOENCODING", "LC_ALL", "LC_CTYPE", "LANG")
    encoding = next((environ[name] for name in names if environ.get(name)), "")
    return "utf8" in encoding.lower().replace("-", "")


def _is_terminal(fd: int | None) -> bool:
    try:
        return fd is not None and os.isatty(fd)
    except OSError:
        return False


class SilentProgress:
    """Shows nothing; notes go to logging, where whoever wants them finds them."""

    def started(self, tally: Tally) -> None:
        pass

    def note(self, text: str) -> None:
        logging.getLogger("evalve").warning("%s", text)

    def finished(self, tally: Tally) -> None:
        pass


class TerminalView:
    """One status line per running evaluation, below the cursor, redrawn five times a second."""

    interval_s = 0.2

    def __init__(self, fd: int, style: Style, *, workers: bool = False) -> None:
        """With `workers`, there is a line for each running sample too."""
        self._style = style
        self._workers = workers
        self._area = StatusArea(fd, unicode=style.unicode)
        self._guard = OutputGuard(self._area)
        self._meter = UsageMeter()

    def open(self) -> None:
        self._guard.install()

    def draw(self, running: Sequence[Watched], now_s: float) -> None:
        columns, rows = self._area.size()
        # one column stays free, for the cursor; one row, for the line that the cursor is on
        most = max(1, min(MOST_LINES, rows - 2))  # the last one may say how many more there are
        lines = self._lines(running, now_s, columns - 1, most)
        self._area.show(lines[: rows - 1])

    def note(self, text: str) -> None:
        self._area.print(f"evalve: {text}")

    def ended(self, watched: Watched, now_s: float) -> None:
        """Nothing: its line goes with the next drawing."""

    def close(self) -> None:
        self._area.clear()
        self._guard.remove()

    def _lines(self, running: Sequence[Watched], now_s: float, width: int, most: int) -> list[str]:
        usage = self._meter.read(now_s)
        lines = []
        for place, watched in enumerate(running[:most]):
            line = status_line(
                watched.tally,
                now_s=now_s,
                width=width,
                rate_per_s=watched.rate_per_s,
                # it is the whole process's: once is enough
                usage=usage if place == 0 else None,
                style=self._style,
            )
            lines.append(line)
            if self._workers:
                lines += worker_lines(watched.tally, now_s=now_s, style=self._style, width=width)
        if len(running) > most:
            lines.append(shortened(f"+ {len(running) - most} more", width, self._style))
        return lines


class PlainView:
    """Lines for a log: at every quarter, every half minute, and at the end; none for a short run."""

    interval_s = 0.5

    def __init__(self, fd: int, *, unicode: bool = True, workers: bool = False) -> None:
        """With `workers`, each line is followed by one for each running sample."""
        self._fd: int | None = fd
        self._workers = workers
        self._encoding = "utf-8" if unicode else "ascii"

    def open(self) -> None:
        """Nothing: a log has no room to make."""

    def draw(self, running: Sequence[Watched], now_s: float) -> None:
        for watched in running:
            quarters = _quarters(watched.tally)
            if is_worth_a_line(
                watched, quarters, now_s, REMINDER_OF_WORKERS_S if self._workers else REMINDER_S
            ):
                watched.spoken_s, watched.milestone = now_s, quarters
                self._write(plain_line(watched.tally, now_s=now_s, rate_per_s=watched.rate_per_s))
                for line in self._worker_lines(watched.tally, now_s):
                    self._write(line)

    def _worker_lines(self, tally: Tally, now_s: float) -> list[str]:
        return worker_lines(tally, now_s=now_s, style=Style()) if self._workers else []

    def note(self, text: str) -> None:
        self._write(f"evalve: {text}")

    def ended(self, watched: Watched, now_s: float) -> None:
        if now_s - watched.tally.started_s >= QUIET_S:
            self._write(last_line(watched.tally, now_s=now_s))

    def close(self) -> None:
        """Nothing: the descriptor is the caller's."""

    def _write(self, line: str) -> None:
        if self._fd is None:
            return
        try:
            write_all(self._fd, f"{line}\n".encode(self._encoding, "replace"))
        except OSError:
            # nobody reads any more
            self._fd = None


class SampleLinesView(PlainView):
    """Lines for a log of long samples: how many run at once, then one line for each that has ended."""

    def __init__(self, fd: int, at_once: Workers, *, unicode: bool = True) -> None:
        super().__init__(fd, unicode=unicode)
        self._at_once = at_once

    def draw(self, running: Sequence[Watched], now_s: float) -> None:
        for watched in running:
            self._catch_up(watched)

    def ended(self, watched: Watched, now_s: float) -> None:
        self._catch_up(watched)
        self._write(last_line(watched.tally, now_s=now_s))

    def _catch_up(self, watched: Watched) -> None:
        """What was not told yet; `milestone` counts the lines about samples, and one for the beginning."""
        tally = watched.tally
        whose = f" ({legible(f'{tally.experiment}: {tally.evaluation}')})" if len(self._at_once) > 1 else ""
        if watched.milestone == 0:
            watched.milestone = 1
            workers = self._at_once.get((tally.experiment, tally.evaluation)) or str(tally.limit or "?")
            if workers.isdigit() and tally.limit is not None:  # fewer, where the machine has no room for more
                workers = str(min(int(workers), tally.limit))
            self._write(f"{_running_with(workers)}{whose}")
        if tally.decided != watched.decided:
            watched.decided = tally.decided
            self._write(f"Concurrency {legible(tally.decided)}{whose}")
        total = "?" if tally.total is None else tally.total
        while watched.milestone <= ended_now(tally):
            self._write(f"Completed {tally.skipped + watched.milestone}/{total} samples{whose}")
            watched.milestone += 1


def _running_with(workers: str) -> str:
    if workers == "1":
        return "Running sequential evaluation with 1 worker"
    return f"Running concurrent evaluation with {workers} workers"


def is_worth_a_line(watched: Watched, quarters: int, now_s: float, reminder_s: float = REMINDER_S) -> bool:
    """A quarter was passed a while after the last line, or it has been silent for long."""
    silent_s = now_s - watched.spoken_s
    # the last quarter is told when the evaluation has ended
    passed = watched.milestone < quarters < 4
    return silent_s >= reminder_s or (passed and silent_s >= QUIET_S)


def _quarters(tally: Tally) -> int:
    share = fraction(tally)
    return 0 if share is None else int(share * 4)


class OnceTold:
    """Progress for several: what all of them say, as when Ctrl-C stops them, is shown once."""

    def __init__(self, progress: Progress) -> None:
        self.started = progress.started
        self.finished = progress.finished
        self._note = progress.note
        self._told: set[str] = set()

    def note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._note(text)
