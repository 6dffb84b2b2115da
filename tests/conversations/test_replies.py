"""Replies beside the answers that are expected."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.conversations.replies import says
from evalve.conversations.rows import ExpectedResponse


@pytest.mark.parametrize(
    ("reply", "answers", "text"),
    [
        ("There are 3 clients.", ["3"], ""),
        ("there   are 3 clients", [], "There are 3 clients."),
        ("The quote is $48,500.00 in all.", [48500], ""),
        ("It is EUR 1,234.5", ["1234.50"], ""),
        ("Acme and Globex", ["Initech", "globex"], ""),
        ("Acme owes 500", [["Acme", 500]], ""),
        ("Down by -2", [-2], ""),
    ],
)
def test_a_reply_is_right_that_has_one_of_the_answers(reply: str, answers: list[Any], text: str) -> None:
    assert says(reply, ExpectedResponse(text, tuple(answers), needs_judge=False)) is None


@pytest.mark.parametrize(
    ("reply", "answers", "why"),
    [
        ("There are 13 clients", ["3"], "the reply is 'There are 13 clients', expected '3'"),
        ("Acme owes 50", [["Acme", 500]], "expected '[\"Acme\",500]'"),
        ("Acmes", ["Acme", "Globex"], "expected 'Acme' or 'Globex'"),
        ("It is 48.5", [485], "expected '485'"),
        ("", ["3"], "no reply, expected '3'"),
    ],
)
def test_a_reply_is_wrong_that_has_none_of_them(reply: str, answers: list[Any], why: str) -> None:
    assert why in str(says(reply, ExpectedResponse("", tuple(answers), needs_judge=False)))
