"""Several pytest workers: one experiment, one lock, one summary."""

from __future__ import annotations

import os
import time
from contextlib import closing

import pytest
from project import Project, Running, have_ended

from evalve.storage import open_store

FOUR_EVALUATIONS = """
    import os
    from evalve import Result, foreach

    def asked(number):
        return Result(number > 0, response=os.environ["PYTEST_XDIST_WORKER"])

    @foreach("number", [1, 2, 3])
    async def eval_a(number):
        return asked(number)

    @foreach("number", [1, 2])
    def eval_b(number):
        return asked(number)

    @foreach("number", [0, 1])
    async def eval_c(number):
        return asked(number)

    @foreach("number", [1])
    async def eval_d(number):
        raise ValueError("broken on purpose")
"""


def test_all_workers_write_one_experiment_and_the_summary_is_printed(project: Project) -> None:
    project.write("eval_four.py", FOUR_EVALUATIONS)

    ended = project.pytest("-n", "2", "--junitxml=junit.xml", "-o", "junit_family=xunit2")

    assert ended.code == 1
    assert ended.outcomes == {"passed": 3, "failed": 1}
    assert len(project.experiments()) == 1
    assert project.values() == {
        "eval_a": [True, True, True],
        "eval_b": [True, True],
        "eval_c": [False, True],
        "eval_d": [],
    }
    lines = "\n".join(ended.summary)
    assert "eval_a  3/3 done" in lines
    assert "eval_b  2/2 done" in lines
    assert "eval_c  2/2 done" in lines
    assert "eval_d  0/1 done, 1 failed (code)" in lines
    assert "not passed: 1 of 1 samples failed (code)" in lines
    assert ended.summary[-1] == f"see: evalve show {project.experiments()[0]}"
    cases = project.junit("junit.xml")
    assert sorted(cases) == ["eval_a", "eval_b", "eval_c", "eval_d"]
    assert [len(cases[name].findall("failure")) for name in sorted(cases)] == [0, 0, 0, 1]
    properties = {one.get("name"): one.get("value") for one in cases["eval_c"].iter("property")}
    assert properties["evalve.samples"] == "2"
    assert properties["score.accuracy"] == "0.5"


def test_a_named_experiment_is_resumed_by_whole_files_on_other_workers(project: Project) -> None:
    project.write("eval_four.py", FOUR_EVALUATIONS)
    first = project.pytest("-n", "2", "--dist", "loadfile", "--experiment", "x")

    second = project.pytest("-n", "1", "--experiment", "x")

    assert first.outcomes == second.outcomes == {"passed": 3, "failed": 1}, second.all
    assert len({one["response"] for one in project.records("x") if one["response"]}) == 1
    assert "eval_a  3/3 done, 3 of them before" in "\n".join(second.summary)
    assert len(project.records("x")) == 8


def test_the_controller_holds_the_lock_and_a_second_run_names_it(project: Project) -> None:
    project.write(
        "eval_slow.py",
        """
        import asyncio
        from pathlib import Path
        from evalve import foreach

        @foreach("number", [1])
        async def eval_slow(number):
            Path("started").touch()
            while not Path("go").exists():
                await asyncio.sleep(0.01)
            return True
        """,
    )
    with project.started("-m", "pytest", "-n", "1", "--experiment", "x") as first:
        first.wait_until((project.folder / "started").exists, "sample")

        second = project.pytest("-n", "1", "--experiment", "x")
        alone = project.pytest("--experiment", "x")
        (project.folder / "go").touch()
        ended = first.end()

    assert (second.code, alone.code) == (4, 4)
    assert f"experiment 'x' is being run by pid {first.pid} on" in second.err
    assert "(pytest -n 1 --experiment x)" in second.err
    assert "give this run another name with --experiment" in second.err
    assert f"experiment 'x' is being run by pid {first.pid} on" in alone.err
    assert ended.code == 0


def test_a_worker_whose_own_store_is_held_says_so_and_is_not_started_again(project: Project) -> None:
    project.write(
        "eval_own.py",
        """
        from evalve import ForEach

        @ForEach(storage="own.db")("number", [1])
        async def eval_own(number):
            return True
        """,
    )
    with closing(open_store(project.folder / "own.db")) as store:
        store.lock("x", holder="somebody else")

        ended = project.pytest("-n", "1", "--experiment", "x")

    assert ended.outcomes == {"failed": 1}
    assert f"experiment 'x' is being run by pid {os.getpid()} on" in ended.out
    assert "crashed" not in ended.out


TWO_THAT_WAIT_FOR_GO = """
    import asyncio
    from pathlib import Path
    from evalve import foreach

    async def waited(name):
        Path(name).touch()
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        return True

    @foreach("number", [1, 2])
    async def eval_first(number):
        return await waited("first")

    @foreach("number", [1, 2])
    async def eval_later(number):
        return await waited("later")
"""


STOPPING = "stopping: what is in flight may end and is saved; Ctrl-C again cancels it"
IMPATIENT = """
    from xdist.workermanage import NodeManager

    NodeManager.EXIT_TIMEOUT = 0.1
"""
FOUR_EACH = TWO_THAT_WAIT_FOR_GO.replace("[1, 2]", "[1, 2, 3, 4]")
TWO_AT_ONCE = ("-n", "2", "--experiment", "x", "--max-concurrency", "2")


def wait_for_both_workers(project: Project, run: Running) -> None:
    for name in ("first", "later"):
        run.wait_until((project.folder / name).exists, name)


@pytest.mark.parametrize("pressed_on", ["terminal", "controller"])
def test_the_first_ctrl_c_drains_the_workers_however_long_it_takes(project: Project, pressed_on: str) -> None:
    project.write("conftest.py", IMPATIENT)
    project.write("eval_two.py", FOUR_EACH)
    start, stream = (project.on_terminal, "out") if pressed_on == "terminal" else (project.started, "err")
    with start("-m", "pytest", *TWO_AT_ONCE) as run:
        wait_for_both_workers(project, run)
        workers = run.workers()
        run.interrupt()
        run.wait_until(lambda: project.read(stream).count(STOPPING) == 2, "two that stop")
        time.sleep(1)  # longer than xdist would have waited
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert project.values("x") == {"eval_first": [True, True], "eval_later": [True, True]}
    assert have_ended(workers)
    lines = "\n".join(ended.summary)
    assert "eval_first  2/4 done" in lines
    assert "eval_later  2/4 done" in lines
    assert ended.summary[-2:] == [
        f"interrupted; what was done is saved. To go on: pytest {' '.join(TWO_AT_ONCE)}",
        "see: evalve show x",
    ]
    assert "crashed" not in ended.all
    assert "Traceback" not in ended.all
    assert project.pytest(*TWO_AT_ONCE).outcomes == {"passed": 2}
    assert project.values("x") == {"eval_first": [True] * 4, "eval_later": [True] * 4}


@pytest.mark.parametrize("pressed_on", ["terminal", "controller"])
def test_the_second_ctrl_c_cancels_the_workers_and_says_how_to_go_on(
    project: Project, pressed_on: str
) -> None:
    project.write("eval_two.py", FOUR_EACH)
    start, stream = (project.on_terminal, "out") if pressed_on == "terminal" else (project.started, "err")
    with start("-m", "pytest", *TWO_AT_ONCE) as run:
        wait_for_both_workers(project, run)
        workers = run.workers()
        run.interrupt()
        run.wait_until(lambda: project.read(stream).count(STOPPING) == 2, "two that stop")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert project.values("x") == {}
    assert have_ended(workers)
    assert "Traceback" not in ended.all
    assert "crashed" not in ended.all
    assert "eval_first  0/4 done" in "\n".join(ended.summary)
    assert f"To go on: pytest {' '.join(TWO_AT_ONCE)}" in ended.summary[-2]
    (project.folder / "go").touch()
    assert project.pytest(*TWO_AT_ONCE).outcomes == {"passed": 2}


def test_a_worker_that_replaces_a_crashed_one_hears_of_the_ctrl_c_before_it(project: Project) -> None:
    project.write(
        "eval_crash.py",
        """
        import asyncio, os
        from pathlib import Path
        from evalve import foreach

        @foreach("number", [1])
        async def eval_crash(number):
            Path("started").touch()
            while not Path("go").exists():
                await asyncio.sleep(0.01)
            os._exit(1)

        @foreach("number", [1])
        async def eval_later(number):
            return True
        """,
    )
    with project.started("-m", "pytest", "-n", "1", "--experiment", "x") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        run.has_written(STOPPING, to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert "To go on: pytest -n 1 --experiment x" in ended.out
    assert project.values("x") == {}


STUBBORN = """
    import time
    from pathlib import Path
    from evalve import foreach

    @foreach("number", [1])
    def eval_stubborn(number):
        while not Path("go").exists():
            try:
                Path("started").touch()
                time.sleep(0.01)
            except KeyboardInterrupt:
                Path("pressed").touch()
        return True
"""


def test_the_third_ctrl_c_leaves_a_worker_that_does_not_end(project: Project) -> None:
    project.write("conftest.py", IMPATIENT)
    project.write("eval_stubborn.py", STUBBORN)
    with project.on_terminal("-m", "pytest", "-n", "1", "--experiment", "x") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        workers = run.workers()
        run.interrupt()
        run.has_written(STOPPING, to="out")
        run.interrupt()
        run.wait_until((project.folder / "pressed").exists, "second press")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert have_ended(workers)
    assert "To go on: pytest -n 1 --experiment x" in ended.out


def test_workers_start_nothing_more_when_their_controller_is_killed(project: Project) -> None:
    project.write(
        "eval_many.py",
        """
        import asyncio
        from evalve import foreach

        @foreach("number", range(200))
        async def eval_many(number):
            with open("calls.txt", "a") as file:
                file.write(f"{number} ")
            await asyncio.sleep(0.05)
            return True
        """,
    )
    arguments = ("-n", "1", "--experiment", "x", "--max-concurrency", "2")
    with project.started("-m", "pytest", *arguments) as run:
        run.wait_until(lambda: len(project.read("calls.txt").split()) > 20, "calls")
        workers = run.workers()
        run.kill()
        assert have_ended(workers)

    in_flight = len(project.read("calls.txt").split()) - len(project.records("x"))
    assert 0 <= in_flight <= 2
    assert len(project.records("x")) < 150
    assert project.pytest(*arguments).outcomes == {"passed": 1}
    assert len(project.read("calls.txt").split()) == 200 + in_flight


PATIENT = """
    import evalve.runner.interruption as interruption

    interruption.STUCK_AFTER_S = 1000.0  # or the worker might be gone before the next pytest has begun
"""


def test_a_killed_controllers_lock_is_held_until_its_last_worker_has_ended(project: Project) -> None:
    project.write("conftest.py", PATIENT)
    project.write("eval_stubborn.py", STUBBORN)
    with project.started("-m", "pytest", "-n", "1", "--experiment", "x") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        (worker,) = run.workers()
        run.kill()

    second = project.pytest("--experiment", "x")
    (project.folder / "go").touch()
    assert have_ended([worker])
    third = project.pytest("--experiment", "x")

    assert second.code == 4
    assert f"experiment 'x' is being run by pid {worker.pid} on" in second.err
    assert "(pytest -n 1 --experiment x, worker gw0)" in second.err
    assert third.code == 0


def test_an_experiment_that_nobody_named_is_locked_too(project: Project) -> None:
    project.write("eval_two.py", FOUR_EACH)
    with project.started("-m", "pytest", "-n", "2", "--max-concurrency", "2") as run:
        wait_for_both_workers(project, run)
        (name,) = project.experiments()

        second = project.pytest("--experiment", name)
        (project.folder / "go").touch()
        ended = run.end()

    assert second.code == 4
    assert "(pytest -n 2 --max-concurrency 2, worker gw" in second.err
    assert ended.outcomes == {"passed": 2}


def test_a_fresh_start_that_is_interrupted_leaves_nothing_old_behind(project: Project) -> None:
    project.write("eval_two.py", TWO_THAT_WAIT_FOR_GO)
    (project.folder / "go").touch()
    assert project.pytest("--experiment", "x").code == 0
    for name in ("go", "first", "later"):
        (project.folder / name).unlink()

    with project.started("-m", "pytest", "-n", "1", "--experiment", "x", "--fresh") as run:
        run.wait_until((project.folder / "first").exists, "sample")
        run.interrupt()
        run.has_written("stopping: what is in flight may end and is saved", to="err")
        (project.folder / "go").touch()
        run.end()

    assert not (project.folder / "later").exists()
    assert project.values("x") == {"eval_first": [True, True]}


def test_the_worker_that_replaces_a_crashed_one_forgets_nothing(project: Project) -> None:
    project.write(
        "eval_crash.py",
        """
        import os
        from evalve import foreach

        @foreach("number", [1, 2])
        async def eval_a(number):
            return True

        @foreach("number", [1, 2])
        async def eval_crash(number):
            os._exit(3)

        @foreach("number", [1, 2])
        async def eval_z(number):
            return True
        """,
    )

    ended = project.pytest("-n", "1", "--experiment", "x", "--fresh")

    assert ended.outcomes == {"passed": 2, "failed": 1}
    assert project.values("x") == {"eval_a": [True, True], "eval_z": [True, True]}


def test_a_bad_value_is_told_once_and_no_worker_starts(project: Project) -> None:
    project.write("eval_four.py", FOUR_EVALUATIONS)

    ended = project.pytest("-n", "2", "--samples", "few")

    assert ended.code == 4
    assert ended.err.count("--samples: needs a whole number, 0 or more; got 'few'") == 1
