"""Ctrl-C: once lets what runs end, twice cancels it; both can be resumed as the program says."""

from __future__ import annotations

import itertools
import shlex
import signal

import pytest
from project import Ended, Project

STOPPING = "stopping: what is in flight may end and is saved; Ctrl-C again cancels it"

WAITS_FOR_GO = """
    import asyncio
    from pathlib import Path
    from evalve import foreach

    @foreach("number", range(8))
    async def eval_waits(number):
        with open("calls.txt", "a") as file:
            file.write(f"{number} ")
        if number > 0:
            Path("started").touch()
            while not Path("go").exists():
                await asyncio.sleep(0.01)
        return number
"""


def resume(project: Project, ended: Ended) -> Ended:
    """Type the command that was printed."""
    (line,) = [line for line in ended.summary if "To go on: " in line]
    program, *arguments = shlex.split(line.partition("To go on: ")[2])
    (project.folder / "go").touch()
    return project.pytest(*arguments) if program == "pytest" else project.evalve(*arguments)


@pytest.mark.parametrize("without", [[], ["-p", "no:asyncio"]])
def test_the_first_ctrl_c_starts_nothing_more_drains_and_says_how_to_go_on(
    project: Project, without: list[str]
) -> None:
    project.write("pytest.ini", "[pytest]\n")
    project.write("eval_waits.py", WAITS_FOR_GO)
    arguments = ["--max-concurrency", "2", "-k", "waits or other", *without]
    with project.started("-m", "pytest", *arguments) as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.wait_until(lambda: project.read("calls.txt") == "0 1 2 ", "three calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert project.read("calls.txt") == "0 1 2 "
    assert project.values() == {"eval_waits": [0, 1, 2]}
    assert ended.summary[0].startswith("eval_waits  3/8 done")
    shown = project.evalve("show", "latest").out
    assert "interrupted" in shown
    assert "3/8 done" in shown

    resumed = resume(project, ended)

    assert resumed.code == 0
    assert sorted(project.read("calls.txt").split()) == list("01234567")
    assert len(project.experiments()) == 1
    assert project.values() == {"eval_waits": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_the_second_ctrl_c_cancels_at_once_and_can_be_resumed(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    with project.started("-m", "pytest", "--experiment", "x", "--max-concurrency", "2", "--fresh") as run:
        run.wait_until(lambda: project.read("calls.txt") == "0 1 2 ", "three calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert project.values("x") == {"eval_waits": [0]}
    assert "To go on: pytest --experiment x --max-concurrency 2" in ended.summary[-2]
    assert "--fresh" not in ended.summary[-2]
    assert "Traceback" not in ended.err

    resumed = resume(project, ended)

    assert resumed.code == 0
    assert project.values("x") == {"eval_waits": [0, 1, 2, 3, 4, 5, 6, 7]}


SYNC = """
    import time
    from pathlib import Path
    from evalve import foreach

    @foreach("number", range(4))
    def eval_sync(number):
        with open("calls.txt", "a") as file:
            file.write(f"{number} ")
        while number == 1 and not Path("go").exists():
            time.sleep(0.01)
        return number
"""


def called(project: Project) -> str:
    """The numbers that have been asked for; threads ask in any order."""
    return "".join(sorted(project.read("calls.txt").split()))


@pytest.mark.parametrize(
    ("window", "started", "drained"),
    [("1", "01", [0, 1]), ("2", "0123", [0, 1, 2, 3])],
    ids=["inline", "threads"],
)
def test_a_sync_evaluation_drains_too(
    project: Project, window: str, started: str, drained: list[int]
) -> None:
    project.write("eval_sync.py", SYNC)
    with project.started("-m", "pytest", "--max-concurrency", window, "--experiment", "x") as run:
        run.wait_until(lambda: called(project) == started, "calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert project.values("x") == {"eval_sync": drained}
    assert resume(project, ended).code == 0
    assert project.values("x") == {"eval_sync": [0, 1, 2, 3]}


@pytest.mark.parametrize("window", ["1", "2"], ids=["inline", "threads"])
def test_a_sync_evaluation_is_cancelled_by_the_second_ctrl_c(project: Project, window: str) -> None:
    project.write("eval_sync.py", SYNC)
    with project.started("-m", "pytest", "--max-concurrency", window, "--experiment", "x") as run:
        run.wait_until(lambda: called(project).startswith("01"), "calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert 1 not in project.values("x")["eval_sync"]
    assert "To go on: pytest" in ended.out
    assert resume(project, ended).code == 0
    assert project.values("x") == {"eval_sync": [0, 1, 2, 3]}


def test_evaluations_that_had_not_begun_are_run_when_resumed(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO + WAITS_FOR_GO.replace("eval_waits", "eval_later"))
    with project.started("-m", "pytest", "--max-concurrency", "2") as run:
        run.wait_until(lambda: project.read("calls.txt") == "0 1 2 ", "three calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    resumed = resume(project, ended)

    assert resumed.outcomes == {"passed": 2}
    assert project.values() == {
        "eval_waits": [0, 1, 2, 3, 4, 5, 6, 7],
        "eval_later": [0, 1, 2, 3, 4, 5, 6, 7],
    }


def test_a_fresh_start_that_is_interrupted_leaves_nothing_old_behind(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO + WAITS_FOR_GO.replace("eval_waits", "eval_later"))
    (project.folder / "go").touch()
    assert project.pytest("--experiment", "x").code == 0
    (project.folder / "go").unlink()
    (project.folder / "calls.txt").unlink()

    with project.started("-m", "pytest", "--experiment", "x", "--fresh", "--max-concurrency", "2") as run:
        run.wait_until(lambda: project.read("calls.txt") == "0 1 2 ", "three calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        run.interrupt()
        ended = run.end()

    assert project.values("x") == {"eval_waits": [0]}
    assert resume(project, ended).outcomes == {"passed": 2}
    assert len(project.read("calls.txt").split()) == 3 + 7 + 8


def test_a_sample_that_waits_for_its_next_try_does_not_hold_up_the_end(project: Project) -> None:
    project.write(
        "eval_retries.py",
        """
        from pathlib import Path
        from evalve import ForEach
        from tenacity import AsyncRetrying, stop_after_attempt, wait_fixed

        patient = ForEach(retries=AsyncRetrying(wait=wait_fixed(600), stop=stop_after_attempt(3)))

        @patient("number", [1])
        async def eval_retries(number):
            if not Path("go").exists():
                Path("started").touch()
                raise ConnectionError("not yet")
            return True
        """,
    )
    with project.started("-m", "pytest", "--experiment", "x") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert [one["failure"]["kind"] for one in project.records("x")] == ["ConnectionError"]
    assert resume(project, ended).code == 0


def test_ctrl_c_during_evalve_run_prints_the_command_that_was_typed(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    command = "import sys; sys.argv[0] = 'evalve'; from evalve.cli import main; sys.exit(main())"
    with project.started("-c", command, "run", "eval_waits.py", "--experiment", "x") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert "To go on: evalve run eval_waits.py --experiment x" in ended.out
    assert resume(project, ended).code == 0


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["async", "sync", "nested"])
def test_ctrl_c_in_a_plain_script_says_how_to_go_on(project: Project, kind: str, times: int) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    project.write("eval_sync.py", SYNC)
    project.write(
        "script.py",
        """
        import asyncio
        import sys
        import evalve
        from eval_sync import eval_sync
        from eval_waits import eval_waits

        async def as_in_a_notebook():
            return evalve.run(eval_waits, experiment="x", max_concurrency=2)

        if sys.argv[1] == "async":
            result = asyncio.run(eval_waits(experiment="x", max_concurrency=2))
        elif sys.argv[1] == "nested":
            result = asyncio.run(as_in_a_notebook())
        else:
            result = eval_sync(experiment="x")
        print([record.scores[0].value for record in result])
        """,
    )
    started = "0 1 " if kind == "sync" else "0 1 2 "
    with project.started("script.py", kind) as run:
        run.wait_until(lambda: project.read("calls.txt") == started, "calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        if times == 2:
            run.interrupt()
        else:
            (project.folder / "go").touch()
        ended = run.end()

    drained, total = (2, 4) if kind == "sync" else (3, 8)
    done = drained if times == 1 else 1
    assert ended.code != 0
    assert f"Interrupted: {done} of {total} samples done and saved" in ended.err
    assert "run it again with experiment='x' to go on" in ended.err
    assert "During handling of the above exception" not in ended.err
    (project.folder / "go").touch()
    resumed = project.python("script.py", kind)
    assert resumed.code == 0
    assert resumed.out == f"{list(range(total))}\n"


def test_a_function_that_raises_a_keyboard_interrupt_interrupts_and_says_no_more(project: Project) -> None:
    project.write(
        "eval_own.py",
        """
        import asyncio
        from evalve import foreach

        @foreach("n", range(4))
        async def eval_own(n):
            await asyncio.sleep(0.01 * n)
            if n == 2:
                raise KeyboardInterrupt
            return True
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.code == 2
    assert "interrupted; what was done is saved" in ended.out
    assert "never retrieved" not in ended.all
    assert len(project.records("x")) == 2


def test_ctrl_c_in_a_plain_script_while_the_last_samples_run_asks_for_nothing_more(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    project.write(
        "script.py",
        """
        import evalve
        from eval_waits import eval_waits

        print(evalve.run(eval_waits, experiment="x", max_concurrency=10).done)
        """,
    )
    with project.started("script.py") as run:
        run.wait_until(lambda: len(project.read("calls.txt").split()) == 8, "calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code != 0
    assert ended.err.rstrip().endswith(
        "Interrupted: 8 of 8 samples done and saved; none is left,"
        " and with experiment='x' it returns the result"
    )
    assert "complete" in project.evalve("show", "x").out
    again = project.python("script.py")
    assert (again.code, again.out) == (0, "8\n")
    assert len(project.read("calls.txt").split()) == 8


AT_ONCE = """
    import evalve.runner.interruption as interruption
    import evalve.runner.leaving as leaving
    import evalve.runner.sample as sample
    import evalve.runner.unheard as unheard

    unheard.PATIENCE_S = interruption.STUCK_AFTER_S = sample.AFTER_CANCEL_S = sample.AFTER_DEADLINE_S = 0.3
"""

DOES_NOT_END = {
    "blocks": "time.sleep(1000)",
    "swallows": """
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    pass""",
    "blocks and swallows": """
            while True:
                try:
                    time.sleep(1000)
                except BaseException:
                    pass""",
    "waits in C": """
            import ctypes
            libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)""",
    "waits for one that swallows": "await asyncio.gather(swallows(), swallows())",
    "waits for a thread": "await asyncio.to_thread(time.sleep, 1000)",
}


def does_not_end(how: str) -> str:
    return f"""
    import asyncio
    import time
    from pathlib import Path
    from evalve import foreach

    async def swallows():
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass

    @foreach("number", range(4))
    async def eval_stays(number):
        if number == 2 and not Path("go").exists():
            Path("started").touch()
            {DOES_NOT_END[how]}
        return number
    """


@pytest.mark.parametrize("without", [[], ["-p", "no:asyncio"]], ids=["pytest-asyncio", "own loop"])
@pytest.mark.parametrize("how", DOES_NOT_END)
def test_whatever_a_sample_does_the_second_ctrl_c_ends_the_run(
    project: Project, how: str, without: list[str]
) -> None:
    project.write(
        "conftest.py", AT_ONCE + "    import evalve.runner.leaving as left; left.PATIENCE_S = 0.5\n"
    )
    project.write("pytest.ini", "[pytest]\n")
    project.write("eval_stays.py", does_not_end(how))
    with project.started("-m", "pytest", "--experiment", "x", "--max-concurrency", "1", *without) as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert "Traceback" not in ended.all
    assert "To go on: pytest --experiment x" in ended.all
    assert project.values("x") == {"eval_stays": [0, 1]}
    (project.folder / "go").touch()
    assert project.pytest("--experiment", "x", *without).code == 0
    assert project.values("x") == {"eval_stays": [0, 1, 2, 3]}


@pytest.mark.parametrize("without", [[], ["-p", "no:asyncio"]], ids=["pytest-asyncio", "own loop"])
def test_a_dataset_that_goes_on_although_it_was_cancelled_does_not_keep_the_process(
    project: Project, without: list[str]
) -> None:
    project.write("pytest.ini", "[pytest]\n")
    project.write(
        "eval_pages.py",
        """
        import asyncio
        from pathlib import Path
        from evalve import foreach

        async def pages():
            while not Path("go").exists():
                Path("started").touch()
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    pass
            yield {"number": 1}

        @foreach("number", pages)
        async def eval_pages(number):
            return number
        """,
    )
    with project.started("-m", "pytest", "--experiment", "x", *without) as run:
        run.wait_until((project.folder / "started").exists, "dataset")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert "Error" not in ended.all
    assert "To go on: pytest --experiment x" in ended.all
    (project.folder / "go").touch()
    assert project.pytest("--experiment", "x", *without).code == 0
    assert project.values("x") == {"eval_pages": [1]}


@pytest.mark.parametrize("function", ["async def", "def"], ids=["on the loop", "in a thread"])
def test_a_second_ctrl_c_kills_a_process_that_a_call_into_c_has_made_deaf(
    project: Project, function: str
) -> None:
    project.write("conftest.py", "import evalve.runner.watchdog as watchdog; watchdog.DEAF_AFTER_S = 0.5")
    project.write(
        "eval_parses.py",
        f"""
        import re
        from pathlib import Path
        from evalve import foreach

        @foreach("number", range(4))
        {function} eval_parses(number):
            if number == 2 and not Path("go").exists():
                Path("started").touch()
                re.match("(a+)+$", "a" * 100 + "b")
            return number
        """,
    )
    with project.on_terminal("-m", "pytest", "--experiment", "x", "--max-concurrency", "2") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        presses = itertools.count()

        def is_killed() -> bool:
            if not run.is_over and next(presses) % 400 == 0:  # seconds apart: two at once count as one
                run.interrupt()
            return run.is_over

        run.wait_until(is_killed, "end")
        ended = run.end()

    assert ended.code == -signal.SIGKILL
    assert "To go on, run the same command again" in ended.out
    (project.folder / "go").touch()
    assert project.pytest("--experiment", "x").code == 0
    assert project.values("x") == {"eval_parses": [0, 1, 2, 3]}


@pytest.mark.parametrize("function", ["async def", "def"], ids=["async", "sync"])
def test_in_a_running_loop_a_sample_that_does_not_end_is_left_behind_and_the_program_goes_on(
    project: Project, function: str
) -> None:
    project.write(
        "eval_stays.py", does_not_end("blocks and swallows").replace("async def eval", f"{function} eval")
    )
    project.write(
        "script.py",
        AT_ONCE
        + """
    import asyncio
    from pathlib import Path
    import evalve
    from eval_stays import eval_stays

    async def cells():
        try:
            evalve.run(eval_stays, experiment="x", max_concurrency=1)
        except evalve.Interrupted as error:
            print(error)
        Path("go").touch()
        print(evalve.run(eval_stays, experiment="x").done)

    asyncio.run(cells())
    """,
    )
    with project.started("script.py") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        run.interrupt()
        ended = run.end()

    assert ended.code == 0
    assert ended.out == (
        "a sample does not end, and its thread was left behind; what was done is saved:"
        " run it again with experiment='x' to go on\n4\n"
    )
    assert "Traceback" not in ended.err
    assert project.values("x") == {"eval_stays": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("catches", "code"),
    [("ZeroDivisionError", 130), ("evalve.Interrupted", 0)],
    ids=["it ends for that", "it goes on"],
)
def test_a_program_ends_although_a_thread_does_not_that_a_sample_waited_for(
    project: Project, catches: str, code: int
) -> None:
    project.write("eval_stays.py", does_not_end("waits for a thread"))
    project.write(
        "script.py",
        AT_ONCE
        + f"""
    import threading, time
    import evalve, evalve.runner.leaving as left
    from eval_stays import eval_stays

    left.PATIENCE_S = 0.1
    try:
        evalve.run(eval_stays, experiment="x")
    except {catches}:
        threading.Thread(target=lambda: time.sleep(0.5) or print("its own threads end"), daemon=False).start()
    """,
    )
    with project.started("script.py") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        run.interrupt()
        ended = run.end()

    assert ended.code == code
    assert ended.out == ("its own threads end\n" if code == 0 else "")
    assert "threads that samples left behind do not end" in ended.err


@pytest.mark.parametrize("how", ["swallows", "waits for one that swallows", "waits for a thread"])
def test_a_deadline_ends_a_sample_whatever_it_does(project: Project, how: str) -> None:
    project.write(
        "conftest.py", AT_ONCE + "    import evalve.runner.leaving as left; left.PATIENCE_S = 0.5\n"
    )
    project.write("eval_stays.py", does_not_end(how))

    ended = project.pytest("--experiment", "x", "--timeout", "0.2")

    assert ended.code == 1
    assert project.values("x") == {"eval_stays": [0, 1, 3]}
    (failed,) = [record for record in project.records("x") if record["failure"]]
    assert failed["failure"]["kind"] == "SampleTimeout"
    assert ("left behind" in failed["failure"]["message"]) == (how != "waits for a thread")
    assert "left behind" in ended.err


def test_a_sync_sample_over_its_deadline_leaves_its_thread_behind_and_says_so(project: Project) -> None:
    project.write("eval_sync.py", SYNC)

    ended = project.pytest("--experiment", "x", "--timeout", "0.2")

    assert ended.code == 1
    (failed,) = [record for record in project.records("x") if record["failure"]]
    assert failed["failure"]["kind"] == "SampleTimeout"
    assert "its thread was left behind" in failed["failure"]["message"]
    assert "its thread was left behind" in ended.err


@pytest.mark.parametrize("window", ["1", "2"], ids=["inline", "threads"])
def test_four_quick_presses_leave_no_traceback_and_say_how_to_go_on(project: Project, window: str) -> None:
    project.write("eval_sync.py", SYNC)
    with project.started("-m", "pytest", "--max-concurrency", window, "--experiment", "x") as run:
        run.wait_until(lambda: called(project).startswith("01"), "calls")
        for _ in range(4):
            run.interrupt()
            run.has_written(STOPPING, to="err")
        ended = run.end()

    assert ended.code == 2
    assert "Traceback" not in ended.all
    assert "To go on: pytest" in ended.out


def test_an_interrupted_evaluation_is_counted_and_no_line_of_ours_is_shown(project: Project) -> None:
    project.write("eval_sync.py", SYNC)
    with project.started("-m", "pytest", "--experiment", "x") as run:
        run.wait_until(lambda: called(project).startswith("01"), "calls")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert "1 interrupted in" in ended.out
    assert "no tests ran" not in ended.out
    assert "plugin/session.py" not in ended.out


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_being_asked_to_end_is_like_the_first_ctrl_c_however_often(project: Project, name: str) -> None:
    project.write("eval_sync.py", SYNC)
    with project.started("-m", "pytest", "--experiment", "x", "--max-concurrency", "1") as run:
        run.wait_until(lambda: called(project).startswith("01"), "calls")
        run.send(name)
        run.has_written(STOPPING, to="err")
        run.send(name)
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert project.values("x") == {"eval_sync": [0, 1]}
    assert resume(project, ended).code == 0


def test_a_program_that_a_sample_forks_dies_of_sigterm_as_usual(project: Project) -> None:
    project.write(
        "eval_forks.py",
        """
        import os, signal, time
        from evalve import foreach

        @foreach("number", [1])
        def eval_forks(number):
            child = os.fork()
            if child == 0:
                while True:
                    time.sleep(1)
            time.sleep(0.05)
            os.kill(child, signal.SIGTERM)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        """,
    )

    assert project.pytest("--experiment", "x").code == 0
    assert project.values("x") == {"eval_forks": [True]}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_being_asked_to_end_reaches_the_workers_of_xdist(project: Project, name: str) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    with project.started("-m", "pytest", "-n", "1", "--experiment", "x", "--max-concurrency", "2") as run:
        run.wait_until(lambda: project.read("calls.txt") == "0 1 2 ", "three calls")
        run.send(name)
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert project.values("x") == {"eval_waits": [0, 1, 2]}


ALARM = """
    import signal
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item):
        signal.signal(signal.SIGALRM, lambda *_: pytest.fail("took too long"))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.parametrize("without", [[], ["-p", "no:asyncio"]], ids=["pytest-asyncio", "own loop"])
def test_an_item_that_a_signal_fails_does_not_go_on_inside_the_next_one(
    project: Project, without: list[str]
) -> None:
    project.write("pytest.ini", "[pytest]\n")
    project.write(
        "conftest.py",
        ALARM,
    )
    project.write(
        "eval_two.py",
        """
        import asyncio, signal
        from evalve import foreach

        @foreach("n", range(100))
        async def eval_slow(n):
            if n == 2:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
            await asyncio.sleep(0.05)
            with open("slow.txt", "a") as file:
                file.write("x")
            return True

        @foreach("n", [1])
        async def eval_then(n):
            before = len(open("slow.txt").read())
            await asyncio.sleep(0.5)
            return len(open("slow.txt").read()) == before
        """,
    )

    ended = project.pytest("--experiment", "x", "--max-concurrency", "1", *without)

    assert ended.outcomes == {"failed": 1, "passed": 1}
    assert project.values("x")["eval_then"] == [True]


@pytest.mark.parametrize("define", ["def", "async def"])
def test_an_item_that_a_signal_fails_inside_a_sample_ends_and_no_sample_has_failed(
    project: Project, define: str
) -> None:
    project.write("conftest.py", ALARM)
    project.write(
        "eval_two.py",
        f"""
        import signal, time
        from evalve import foreach

        @foreach("n", range(100))
        {define} eval_slow(n):
            if n:
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                time.sleep(1000)
            return n

        @foreach("n", [1])
        def eval_then(n):
            return n
        """,
    )

    ended = project.pytest("--experiment", "x", "--max-concurrency", "1")

    assert ended.outcomes == {"failed": 1, "passed": 1}
    assert "Failed: took too long" in ended.all
    assert [record["failure"] for record in project.records("x")] == [None, None]
    assert project.values("x") == {"eval_slow": [0], "eval_then": [1]}


def test_a_program_that_goes_on_after_pytest_is_not_ended_for_what_a_sample_left_behind(
    project: Project,
) -> None:
    project.write(
        "eval_slow.py",
        """
        import asyncio
        from evalve import foreach

        @foreach("n", [1])
        async def eval_slow(n):
            await asyncio.sleep(60)
        """,
    )
    project.write("conftest.py", "from evalve.runner import leaving\nleaving.PATIENCE_S = 1.5\n")
    project.write(
        "script.py",
        """
        import time
        import pytest

        pytest.main(["-q", "eval_slow.py", "--timeout", "0.1"])
        time.sleep(2)
        print("still here")
        """,
    )

    ended = project.python("script.py")

    assert "still here" in ended.out
    assert "left behind" not in ended.err
