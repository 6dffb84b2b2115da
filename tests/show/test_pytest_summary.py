"""The section at the end of a pytest run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evalve.contracts import EvaluationSpec
from evalve.show.pytest_summary import Told, properties, show_command, skip_text, summary_lines

COMPLETE = Told(
    name="eval_a",
    key="eval_x.py::eval_a",
    experiment="x",
    done=4,
    failed=0,
    total=4,
    ran=0,
    wall_s=0.0,
    working_s=0.0,
    metrics=[],
    problems=[],
    interrupted=False,
)
NOTHING_LEFT = "experiment 'x' is complete: nothing was left to run; --fresh starts it over"


def lines(*told: Told, all_told: bool = True, resume_command: str | None = None) -> list[str]:
    plain = [one.to_plain() for one in told]
    return list(summary_lines(plain, experiment="x", all_told=all_told, resume_command=resume_command))


def test_an_experiment_that_was_complete_is_told_so() -> None:
    assert lines(COMPLETE) == [
        "eval_a  4/4 done, 4 of them before",
        NOTHING_LEFT,
        "see: evalve show x",
    ]


def test_nothing_is_called_complete_while_an_evaluation_ran_failed_broke_or_is_missing() -> None:
    broken = Told.about_broken(EvaluationSpec("x", "eval_x.py::eval_b", "eval_b"), None, "no rows")

    assert NOTHING_LEFT not in lines(COMPLETE, replace(COMPLETE, ran=1))
    assert NOTHING_LEFT not in lines(COMPLETE, replace(COMPLETE, failed=1))
    assert NOTHING_LEFT not in lines(COMPLETE, broken)
    assert NOTHING_LEFT not in lines(COMPLETE, all_told=False)
    assert NOTHING_LEFT not in lines(COMPLETE, resume_command="pytest")


def test_failures_are_told_by_class_and_skips_with_their_reasons() -> None:
    reasons = {"no gpu": 2, "not in French": 1}
    told = replace(
        COMPLETE,
        failed=3,
        failures={"timeout": 1, "provider": 2},
        skipped=4,
        skip_reasons=reasons,
        total=11,
        ran=11,
        problems=["too many failed"],
    )

    assert lines(told)[:3] == [
        "eval_a  4/11 done, 3 failed (2 provider, 1 timeout), 4 skipped",
        "  4 skipped: no gpu 2, not in French 1, …",
        "  not passed: too many failed",
    ]


def test_an_evaluation_of_which_all_is_skipped_is_skipped_and_complete() -> None:
    told = replace(COMPLETE, done=0, skipped=4, skip_reasons={"no gpu": 4})

    assert (told.is_skipped, told.is_empty) == (True, False)
    assert skip_text(told) == "eval_a: all 4 samples were skipped: no gpu"
    assert lines(told)[0] == "eval_a  0/4 done, 4 skipped, 4 of them before"
    assert NOTHING_LEFT in lines(told)
    assert not replace(told, failed=1).is_skipped
    assert not replace(told, interrupted=True).is_skipped


def test_junit_properties_count_failures_by_class_and_skips() -> None:
    told = replace(COMPLETE, failed=2, failures={"provider": 2}, skipped=1)

    assert list(properties(told)) == [
        ("evalve.experiment", "x"),
        ("evalve.samples", 7),
        ("evalve.failed", 2),
        ("evalve.failed.provider", 2),
        ("evalve.skipped", 1),
    ]


def test_an_evaluation_that_broke_off_is_listed_with_the_first_line_of_the_reason() -> None:
    spec = EvaluationSpec("x", "eval_x.py::eval_b", "eval_b")

    shown = lines(Told.about_broken(spec, None, "row 3 raised ValueError: bad\n\x1bmore"))

    assert shown == ["eval_b  0/? done", "  not passed: row 3 raised ValueError: bad", "see: evalve show x"]


def test_two_evaluations_of_one_name_are_told_apart_by_their_files() -> None:
    other = replace(COMPLETE, key="b/eval_x.py::eval_a")
    third = replace(COMPLETE, name="eval_c", key="b/eval_x.py::eval_c")

    assert lines(COMPLETE, other, third)[:3] == [
        "eval_x.py::eval_a  4/4 done, 4 of them before",
        "b/eval_x.py::eval_a  4/4 done, 4 of them before",
        "eval_c  4/4 done, 4 of them before",
    ]


def hints(*told: Told, storage: str | None = None) -> list[str]:
    plain = [one.to_plain() for one in told]
    shown = summary_lines(plain, experiment="first", all_told=True, resume_command=None, storage=storage)
    return [line for line in shown if line.startswith("see: ")]


@pytest.mark.parametrize(
    ("experiment", "storage", "options", "command"),
    [
        ("first", None, (), "evalve show first"),
        ("two words", None, ("--errors",), "evalve show 'two words' --errors"),
        ("first", "my records.db", (), "evalve show first --storage 'my records.db'"),
        ("-name", None, (), "evalve show -- -name"),
        ("-name", "x.db", ("--errors",), "evalve show --storage x.db --errors -- -name"),
    ],
)
def test_the_command_that_shows_a_run_can_be_typed_as_it_stands(
    experiment: str, storage: str | None, options: tuple[str, ...], command: str
) -> None:
    assert show_command(experiment, storage, *options) == command


def test_each_storage_is_named_once() -> None:
    assert hints(COMPLETE, COMPLETE, replace(COMPLETE, storage="x.db")) == [
        "see: evalve show first",
        "see: evalve show first --storage x.db",
    ]


def test_nothing_is_to_be_seen_of_what_was_in_memory() -> None:
    assert hints(replace(COMPLETE, storage="memory://")) == []


def test_a_run_that_was_interrupted_before_anything_was_told_names_the_storage_that_was_typed() -> None:
    assert hints(storage="x.db") == ["see: evalve show first --storage x.db"]
