from __future__ import annotations

import os

from evalve.contracts import RunningAgent, Tally
from evalve.show.live import Watched
from evalve.show.progress import PlainView
from evalve.show.status_line import Pace
from evalve.show.workers import agent_lines


def tally(*agents: RunningAgent) -> Tally:
    return Tally("x", "eval_reads", 0.0, total=20, agents=dict(enumerate(agents)))


ONE = RunningAgent("claude-code", "17", 8.0, 4.12, 410_300_000, 12_000, "tool_call")


def test_an_agent_is_a_line_of_what_it_takes_and_did_last() -> None:
    assert agent_lines(tally(ONE), now_s=200.0) == [
        "  17  claude-code  3:12  CPU 4.1 s  410.3 MB  12.0 kB of output  last: tool_call"
    ]


def test_an_agent_that_has_not_started_says_so() -> None:
    assert agent_lines(tally(RunningAgent("codex", "3")), now_s=5.0) == ["  3  codex  starting"]


def test_lines_are_as_wide_as_the_terminal_and_not_more_than_it_bears() -> None:
    lines = agent_lines(tally(*[ONE] * 25), now_s=200.0, width=30)
    assert {len(line) for line in lines[:-1]} == {30}
    assert lines[-1] == "  + 5 more"


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    (line,) = agent_lines(tally(RunningAgent("command", "a\x1b[2Jb", 0.0)), now_s=1.0)
    assert "\x1b" not in line


def test_a_log_has_the_agents_below_the_line_of_their_evaluation() -> None:
    read, write = os.pipe()
    view = PlainView(write, workers=True)
    view.draw([Watched(tally(ONE), Pace(0.0))], 200.0)
    written = os.read(read, 4096).decode().splitlines()
    for end in (read, write):
        os.close(end)
    assert written[0].startswith("evalve eval_reads: 0/20")
    assert written[1].startswith("  17  claude-code  3:12")
