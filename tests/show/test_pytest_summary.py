"""What pytest tells at the end of a run."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.show.pytest_summary import Told, show_command, summary_lines


def told(**more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": "eval_x",
        "experiment": "first",
        "done": 2,
        "failed": 0,
        "total": 2,
        "ran": 2,
        "wall_s": 0.0,
        "working_s": 0.0,
        "metrics": [],
        "problems": [],
        "interrupted": False,
        **more,
    }
    return Told(**plain).to_plain()


def hints(*evaluations: dict[str, Any], storage: str | None = None) -> list[str]:
    lines = summary_lines(evaluations, experiment="first", resume_command=None, storage=storage)
    return [line for line in lines if line.startswith("see: ")]


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
    assert hints(told(), told(), told(storage="x.db")) == [
        "see: evalve show first",
        "see: evalve show first --storage x.db",
    ]


def test_nothing_is_to_be_seen_of_what_was_in_memory() -> None:
    assert hints(told(storage="memory://")) == []


def test_a_run_that_was_interrupted_before_anything_was_told_names_the_storage_that_was_typed() -> None:
    assert hints(storage="x.db") == ["see: evalve show first --storage x.db"]
