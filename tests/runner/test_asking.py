"""Which questions of a failed sample a later run remembers."""

from __future__ import annotations

import pytest

from evalve.contracts import CallLog
from evalve.runner.asking import recall


def test_a_later_run_of_the_same_function_goes_on_counting() -> None:
    calls = CallLog()

    recall(calls, '{"requests": 1, "asked": {"function": "f", "ordinals": {"question": 2}}}', "f")

    assert calls.ordinals == {"question": 2}


@pytest.mark.parametrize("recorded", ['{"asked', "[]", "7", '{"asked": 7}', '{"requests": 1}'])
def test_what_cannot_be_read_of_a_failed_record_is_as_if_nothing_was_asked(recorded: str) -> None:
    calls = CallLog()

    recall(calls, recorded, "f")

    assert calls.ordinals == {}
