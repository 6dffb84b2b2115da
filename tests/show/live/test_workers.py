"""One line for each running sample."""

from __future__ import annotations

import os

from evalve.contracts import RunningAgent, RunningSample, Tally
from evalve.show.live.progress import PlainView
from evalve.show.live.running import Watched
from evalve.show.live.status_line import Pace, Style, status_line
from evalve.show.live.workers import worker_lines


def a_tally() -> Tally:
    tally = Tally("x", "eval_docs", started_s=0.0, total=20, in_flight=3)
    tally.running = {
        1: RunningSample("doc-1", 0, 10.0, lambda: ""),
        2: RunningSample("a-longer-name", 2, 95.0, lambda: "limits"),
        3: RunningSample("doc-3", 0, 100.0, lambda: "memory"),
    }
    tally.agents = {
        1: RunningAgent("codex", "doc-1", 12.0, cpu_s=4.25, memory_bytes=410_000_000, doing="tool_call"),
        2: RunningAgent("codex", "a-longer-name"),
    }
    return tally


def test_each_says_which_for_how_long_what_it_waits_for_and_what_it_takes() -> None:
    assert worker_lines(a_tally(), now_s=100.0, style=Style()) == [
        "  doc-1                1:30  running  codex  cpu 4.2 s  410.0 MB  tool_call",
        "  a-longer-name #2     0:05  waiting: limits  codex  starting",
        "  doc-3                0:00  waiting: memory",
    ]


def test_the_last_decision_stands_above_them() -> None:
    tally = a_tally()
    tally.decided, tally.limit = "20 → 14: 18% of calls were lost", 14

    lines = worker_lines(tally, now_s=100.0, style=Style(), width=30)

    assert lines[0] == "  20 → 14: 18% of calls were …"
    assert all(len(line) <= 30 for line in lines)
    assert "3 of 14 in flight" in status_line(tally, now_s=100.0, width=100, rate_per_s=None)


def test_a_log_has_them_below_its_lines() -> None:
    reader, writer = os.pipe()
    watched = Watched(a_tally(), Pace(0.0))

    PlainView(writer, workers=True).draw([watched], now_s=100.0)

    lines = os.read(reader, 65536).decode().splitlines()
    os.close(reader)
    os.close(writer)
    assert lines[0].startswith("evalve eval_docs: 0/20")
    assert [line.split()[0] for line in lines[1:]] == ["doc-1", "a-longer-name", "doc-3"]


def test_ids_that_would_move_the_cursor_are_made_visible() -> None:
    tally = Tally("x", "eval_docs", started_s=0.0)
    tally.running = {1: RunningSample("a\x1b[2Jb", 0, 0.0, lambda: "")}

    (line,) = worker_lines(tally, now_s=1.0, style=Style())

    assert "\x1b" not in line


def test_of_many_the_oldest_are_shown() -> None:
    tally = Tally("x", "eval_docs", started_s=0.0)
    tally.running = {n: RunningSample(f"s{n}", 0, 0.0, lambda: "") for n in range(25)}

    lines = worker_lines(tally, now_s=1.0, style=Style())

    assert (len(lines), lines[0].split()[0], lines[-1]) == (21, "s0", "  + 5 more")
