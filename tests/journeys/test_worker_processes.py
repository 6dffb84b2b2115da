"""`--engine processes`: sync evaluations in real processes, under pytest, xdist, scripts and signals."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psutil
import pytest
from project import Project

from evalve.simulator import Behaviour, OutputLength, Simulator
from evalve.storage import open_store

CONFTEST = """
    from dataclasses import dataclass
    import pytest

    @dataclass
    class Setting:
        factor: int

    @pytest.fixture
    def setting():
        return Setting(10)
"""

WITH_FIXTURE = """
    import os
    from evalve import Result, foreach

    @foreach("number", range(6))
    def eval_product(number, setting):
        return Result(setting.factor * number, response=os.getpid())
"""

WAITS_FOR_GO = """
    import os, time
    from pathlib import Path
    from evalve import foreach

    @foreach("number", range(6))
    def eval_waits(number):
        with open("calls.txt", "a") as file:
            file.write(f"{number} ")
        with open("pids.txt", "a") as file:
            file.write(f"{os.getpid()} ")
        while not Path("go").exists():
            time.sleep(0.01)
        return number
"""


def alive(pids: list[int]) -> list[psutil.Process]:
    """Those that have not ended after a while."""
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return psutil.wait_procs(processes, timeout=30)[1]


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_fixtures_cross_and_samples_run_in_other_processes(project: Project, mode: str) -> None:
    project.write("evals/conftest.py", CONFTEST)
    project.write("evals/eval_product.py", WITH_FIXTURE)

    ended = project.pytest("--engine", "processes", "--workers", "2", "--import-mode", mode)

    assert ended.outcomes == {"passed": 1}, ended.all
    assert project.values() == {"eval_product": [0, 10, 20, 30, 40, 50]}
    assert len({record["response"] for record in project.records()}) in (1, 2)


def test_the_decorator_and_the_configuration_file_ask_for_it_too(project: Project) -> None:
    project.write(
        "eval_where.py",
        """
        import os
        import pytest
        from evalve import ForEach, foreach

        @pytest.fixture
        def parent():
            return os.getpid()

        @foreach("number", [1])
        def eval_plain(number, parent):
            return os.getpid() != parent

        @ForEach(engine="processes", workers=1)("number", [1])
        def eval_elsewhere(number, parent):
            return os.getpid() != parent
        """,
    )
    project.pytest("--experiment", "by decorator")
    project.write("evalve.yaml", "options:\n  engine: processes\n  workers: 1\n")
    project.pytest("--experiment", "by file")

    assert project.values("by decorator") == {"eval_plain": [False], "eval_elsewhere": [True]}
    assert project.values("by file") == {"eval_plain": [True], "eval_elsewhere": [True]}


def test_a_sample_that_kills_its_worker_twice_fails_and_the_others_go_on(project: Project) -> None:
    project.write(
        "eval_deadly.py",
        """
        import os, signal
        from pathlib import Path
        from evalve import foreach

        @foreach("id,deed", [(str(n), "exit" if n == 1 else "kill" if n == 3 else "") for n in range(6)])
        def eval_deadly(id, deed):
            with open("calls.txt", "a") as file:
                file.write(f"{id} ")
            if deed == "exit" and not Path("mended").exists():
                os._exit(7)
            if deed == "kill" and not Path("killed").exists():
                Path("killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return True
        """,
    )

    ended = project.pytest("--engine", "processes", "--workers", "2", "--experiment", "x")

    assert ended.outcomes == {"failed": 1}
    assert "eval_deadly: 1 of 6 samples failed" in ended.out
    by_id = {record["sample_id"]: record for record in project.records("x")}
    assert {id: (record["status"], record["tries"]) for id, record in by_id.items()} == {
        "0": ("done", 1),
        "1": ("failed", 2),
        "2": ("done", 1),
        "3": ("done", 2),
        "4": ("done", 1),
        "5": ("done", 1),
    }
    assert "WorkerDied: the worker process of sample '1' of eval_deadly ended with exit code 7" in ended.out

    (project.folder / "mended").touch()
    (project.folder / "calls.txt").write_text("")
    resumed = project.pytest("--engine", "processes", "--workers", "2", "--experiment", "x")

    assert resumed.outcomes == {"passed": 1}, resumed.all
    assert project.read("calls.txt") == "1 "


def test_xdist_workers_have_worker_processes_of_their_own(project: Project) -> None:
    project.write("conftest.py", CONFTEST)
    project.write("eval_one.py", WITH_FIXTURE)
    project.write("eval_two.py", WITH_FIXTURE.replace("eval_product", "eval_other"))

    ended = project.pytest("-n", "2", "--engine", "processes", "--workers", "1")

    assert ended.outcomes == {"passed": 2}, ended.all
    assert project.values() == {
        "eval_other": [0, 10, 20, 30, 40, 50],
        "eval_product": [0, 10, 20, 30, 40, 50],
    }


def test_async_evaluations_stay_on_the_loop_which_is_told_once(project: Project) -> None:
    project.write(
        "eval_both.py",
        """
        import os
        from evalve import foreach

        @foreach("number", [1])
        async def eval_async_one(number):
            return os.getpid()

        @foreach("number", [1])
        async def eval_async_two(number):
            return os.getpid()

        @foreach("number", [1])
        def eval_sync(number):
            return os.getpid()
        """,
    )

    ended = project.pytest("--engine", "processes", "--workers", "1")

    assert ended.outcomes == {"passed": 3}, ended.all
    values = project.values()
    assert values["eval_async_one"] == values["eval_async_two"] != values["eval_sync"]
    assert ended.err.count("async evaluations run on the event loop of this process") == 1


def test_workers_that_no_engine_starts_are_told_of(project: Project) -> None:
    project.write("conftest.py", CONFTEST)
    project.write("eval_one.py", WITH_FIXTURE)

    ended = project.pytest("--workers", "2")

    assert ended.outcomes == {"passed": 1}, ended.all
    assert ended.err.count("--workers is how many processes --engine processes starts") == 1


def test_an_argument_that_cannot_cross_is_named_and_nothing_runs(project: Project) -> None:
    project.write(
        "eval_client.py",
        """
        import threading
        from pathlib import Path
        import pytest
        from evalve import foreach

        @pytest.fixture
        def client():
            return threading.Lock()

        @foreach("number", [1])
        def eval_client(number, client):
            Path("ran").touch()
            return True
        """,
    )

    ended = project.pytest("--engine", "processes")

    assert ended.outcomes == {"failed": 1}
    assert (
        "eval_client: the argument 'client' (_thread.lock) cannot be handed to a worker process" in ended.out
    )
    assert not (project.folder / "ran").exists()


def test_fresh_forgets_nothing_where_an_argument_cannot_cross(project: Project) -> None:
    project.write("conftest.py", CONFTEST)
    project.write("eval_one.py", WITH_FIXTURE)
    project.pytest("--experiment", "x")
    project.write(
        "conftest.py",
        """
        import threading
        import pytest

        @pytest.fixture
        def setting():
            return threading.Lock()
        """,
    )

    ended = project.pytest("--experiment", "x", "--fresh", "--engine", "processes")

    assert ended.outcomes == {"failed": 1}
    assert project.values("x") == {"eval_product": [0, 10, 20, 30, 40, 50]}


def test_a_fresh_start_that_is_interrupted_leaves_nothing_old_behind(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO + WAITS_FOR_GO.replace("eval_waits", "eval_later"))
    (project.folder / "go").touch()
    project.pytest("--experiment", "x")
    for name in ("go", "calls.txt"):
        (project.folder / name).unlink()

    fresh = ("--experiment", "x", "--fresh", "--engine", "processes", "--workers", "1")
    with project.started("-m", "pytest", *fresh) as run:
        run.wait_until(lambda: project.read("calls.txt") == "0 ", "the first call")
        run.interrupt()
        run.has_written("stopping", to="err")
        (project.folder / "go").touch()
        run.end()

    assert project.values("x") == {"eval_waits": [0]}


def test_a_module_that_only_breaks_in_workers_is_told_with_its_traceback(project: Project) -> None:
    project.write(
        "eval_fragile.py",
        """
        import sys
        from evalve import foreach

        if "pytest" not in sys.modules:
            raise RuntimeError("only under pytest")

        @foreach("number", [1])
        def eval_fragile(number):
            return True
        """,
    )

    ended = project.pytest("--engine", "processes")

    assert ended.outcomes == {"failed": 1}
    assert "a worker process cannot import eval_fragile from" in ended.out
    assert "RuntimeError: only under pytest" in ended.out


SCRIPT = """
    import os
    from dataclasses import dataclass
    from evalve import Result, foreach

    @dataclass
    class Setting:
        factor: int

    class Refused(Exception):
        pass

    @foreach("number", [1, 2, 3])
    def eval_script(number, setting):
        if number == 3:
            raise Refused("three")
        return Result(setting.factor * number, response=os.getpid())

"""


def test_a_script_with_a_guard_runs_its_own_evaluation_in_processes(project: Project) -> None:
    project.write(
        "script.py",
        SCRIPT
        + """
    if __name__ == "__main__":
        result = eval_script(setting=Setting(5), engine="processes", workers=2, allow_failures=1)
        print([record.scores[0].value for record in result if record.scores])
        print([record.failure.kind for record in result if record.failure])
        print(os.getpid() in [record.response for record in result])
    """,
    )

    ended = project.python("script.py")

    assert ended.out == "[5, 10]\n['Refused']\nFalse\n", ended.all


def test_a_script_without_a_guard_is_told_to_have_one(project: Project) -> None:
    project.write("script.py", SCRIPT + '    eval_script(setting=Setting(5), engine="processes")\n')

    ended = project.python("script.py")

    assert ended.code == 1
    assert (
        "CrossingError: eval_script is called at the top of a file that a worker process has to import: "
        'call it below `if __name__ == "__main__":`'
    ) in ended.err
    assert ended.err.count("Traceback") == 1


def test_a_timeout_kills_the_process_that_does_not_end(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)

    ended = project.pytest("--engine", "processes", "--workers", "2", "--timeout", "0.5", "--samples", "2")

    assert ended.outcomes == {"failed": 1}
    assert {record["failure"]["kind"] for record in project.records()} == {"SampleTimeout"}
    assert alive([int(pid) for pid in project.read("pids.txt").split()]) == []


def test_the_first_ctrl_c_lets_running_samples_end_and_is_not_seen_by_workers(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    arguments = ["--engine", "processes", "--workers", "2", "--experiment", "x"]
    with project.on_terminal("-m", "pytest", *arguments) as run:
        run.wait_until(lambda: len(project.read("calls.txt").split()) == 2, "two calls")
        run.interrupt()
        run.has_written("stopping: what is in flight may end", to="out")
        (project.folder / "go").touch()
        ended = run.end()

    assert ended.code == 2
    assert project.values("x") == {"eval_waits": [0, 1]}
    assert alive([int(pid) for pid in project.read("pids.txt").split()]) == []

    resumed = project.pytest(*arguments)

    assert resumed.outcomes == {"passed": 1}, resumed.all
    assert project.values("x") == {"eval_waits": [0, 1, 2, 3, 4, 5]}
    assert sorted(project.read("calls.txt").split()) == list("012345")


def test_the_second_ctrl_c_kills_them(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    with project.on_terminal("-m", "pytest", "--engine", "processes", "--workers", "2") as run:
        run.wait_until(lambda: len(project.read("calls.txt").split()) == 2, "two calls")
        run.interrupt()
        run.has_written("stopping: what is in flight may end", to="out")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert project.values() == {}
    assert alive([int(pid) for pid in project.read("pids.txt").split()]) == []


def test_workers_do_not_outlive_a_parent_that_is_killed(project: Project) -> None:
    project.write("eval_waits.py", WAITS_FOR_GO)
    with project.started("-m", "pytest", "--engine", "processes", "--workers", "2") as run:
        run.wait_until(lambda: len(project.read("pids.txt").split()) == 2, "two calls")
        run.kill()

    assert alive([int(pid) for pid in project.read("pids.txt").split()]) == []


def test_models_are_asked_in_workers_and_the_calls_are_recorded_and_paid_for_once(project: Project) -> None:
    project.write(
        "eval_sums.py",
        """
        import evalve

        @evalve.foreach("question", ["one", "two", "three"])
        def eval_sums(question, model):
            answers = [model.generate_sync(question, max_tokens=20).text for _ in range(2)]
            return evalve.Result(all(answers), response=answers)
        """,
    )
    with Simulator(Behaviour()).start_in_thread() as provider:
        environment = {
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": "sk-test-4711",
            "EVALVE_STATE_DIR": str(project.folder / "state"),
            "EVALVE_CACHE_DIR": str(project.folder / "cache"),
        }
        arguments = ["--model", "anthropic/claude-sonnet-5", "--engine", "processes", "--workers", "2"]
        first = project.pytest(*arguments, "--experiment", "first", **environment)
        second = project.pytest(*arguments, "--experiment", "second", **environment)
        third = project.pytest(*arguments, "--experiment", "third", "--cache", "off", **environment)

        assert provider.stats.requests == 12
    assert (first.outcomes, second.outcomes, third.outcomes) == ({"passed": 1}, {"passed": 1}, {"passed": 1})
    assert calls_of(project, "first") == [(2, 0), (2, 0), (2, 0)]
    assert calls_of(project, "second") == [(0, 2), (0, 2), (0, 2)]


def test_answers_of_workers_outlive_a_cache_that_another_program_keeps_locked(project: Project) -> None:
    project.write(
        "eval_sums.py",
        """
        import evalve

        @evalve.foreach("question", ["one", "two", "three", "four"])
        def eval_sums(question, model):
            return bool(model.generate_sync(question, max_tokens=20).text)
        """,
    )
    with Simulator(Behaviour()).start_in_thread() as provider:
        environment = {
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": "sk-test-4711",
            "EVALVE_STATE_DIR": str(project.folder / "state"),
            "EVALVE_CACHE_DIR": str(project.folder / "cache"),
        }
        arguments = ["--model", "anthropic/claude-sonnet-5", "--engine", "processes", "--workers", "2"]
        project.pytest(*arguments, "--experiment", "first", "--samples", "1", **environment)
        with closing(sqlite3.connect(project.folder / "cache/responses.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            locked = project.pytest(*arguments, "--experiment", "second", **environment)
        project.pytest(*arguments, "--experiment", "third", **environment)

        assert provider.stats.requests == 4
    assert "the response cache cannot be used (nothing could be written for a second)" in locked.all
    assert calls_of(project, "third") == [(0, 1)] * 4


def calls_of(project: Project, experiment: str) -> list[tuple[int, int]]:
    """Of each sample: calls that were sent, and those that were answered from the cache."""
    with closing(open_store(project.folder / ".evalve/evalve.db", create=False)) as store:
        (info,) = store.evaluations(experiment)
        return [(one.calls["requests"], one.calls["cached"]) for one in store.records(info) if one.calls]


ASKS_AND_DIES = """
    import os
    from evalve import foreach

    @foreach("number", range(8))
    def eval_asks(number, model):
        model.generate_sync(f"{number}, in many words?", max_tokens=100)
        os._exit(1)
"""


def test_workers_that_take_the_place_of_dead_ones_do_not_have_the_budget_again(project: Project) -> None:
    project.write("eval_asks.py", ASKS_AND_DIES)
    project.write("evalve.yaml", "prices:\n  tiny: {input: 0, output: 10000}\n")  # a cent for each token
    answers = Behaviour(output=OutputLength("fixed", tokens=20))
    with Simulator(answers).start_in_thread() as provider:
        ended = project.pytest(
            *["--model", f"openai-compatible/tiny@{provider.url}/v1", "--engine", "processes"],
            *["--workers", "2", "--budget-usd", "2", "--no-cache"],
            EVALVE_STATE_DIR=str(project.folder / "state"),
        )
        sent = provider.stats.requests

    # a call may cost 1 USD, and costs 0.2: the sixth would not fit into what is left
    assert "the budget of 2 USD is used up" in ended.all
    assert 5 <= sent <= 6
