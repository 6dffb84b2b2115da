"""Which view is chosen, what a log gets, what a notebook gets, and that no display ever breaks a run."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

import pytest

from evalve.contracts import Tally
from evalve.show.live.notebook import NotebookView, in_notebook
from evalve.show.live.progress import (
    Mode,
    PlainView,
    SampleLinesView,
    SilentProgress,
    TerminalView,
    choose,
    make_progress,
    speaks_unicode,
)
from evalve.show.live.running import LiveProgress, View, Watched


class Log:
    """The reading end of a pipe, as a log file would be."""

    def __init__(self) -> None:
        self._reader, self.fd = os.pipe()
        os.set_blocking(self._reader, False)

    def lines(self) -> list[str]:
        """What was written since the last look."""
        try:
            return os.read(self._reader, 65536).decode().splitlines()
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self._reader)
        os.close(self.fd)


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0


@pytest.fixture
def written() -> Iterator[Log]:
    log = Log()
    yield log
    log.close()


@pytest.fixture
def time() -> Time:
    return Time()


def live(view: View, time: Time) -> LiveProgress:
    # the tests tick themselves
    view.interval_s = 3600.0
    return LiveProgress(view, now_s=lambda: time.now_s)


@pytest.fixture
def plain(written: Log, time: Time) -> LiveProgress:
    return live(PlainView(written.fd), time)


def a_tally(total: int | None = 1000) -> Tally:
    return Tally("x", "eval_math", started_s=0.0, total=total, in_flight=10)


@pytest.mark.parametrize(
    ("mode", "tty", "notebook", "environ", "expected"),
    [
        ("auto", True, False, {"TERM": "xterm"}, "terminal"),
        ("auto", True, False, {"TERM": "xterm", "NO_COLOR": "1"}, "terminal"),
        ("auto", True, False, {"TERM": "xterm", "CI": "false"}, "terminal"),
        ("auto", True, False, {"TERM": "xterm", "CI": "true"}, "plain"),
        ("auto", True, False, {"TERM": "xterm", "PYTEST_XDIST_WORKER": "gw0"}, "plain"),
        ("auto", True, False, {"TERM": "dumb"}, "plain"),
        ("auto", True, False, {}, "plain"),
        ("auto", False, False, {"TERM": "xterm"}, "plain"),
        ("auto", False, True, {}, "notebook"),
        ("plain", True, True, {"TERM": "xterm"}, "plain"),
        ("off", True, True, {"TERM": "xterm"}, "off"),
    ],
)
def test_the_view_suits_where_it_is_shown(
    mode: Mode, tty: bool, notebook: bool, environ: Mapping[str, str], expected: str
) -> None:
    assert choose(mode, tty=tty, notebook=notebook, environ=environ) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LANG": "en_GB.UTF-8"}, True),
        ({"LC_CTYPE": "C.utf8"}, True),
        ({"LC_ALL": "C", "LANG": "en_GB.UTF-8"}, False),
        ({"LC_ALL": "", "LANG": "en_GB.UTF-8"}, True),
        ({"PYTHONIOENCODING": "latin-1", "LANG": "en_GB.UTF-8"}, False),
        ({}, False),
    ],
)
def test_unicode_is_used_where_the_locale_has_it(environ: Mapping[str, str], expected: bool) -> None:
    assert speaks_unicode(environ) is expected


def test_a_pipe_gets_the_plain_view(written: Log) -> None:
    progress = make_progress(mode="auto", stream_fd=written.fd, environ={"TERM": "xterm"})

    assert isinstance(progress, LiveProgress)
    assert isinstance(progress.view, PlainView)


def test_a_terminal_gets_the_terminal_view() -> None:
    master, slave = os.openpty()
    progress = make_progress(mode="auto", stream_fd=slave, environ={"TERM": "xterm"})
    os.close(slave)
    os.close(master)

    assert isinstance(progress, LiveProgress)
    assert isinstance(progress.view, TerminalView)


@pytest.mark.parametrize(("mode", "fd"), [("off", 1), ("auto", None), ("plain", None)])
def test_off_or_nowhere_to_write_is_silent(mode: Mode, fd: int | None) -> None:
    assert isinstance(make_progress(mode=mode, stream_fd=fd, environ={}), SilentProgress)


def test_a_note_reaches_logging_when_progress_is_off(caplog: pytest.LogCaptureFixture) -> None:
    progress = SilentProgress()
    tally = a_tally()
    progress.started(tally)
    progress.note("took over 100 % of a lock")
    progress.finished(tally)

    assert caplog.record_tuples == [("evalve", logging.WARNING, "took over 100 % of a lock")]


def test_a_log_hears_nothing_of_a_short_run_but_its_notes(
    plain: LiveProgress, written: Log, time: Time
) -> None:
    tally = a_tally()
    plain.started(tally)
    tally.done = 500
    plain.tick(now_s=1.0)
    plain.note("the loop was blocked")
    tally.done, time.now_s = 1000, 1.9
    plain.finished(tally)

    assert written.lines() == ["evalve: the loop was blocked"]


def test_a_log_gets_a_line_at_every_quarter_and_at_the_end(
    plain: LiveProgress, written: Log, time: Time
) -> None:
    tally = a_tally()
    plain.started(tally)
    for second in range(1, 10):
        tally.done = 100 * second
        plain.tick(now_s=float(second))
    tally.done, tally.in_flight, time.now_s = 998, 0, 10.0
    tally.failed = 2
    plain.finished(tally)

    assert written.lines() == [
        "evalve eval_math: 300/1000 (30%), 100.0/s, 10 in flight, ETA 0:07",
        "evalve eval_math: 500/1000 (50%), 100.0/s, 10 in flight, ETA 0:05",
        "evalve eval_math: 800/1000 (80%), 100.0/s, 10 in flight, ETA 0:02",
        "evalve eval_math: 1000/1000 (100%), 100.0/s, 2 failed, took 0:10",
    ]


def test_with_a_line_for_each_sample_none_is_left_out_and_none_is_told_twice(
    written: Log, time: Time
) -> None:
    progress = live(SampleLinesView(written.fd, {("x", "eval_math"): "5"}), time)
    tally = a_tally(total=6)
    tally.skipped = 2
    progress.started(tally)
    progress.tick(now_s=1.0)
    tally.done, tally.failed = 2, 1
    progress.tick(now_s=2.0)
    tally.decided = "5 → 3: 18% of calls were lost"
    progress.tick(now_s=3.0)
    tally.done, tally.in_flight, time.now_s = 3, 0, 4.0
    progress.finished(tally)

    assert written.lines() == [
        "Running concurrent evaluation with 5 workers",
        "Completed 3/6 samples",
        "Completed 4/6 samples",
        "Completed 5/6 samples",
        "Concurrency 5 → 3: 18% of calls were lost",
        "Completed 6/6 samples",
        "evalve eval_math: 6/6 (100%), 1.0/s, 1 failed, took 0:04",
    ]


def test_where_fewer_run_at_once_than_were_asked_for_that_is_said(written: Log, time: Time) -> None:
    progress = live(SampleLinesView(written.fd, {("x", "eval_math"): "50"}), time)
    tally = a_tally(total=6)
    tally.limit = 4
    progress.started(tally)
    progress.tick(now_s=1.0)

    assert written.lines() == ["Running concurrent evaluation with 4 workers"]


def test_of_several_evaluations_each_line_says_whose_it_is(written: Log, time: Time) -> None:
    workers = {("x", "eval_math"): "1", ("y", "eval_math"): "auto"}
    progress = live(SampleLinesView(written.fd, workers), time)
    tally = a_tally(total=None)
    progress.started(tally)
    tally.done = 1
    progress.tick(now_s=1.0)

    assert written.lines() == [
        "Running sequential evaluation with 1 worker (x: eval_math)",
        "Completed 1/? samples (x: eval_math)",
    ]


def test_quarters_that_follow_each_other_closely_share_a_line(plain: LiveProgress, written: Log) -> None:
    tally = a_tally()
    plain.started(tally)
    tally.done = 250
    plain.tick(now_s=5.0)
    tally.done = 500
    plain.tick(now_s=6.0)
    tally.done = 750
    plain.tick(now_s=6.9)
    plain.tick(now_s=7.0)

    assert [line.split(",")[0] for line in written.lines()] == [
        "evalve eval_math: 250/1000 (25%)",
        "evalve eval_math: 750/1000 (75%)",
    ]


def test_a_log_hears_of_a_slow_run_every_thirty_seconds(plain: LiveProgress, written: Log) -> None:
    tally = a_tally(total=None)
    plain.started(tally)
    for second in range(1, 70):
        plain.tick(now_s=float(second))

    assert written.lines() == [
        "evalve eval_math: 0 done, 10 in flight, 0:30 so far",
        "evalve eval_math: 0 done, 10 in flight, 1:00 so far",
    ]


def test_a_reader_that_goes_away_does_not_break_the_run(time: Time) -> None:
    reader, fd = os.pipe()
    os.close(reader)
    progress = live(PlainView(fd), time)
    tally = a_tally()
    progress.started(tally)
    progress.tick(now_s=40.0)
    os.close(fd)
    progress.note("nobody hears this")
    progress.tick(now_s=80.0)
    time.now_s = 90.0
    progress.finished(tally)


def test_a_full_pipe_that_does_not_block_does_not_break_the_run(
    written: Log, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalve.show.live.terminal.LONGEST_WAIT_S", 0.0)
    os.set_blocking(written.fd, False)
    progress = live(PlainView(written.fd), time)
    progress.note("x" * 1_000_000)
    progress.note("dropped")
    written.lines()
    progress.note("heard again")

    assert written.lines()


def test_finishing_what_was_never_started_does_nothing(plain: LiveProgress, written: Log) -> None:
    plain.finished(a_tally())

    assert written.lines() == []


class BrokenView:
    """Raises whenever something is to be shown."""

    interval_s = 3600.0

    def __init__(self) -> None:
        self.closed = False

    def open(self) -> None:
        pass

    def draw(self, running: Sequence[Watched], now_s: float) -> None:
        raise RuntimeError("no display")

    def note(self, text: str) -> None:
        raise RuntimeError("no display")

    def ended(self, watched: Watched, now_s: float) -> None:
        raise RuntimeError("no display")

    def close(self) -> None:
        self.closed = True


def test_a_display_that_breaks_is_reported_once_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    view = BrokenView()
    progress = LiveProgress(view)
    tally = a_tally()
    progress.started(tally)
    progress.tick(now_s=1.0)
    progress.tick(now_s=2.0)
    progress.note("still told")
    progress.finished(tally)

    assert view.closed
    assert [record.getMessage() for record in caplog.records] == [
        "the progress display broke; the run goes on without it",
        "still told",
    ]


def test_no_notebook_without_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)

    assert not in_notebook()
    assert "IPython" not in sys.modules


@pytest.mark.parametrize(
    ("bases", "expected"),
    [(("ZMQInteractiveShell",), True), (("Shell", "ZMQInteractiveShell"), True), (("TerminalShell",), False)],
)
def test_a_notebook_is_known_by_its_shell(
    monkeypatch: pytest.MonkeyPatch, bases: tuple[str, ...], expected: bool
) -> None:
    shell: type = object
    for name in reversed(bases):
        shell = type(name, (shell,), {})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=shell))

    assert in_notebook() is expected


def test_a_notebook_has_one_output_that_is_updated_and_stays(time: Time) -> None:
    shown: list[tuple[str, str, bool]] = []

    def show(output: Mapping[str, str], display_id: str, update: bool) -> None:
        shown.append((output["text/plain"], display_id, update))

    progress = live(NotebookView(show), time)
    tally = a_tally(total=None)
    progress.started(tally)
    progress.tick(now_s=1.0)
    tally.done = 20
    progress.tick(now_s=1.5)
    time.now_s = 2.0
    progress.finished(tally)

    assert [(text, update) for text, _, update in shown] == [
        ("eval_math  0 done  0:01  10 in flight", False),
        ("eval_math  20 done  13.3/s  0:02  10 in flight", True),
        ("evalve eval_math: 20 done, 10.0/s, took 0:02", True),
    ]
    assert len({display_id for _, display_id, _ in shown}) == 1


def test_a_notebook_shows_names_as_they_are(time: Time) -> None:
    shown: list[str] = []
    progress = live(NotebookView(lambda output, _id, _update: shown.append(output["text/html"])), time)
    progress.note("a <b>name</b>")

    assert shown == ['<pre style="margin:0">evalve: a &lt;b&gt;name&lt;/b&gt;</pre>']
