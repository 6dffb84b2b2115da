"""Tests that read the records of evaluations: in one process, on xdist's workers, where something breaks."""

from __future__ import annotations

from collections import Counter

import pytest
from project import Ended, Project

MANY = """
    import asyncio
    import os

    import pytest

    from evalve import ForEach, reads

    flying = 0

    def evaluation(name):
        @ForEach(name=name)("id,number", [(f"{name}-{number}", number) for number in range(3)])
        async def eval_it(id, number, right):
            global flying
            flying += 1
            with open("calls.txt", "a") as file:
                file.write(f"{id} {os.getpid()} {flying}\\n")
            await asyncio.sleep(0.05)
            flying -= 1
            return number in right

        return eval_it

    @pytest.fixture(scope="session")
    def right():
        return (0, 1)

    EVALUATIONS = {name: evaluation(name) for name in ("boards", "markers", "queries", "triggers")}
    CASES = [(name, f"{name}-{number}") for name in EVALUATIONS for number in range(3)]

    @pytest.mark.parametrize(
        "name", [pytest.param(id, id=id, marks=reads(EVALUATIONS[name], id)) for name, id in CASES]
    )
    class TestAll:
        def test_basic(self, name, record):
            assert record.sample_id == name
            assert record.score("score").value

        def test_again(self, name, record):
            assert record.score("score").value
"""


def calls(project: Project) -> list[list[str]]:
    return [line.split() for line in project.read("calls.txt").splitlines()]


def failed(text: str) -> list[str]:
    return sorted(line.split()[1] for line in text.splitlines() if line.startswith("FAILED"))


def test_all_tests_of_a_sample_share_its_one_run_with_and_without_workers(project: Project) -> None:
    project.write("eval_many.py", MANY)

    alone = project.pytest("--experiment", "a", "--max-concurrency", "4", "-rf")
    of_alone = calls(project)
    (project.folder / "calls.txt").unlink()
    shared = project.pytest("--experiment", "b", "-n", "2", "-rf")
    of_shared = calls(project)

    assert (alone.code, shared.code) == (1, 1)
    assert alone.outcomes == shared.outcomes == {"passed": 16, "failed": 8}
    assert failed(alone.out) == failed(shared.out)
    assert Counter(id for id, _, _ in of_alone) == Counter(id for id, _, _ in of_shared)
    assert set(Counter(id for id, _, _ in of_alone).values()) == {1}
    assert max(int(flying) for _, _, flying in of_alone) == 4  # one window for all four
    assert len({pid for _, pid, _ in of_shared}) == 2
    for ended in (alone, shared):
        assert "\n".join(ended.summary).count("3/3 done") == 4
        assert "triggers  3/3 done" in "\n".join(ended.summary)


def test_only_what_selected_tests_read_is_run(project: Project) -> None:
    project.write("eval_many.py", MANY)

    ended = project.pytest("-k", "markers and basic", "--experiment", "x")

    assert ended.outcomes == {"passed": 2, "failed": 1, "deselected": 21}
    assert [id for id, _, _ in calls(project)] == ["markers-0", "markers-1", "markers-2"]
    assert [one["sample_id"] for one in project.records("x")] == ["markers-0", "markers-1", "markers-2"]


JUDGED = """
    import pytest

    from evalve import Result, Score, foreach, reads

    @pytest.fixture(scope="session")
    def judge(request):
        return any(item.get_closest_marker("llm") for item in request.session.items)

    @foreach("id", ["a", "b"])
    async def answers(id, judge):
        with open("calls.txt", "a") as file:
            file.write(f"{id}\\n")
        return Result(Score("rules", True), *([Score("judged", True)] if judge else []))

    @pytest.mark.basic
    @reads(answers, "a")
    def test_basic(record):
        assert record.score("rules").value

    @pytest.mark.llm
    @reads(answers, "a", scores=["judged"])
    def test_llm(record):
        assert record.score("judged").value
"""


def test_records_without_a_score_that_a_test_reads_are_made_again_and_only_these(project: Project) -> None:
    project.write("test_judged.py", JUDGED)

    ended = [project.pytest("--experiment", "x", *flags) for flags in (["-m", "basic"], [], ["-k", "basic"])]

    assert [one.code for one in ended] == [0, 0, 0]
    assert [id for (id,) in calls(project)] == ["a", "b", "a", "b"]
    assert [len(record["scores"]) for record in project.records("x")] == [2, 2]


ONE = """
    import os
    from pathlib import Path

    import pytest

    from evalve import foreach, reads

    @foreach("id", ["right", "wrong", "breaks"])
    async def one(id):
        with open("calls.txt", "a") as file:
            file.write(f"{id}\\n")
        if id == "breaks":
            raise ValueError("broken on purpose")
        return id == "right"

    @reads(one, "right")
    def test_right(record):
        assert record.score("score").value

    @reads(one, "wrong")
    def test_wrong(record):
        assert record.score("score").value

    @reads(one, "breaks")
    def test_breaks(record):
        assert record.score("score").value

    @reads(one)
    def test_all(records):
        assert [record.status for record in records] == ["done", "done", "failed"]

    @reads(one, "nobody")
    def test_nobody(record):
        pass

    @reads(one)
    def test_no_sample(record):
        pass

    def test_unmarked(record):
        pass

    @reads(one, "right")
    def test_other_score(record):
        record.score("scores")
"""


def test_what_is_wrong_fails_and_what_broke_is_an_error_that_says_why(project: Project) -> None:
    project.write("test_one.py", ONE)

    ended = project.pytest("--allow-failures", "1", "-n", "2")

    assert (ended.code, ended.outcomes) == (7, {"passed": 2, "failed": 2, "errors": 4})
    assert "one: sample breaks failed (code): ValueError: broken on purpose" in ended.out
    assert "one has no record of a sample 'nobody': is it an id in its dataset?" in ended.out
    assert "reads(one) names no sample: add its id, or ask for `records`" in ended.out
    assert "say from which, with @evalve.reads(eval_x, SAMPLE_ID)" in ended.out
    assert "one: sample right has no score 'scores'; its scores: score" in ended.out


def test_exit_codes_tell_a_miss_from_a_break_and_a_gate_counts_although_no_test_tells_it(
    project: Project,
) -> None:
    project.write("test_one.py", ONE)

    def run(chosen: str, *more: str) -> Ended:
        return project.pytest("-k", chosen, "--allow-failures", "1", *more)

    passed = run("test_right")
    missed = run("test_right or test_wrong")
    broke = run("test_right or test_wrong or test_breaks")
    gated = run("test_right", "--fail-under", "accuracy=0.9")

    assert (passed.code, missed.code, broke.code, gated.code) == (0, 1, 7, 1)
    assert gated.outcomes == {"passed": 1, "deselected": 7}
    assert "not passed: score.accuracy is 0.5, below the required 0.9" in "\n".join(gated.summary)


BROKEN = """
    from evalve import foreach, reads

    def rows():
        with open("opened.txt", "a") as file:
            file.write("x")
        yield {"id": "a"}
        raise OSError("the disk is gone")

    @foreach("id", rows())
    async def broken(id):
        return True

    @reads(broken, "a")
    class TestIt:
        def test_a(self, record):
            pass

        def test_b(self, record):
            pass
"""


def test_an_evaluation_that_breaks_is_run_once_and_every_test_says_why(project: Project) -> None:
    project.write("test_broken.py", BROKEN)

    ended = project.pytest()

    assert (ended.code, ended.outcomes) == (7, {"errors": 2})
    assert ended.out.count("broken broke, so there is nothing to read") >= 2
    assert "the disk is gone" in ended.out
    assert project.read("opened.txt") == "x"


def test_an_item_and_the_tests_that_read_it_share_its_run_also_where_all_is_fresh(project: Project) -> None:
    text = ONE.replace("one(id)", "eval_one(id)").replace("reads(one", "reads(eval_one")
    project.write("eval_one.py", text.replace('raise ValueError("broken on purpose")', "pass"))
    chosen = ("-k", "eval_one or right", "--experiment", "x", "--fresh")

    alone = project.pytest(*chosen)
    shared = project.pytest(*chosen, "-n", "2")

    assert alone.outcomes["passed"] == shared.outcomes["passed"] == 2
    assert Counter(id for (id,) in calls(project)) == {"right": 2, "wrong": 2, "breaks": 2}


DIES = """
    import os
    from pathlib import Path

    import pytest

    from evalve import foreach, reads

    @foreach("id", ["a", "b"])
    async def dies(id):
        if id == "b" and not Path("died").exists():
            Path("died").touch()
            os._exit(3)
        return True

    @pytest.mark.parametrize("number", range(4))
    @reads(dies, "a")
    def test_it(number, record):
        assert record.score("score").value
"""


def test_where_a_worker_dies_another_goes_on_with_the_evaluation(project: Project) -> None:
    project.write("test_dies.py", DIES)

    ended = project.pytest("-n", "2", "--experiment", "x")

    assert ended.outcomes == {"passed": 3, "failed": 1}  # the test whose worker is gone
    assert "crashed while running" in ended.out
    assert project.values("x") == {"dies": [True, True]}


WAITS = """
    import asyncio
    from pathlib import Path

    import pytest

    from evalve import foreach, reads

    @foreach("id", range(6))
    async def slow(id):
        Path("started").touch()
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        return True

    @pytest.mark.parametrize("number", [pytest.param(n, marks=reads(slow, n)) for n in range(6)])
    def test_it(number, record):
        assert record.score("score").value
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_ctrl_c_ends_who_runs_and_who_waits_and_the_next_run_goes_on(
    project: Project, workers: tuple[str, ...]
) -> None:
    project.write("test_slow.py", WAITS)
    arguments = ("--experiment", "x", "--max-concurrency", "2", *workers)
    with project.started("-m", "pytest", *arguments) as run:
        run.wait_until((project.folder / "started").exists, "sample")
        run.interrupt()
        run.has_written("stopping: what is in flight may end and is saved", to="err")
        (project.folder / "go").touch()
        ended = run.end()

    again = project.pytest(*arguments)

    assert ended.code == 2
    assert "slow  2/6 done" in "\n".join(ended.summary)
    assert f"To go on: pytest {' '.join(arguments)}" in "\n".join(ended.summary)
    assert "Traceback" not in ended.all
    assert again.outcomes == {"passed": 6}
    assert "slow  6/6 done, 2 of them before" in "\n".join(again.summary)


MODELS = """
    from evalve import Result, Score, foreach, reads

    @foreach("id", ["a"])
    async def eval_named(id, model):
        return Result(Score("score", True), response=model.name)

    @reads(eval_named, "a")
    def test_of_each(record, model):
        assert record.response == model.name

    @reads(eval_named, "a")
    def test_of_one(record):
        assert record.response == "anthropic/one"
"""


def test_tests_that_ask_for_the_model_read_the_variant_of_each(project: Project) -> None:
    project.write("eval_models.py", MODELS)

    one = project.pytest("--model", "anthropic/one", "--experiment", "one")
    two = project.pytest("--model", "anthropic/one", "--model", "anthropic/two", "--experiment", "two")

    assert (one.code, one.outcomes) == (0, {"passed": 3})
    assert [record["evaluation"] for record in project.records("one")] == ["eval_named[anthropic/one]"]
    assert (two.code, two.outcomes) == (7, {"passed": 4, "error": 1})
    assert "2 were chosen: let the test ask for `model` too, so that there is one for each" in two.out
    assert sorted(record["response"] for record in project.records("two")) == [
        "anthropic/one",
        "anthropic/two",
    ]
