"""What `lane=` says."""

from __future__ import annotations

import re
from typing import Any

import pytest

import evalve
from evalve import ForEach, foreach
from evalve.declare.foreach import MARK
from evalve.errors import DatasetError, DeclarationError

ROWS = [
    {"id": "1", "question": "q", "workflow": "quotes", "level": 2, "turns": [1, 2]},
    {"id": "2", "question": "q", "workflow": "notes", "level": 1, "turns": [1]},
]


def _lane_of(declared: Any, row: dict[str, Any]) -> str:
    bound = getattr(declared, MARK).bound(
        experiment="exp", key="key", variant="", arguments={}, options=evalve.options.Options()
    )
    assert bound.lane is not None
    return str(bound.lane(row))


def test_a_template_names_a_lane_by_any_column_of_the_row() -> None:
    @foreach("question", ROWS, lane="{workflow}/{level}")
    async def eval_crm(question: str) -> bool:
        return True

    assert _lane_of(eval_crm, ROWS[0]) == "quotes/2"


def test_a_function_of_the_row_names_a_lane_for_all_that_a_foreach_declares() -> None:
    in_lanes = ForEach(lane=lambda row: row["level"])

    @in_lanes("question", ROWS)
    async def eval_crm(question: str) -> bool:
        return True

    assert _lane_of(eval_crm, ROWS[0]) == "2"


def test_a_lane_of_one_decorator_is_not_that_of_the_next() -> None:
    @foreach("question", ROWS, lane="{workflow}")
    async def eval_first(question: str) -> bool:
        return True

    @foreach("question", ROWS)
    async def eval_second(question: str) -> bool:
        return True

    assert getattr(eval_second, MARK).lane is None


@pytest.mark.parametrize(
    ("lane", "told"),
    [
        (3, "lane= takes a text such as"),
        ("{workflow", "lane: "),
        ("{}", "something else than a column stands in braces"),
    ],
)
def test_a_lane_that_cannot_be_meant_is_refused_where_it_is_written(lane: Any, told: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(told)) as caught:
        foreach("question", ROWS, lane=lane)

    assert "test_declared_lanes.py:" in str(caught.value)


def test_a_column_that_a_row_lacks_is_told_with_the_row() -> None:
    @foreach("question", ROWS, lane="{workflw}")
    async def eval_crm(question: str) -> bool:
        return True

    with pytest.raises(
        DatasetError, match=r"row 1 \('1'\).*lacks the column 'workflw'.*did you mean 'workflow'"
    ):
        evalve.run(eval_crm, storage="memory://", experiment="exp", progress="off")


def test_a_row_that_is_one_column_is_looked_into() -> None:
    begun = []
    rows = [{"id": "1", "workflow": "notes"}, {"id": "2", "workflow": "quotes", "turns": [1, 2]}]

    @foreach("conversation", rows, lane="{workflow}")
    async def eval_crm(conversation: dict[str, Any]) -> bool:
        begun.append(conversation["id"])
        return True

    evalve.run(eval_crm, storage="memory://", experiment="exp", progress="off", max_concurrency=1)

    assert begun == ["2", "1"]  # the second has more turns


def test_another_lane_is_another_evaluation() -> None:
    def declared(lane: Any) -> dict[str, str]:
        @foreach("question", ROWS, lane=lane)
        async def eval_crm(question: str) -> bool:
            return True

        bound = getattr(eval_crm, MARK).bound(
            experiment="exp", key="key", variant="", arguments={}, options=evalve.options.Options()
        )
        return dict(bound.spec.fingerprint)

    assert declared("{workflow}") != declared("{level}")
    assert "lane" not in declared(None)
