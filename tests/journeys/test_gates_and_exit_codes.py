"""What makes an evaluation pass or fail, and the exit code that a pipeline sees."""

from __future__ import annotations

import re

from project import Project

# 3 of 4 are right, and the mean length is 2.5
TWO_EVALUATORS = """
    import evalve
    from evalve import foreach, evaluator
    from evalve.evaluators import exact_match

    @evaluator(metrics=["mean"])
    def length(number):
        return float(number)

    @foreach("number", [1, 2, 3, 4])
    async def eval_two(number):
        return exact_match(min(number, 3), number), length(number)
"""


def test_fail_under_names_a_metric_an_evaluator_or_both(project: Project) -> None:
    project.write("eval_two.py", TWO_EVALUATORS)
    reached = ["accuracy=0.75", "exact_match=0.75", "exact_match.accuracy=0.75", "length.mean=2.5"]
    missed = ["accuracy=0.8", "length=2.6", "exact_match.accuracy=0.9", "acuracy=0.7", "mean=2.4"]

    passes = project.pytest("--experiment", "x", *(f"--fail-under={gate}" for gate in reached))
    fails = project.pytest("--experiment", "x", *(f"--fail-under={gate}" for gate in missed))

    assert (passes.code, passes.outcomes) == (0, {"passed": 1})
    assert (fails.code, fails.outcomes) == (1, {"failed": 1})
    problems = [
        "exact_match.accuracy is 0.75, below the required 0.8",
        "length.mean is 2.5, below the required 2.6",
        "exact_match.accuracy is 0.75, below the required 0.9",
        "acuracy is required to reach 0.7, but there is only exact_match.accuracy, length.mean",
    ]
    assert [line for line in fails.summary if "not passed" in line] == [
        f"  not passed: {problem}" for problem in problems
    ]
    assert all(f"eval_two: {problem}" in fails.out for problem in problems)


def test_a_gate_stands_above_or_below_the_decorator_and_the_command_line_replaces_it(
    project: Project,
) -> None:
    project.write(
        "eval_gates.py",
        """
        import evalve
        from evalve import foreach

        @evalve.require(accuracy=0.9)
        @foreach("number", [1, 2])
        async def eval_above(number):
            return number == 1

        @foreach("number", [1, 2])
        @evalve.require(score__accuracy=0.8)
        def eval_below(number):
            return number == 1

        @foreach("number", [1, 2])
        @evalve.require(accuracy=0.5)
        def eval_reached(number):
            return number == 1
        """,
    )

    ended = project.pytest()
    replaced = project.pytest("--fail-under", "accuracy=0.4", "--fail-under", "score.accuracy=0.4")

    assert ended.outcomes == {"failed": 2, "passed": 1}
    assert "eval_above: score.accuracy is 0.5, below the required 0.9" in ended.out
    assert "eval_below: score.accuracy is 0.5, below the required 0.8" in ended.out
    assert replaced.outcomes == {"passed": 3}


def test_scores_of_one_name_are_one_evaluator_for_gates_summary_and_junit(project: Project) -> None:
    project.write(
        "eval_mixed.py",
        """
        import evalve
        from evalve import Score, foreach
        from evalve.evaluators import exact_match

        @evalve.require(exact_match__accuracy=0.25)
        @foreach("given,expected", [("4", "4"), ("", "5"), ("", "6"), (None, "7")])
        def eval_mixed(given, expected):
            if given is None:
                return {"exact_match": 0}
            if not given:
                return Score("exact_match", False)
            return exact_match(given, expected)
        """,
    )

    declared = project.pytest("--experiment", "x", "--junitxml=junit.xml")
    asked = project.pytest("--experiment", "x", "--fail-under", "count=9,exact_match=0.9")

    assert declared.outcomes == {"passed": 1}
    assert "  exact_match  accuracy 0.250 [0.05, 0.70]  n=4" in declared.summary
    assert len([line for line in declared.summary if "exact_match" in line]) == 1
    (case,) = project.junit("junit.xml").values()
    properties = [one.get("name") for one in case.iter("property")]
    assert properties.count("exact_match.accuracy") == 1
    assert "exact_match.mean" not in properties
    assert asked.outcomes == {"failed": 1}
    assert [line for line in asked.summary if "not passed" in line] == [
        "  not passed: count is required to reach 9, but there is only exact_match.accuracy",
        "  not passed: exact_match.accuracy is 0.25, below the required 0.9",
    ]


def test_a_metric_without_a_value_says_why_and_misses_its_gate(project: Project) -> None:
    project.write(
        "eval_metrics.py",
        """
        from evalve import evaluator, foreach, metric

        @metric
        def boom(values):
            raise ValueError("no such thing\\nhere")

        @metric
        def undefined(values):
            return float("nan")

        @metric
        def worded(values):
            return "high"

        @evaluator(metrics=[boom, undefined, worded])
        def e1(number):
            return number

        @foreach("number", [1, 2])
        def eval_metrics(number):
            return e1(number)
        """,
    )

    passes = project.pytest("--experiment", "x")
    fails = project.pytest("--experiment", "x", "--fail-under", "boom=0,undefined=0", "--fail-under", "e1=0")

    assert passes.outcomes == {"passed": 1}
    assert [line for line in passes.summary if "e1" in line] == [
        r"  e1  boom – (ValueError: no such thing\nhere)  n=2",
        "  e1  undefined – (it returned nan, which is no number)  n=2",
        "  e1  worded – (it returned 'high', which is no number)  n=2",
    ]
    assert fails.outcomes == {"failed": 1}
    assert len([line for line in fails.summary if "not passed" in line]) == 3


FAILS_FOR = """
    from evalve import ForEach

    def fails(number, failing):
        if number < failing:
            raise ValueError(f"number {number} is too small")
        return True

    @ForEach(allow_failures=2)("number", range(10))
    async def eval_two_may(number):
        return fails(number, failing=2)

    @ForEach(allow_failures=2)("number", range(10))
    async def eval_more_than_two(number):
        return fails(number, failing=3)

    @ForEach(allow_failures="20%")("number", range(10))
    def eval_a_fifth_may(number):
        return fails(number, failing=2)

    @ForEach(allow_failures="20%")("number", range(10))
    def eval_more_than_a_fifth(number):
        return fails(number, failing=3)

    @ForEach()("number", range(10))
    async def eval_none_may(number):
        return fails(number, failing=1)
"""


def test_failures_are_tolerated_by_number_or_by_share_and_are_never_zeros(project: Project) -> None:
    project.write("eval_fails.py", FAILS_FOR)

    ended = project.pytest("--experiment", "x")
    tolerant = project.pytest("--experiment", "x", "--allow-failures", "30%")

    assert ended.outcomes == {"passed": 2, "failed": 3}
    assert "eval_more_than_two: 3 of 10 samples failed (code), and 2 may" in ended.out
    assert "eval_more_than_a_fifth: 3 of 10 samples failed (code), and 20% may" in ended.out
    assert "eval_none_may: 1 of 10 samples failed (code)\n" in ended.out
    scores = [line.partition(" [")[0] for line in ended.summary if line.startswith("  score")]
    assert scores == ["  score  accuracy 1.000"] * 5
    assert tolerant.outcomes == {"passed": 5}


def test_an_evaluation_without_rows_is_skipped_not_passed_and_fails_a_gate(project: Project) -> None:
    project.write(
        "eval_empty.py",
        """
        import evalve
        from evalve import foreach

        @foreach("number", [])
        async def eval_ungated(number):
            return True

        @evalve.require(accuracy=0.5)
        @foreach("number", lambda: iter(()))
        def eval_gated(number):
            return True
        """,
    )

    ended = project.pytest("--experiment", "x", "-rs")

    assert ended.outcomes == {"skipped": 1, "failed": 1}
    assert "eval_ungated: there were no rows, so nothing was evaluated" in ended.out
    assert "accuracy is required to reach 0.5, but nothing was scored" in ended.out
    assert "  there were no rows, so nothing was evaluated" in ended.summary


def test_an_evaluation_whose_every_sample_raises_fails_in_junit_too(project: Project) -> None:
    project.write(
        "eval_fails.py",
        """
        from evalve import foreach

        @foreach("number", range(10))
        async def eval_fails(number):
            raise ValueError(f"number {number} is too small")
        """,
    )

    ended = project.pytest("--junitxml=junit.xml", "--experiment", "x", "--fail-under", "accuracy=0.1")

    assert ended.code == 1
    assert ended.outcomes == {"failed": 1}
    assert "eval_fails: 10 of 10 samples failed" in ended.out
    assert "accuracy is required to reach 0.1, but nothing was scored" in ended.out
    assert "ValueError: number 0 is too small" in ended.out
    assert "… and 7 more" in ended.out
    assert "see: evalve show x --errors" in ended.out
    (case,) = project.junit("junit.xml").values()
    assert len(case.findall("failure")) == 1
    assert "10 of 10 samples failed" in (case.findall("failure")[0].get("message") or "")


def test_junit_has_real_durations_and_properties(project: Project) -> None:
    project.write(
        "eval_timed.py",
        """
        import asyncio
        from evalve import foreach

        @foreach("number", [1, 2])
        async def eval_timed(number):
            await asyncio.sleep(0.05)
            return number == 1
        """,
    )

    project.pytest("--junitxml=junit.xml", "--experiment", "x")

    (case,) = project.junit("junit.xml").values()
    assert float(case.get("time", "0")) >= 0.05
    properties = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert properties["evalve.experiment"] == "x"
    assert properties["evalve.samples"] == "2"
    assert properties["evalve.failed"] == "0"
    assert properties["score.accuracy"] == "0.5"
    assert (
        float(properties["score.accuracy.low"] or "") < 0.5 < float(properties["score.accuracy.high"] or "")
    )


def test_exit_codes_of_wrong_usage_nothing_collected_and_collection_errors(project: Project) -> None:
    project.write("eval_wrong.py", "from evalve import foreach\nforeach(1, [])\n")
    project.write("test_nothing.py", "")

    assert project.pytest("test_nothing.py").code == 5
    assert project.pytest("--samples=-1", "test_nothing.py").code == 4
    assert project.pytest("no_such_file.py").code == 4
    assert project.pytest("eval_wrong.py").code == 2


MISTAKES = {
    "eval_column.py": (
        '@foreach("question,answr", [("a", "b")])\ndef eval_x(question, answer): ...',
        "eval_column.py:4: eval_x has no parameter for the column 'answr'; did you mean 'answer'?",
    ),
    "eval_rows.py": (
        '@foreach("question", [{"qestion": "a"}])\ndef eval_x(question): ...',
        "lacks the column 'question'; it has 'qestion'; did you mean 'qestion'?",
    ),
    "eval_number.py": ('@foreach("a", 7)\ndef eval_x(a): ...', "eval_number.py:4: "),
    "eval_file.py": ('@foreach("a", "no_such_file.jsonl")\ndef eval_x(a): ...', "eval_file.py:4: "),
    "eval_none.py": ('@foreach("a")\ndef eval_x(a): ...', "eval_none.py:4: eval_x has no dataset"),
    "eval_twice.py": (
        '@foreach("a", [1])\ndef eval_x(a): ...\n@foreach("a", [1])\ndef eval_x(a): ...',
        "eval_twice.py:6: eval_x is also defined at line 5 of the same file",
    ),
    "eval_consumed.py": (
        'rows = (n for n in [1])\nlist(rows)\n@foreach("a", rows)\ndef eval_x(a): ...',
        "eval_consumed.py:6: generator <genexpr> was already consumed; "
        "pass a function that makes it or a list",
    ),
    "eval_zip.py": (
        'rows = zip("ab", "cd")\nlist(rows)\n@foreach("a,b", rows)\ndef eval_x(a, b): ...',
        "eval_zip.py:6: zip has no rows: it was already consumed, or never had any; "
        "pass a function that makes it or a list",
    ),
    "eval_reader.py": (
        'import csv\nrows = csv.reader(["1,2"])\nlist(rows)\n@foreach("a,b", rows)\ndef eval_x(a, b): ...',
        "eval_reader.py:7: reader has no rows: it was already consumed, or never had any",
    ),
    "eval_class.py": (
        '@foreach("a", [1])\nclass Eval: ...',
        "eval_class.py:4: @foreach is for functions, and Eval is a class; decorate its methods",
    ),
    "eval_strategy.py": (
        "class Own:\n    async def execute(self, tasks): ...\nForEach(concurrency=Own())",
        "eval_strategy.py:6: Own.execute is called as execute(tasks, progress_callback): too many",
    ),
    "eval_property.py": (
        "class Row:\n    a = property(lambda self: 1 / 0)\n@foreach('a', [Row()])\ndef eval_x(a): ...",
        "eval_property.py:6: reading row 1 of list of 1 raised ZeroDivisionError",
    ),
    "eval_decorators.py": (
        '@foreach("a", [1])\n@foreach("a", [1])\ndef eval_x(a): ...',
        "eval_x has two @foreach decorators; one is enough",
    ),
    "eval_option.py": (
        "ForEach(concurency=3)",
        "eval_option.py:4: ForEach: unknown option 'concurency'; did you mean 'concurrency'?",
    ),
}


def test_mistakes_in_a_declaration_are_collection_errors_that_name_file_and_line(project: Project) -> None:
    for name, (declaration, _) in MISTAKES.items():
        project.write(name, f"\n\nfrom evalve import ForEach, foreach\n{declaration}\n")

    ended = project.pytest()

    assert ended.code == 2
    assert ended.outcomes == {"errors": len(MISTAKES)}
    for name, (_, said) in MISTAKES.items():
        assert said in ended.out
        assert f"{project.folder}/{name}:" in ended.out
    assert "declare" not in ended.out, "frames of our own stand between the person's line and the message"
    assert not (project.folder / ".evalve").exists()


def test_two_rows_with_one_id_fail_the_evaluation_and_name_both(project: Project) -> None:
    project.write(
        "eval_ids.py",
        """
        from evalve import foreach

        @foreach("id,number", [("a", 1), ("b", 2), ("a", 3)])
        async def eval_ids(id, number):
            return True
        """,
    )

    ended = project.pytest()

    assert ended.code == 1
    assert "eval_ids.py:4: rows 1 and 3 have the id 'a'; ids must be unique within a dataset" in ended.out
    assert "eval_ids.py:4: /" not in ended.out  # the place is said once
    assert "Traceback" not in ended.all


def test_a_row_that_lacks_a_column_is_no_none(project: Project) -> None:
    project.write(
        "eval_rows.py",
        """
        from evalve import foreach

        def rows():
            yield {"question": "a", "answer": "b"}
            yield {"question": "a"}

        @foreach("question,answer", rows)
        async def eval_rows(question, answer):
            return True
        """,
    )

    ended = project.pytest()

    assert ended.code == 1
    assert "row 2 of" in ended.out
    assert "lacks the column 'answer'; it has 'question'" in ended.out


def test_a_dataset_that_breaks_halfway_keeps_what_was_done(project: Project) -> None:
    project.write(
        "eval_breaks.py",
        """
        import os
        from evalve import foreach

        def rows():
            yield from range(5)
            if not os.environ.get("MENDED"):
                raise OSError("the disk is gone")

        @foreach("number", rows)
        def eval_breaks(number):
            return number

        @foreach("number", [7])
        def eval_whole(number):
            return number
        """,
    )

    ended = project.pytest("--experiment", "x")
    kept = project.values("x")
    again = project.pytest("--experiment", "x")
    mended = project.pytest("--experiment", "x", MENDED="1")

    assert ended.code == again.code == 1
    assert "reading row 6 of" in ended.out
    assert "raised OSError: the disk is gone" in ended.out
    assert kept == {"eval_breaks": [0, 1, 2, 3, 4], "eval_whole": [7]}
    assert again.summary[0].startswith("eval_breaks  5/? done")
    assert again.summary[1].startswith(f"  not passed: {project.folder}/eval_breaks.py:10: reading row 6 of")
    assert again.summary[2].startswith("eval_whole  1/1 done, 1 of them before")
    assert "is complete" not in again.out
    assert mended.code == 0
    assert project.values("x") == kept


def test_a_return_value_that_is_no_score_is_told_as_a_failure_of_the_sample(project: Project) -> None:
    project.write(
        "eval_returns.py",
        """
        import asyncio
        from evalve import foreach
        from evalve.evaluators import exact_match

        RETURNED = {
            "coroutine": lambda: asyncio.sleep(0),
            "coroutine beside a score": lambda: (exact_match(1, 1), asyncio.sleep(0)),
            "nothing": lambda: None,
            "text": lambda: "yes",
            "empty": lambda: [],
            "nan": lambda: float("nan"),
        }

        @foreach("id", list(RETURNED))
        def eval_returns(id):
            return RETURNED[id]()
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.outcomes == {"failed": 1}
    said = {one["sample_id"]: one["failure"]["message"] for one in project.records("x")}
    never_awaited = "was never awaited: write `await` before the call"
    assert never_awaited in said["coroutine"]
    assert never_awaited in said["coroutine beside a score"]
    assert said["nothing"].startswith("the evaluation returned None: is a `return` missing?")
    assert said["text"].startswith("the evaluation returned str 'yes'; return a Score")
    assert said["empty"].startswith("the evaluation returned an empty list")
    assert "is nan, which is no measurement" in said["nan"]


def test_metrics_of_ones_own_are_computed_and_gate(project: Project) -> None:
    project.write(
        "eval_own.py",
        """
        from evalve import evaluator, foreach, metric

        @metric
        def worst(values):
            return min(values)

        @evaluator(metrics=[worst])
        def closeness(a, b):
            return 1 - abs(a - b)

        @foreach("a,b", [(1, 1), (1, 0.5)])
        async def eval_own(a, b):
            return closeness(a, b)
        """,
    )

    ended = project.pytest("--experiment", "x", "--fail-under", "closeness.worst=0.6")

    assert ended.code == 1
    assert "eval_own: closeness.worst is 0.5, below the required 0.6" in ended.out
    assert "closeness  worst" in project.evalve("show", "x").out


def test_a_sample_that_runs_too_long_fails_and_the_others_go_on(project: Project) -> None:
    project.write(
        "eval_long.py",
        """
        import asyncio
        from evalve import foreach

        @foreach("number", [1, 2])
        async def eval_long(number):
            if number == 1:
                await asyncio.sleep(600)
            return True
        """,
    )

    ended = project.pytest("--timeout", "0.2", "--experiment", "x")

    assert ended.code == 1
    assert "SampleTimeout: ran for 0.2 s without an end" in ended.out
    assert [one["status"] for one in project.records("x")] == ["failed", "done"]


def test_one_samples_cancellation_exit_or_stop_is_its_own(project: Project) -> None:
    project.write(
        "eval_rude.py",
        """
        import asyncio
        import sys
        from evalve import foreach
        import pytest

        @foreach("number", range(5))
        async def eval_rude(number):
            if number == 0:
                raise asyncio.CancelledError("mine")
            if number == 1:
                sys.exit(3)
            if number == 2:
                raise StopAsyncIteration
            if number == 3:
                pytest.fail("said the sample")
            return True
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.code == 1
    assert "4 of 5 samples failed" in ended.out
    assert [one["status"] for one in project.records("x")] == ["failed"] * 4 + ["done"]


def test_a_strategy_that_raises_shows_the_persons_own_frames(project: Project) -> None:
    project.write(
        "eval_own.py",
        """
        from evalve import ForEach

        class Own:
            async def execute(self, tasks, progress_callback=None):
                async for task in tasks:
                    yield await task()
                    self.broke()

            def broke(self):
                raise RuntimeError("it broke")

        @ForEach(concurrency=Own())("n", range(8))
        async def eval_a(n):
            return True

        @ForEach(concurrency=Own())("n", range(8))
        def eval_b(n):
            return True
        """,
    )

    ended = project.pytest("--tb=short")

    assert ended.code == 1
    places = [line for line in ended.out.splitlines() if re.match(r"\S+:\d+: in ", line)]
    assert places == ["eval_own.py:8: in execute", "eval_own.py:11: in broke"] * 2
    assert ended.out.count("RuntimeError: it broke") >= 2


def test_a_full_trace_shows_everything(project: Project) -> None:
    project.write("eval_number.py", 'from evalve import foreach\n@foreach("a", 7)\ndef eval_x(a): ...\n')

    assert "declare/foreach.py" in project.pytest("--full-trace").out
