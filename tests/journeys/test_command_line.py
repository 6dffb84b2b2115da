"""The command `evalve` on what real runs recorded."""

from __future__ import annotations

import json

import pytest
from project import Project

MATHS = """
    import os
    from evalve import Result, foreach
    from evalve.evaluators import exact_match

    @foreach("question,answer", [("1+1", 2), ("2+2", 4), ("3+3", 6), ("1/0", 0)])
    async def eval_maths(question, answer):
        guess = eval(question) + int(os.environ.get("OFF_BY", "0"))
        return Result(exact_match(guess, answer), prompt=question, response=str(guess))

    @foreach("word", ["a"])
    def eval_words(word):
        return True
"""


@pytest.fixture
def maths(project: Project) -> Project:
    """Two experiments, of which the second gets everything wrong."""
    project.write("eval_maths.py", MATHS)
    assert project.evalve("run", "eval_maths.py::eval_maths", "--experiment", "good").code == 1
    assert project.evalve("run", "eval_maths.py::eval_maths", "--experiment", "bad", OFF_BY="1").code == 1
    return project


def test_run_takes_a_file_and_a_name_and_ends_as_pytest_does(project: Project) -> None:
    project.write("eval_maths.py", MATHS)
    project.write("test_unrelated.py", "def test_unrelated(): assert False\n")

    one = project.evalve("run", "eval_maths.py::eval_words", "-q")
    every = project.evalve("run", "--allow-failures", "1", "--experiment", "every")
    missing = project.evalve("run", "eval_math.py")
    option = project.evalve("run", "eval_maths.py", "--samples", "x")

    assert (one.code, one.outcomes) == (0, {"passed": 1})
    assert (every.code, every.outcomes) == (0, {"passed": 2})
    assert missing.code == 4
    assert missing.err == "evalve: no file 'eval_math.py'; did you mean 'eval_maths.py'?\n"
    assert option.code == 4


def test_list_and_show_tell_scores_failures_and_samples(maths: Project) -> None:
    listed = maths.evalve("list")
    latest = maths.evalve("show", "latest")
    good = maths.evalve("show", "good")
    errors = maths.evalve("show", "good", "--errors", "--full")
    wrong = maths.evalve("show", "bad", "--failed")

    assert [one.code for one in (listed, latest, good, errors, wrong)] == [0, 0, 0, 0, 0]
    assert [line.split()[0] for line in listed.out.splitlines()[2:]] == ["bad", "good"]
    assert latest.out.startswith("bad · ")
    assert "exact_match  accuracy  1.000 [0.44, 1.00]    3" in good.out
    assert "1 of 4 samples failed: not counted above" in good.out
    assert "ZeroDivisionError" in errors.out
    assert 'eval_maths.py", line 8, in eval_maths' in errors.out
    assert "3+3" in wrong.out
    assert "1/0" not in wrong.out


def test_compare_pairs_the_samples(maths: Project) -> None:
    compared = maths.evalve("compare", "good", "bad")
    for_machines = maths.evalve("compare", "good", "bad", "--json")

    assert compared.code == 0
    (evaluator,) = json.loads(for_machines.out)["evaluations"][0]["evaluators"]
    assert evaluator["n_paired"] == 3
    assert "exact_match" in compared.out


def test_export_rename_and_delete(maths: Project) -> None:
    for suffix in ("json", "jsonl", "csv", "parquet"):
        written = maths.evalve("export", "good", "-o", f"good.{suffix}")
        assert (written.code, written.out) == (0, f"wrote 4 rows to good.{suffix}\n")
    rows = [json.loads(line) for line in maths.read("good.jsonl").splitlines()]
    renamed = maths.evalve("rename", "good", "better")
    deleted = maths.evalve("delete", "bad", "--yes")

    assert list(rows[0]) == [
        *("experiment", "evaluation", "sample_id", "index", "repeat", "status", "scores", "failure"),
        *("failure_class", "prompt", "response", "row", "wall_s", "working_s", "tries", "started_at"),
        *("calls", "lent"),
    ]
    assert rows == json.loads(maths.read("good.json"))
    assert [(row["prompt"], row["response"], row["status"]) for row in rows] == [
        ("1+1", "2", "done"),
        ("2+2", "4", "done"),
        ("3+3", "6", "done"),
        (None, None, "failed"),
    ]
    assert rows[3]["failure"]["kind"] == "ZeroDivisionError"
    assert (renamed.code, deleted.code) == (0, 0)
    assert maths.experiments() == ["better"]
    assert maths.evalve("show", "good").code == 1
    resumed = maths.evalve("run", "eval_maths.py::eval_maths", "--experiment", "better")
    assert "3 of them before" in resumed.out


def test_what_init_writes_runs(project: Project) -> None:
    written = project.evalve("init")

    ended = project.pytest("eval_first.py", "--experiment", "first")
    shown = project.evalve("show", "first")

    assert written.code == 0
    assert ended.code == 0, ended.all
    assert shown.code == 0
    assert shown.out.startswith("first · complete")


def test_records_and_yaml_are_found_from_a_folder_below(maths: Project) -> None:
    maths.write("evalve.yaml", "options:\n  samples: 2\n")
    maths.write("below/deep/eval_more.py", MATHS)
    here = maths.folder / "below" / "deep"
    below = Project(here)

    listed = below.evalve("list", "g*")
    ran = below.pytest("-q", "eval_more.py::eval_maths", "--experiment", "good")
    again = maths.pytest("-q", "below/deep/eval_more.py::eval_maths", "--experiment", "good")

    assert [line.split()[0] for line in listed.out.splitlines()[2:]] == ["good"]
    assert ran.summary[0].startswith("eval_maths  2/2 done")
    assert "nothing was left to run" in again.out
    assert not (here / ".evalve").exists()


def test_python_minus_m_is_the_same_as_the_command(maths: Project) -> None:
    assert maths.python("-m", "evalve", "list").out == maths.evalve("list").out


def test_a_file_of_evaluations_run_as_a_script_says_what_to_type(project: Project) -> None:
    project.write("eval_maths.py", MATHS)
    project.write("called.py", MATHS + "\n    eval_words()\n")

    silent = project.python("eval_maths.py")
    called = project.python("called.py")

    assert silent.err == (
        "eval_maths.py declares eval_maths and 1 more and runs nothing: "
        "type `evalve run eval_maths.py`, or call eval_maths() at its end\n"
    )
    assert "runs nothing" not in called.err


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_what_only_looks_like_an_evaluation_is_told_about(project: Project, workers: tuple[str, ...]) -> None:
    project.write(
        "eval_mixed.py",
        """
        from evalve import foreach

        def eval_forgotten(word):
            return True

        @foreach("word", ["a"])
        def check_word(word):
            return True

        @foreach("word", ["a"])
        def eval_word(word):
            return check_other(word)

        def check_other(word):
            return True

        class Words:
            @foreach("word", ["a"])
            def eval_in_class(self, word):
                return True
        """,
    )
    ended = project.pytest("eval_mixed.py", *workers)
    assert ended.outcomes == {"passed": 1}
    told = [line for line in ended.out.splitlines() if line.startswith("evalve: ")]
    assert told == [
        "evalve: eval_mixed.py::eval_forgotten (line 4) is not run: it has no @foreach(columns, dataset)",
        "evalve: eval_mixed.py::check_word (line 7) is not run: its name does not begin with eval_:"
        " call it eval_check_word",
        "evalve: eval_mixed.py::Words::eval_in_class (line 19) is not run:"
        " the name of its class does not begin with Test: call it TestWords",
    ]
