"""Does the model choose the right tools, with the right arguments? Four tests share the call of each case."""

from __future__ import annotations

from typing import Any

import pytest
from api import ALL_TOOLS, TOOLS
from suite import CASES, EVALUATIONS, FITS, RESOURCES, Case

from evalve import reads
from evalve.evaluators import valid_tool_schemas

OF_SELECTION = ("missing", "extra", "forbidden", "wrong tool", "wrong order")


def each_case(*scores: str) -> pytest.MarkDecorator:
    """A test for each case, which reads its record; `scores` are those that only a judge gives."""
    marks = {case.id: reads(EVALUATIONS[case.resource], case.id, scores=scores) for case in CASES}
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=case.id, marks=marks[case.id]) for case in CASES]
    )


class TestToolSelection:
    """The right tools, each as often as needed, in the right order, and no others."""

    @pytest.mark.basic
    @each_case()
    def test_tool_selection_basic(self, case: Case, record: Any) -> None:
        misses = record.score("tool_call_match").metadata.get("misses", ())
        assert not [miss["reason"] for miss in misses if miss["kind"] in OF_SELECTION]

    @pytest.mark.llm
    @each_case("llm_tool_selection")
    def test_tool_selection_llm_eval(self, case: Case, record: Any) -> None:
        assert_judged(record.score("llm_tool_selection"))


class TestArgumentCorrectness:
    """The right arguments, in those calls that were to be made."""

    @pytest.mark.basic
    @each_case()
    def test_argument_basic(self, case: Case, record: Any) -> None:
        score, whole = record.score("tool_arguments"), record.score("tool_call_match")
        assert score.value == 1, score.metadata.get("reason") or whole.metadata["reason"]

    @pytest.mark.llm
    @each_case("llm_tool_arguments")
    def test_argument_llm_eval(self, case: Case, record: Any) -> None:
        assert_judged(record.score("llm_tool_arguments"))


def assert_judged(score: Any) -> None:
    assert score.value is not None, f"the judge gave no verdict: {score.metadata}"
    assert score.value == 1, score.metadata["reason"]


class TestToolSchemas:
    """What can be checked before anybody is asked."""

    @pytest.mark.parametrize("provider", ["anthropic", "openai"])
    def test_tools_are_sound(self, provider: str) -> None:
        score = valid_tool_schemas(ALL_TOOLS, provider=provider)
        assert score.value, score.metadata["reason"]

    @pytest.mark.parametrize("resource", RESOURCES)
    def test_expected_calls_fit_the_tools(self, resource: str) -> None:
        assert FITS[resource].value == 1, FITS[resource].metadata["reason"]
        asked_for = {call["name"] for case in CASES if case.resource == resource for call in case.calls}
        assert asked_for & {tool["name"] for tool in TOOLS[resource]}
