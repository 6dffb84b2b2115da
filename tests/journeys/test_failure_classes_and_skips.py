"""Whose failures are and what was skipped, from the sample to the screen and the exit code."""

from __future__ import annotations

import csv

from project import Project

MIXED = """
    import pytest
    from evalve import ForEach
    from evalve.errors import AgentError, AnswerError

    once = ForEach(retries=1)
    ERRORS = {
        "code": KeyError("capital"),
        "answer": AnswerError("it named two cities"),
        "agent": AgentError("exited with 1"),
        "provider-1": ConnectionError("refused"),
        "provider-2": ConnectionError("reset"),
        "timeout": TimeoutError("waited for 5 s"),
    }

    @once("id,right", [*((id, True) for id in ERRORS), ("done", True), ("wrong", False), ("skip", True)])
    async def eval_mixed(id, right):
        if id == "skip":
            pytest.skip("not a country")
        if id in ERRORS:
            raise ERRORS[id]
        return right
"""
CLASSES = "2 provider, 1 agent, 1 answer, 1 code, 1 timeout"


def test_failures_are_told_by_class_in_text_summary_and_junit(project: Project) -> None:
    project.write("eval_mixed.py", MIXED)

    ended = project.pytest("--experiment", "x", "--junitxml=junit.xml")

    assert (ended.code, ended.outcomes) == (1, {"failed": 1})
    assert f"eval_mixed: 6 of 8 samples failed ({CLASSES})" in ended.out
    assert "  sample answer (answer): AnswerError: it named two cities" in ended.out
    assert ended.summary[0].startswith(f"eval_mixed  2/9 done, 6 failed ({CLASSES}), 1 skipped, ")
    assert "  score  accuracy 0.500 [0.09, 0.91]  n=2" in ended.summary
    assert "  1 skipped: not a country 1" in ended.summary
    (case,) = project.junit("junit.xml").values()
    counted = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert counted["evalve.samples"] == "9"
    assert counted["evalve.failed"] == "6"
    assert counted["evalve.failed.provider"] == "2"
    assert counted["evalve.skipped"] == "1"


def test_what_is_recorded_is_shown_filtered_and_exported_by_class(project: Project) -> None:
    project.write("eval_mixed.py", MIXED)
    project.pytest("--experiment", "x")

    listed = project.evalve("list", COLUMNS="140")
    shown = project.evalve("show", "x")
    of_agents = project.evalve("show", "x", "--class", "agent")
    skips = project.evalve("show", "x", "--skipped")
    exported = project.evalve("export", "x", "-o", "x.csv")
    unknown = project.evalve("show", "x", "--class", "agents")
    both = project.evalve("show", "x", "--class", "agent", "--failed")

    assert CLASSES in listed.out
    assert f"2/9 done (22.2%), 6 failed ({CLASSES}), 1 skipped" in shown.out
    assert "failed: provider" in shown.out
    titles = [line for line in of_agents.out.splitlines() if " · failed" in line]
    assert [title.split(" · ")[:2] for title in titles] == [["agent", "failed: agent"]]
    assert [line for line in skips.out.splitlines() if line.startswith("  not a")] == ["  not a country"]
    assert exported.code == 0
    with (project.folder / "x.csv").open(encoding="utf-8", newline="") as file:
        classes = {row["sample_id"]: (row["status"], row["failure_class"]) for row in csv.DictReader(file)}
    assert classes == {
        "code": ("failed", "code"),
        "answer": ("failed", "answer"),
        "agent": ("failed", "agent"),
        "provider-1": ("failed", "provider"),
        "provider-2": ("failed", "provider"),
        "timeout": ("failed", "timeout"),
        "done": ("done", ""),
        "wrong": ("done", ""),
        "skip": ("skipped", ""),
    }
    assert (unknown.code, both.code) == (4, 4)
    assert "leave out --failed" in both.err


def test_an_evaluation_of_which_all_is_skipped_is_reported_as_skipped_and_not_run_again(
    project: Project,
) -> None:
    project.write(
        "eval_gpu.py",
        """
        import pytest
        from evalve import foreach

        @foreach("number", [1, 2, 3])
        def eval_gpu(number):
            with open("ran", "a") as file:
                file.write(f"{number} ")
            pytest.importorskip("a_module_that_nobody_has", reason="there is no gpu here")
            return True
        """,
    )

    first = project.pytest("--experiment", "x", "-rs")
    second = project.pytest("--experiment", "x")
    gated = project.pytest("--experiment", "x", "--fail-under", "accuracy=0.5")

    assert (first.code, first.outcomes) == (0, {"skipped": 1})
    assert "eval_gpu: all 3 samples were skipped: there is no gpu here" in first.out
    assert first.summary[0].startswith("eval_gpu  0/3 done, 3 skipped")
    assert (second.code, second.outcomes) == (0, {"skipped": 1})
    assert "experiment 'x' is complete: nothing was left to run; --fresh starts it over" in second.summary
    assert project.read("ran") == "1 2 3 "
    assert (gated.code, gated.outcomes) == (1, {"failed": 1}), "as one without rows: a gate needs a score"


def test_with_some_skipped_the_others_decide(project: Project) -> None:
    project.write(
        "eval_some.py",
        """
        import pytest
        from evalve import foreach

        @foreach("number", [1, 2, 3, 4])
        async def eval_passes(number):
            if number > 1:
                pytest.skip(f"{number} is too large")
            return True

        @foreach("number", [1, 2, 3, 4])
        async def eval_fails(number):
            if number > 1:
                pytest.skip("too large")
            raise ValueError("no")
        """,
    )

    ended = project.pytest("--experiment", "x", "--fail-under", "accuracy=1.0", "--allow-failures", "50%")

    assert (ended.code, ended.outcomes) == (1, {"failed": 1, "passed": 1})
    assert "eval_fails: 1 of 1 samples failed (code), and 50% may" in ended.out
    assert "  3 skipped: 2 is too large 1, 3 is too large 1, 4 is too large 1" in ended.summary


def test_workers_tell_the_classes_and_skips_of_their_evaluations(project: Project) -> None:
    project.write("eval_mixed.py", MIXED)

    ended = project.pytest("--experiment", "x", "-n", "1")

    assert (ended.code, ended.outcomes) == (1, {"failed": 1})
    assert ended.summary[0].startswith(f"eval_mixed  2/9 done, 6 failed ({CLASSES}), 1 skipped, ")


def test_a_direct_call_tells_classes_and_skips(project: Project) -> None:
    project.write("eval_mixed.py", MIXED)
    project.write(
        "direct.py",
        """
        import evalve
        from eval_mixed import eval_mixed

        result = evalve.run(eval_mixed, experiment="x")
        print(result.done, result.failed, result.skipped, len(result), len(result.records))
        print(sorted(result.failed_by_class.items()))
        print(result.summary)
        """,
    )

    ended = project.python("direct.py")

    assert ended.out.splitlines() == [
        "2 6 1 9 9",
        "[('agent', 1), ('answer', 1), ('code', 1), ('provider', 2), ('timeout', 1)]",
        "{'score': {'accuracy': 0.5}}",
    ]
