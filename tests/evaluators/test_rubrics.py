"""A rubric is data."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.evaluators import Rubric
from evalve.evaluators.rubrics import as_rubric, verdict_form, verdict_schema


def test_a_rubric_comes_from_a_text_a_mapping_or_a_rubric() -> None:
    polite = Rubric("Is it polite?", scale=(1, 5))

    assert as_rubric("Is it polite?") == Rubric("Is it polite?")
    assert as_rubric({"text": "Is it polite?", "scale": [1, 5]}) == polite
    assert as_rubric(polite) is polite


def test_a_yes_or_no_rubric_holds_if_all_its_criteria_do() -> None:
    rubric = Rubric("Is it good?", criteria={"short": "Is it short?", "true": "Is it true?"})

    assert rubric.value_of({"short": True, "true": True}) is True
    assert rubric.value_of({"short": True, "true": False}) is False


def test_a_graded_rubric_has_the_mean_of_its_criteria() -> None:
    rubric = Rubric("How good?", (1, 5), {"tone": "Polite?", "facts": "True?"})

    assert rubric.value_of({"tone": 5, "facts": 2}) == 3.5


def test_the_reason_stands_before_the_verdict() -> None:
    schema = verdict_schema(Rubric("?").choices, {})

    assert list(schema["properties"]) == ["reason", "verdict"]
    assert schema["properties"]["verdict"] == {"type": "string", "enum": ["yes", "no"]}
    assert schema["required"] == ["reason", "verdict"]
    assert verdict_schema(Rubric("?", (1, 3)).choices, {})["properties"]["verdict"] == {
        "type": "integer",
        "enum": [1, 2, 3],
    }


def test_the_form_is_also_said_in_words() -> None:
    assert 'then "yes" or "no"' in verdict_form(Rubric("?").choices, {})
    assert "then a whole number from 0 to 10" in verdict_form(Rubric("?", (0, 10)).choices, {})
    assert 'keys are "tone", "facts"' in verdict_form(Rubric("?").choices, {"tone": "", "facts": ""})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (17, "a rubric is a text"),
        ({"scale": [1, 5]}, "needs a text"),
        ("  ", "needs a text"),
        ({"text": "x", "scales": [1, 5]}, "did you mean"),
        ({"text": "x", "scale": [5, 1]}, "lowest and its highest grade"),
        ({"text": "x", "scale": 5}, "lowest and its highest grade"),
        ({"text": "x", "scale": [0, 1000]}, "at most 101 grades"),
        ({"text": "x", "criteria": ["tone"]}, "texts by name"),
    ],
)
def test_a_wrong_rubric_says_what_is_wrong(given: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        as_rubric(given)
