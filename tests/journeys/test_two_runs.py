"""Two runs of the same rows, compared by the command as a person or a CI job types it."""

from __future__ import annotations

import json

from project import Project

CHOICES = """
    import os

    import pytest
    from evalve import evaluator, foreach
    from evalve.metrics import mean

    ROWS = [{"id": f"r{number}", "number": number} for number in range(int(os.environ.get("ROWS", "40")))]

    @evaluator
    def right(value):
        return value

    @evaluator(metrics=[mean(higher_is_better=False)])
    def seconds(value):
        return value

    @pytest.mark.parametrize("model", os.environ["MODELS"].split())
    @foreach("id,number", ROWS)
    def eval_choices(id, number, model):
        if os.environ.get("BROKEN") and number % 10:
            raise ConnectionError("gone")
        quick = model == "quick"
        return [right(quick or number % 3 > 0), seconds(1.5 + number / 20 if quick else 6.0 + number / 10)]
"""


def test_two_models_are_compared_by_function_and_row(project: Project) -> None:
    project.write("eval_choices.py", CHOICES)
    for model in ("slow", "quick"):
        assert project.pytest("--experiment", model, MODELS=model).code == 0

    better = project.evalve("compare", "slow", "quick", "--fail-on-regression", "--json")
    worse = project.evalve("compare", "quick", "slow", "--fail-on-regression")

    (evaluation,) = json.loads(better.out)["evaluations"]
    assert better.code == 0
    assert evaluation["evaluation"] == "eval_choices: A [slow], B [quick]"
    assert [(each["evaluator"], each["n_paired"]) for each in evaluation["evaluators"]] == [
        ("right", 40),
        ("seconds", 40),
    ]
    assert worse.code == 1
    assert worse.out.splitlines()[-3:] == [
        "regression check: fail",
        "  eval_choices: A [quick], B [slow]: right is worse in B by 0.350",
        "  eval_choices: A [quick], B [slow]: seconds is worse in B by 5.475",
    ]


def test_the_models_of_one_experiment_are_compared_across_the_parameter(project: Project) -> None:
    project.write("eval_choices.py", CHOICES)
    assert project.pytest("--experiment", "both", MODELS="slow quick").code == 0

    ended = project.evalve("compare", "both", "--across", "model")

    assert ended.code == 0
    assert ended.out.splitlines()[:2] == ["A  both, model=slow", "B  both, model=quick"]
    assert "  right: 14 fixed, 0 broken" in ended.out


def test_a_run_that_broke_does_not_pass_a_check(project: Project) -> None:
    project.write("eval_choices.py", CHOICES)
    assert project.pytest("--experiment", "whole", MODELS="quick").code == 0
    project.pytest("--experiment", "crashed", MODELS="quick", BROKEN="1")
    project.pytest("--experiment", "cut", MODELS="quick", ROWS="8")

    crashed = project.evalve("compare", "whole", "crashed", "--fail-on-regression")
    cut = project.evalve("compare", "whole", "cut", "--fail-on-regression")

    assert (crashed.code, cut.code) == (1, 6)
    assert "B breaks on 36 samples that A completed" in crashed.out
    assert "right lacks 32 of 40 samples in B, which could hide that it is worse" in cut.out


def test_rows_that_changed_and_code_that_changed_are_left_out(project: Project) -> None:
    project.write("eval_choices.py", CHOICES)
    project.pytest("--experiment", "before", MODELS="quick")
    project.write("eval_choices.py", CHOICES.replace('"number": number}', '"number": max(1, number)}'))
    project.pytest("--experiment", "rows", MODELS="quick")
    project.write("eval_choices.py", CHOICES.replace("number % 3 > 0", "number % 3 > 1"))
    project.pytest("--experiment", "code", MODELS="quick")

    rows = project.evalve("compare", "before", "rows")
    code = project.evalve("compare", "before", "code")

    assert "  1 row changed under the same id, left out: r0" in rows.out
    assert "  its code differs: function eval_choices" in code.out
    assert "  left out; --accept-changes compares it all the same" in code.out
