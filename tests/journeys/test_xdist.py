"""Several pytest workers: one experiment, one lock, one summary."""

from __future__ import annotations

from project import Project

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
    assert "eval_d  0/1 done, 1 failed" in lines
    assert "not passed: 1 of 1 samples failed" in lines
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


def test_an_interrupted_run_drains_its_workers_and_says_how_to_go_on(project: Project) -> None:
    project.write(
        "eval_slow.py",
        """
        import asyncio
        from pathlib import Path
        from evalve import foreach

        @foreach("number", [1, 2])
        async def eval_slow(number):
            Path("started").touch()
            while not Path("go").exists():
                await asyncio.sleep(0.01)
            return True
        """,
    )
    with project.started("-m", "pytest", "-n", "1", "--experiment", "x") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        run.has_written("stopping: what is in flight may end and is saved", to="err")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert ended.summary[0] == ("interrupted; what was done is saved. To go on: pytest -n 1 --experiment x")
    assert project.pytest("-n", "1", "--experiment", "x").outcomes == {"passed": 1}
    assert project.values("x") == {"eval_slow": [True, True]}


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
