"""Status lines below the cursor of a real (pseudo) terminal, and user output that keeps clear of them."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import re
import struct
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

import pytest

from evalve.contracts import Tally
from evalve.show.live.progress import TerminalView, make_progress
from evalve.show.live.running import LiveProgress
from evalve.show.live.status_line import Style
from evalve.show.live.terminal import GuardedStream, OutputGuard, StatusArea, drawing, erasing

COLUMNS, ROWS = 60, 10


class Screen:
    """As much of a terminal as is needed: what it shows, and what has scrolled out at its top."""

    def __init__(self) -> None:
        self.scrolled: list[str] = []
        self.rows = [[" "] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0
        self.saved = (0, 0)

    def feed(self, text: str) -> None:
        for sequence, character in re.findall(r"(\x1b\[\d*[A-Za-z]|\x1b[D78])|([^\x1b])", text):
            if sequence:
                self._obey(sequence)
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self._down_and_scroll()
            else:
                self._put(character)

    def lines(self) -> list[str]:
        """Everything from the beginning, without the empty rows at the end."""
        text = "\n".join([*self.scrolled, *("".join(row).rstrip() for row in self.rows)])
        return text.rstrip("\n").split("\n")

    def _obey(self, sequence: str) -> None:
        number = int(re.sub(r"\D", "", sequence[2:]) or 1)
        if sequence == "\x1bD":
            self._down_and_scroll()
        elif sequence == "\x1b7":
            self.saved = (self.row, self.column)
        elif sequence == "\x1b8":
            self.row, self.column = self.saved
        elif sequence.endswith("A"):
            self.row = max(0, self.row - number)
        elif sequence.endswith("B"):
            self.row = min(ROWS - 1, self.row + number)
        elif sequence == "\x1b[2K":
            self.rows[self.row] = [" "] * COLUMNS
        elif sequence == "\x1b[J":
            self.rows[self.row][self.column :] = [" "] * (COLUMNS - self.column)
            self.rows[self.row + 1 :] = [[" "] * COLUMNS for _ in self.rows[self.row + 1 :]]

    def _put(self, character: str) -> None:
        if self.column == COLUMNS:
            self.column = 0
            self._down_and_scroll()
        self.rows[self.row][self.column] = character
        self.column += 1

    def _down_and_scroll(self) -> None:
        if self.row == ROWS - 1:
            self.scrolled.append("".join(self.rows.pop(0)).rstrip())
            self.rows.append([" "] * COLUMNS)
        else:
            self.row += 1


class Terminal:
    """A pseudo terminal whose other end is read all the time."""

    def __init__(self) -> None:
        self._master, self.fd = os.openpty()
        tty.setraw(self.fd)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.stream: TextIO = open(self.fd, "w", encoding="utf-8", closefd=False, newline="\r\n")  # noqa: SIM115
        self._arrived = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def written(self) -> str:
        """All that arrived. Ends the terminal."""
        if not self.stream.closed:
            self.stream.close()
            os.close(self.fd)
            self._reader.join()
            os.close(self._master)
        return self._arrived.decode()

    def screen(self) -> list[str]:
        """What a person would see, scrolled back to the beginning. Ends the terminal."""
        screen = Screen()
        screen.feed(self.written().replace("\r\n", "\n").replace("\n", "\r\n"))
        return screen.lines()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self._arrived += data


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.written()


@pytest.fixture
def area(terminal: Terminal) -> StatusArea:
    return StatusArea(terminal.fd)


@contextmanager
def streams_on(terminal: Terminal) -> Iterator[None]:
    """This process's standard streams on the terminal. No fixture: pytest puts its own in before the call."""
    with redirect_stdout(terminal.stream), redirect_stderr(terminal.stream):
        yield


@contextmanager
def guarded_streams_on(terminal: Terminal, area: StatusArea) -> Iterator[None]:
    guard = OutputGuard(area)
    with streams_on(terminal):
        guard.install()
        try:
            yield
        finally:
            guard.remove()


def test_drawing_makes_room_draws_below_and_comes_back() -> None:
    assert drawing(["one", "two"]) == (
        "\x1bD\x1bD\x1b[2A\x1b7\r\x1b[B\x1b[2Kone\r\x1b[B\x1b[2Ktwo\x1b[J\x1b8"
    )


def test_erasing_goes_the_same_way() -> None:
    assert erasing(2) == "\x1bD\x1bD\x1b[2A\x1b7\r\x1b[B\x1b[2K\r\x1b[B\x1b[2K\x1b8"


def test_the_cursor_stays_behind_half_a_line(terminal: Terminal, area: StatusArea) -> None:
    os.write(terminal.fd, b"eval_a.py ")
    area.show(["status"])
    os.write(terminal.fd, b".")
    area.show(["status again"])

    assert terminal.screen() == ["eval_a.py .", "status again"]


def test_room_is_made_at_the_bottom(terminal: Terminal, area: StatusArea) -> None:
    os.write(terminal.fd, b"".join(b"line %d\r\n" % number for number in range(20)) + b"eval_a.py ")
    area.show(["one", "two"])
    area.show(["one", "two"])
    os.write(terminal.fd, b".")

    assert terminal.screen() == [*(f"line {number}" for number in range(20)), "eval_a.py .", "one", "two"]


def test_fewer_lines_leave_nothing_of_the_earlier_ones(terminal: Terminal, area: StatusArea) -> None:
    area.show(["one", "two", "three"])
    area.show(["one"])

    assert terminal.screen() == ["", "one"]


def test_cleared_lines_are_gone(terminal: Terminal, area: StatusArea) -> None:
    os.write(terminal.fd, b"eval_a.py ")
    area.show(["one", "two"])
    area.clear()
    os.write(terminal.fd, b".")

    assert terminal.screen() == ["eval_a.py ."]


def test_output_that_bypasses_the_guard_is_not_erased(terminal: Terminal, area: StatusArea) -> None:
    os.write(terminal.fd, b"\r\n" * (ROWS - 2))
    area.show(["status"])
    os.write(terminal.fd, b"from a long-winded subprocess\r\nand its last line")
    area.clear()

    assert terminal.screen()[-2:] == ["from a long-winded subprocess", "and its last line"]


@pytest.mark.parametrize("before", [b"", b"eval_a.py "])
def test_a_note_has_a_line_of_its_own(terminal: Terminal, area: StatusArea, before: bytes) -> None:
    os.write(terminal.fd, b"first\r\n" + before)
    area.show(["status"])
    area.print("a note")

    own_line = before.decode().split()
    assert terminal.screen() == ["first", *own_line, "a note", "", "status"]


def test_prints_among_redraws_arrive_complete_and_in_order(terminal: Terminal, area: StatusArea) -> None:
    with guarded_streams_on(terminal, area):
        for number in range(30):
            area.show([f"status {number}"])
            print("print", number)
            print(f"half {number}, ", end="")
            area.show([f"status {number}", "and more"])
            print("other half")
        area.clear()

    expected = [text for n in range(30) for text in (f"print {n}", f"half {n}, other half")]
    assert terminal.screen() == expected


def test_lines_of_several_threads_stay_whole(terminal: Terminal, area: StatusArea) -> None:
    def talk(name: str) -> None:
        for number in range(200):
            print(name, number, sep=" ", end=" end\n")

    with guarded_streams_on(terminal, area):
        threads = [threading.Thread(target=talk, args=(name,)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for number in range(50):
            area.show([f"status {number}", "second"])
        for thread in threads:
            thread.join()
        area.clear()

    seen = terminal.screen()
    assert len(seen) == 600
    assert [line for line in seen if line[0] == "a"] == [f"a {n} end" for n in range(200)]
    assert [line for line in seen if line[0] == "b"] == [f"b {n} end" for n in range(200)]
    assert [line for line in seen if line[0] == "c"] == [f"c {n} end" for n in range(200)]


def test_half_a_line_is_held_back_until_the_guard_is_removed(terminal: Terminal, area: StatusArea) -> None:
    with streams_on(terminal):
        guard = OutputGuard(area)
        guard.install()
        print("no end", end="")
        area.show(["status"])
        area.clear()
        guard.remove()
        print(", then one")

    assert terminal.screen() == ["no end, then one"]


@pytest.mark.parametrize(("text", "flush"), [("50 %", True), ("\r50 %\r", False)])
def test_a_flush_or_a_carriage_return_shows_half_a_line(
    terminal: Terminal, area: StatusArea, text: str, flush: bool
) -> None:
    with guarded_streams_on(terminal, area):
        print(text, end="", flush=flush)
        area.show(["status"])

    assert terminal.screen() == ["50 %", "status"]


def test_logging_handlers_write_through_the_guard_and_get_their_stream_back(
    terminal: Terminal, area: StatusArea
) -> None:
    with streams_on(terminal):
        handler = logging.StreamHandler(sys.stderr)
        logger = logging.getLogger("tests.show.a_logger")
        logger.addHandler(handler)
        guard = OutputGuard(area)
        guard.install()
        area.show(["status"])
        logger.warning("a record")
        late = logging.StreamHandler()
        logger.addHandler(late)
        guard.remove()
        logger.handlers.clear()

    assert handler.stream is terminal.stream
    assert late.stream is terminal.stream
    assert terminal.screen() == ["a record", "", "status"]


def test_a_guarded_stream_has_what_the_stream_has(terminal: Terminal, area: StatusArea) -> None:
    with guarded_streams_on(terminal, area):
        assert isinstance(sys.stdout, GuardedStream)
        assert sys.stdout.fileno() == terminal.fd
        assert sys.stdout.isatty()
        assert sys.stdout.encoding == "utf-8"
        assert sys.stdout.buffer.fileno() == terminal.fd


def test_bytes_keep_clear_of_the_status_lines_too(terminal: Terminal, area: StatusArea) -> None:
    with guarded_streams_on(terminal, area):
        area.show(["status"])
        sys.stdout.buffer.write(b"some bytes\r\n")

    assert terminal.screen() == ["some bytes", "", "status"]


def test_streams_that_reach_no_terminal_are_left_alone(
    area: StatusArea, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, closed = io.StringIO(), io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", captured)
    monkeypatch.setattr(sys, "stderr", closed)
    OutputGuard(area).install()

    assert sys.stdout is captured
    assert sys.stderr is closed


def test_a_stand_in_put_on_top_outlives_the_guard(terminal: Terminal, area: StatusArea) -> None:
    with streams_on(terminal):
        guard = OutputGuard(area)
        guard.install()
        with redirect_stdout(io.StringIO()) as elsewhere:
            print("elsewhere")
            guard.remove()
        print("here")

    assert elsewhere.getvalue() == "elsewhere\n"
    assert terminal.screen() == ["here"]


def test_two_guards_may_be_removed_in_either_order(terminal: Terminal, area: StatusArea) -> None:
    with streams_on(terminal):
        first, second = OutputGuard(area), OutputGuard(area)
        first.install()
        second.install()
        first.remove()
        print("between")
        second.remove()
        put_back = sys.stdout

    assert put_back is terminal.stream
    assert terminal.screen() == ["between"]


def test_a_forked_child_writes_without_the_lock(
    terminal: Terminal, area: StatusArea, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = GuardedStream(terminal.stream, area)
    held, let_go = threading.Event(), threading.Event()
    was_let_go: list[bool] = []

    def hold() -> None:
        with area.lock:
            held.set()
            was_let_go.append(let_go.wait(60))

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        stream.write("from the child\n")
        stream.flush()
    let_go.set()
    holder.join()

    assert was_let_go == [True]
    assert terminal.screen() == ["from the child"]


def test_a_terminal_that_goes_away_ends_the_area_silently() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    area = StatusArea(write_end)
    area.show(["status"])
    area.print("a note")
    area.clear()
    os.close(write_end)
    area.show(["status"])

    assert area.size() == (80, 24)


def a_view(terminal: Terminal, **style: Any) -> LiveProgress:
    view = TerminalView(terminal.fd, Style(**style))
    # the tests tick themselves
    view.interval_s = 3600.0
    return LiveProgress(view, now_s=lambda: 10.0)


def test_a_run_shows_its_line_among_prints_and_takes_it_away(terminal: Terminal) -> None:
    with streams_on(terminal):
        progress = a_view(terminal)
        tally = Tally("x", "eval_math", started_s=0.0, total=100)
        print("eval_a.py ", end="", flush=True)
        progress.started(tally)
        tally.done, tally.in_flight = 50, 10
        progress.tick(now_s=5.0)
        print("a print")
        progress.note("a note")
        progress.finished(tally)
        print(".")
        put_back = sys.stdout

    assert put_back is terminal.stream
    assert "eval_math  50/100 50%  10.0/s  ETA 0:05  10 in flight" in terminal.written()
    assert terminal.screen() == ["eval_a.py a print", "evalve: a note", "."]


def test_evaluations_for_which_there_are_no_lines_are_summed_up(terminal: Terminal) -> None:
    progress = a_view(terminal)
    tallies = [Tally("x", f"eval_{number}", started_s=0.0) for number in range(15)]
    for tally in tallies:
        progress.started(tally)
    progress.tick(now_s=1.0)
    seen = terminal.screen()
    for tally in tallies:
        progress.finished(tally)

    assert [line.split("  ")[0] for line in seen] == [
        "", *(f"eval_{number}" for number in range(8)), "+ 7 more",
    ]  # fmt: skip


def test_the_rest_go_on_when_one_evaluation_has_ended(terminal: Terminal) -> None:
    progress = a_view(terminal)
    one, other = Tally("x", "eval_one", started_s=0.0), Tally("x", "eval_one", started_s=0.0)
    progress.started(one)
    progress.started(other)
    progress.tick(now_s=1.0)
    progress.finished(other)
    one.done = 7
    progress.tick(now_s=1.5)
    seen = terminal.screen()
    progress.finished(one)

    assert seen == ["", "eval_one  7 done  4.7/s  0:02  0 in flight"]


def test_own_cpu_and_memory_are_shown_after_a_second(terminal: Terminal) -> None:
    progress = a_view(terminal)
    tally = Tally("x", "eval_math", started_s=0.0)
    progress.started(tally)
    progress.tick(now_s=1.0)
    progress.tick(now_s=2.0)
    seen = terminal.screen()
    progress.finished(tally)

    assert re.search(r"cpu \d+% mem \d+ MB$", seen[1])


def test_the_display_thread_draws_by_itself(terminal: Terminal) -> None:
    progress = make_progress(
        mode="auto", stream_fd=terminal.fd, environ={"TERM": "xterm", "LANG": "C.UTF-8", "NO_COLOR": "1"}
    )
    assert isinstance(progress, LiveProgress)
    drawn = threading.Event()
    draw = progress.view.draw

    def draw_and_tell(*arguments: Any) -> None:
        draw(*arguments)
        drawn.set()

    progress.view.draw = draw_and_tell  # type: ignore[method-assign, assignment]
    tally = Tally("x", "eval_math", started_s=0.0)
    progress.started(tally)
    assert drawn.wait(60)
    progress.finished(tally)

    written = terminal.written()
    assert "eval_math  0 done" in written
    assert "\x1b[2m" not in written
