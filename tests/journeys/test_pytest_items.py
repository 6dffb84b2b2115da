"""Evaluations as pytest items: what is collected, selected, and recorded under which name."""

from __future__ import annotations

import pytest
from project import Project

TWO_EVALUATIONS_AND_A_TEST = """
    from evalve import foreach

    @foreach("number", [1, 2, 3])
    async def eval_counts(number):
        return number > 0

    @foreach("number", [1, 2])
    def eval_breaks(number):
        raise ValueError("broken")

    def eval_undecorated():
        raise AssertionError("nobody calls this")

    def test_beside():
        assert True
"""


@pytest.mark.parametrize("marker", ["evalve", "doteval", "dotevals"])
def test_a_marker_deselects_evaluations(project: Project, marker: str) -> None:
    project.write("eval_two.py", TWO_EVALUATIONS_AND_A_TEST)

    ended = project.pytest("--co", "-q", "--strict-markers", "-m", f"not {marker}")

    assert ended.out.splitlines()[0] == "eval_two.py::test_beside"
    assert "1/3 tests collected (2 deselected)" in ended.out


def test_there_is_one_item_per_evaluation_and_collecting_writes_nothing(project: Project) -> None:
    project.write("eval_two.py", TWO_EVALUATIONS_AND_A_TEST)

    ended = project.pytest("--co", "-q")

    assert ended.code == 0
    assert ended.out.splitlines()[:3] == [
        "eval_two.py::eval_counts",
        "eval_two.py::eval_breaks",
        "eval_two.py::test_beside",
    ]
    assert "3 tests collected" in ended.out
    assert not (project.folder / ".evalve").exists()


@pytest.mark.parametrize(
    ("arguments", "outcomes"),
    [
        (["eval_two.py"], {"passed": 2, "failed": 1}),
        (["-k", "counts"], {"passed": 1, "deselected": 2}),
        (["-m", "evalve"], {"passed": 1, "failed": 1, "deselected": 1}),
        (["eval_two.py::eval_counts", "eval_two.py::test_beside"], {"passed": 2}),
        (["eval_two.py::eval_breaks", "eval_two.py::test_beside", "-x"], {"failed": 1}),
    ],
)
def test_the_selections_of_pytest_keep_their_meaning(
    project: Project, arguments: list[str], outcomes: dict[str, int]
) -> None:
    project.write("eval_two.py", TWO_EVALUATIONS_AND_A_TEST)

    ended = project.pytest(*arguments)

    assert ended.outcomes == outcomes
    assert ended.code == (1 if "failed" in outcomes else 0)


def test_last_failed_runs_only_what_failed(project: Project) -> None:
    project.write("eval_two.py", TWO_EVALUATIONS_AND_A_TEST)
    project.pytest("--experiment", "x")

    ended = project.pytest("--lf", "--experiment", "x")

    assert ended.outcomes["failed"] == 1
    assert "passed" not in ended.outcomes
    assert "eval_breaks: 2 of 2 samples failed" in ended.out


def test_evaluations_also_live_in_test_files_and_classes(project: Project) -> None:
    project.write(
        "test_models.py",
        """
        from evalve import foreach

        @foreach("number", [1, 2])
        def test_as_a_test(number):
            return number

        @foreach("number", [3])
        def eval_in_a_test_file(number):
            return number

        class TestModel:
            factor = 10

            @foreach("number", [1, 2])
            def eval_method(self, number):
                return number * self.factor

            @foreach("number", [1, 2])
            async def test_async_method(self, number, tmp_path):
                return number * self.factor if tmp_path.exists() else 0
        """,
    )

    ended = project.pytest("-q")

    assert ended.outcomes == {"passed": 4}
    assert project.values() == {
        "test_as_a_test": [1, 2],
        "eval_in_a_test_file": [3],
        "TestModel.eval_method": [10, 20],
        "TestModel.test_async_method": [10, 20],
    }


def test_one_invocation_is_one_experiment_and_equal_names_in_two_files_are_kept_apart(
    project: Project,
) -> None:
    project.write("eval_a.py", _eval_same([1, 2]))
    project.write("eval_b.py", _eval_same([1, 2, 3]))

    ended = project.pytest("--experiment", "x")
    again = project.pytest("--experiment", "x")

    assert ended.outcomes == again.outcomes == {"passed": 2}
    assert project.experiments() == ["x"]
    assert project.values("x") == {"eval_a.py::eval_same": [1, 2], "eval_b.py::eval_same": [1, 2, 3]}
    named = [line.partition("  ")[0] for line in ended.summary if line.startswith("eval_")]
    assert named == ["eval_a.py::eval_same", "eval_b.py::eval_same"]


def _eval_same(rows: list[int]) -> str:
    return f"""
    from evalve import foreach

    @foreach("number", {rows})
    def eval_same(number):
        return number
    """


def test_inherited_and_imported_evaluations_are_recorded_where_they_are_collected(project: Project) -> None:
    project.write(
        "eval_base.py",
        """
        from evalve import foreach

        @foreach("number", [1, 2])
        def eval_imported(number):
            return number

        class Base:
            @foreach("number", [1, 2])
            async def eval_inherited(self, number):
                return number * self.factor

        class TestOnce(Base):
            factor = 1

        class TestTenfold(Base):
            factor = 10
        """,
    )
    project.write("eval_more.py", "from eval_base import eval_imported\n")

    ended = project.pytest()

    assert ended.outcomes == {"passed": 4}, ended.all
    assert project.values() == {
        "eval_base.py::eval_imported": [1, 2],
        "TestOnce.eval_inherited": [1, 2],
        "TestTenfold.eval_inherited": [10, 20],
        "eval_more.py::eval_imported": [1, 2],
    }


def test_two_evaluations_that_would_be_recorded_under_one_name_are_refused(project: Project) -> None:
    project.write(
        "eval_names.py",
        """
        from evalve import ForEach

        each = ForEach(name="same")

        @each("number", [1])
        def eval_one(number):
            return True

        @each("number", [1])
        def eval_two(number):
            return True
        """,
    )

    ended = project.pytest()

    assert ended.code == 2
    assert (
        "eval_names.py:10: eval_two has the name 'same', as eval_one at line 6 of the same file does; "
        "give them two names" in ended.out
    )


def test_samples_of_an_async_evaluation_overlap_ten_at_a_time(project: Project) -> None:
    project.write(
        "eval_overlap.py",
        """
        import asyncio
        from evalve import foreach

        everyone = asyncio.Barrier(10)

        @foreach("number", range(20))
        async def eval_overlap(number):
            await everyone.wait()
            return True
        """,
    )

    ended = project.pytest("--timeout", "50")

    assert ended.outcomes == {"passed": 1}


def test_a_sync_evaluation_given_a_window_runs_in_threads(project: Project) -> None:
    project.write(
        "eval_overlap.py",
        """
        import threading
        from evalve import foreach

        everyone = threading.Barrier(4)

        @foreach("number", range(8))
        def eval_overlap(number):
            everyone.wait(50)
            return True
        """,
    )

    ended = project.pytest("--max-concurrency", "4")

    assert ended.outcomes == {"passed": 1}


def test_an_endless_generator_is_read_as_far_as_samples_says(project: Project) -> None:
    project.write(
        "eval_endless.py",
        """
        import itertools
        from evalve import foreach

        pulled = []

        def rows():
            for number in itertools.count():
                pulled.append(number)
                yield number

        @foreach("number", rows())
        async def eval_endless(number):
            return number

        def test_afterwards():
            assert len(pulled) < 100
        """,
    )

    ended = project.pytest("--samples", "7")

    assert ended.outcomes == {"passed": 2}
    assert project.values() == {"eval_endless": [0, 1, 2, 3, 4, 5, 6]}


def test_repeats_are_records_of_their_own(project: Project) -> None:
    project.write("eval_a.py", _eval_same([1, 2]))

    ended = project.pytest("--repeat", "3")

    assert ended.outcomes == {"passed": 1}
    assert [(one["index"], one["repeat"]) for one in project.records()] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
    ]


def test_marks_that_skip_or_expect_failure_keep_their_meaning(project: Project) -> None:
    project.write(
        "eval_marked.py",
        """
        import pytest
        from evalve import foreach

        @pytest.mark.skip(reason="not today")
        @foreach("number", [1])
        def eval_skipped(number):
            return True

        @foreach("number", [1])
        @pytest.mark.xfail(reason="known to break")
        async def eval_expected_to_fail(number):
            raise ValueError
        """,
    )

    ended = project.pytest("-q")

    assert ended.code == 0
    assert ended.outcomes == {"skipped": 1, "xfailed": 1}


def test_an_idle_project_costs_nothing_and_gets_no_directory(project: Project) -> None:
    project.write(
        "test_plain.py",
        """
        import sys

        def test_what_is_imported():
            ours = {name for name in sys.modules if name.startswith("evalve.")}
            parts = ("hooks", "flags", "early_gateway", "fixtures", "stash")
            plugin = {f"evalve.plugin.{name}" for name in parts}
            assert ours == {"evalve.errors", "evalve.options", "evalve.plugin"} | plugin
        """,
    )

    ended = project.pytest()

    assert ended.outcomes == {"passed": 1}
    assert ended.summary == []
    assert not (project.folder / ".evalve").exists()


def test_a_project_in_another_directory_is_found_from_outside(project: Project) -> None:
    project.write("sub/eval_a.py", _eval_same([1]))

    ended = project.pytest("sub/eval_a.py::eval_same")

    assert ended.outcomes == {"passed": 1}
    assert (project.folder / ".evalve" / "evalve.db").exists()
    assert not (project.folder / "sub" / ".evalve").exists()


def test_functions_made_in_a_loop_are_recorded_under_the_names_that_they_were_given(project: Project) -> None:
    project.write(
        "eval_loop.py",
        """
        from evalve import foreach

        def made(word):
            @foreach("x", ["a", "b"])
            def evaluate(x):
                return x == word
            return evaluate

        for word in ("a", "c"):
            globals()[f"eval_{word}"] = made(word)

        def plain(x):
            return True

        plain.__name__ = "eval_renamed"
        eval_renamed = foreach("x", ["a"])(plain)
        """,
    )
    ended = project.pytest("eval_loop.py")
    assert ended.outcomes == {"passed": 3}
    names = [line.split()[0] for line in ended.summary if " done" in line]
    assert names == ["eval_a", "eval_c", "eval_renamed"]
