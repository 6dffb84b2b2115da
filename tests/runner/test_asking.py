"""Which questions of a failed sample a later run remembers."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.contracts import CallLog
from evalve.records import Score
from evalve.runner.asking import noted, recall
from evalve.runner.attempted import Attempted
from evalve.runner.scoring import Scored


def test_a_later_run_of_the_same_function_goes_on_counting() -> None:
    calls = CallLog()

    recall(calls, '{"requests": 1, "asked": {"function": "f", "ordinals": {"question": 2}}}', "f")

    assert calls.ordinals == {"question": 2}


@pytest.mark.parametrize("recorded", ['{"asked', "[]", "7", '{"asked": 7}', '{"requests": 1}'])
def test_what_cannot_be_read_of_a_failed_record_is_as_if_nothing_was_asked(recorded: str) -> None:
    calls = CallLog()

    recall(calls, recorded, "f")

    assert calls.ordinals == {}


@pytest.mark.parametrize(
    ("value", "lost_calls", "asked"),
    [
        (None, {}, {"asked": {"function": "f", "ordinals": {"question": 1}}}),
        (None, {"question": "503"}, {}),
        (True, {}, {}),
    ],
    ids=["no verdict in the answer", "no answer", "a verdict"],
)
def test_a_judge_is_asked_anew_where_its_answer_was_no_verdict(
    value: bool | None, lost_calls: dict[str, str], asked: dict[str, Any]
) -> None:
    attempt = Attempted(0.0, surroundings=None, trace=None)  # type: ignore[arg-type]
    attempt.status, attempt.scored = "done", Scored([Score("llm_judge", value)])
    attempt.calls.ordinals["question"] = 1
    attempt.lost_calls = lost_calls

    assert noted(attempt, "f") == asked
