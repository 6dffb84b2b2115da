"""What samples are lent, seen from outside: under pytest, in a script, after Ctrl-C and after kill -9."""

from __future__ import annotations

from pathlib import Path

from project import Project

STOPPING = "stopping: what is in flight may end and is saved; Ctrl-C again cancels it"

WRITES = """
    import os
    import time
    from evalve import foreach

    @foreach("name", ["a", "b", "c"])
    {kind} eval_writes(name, workspace):
        assert list(workspace.path.iterdir()) == []
        (workspace / "answer.txt").write_text(name)
        open(f"started-{{name}}", "w").close()
        if name in os.environ.get("BREAKS", ""):
            raise ValueError("no")
        while name in os.environ.get("HANGS", ""):
            {waits}
        return (workspace.path / "answer.txt").read_text() == name
"""
SYNC = WRITES.format(kind="def", waits="time.sleep(0.01)")
ASYNC = WRITES.format(kind="async def", waits="await __import__('asyncio').sleep(0.01)")

OWN = """
    from contextlib import asynccontextmanager

    class Counter:
        def __init__(self, start=0):
            self.settings = {"start": start}
            self.lent = start

        @asynccontextmanager
        async def lend(self, context):
            self.lent += 1
            context.lent["number"] = self.lent
            yield self.lent
            print("back", context.ended)
"""


def started(project: Project) -> list[Path]:
    return list(project.folder.glob("started-*"))


def workspaces(project: Project) -> list[Path]:
    return sorted(project.folder.glob(".evalve/workspaces/*"))


def kept(project: Project) -> list[str]:
    return sorted(path.parent.name for path in project.folder.glob(".evalve/kept/*/*/*/workspace"))


def test_each_sample_has_a_workspace_of_its_own_and_none_is_left(project: Project) -> None:
    project.write("eval_sync.py", SYNC)
    project.write("eval_async.py", ASYNC)

    ended = project.pytest("--experiment", "x", "--max-concurrency", "3")

    assert (ended.code, ended.outcomes) == (0, {"passed": 2})
    assert (workspaces(project), kept(project)) == ([], [])


def test_the_workspace_of_a_failed_sample_is_kept_until_it_succeeds(project: Project) -> None:
    project.write("eval_a.py", ASYNC)

    project.pytest("--experiment", "x", BREAKS="b")
    (path,) = project.folder.glob(".evalve/kept/x/*/*/workspace")
    answer = (path / "answer.txt").read_text()
    again = project.pytest("--experiment", "x")

    assert answer == "b"
    assert again.code == 0
    assert (workspaces(project), kept(project)) == ([], [])


def test_a_deleted_experiment_takes_its_kept_workspaces_along(project: Project) -> None:
    project.write("eval_a.py", ASYNC)
    project.pytest("--experiment", "x", BREAKS="b")
    before = kept(project)

    project.evalve("delete", "x", "--yes")

    assert (len(before), kept(project)) == (1, [])


def test_workspaces_of_a_killed_run_are_removed_by_the_next(project: Project) -> None:
    project.write("eval_a.py", ASYNC)
    with project.started("-m", "pytest", "--experiment", "x", HANGS="abc") as running:
        running.wait_until(lambda: len(started(project)) == 3, "three samples")
        running.kill()
    left = list(project.folder.glob(".evalve/workspaces/*/*/answer.txt"))

    ended = project.pytest("--experiment", "x")

    assert len(left) == 3
    assert ended.code == 0
    assert workspaces(project) == []


def test_a_run_leaves_the_workspaces_of_another_that_lives_alone(project: Project) -> None:
    project.write("eval_a.py", ASYNC)
    with project.started("-m", "pytest", "--experiment", "x", HANGS="abc") as running:
        running.wait_until(lambda: len(started(project)) == 3, "three samples")
        other = project.pytest("--experiment", "y", "-p", "no:cacheprovider")
        left = list(project.folder.glob(".evalve/workspaces/*/*/answer.txt"))

    assert other.code == 0
    assert len(left) == 3


def test_two_interrupts_leave_no_workspace(project: Project) -> None:
    project.write("eval_a.py", ASYNC)
    with project.started("-m", "pytest", "--experiment", "x", HANGS="bc") as running:
        running.wait_until(lambda: len(started(project)) == 3, "three samples")
        running.interrupt()
        running.has_written(STOPPING, to="err")
        running.interrupt()
        ended = running.end()

    assert ended.code == 2
    assert workspaces(project) == []
    assert kept(project) == []


def test_workspaces_work_on_xdists_workers(project: Project) -> None:
    project.write("eval_sync.py", SYNC)
    project.write("eval_async.py", ASYNC)

    ended = project.pytest("--experiment", "x", "-n", "2", BREAKS="b")

    assert ended.outcomes == {"failed": 2}
    assert len(kept(project)) == 2
    assert workspaces(project) == []


def test_a_lender_of_ones_own_works_as_fixture_keyword_and_default(project: Project) -> None:
    project.write("counting.py", OWN)
    project.write(
        "eval_a.py",
        """
        import pytest
        from counting import Counter
        from evalve import foreach

        @pytest.fixture
        def counter():
            return Counter()

        @pytest.fixture(scope="session")
        def shared():
            return Counter(100)

        @foreach("n", [1, 2])
        def eval_fixture(n, counter):
            return float(counter)

        @foreach("n", [1, 2])
        async def eval_session(n, shared):
            return float(shared)

        @foreach("n", [1, 2])
        async def eval_default(n, counter=Counter(200)):
            return float(counter)

        @foreach("n", [1, 2])
        def eval_session_too(n, shared):
            return float(shared)
        """,
    )
    project.write(
        "direct.py",
        """
        import asyncio
        from counting import Counter
        from eval_a import eval_default, eval_fixture

        one = eval_fixture(counter=Counter(300), experiment="d")
        other = asyncio.run(eval_default(experiment="d", max_concurrency=1))
        for result in (one, other):
            print([record.scores[0].value for record in result.records])
        """,
    )

    ended = project.pytest("--experiment", "x", "--max-concurrency", "1")
    direct = project.python("direct.py")

    assert ended.outcomes == {"passed": 4}
    assert project.values("x") == {
        "eval_fixture": [1.0, 2.0],
        "eval_session": [101.0, 102.0],
        "eval_default": [201.0, 202.0],
        "eval_session_too": [103.0, 104.0],
    }
    assert [line for line in direct.out.splitlines() if line.startswith("[")] == [
        "[301.0, 302.0]",
        "[201.0, 202.0]",
    ]


def test_another_setting_of_a_lender_is_a_change_of_the_evaluation(project: Project) -> None:
    project.write("counting.py", OWN)
    project.write(
        "eval_a.py",
        """
        import os
        import pytest
        from counting import Counter
        from evalve import foreach

        @pytest.fixture
        def counter():
            return Counter(int(os.environ["START"]))

        @foreach("n", [1, 2])
        def eval_counted(n, counter):
            return True
        """,
    )

    first = project.pytest("--experiment", "x", START="1")
    same = project.pytest("--experiment", "x", START="1")
    other = project.pytest("--experiment", "x", START="2")

    assert (first.code, same.code, other.code) == (0, 0, 1)
    assert "eval_counted has changed since the 2 samples" in other.out
    assert "lender counter:\n     Counter\n    -start = 1\n    +start = 2\n" in other.out


def test_a_changed_file_of_a_workspace_is_a_change_of_the_evaluation(project: Project) -> None:
    project.write("seed/task.txt", "one")
    project.write(
        "eval_a.py",
        """
        import evalve

        @evalve.foreach("n", [1, 2])
        def eval_seeded(n, workspace=evalve.Workspace(files="seed")):
            return (workspace / "task.txt").read_text() == "one"
        """,
    )

    first = project.pytest("--experiment", "x")
    (project.folder / "seed" / "task.txt").write_text("two")
    changed = project.pytest("--experiment", "x")

    assert (first.code, changed.code) == (0, 1)
    assert "lender workspace:" in changed.out
    assert "+file task.txt = " in changed.out


def test_a_seed_that_is_missing_is_told_once_before_anything_runs(project: Project) -> None:
    project.write(
        "eval_a.py",
        """
        import evalve
        import pytest

        @pytest.fixture
        def workspace():
            return evalve.Workspace(files="no/such/seed")

        @evalve.foreach("n", [1, 2])
        def eval_seeded(n, workspace):
            return True
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.code == 1
    assert "sandboxes/" not in ended.out
    assert "eval_a.py:7: there is no 'no/such/seed' to put into the workspace; looked in " in ended.out


def test_a_lender_that_is_written_wrongly_is_told_before_anything_runs(project: Project) -> None:
    project.write(
        "eval_a.py",
        """
        import evalve

        class Forgot:
            async def lend(self, context):
                yield 1

        @evalve.foreach("n", [1, 2])
        def eval_forgot(n, thing=Forgot()):
            return True
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.code == 1
    assert (
        "eval_a.py:8: 'thing': Forgot.lend must return an async context manager: "
        "write @contextlib.asynccontextmanager above it"
    ) in ended.out
    assert "Traceback" not in ended.out
    assert "plugin/session.py" not in ended.out


def test_one_pool_serves_several_evaluations_of_a_session_and_is_closed_at_its_end(project: Project) -> None:
    project.write(
        "eval_a.py",
        """
        import asyncio
        import pytest
        import evalve

        def connect():
            with open("events.txt", "a") as file:
                file.write("open ")
            return object()

        async def close(connection):
            with open("events.txt", "a") as file:
                file.write("close ")

        @pytest.fixture(scope="session")
        def connection():
            return evalve.Pool(connect, size=2, close=close)

        @evalve.foreach("n", range(6))
        async def eval_async(n, connection):
            await asyncio.sleep(0.01)
            return True

        @evalve.foreach("n", range(6))
        async def eval_too(n, connection):
            return True
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.outcomes == {"passed": 2}
    assert project.read("events.txt") == "open open close close "
