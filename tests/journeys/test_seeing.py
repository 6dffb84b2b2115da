"""What a person sees while evaluations run: nothing of their own output is lost."""

from __future__ import annotations

import os
import pty
import sys

import pytest
from project import Project

TALKS = """
    import asyncio
    import logging
    import sys
    from evalve import foreach

    @foreach("number", range(3))
    async def eval_talks(number):
        await asyncio.sleep(0.01)
        print(f"printed {number}")
        print(f"complained {number}", file=sys.stderr)
        logging.getLogger("mine").warning(f"logged {number}")
        if number == 2:
            raise ValueError("broken")
        return True
"""


def test_prints_and_logs_are_shown_with_s_and_with_the_failure_without(project: Project) -> None:
    project.write("eval_talks.py", TALKS)

    captured = project.pytest("eval_talks.py")
    live = project.pytest("-s", "--log-cli-level=WARNING")

    for number in range(3):
        assert captured.out.count(f"printed {number}") == 1
        assert captured.out.count(f"complained {number}") == 1
        assert f"logged {number}" in captured.out
        assert live.out.count(f"printed {number}") == 1
        assert live.err.count(f"complained {number}") == 1
        assert f"logged {number}" in live.out


def test_a_longer_run_without_a_terminal_tells_its_milestones_in_plain_lines(project: Project) -> None:
    project.write(
        "eval_long.py",
        """
        import asyncio
        from evalve import foreach

        @foreach("number", range(8))
        async def eval_long(number):
            await asyncio.sleep(0.35)
            return True
        """,
    )

    ended = project.pytest("--max-concurrency", "1")

    assert ended.code == 0
    lines = [line for line in ended.err.splitlines() if "eval_long" in line]
    assert len(lines) >= 2
    assert "8/8" in lines[-1]
    assert not any("\x1b" in line for line in ended.all.splitlines())


def test_a_short_run_and_progress_off_are_silent(project: Project) -> None:
    project.write("eval_talks.py", TALKS)

    assert project.pytest("eval_talks.py").err == ""
    assert project.pytest("--progress", "off").err == ""


def test_a_blocked_loop_is_reported_once_with_the_place_and_the_remedy(project: Project) -> None:
    project.write(
        "eval_blocks.py",
        """
        import time
        from evalve import foreach

        @foreach("number", range(3))
        async def eval_blocks(number):
            time.sleep(0.5)
            return True
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.code == 0
    assert ended.err.count("eval_blocks blocks the event loop") == 1
    assert f"`time.sleep(0.5)` ({project.folder}/eval_blocks.py:7)" in ended.err
    assert "await asyncio.to_thread(...)" in ended.err


@pytest.mark.parametrize("arguments", [[], ["-s"]])
def test_on_a_terminal_status_lines_come_and_go_and_nothing_is_lost(
    project: Project, arguments: list[str]
) -> None:
    project.write("eval_talks.py", TALKS.replace("0.01", "0.4"))

    screen = _on_a_terminal(project, "-m", "pytest", *arguments)

    assert "eval_talks" in screen
    assert "0/3" in screen
    assert "1 failed" in screen
    for number in range(3):
        assert screen.count(f"printed {number}") == 1


def _on_a_terminal(project: Project, *arguments: str) -> str:
    """What the program writes to a terminal of its own."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "CI" and not name.startswith(("EVALVE_", "PYTEST_"))
    }
    environment |= {"TERM": "xterm", "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(project.folder)
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    seen = b""
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not some:
            break
        seen += some
    os.close(terminal)
    os.waitpid(pid, 0)
    return seen.decode()


def test_a_direct_call_in_a_script_returns_its_result(project: Project) -> None:
    project.write(
        "script.py",
        """
        import asyncio
        import evalve
        from evalve import foreach
        from evalve.evaluators import exact_match

        @foreach("question,answer", [("a", "a"), ("b", "c")])
        def eval_sync(question, answer, model):
            return exact_match(model(question), answer)

        @foreach("question,answer", [("a", "a"), ("b", "c")])
        async def eval_async(question, answer):
            await asyncio.sleep(0.001)
            return exact_match(question, answer)

        async def main():
            awaited = await eval_async(max_concurrency=10, samples=100, experiment="x")
            inside = evalve.run(eval_async, samples=1)
            return awaited, inside

        result = eval_sync(model=str.lower)
        print(result.summary["exact_match"]["accuracy"])
        awaited, inside = asyncio.run(main())
        print([record.status for record in awaited], awaited.summary["exact_match"]["accuracy"])
        print(len(list(inside)))
        print(len(list(evalve.run(eval_async, experiment="x"))))
        """,
    )

    ended = project.python("-W", "error", "script.py")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == ["0.5", "['done', 'done'] 0.5", "1", "2"]
