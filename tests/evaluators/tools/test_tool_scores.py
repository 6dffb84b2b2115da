"""The scores of tool calls: modes, multisets, order, forbidden tools, no call, and every kind of miss."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest

from evalve.errors import OptionError, ResultError
from evalve.evaluators import (
    ToolCall,
    tool_arguments,
    tool_call_match,
    tool_order,
    tool_schema_valid,
    tool_scores,
    tool_selection,
)
from evalve.evaluators.tools import KINDS
from evalve.gate.doors.answers import Answer
from evalve.records import Score

A, B, C = ToolCall("a", {"x": 1}), ToolCall("b", {"x": 1}), ToolCall("c", {"x": 1})
A2 = ToolCall("a", {"x": 2})

MODES: dict[Any, list[tuple[list[ToolCall], list[ToolCall], bool]]] = {
    "exact": [
        ([A, B], [A, B], True),
        ([B, A], [A, B], False),
        ([A, B, C], [A, B], False),
        ([A], [A, B], False),
    ],
    "in_order": [
        ([A, C, B], [A, B], True),
        ([B, A, B], [A, B], True),
        ([B, A], [A, B], False),
        ([A], [A, B], False),
    ],
    "any_order": [
        ([B, A], [A, B], True),
        ([A, A2], [A2, A], True),
        ([A, B, C], [A, B], False),
        ([A, A], [A], False),
        ([A], [A, A], False),
    ],
    "subset": [([A], [A, B], True), ([], [A, B], True), ([A, C], [A, B], False), ([A, A], [A, B], False)],
    "superset": [([C, B, A], [A, B], True), ([A, B], [A, B], True), ([A, C], [A, B], False)],
}
UNORDERED: list[Any] = ["any_order", "subset", "superset"]
SYMMETRIC: list[Any] = ["exact", "any_order"]


@pytest.mark.parametrize(
    ("mode", "called", "expected", "right"),
    [(mode, *case) for mode, cases in MODES.items() for case in cases],
)
def test_modes(mode: Any, called: Any, expected: Any, right: bool) -> None:
    assert tool_call_match(called, expected, mode=mode).value is right


def test_extra_calls_may_be_allowed_or_not_in_any_mode() -> None:
    assert tool_call_match([A, C], [A], mode="any_order", allow_extra=True).value is True
    assert tool_call_match([A, C], [A], mode="exact", allow_extra=True).value is True
    assert tool_call_match([A, C, B], [A, B], mode="in_order", allow_extra=False).value is False


def test_a_call_that_fits_two_expected_ones_goes_to_the_one_that_needs_it() -> None:
    """A greedy choice gives the first expected call the one that only the second may have."""
    expected = [
        {"name": "a", "arguments": {"x": {"$one_of": [1, 2]}}},
        {"name": "a", "arguments": {"x": 1}},
    ]
    assert tool_call_match([A, A2], expected, mode="any_order").value is True
    assert tool_arguments([A, A2], expected).value == 1.0


def test_selection_counts_each_tool_as_often_as_it_is_expected() -> None:
    score = tool_selection([A, A, B], [A, B, B, C])
    assert score.metadata["precision"] == pytest.approx(2 / 3, abs=1e-6)
    assert score.metadata["recall"] == 0.5
    assert score.value == pytest.approx(4 / 7)
    assert tool_selection([A, A, B], [A, B, B, C], measure="recall").value == 0.5
    with pytest.raises(OptionError, match="none of f1, precision, recall"):
        tool_selection([A], [A], measure="f2")  # type: ignore[call-overload]


def test_selection_knows_no_arguments_and_no_order() -> None:
    assert tool_selection([B, A2], [A, B]).value == 1.0


def test_order_is_the_longest_run_in_order() -> None:
    assert tool_order([A, B, C], [A, B, C]).value == 1.0
    assert tool_order([C, B, A], [A, B, C]).value == pytest.approx(1 / 3)
    assert tool_order([B, A, C], [A, B, C]).value == pytest.approx(2 / 3)
    assert tool_order([A], [A, B]).value == pytest.approx(2 / 3)


def test_arguments_are_of_calls_that_were_made_and_expected() -> None:
    assert tool_arguments([A], [A, B]).value == 1.0
    assert tool_arguments([A2], [A]).value == 0.0
    assert tool_arguments([C], [A]).value == 0.0


@pytest.mark.parametrize("mode", MODES)
def test_no_call_is_expected(mode: Any) -> None:
    for score in tool_scores([], [], mode=mode):
        assert score.value in (True, 1.0)
        assert "misses" not in score.metadata
    answer = Answer("I cannot do that.")
    assert tool_call_match(answer, [], mode=mode).value is True


def test_a_call_where_none_is_expected_is_extra() -> None:
    scores = {score.name: score for score in tool_scores([A], [])}
    assert [scores[name].value for name in ("tool_selection", "tool_order", "tool_arguments")] == [0, 0, 0]
    assert scores["tool_call_match"].metadata["miss_counts"] == {"extra": 1}


def test_no_call_where_one_is_expected_is_missing() -> None:
    scores = {score.name: score for score in tool_scores([], [A])}
    assert [scores[name].value for name in ("tool_selection", "tool_order", "tool_arguments")] == [0, 0, 0]
    assert scores["tool_call_match"].metadata["miss_counts"] == {"missing": 1}


def test_forbidden_tools_are_never_right() -> None:
    score = tool_call_match([A, ToolCall("delete_all", {})], [A], mode="superset", forbidden=["delete_*"])
    assert score.value is False
    assert score.metadata["miss_counts"] == {"forbidden": 1}
    assert tool_call_match([A], [A], forbidden="delete_all").value is True
    with pytest.raises(OptionError, match="'a' is expected and forbidden"):
        tool_call_match([A], [A], forbidden=["a"])


def test_a_forbidden_tool_is_not_any_tool() -> None:
    score = tool_call_match([A], ["*"], mode="superset", forbidden=["a"])
    assert score.metadata["miss_counts"] == {"missing": 1, "forbidden": 1}


def test_calls_of_one_tool_may_stand_for_each_other_in_the_order_of_tools() -> None:
    scores = {score.name: score for score in tool_scores([A2, A], [A, A2])}
    assert scores["tool_order"].value == 1.0
    assert "misses" not in scores["tool_order"].metadata
    assert scores["tool_call_match"].metadata["miss_counts"] == {"wrong order": 1}


def test_an_expected_name_may_be_a_glob() -> None:
    assert tool_call_match([A], ["*"], mode="superset").value is True
    assert tool_call_match([], ["*"], mode="superset").value is False
    assert tool_call_match([ToolCall("get_user")], ["get_*"]).value is True


SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "string"}},
    "required": ["x"],
}
EVERY_KIND: list[tuple[str, list[ToolCall], list[ToolCall]]] = [
    ("missing", [A], [A, B]),
    ("extra", [A, B], [A]),
    ("wrong tool", [C], [A]),
    ("wrong order", [B, A], [A, B]),
    ("missing argument", [ToolCall("a", {})], [A]),
    ("unexpected argument", [ToolCall("a", {"x": 1, "y": 2})], [A]),
    ("wrong type", [ToolCall("a", {"x": "1"})], [A]),
    ("wrong value", [A2], [A]),
    ("bad JSON", [ToolCall("a", '{"x": ', unparsed=True)], [A]),
    ("bad JSON", [ToolCall("a", "[1]")], [A]),
]


@pytest.mark.parametrize(("kind", "called", "expected"), EVERY_KIND)
def test_every_miss_has_its_kind(kind: str, called: Any, expected: Any) -> None:
    score = tool_call_match(called, expected)
    assert score.metadata["miss_counts"] == {kind: 1}
    assert score.metadata["reason"].startswith(f"{kind}: ")
    assert kind in KINDS
    of_all = [one.metadata.get("miss_counts", {}) for one in tool_scores(called, expected)]
    assert [counts for counts in of_all if counts] == [{kind: 1}] * 2  # in its own score, and in the whole


def test_an_evaluation_may_name_a_score() -> None:
    assert tool_call_match([A], [A], name="first").name == "first"


def test_calls_of_agents_may_be_many() -> None:
    called = [ToolCall("step", {"n": n}) for n in range(300)]
    expected = [ToolCall("step", {"n": n}) for n in (299, 5, 80)]
    assert tool_call_match(called, expected, mode="superset").value is True
    score = tool_call_match(called, [], mode="exact")
    assert score.metadata["miss_counts"] == {"extra": 300}
    assert len(score.metadata["misses"]) == 50


def test_what_cannot_be_right_is_refused() -> None:
    with pytest.raises(OptionError, match="did you mean 'any_order'"):
        tool_call_match([A], [A], mode="anyorder")  # type: ignore[call-overload]
    with pytest.raises(OptionError, match="the expected arguments of a are not an object"):
        tool_call_match([A], [ToolCall("a", "[1, 2]")])
    with pytest.raises(ResultError, match="write `await` before the call"):
        tool_call_match(_answer(), [A])
    with pytest.raises(OptionError, match="forbidden= has names of tools"):
        tool_call_match([A], [A], forbidden=[5])  # type: ignore[list-item]


async def _answer() -> Answer:
    return Answer("")


# -- properties ------------------------------------------------------------------------------------------


def some_calls(chance: random.Random, most: int = 4) -> list[ToolCall]:
    return [
        ToolCall(
            chance.choice("abc"),
            {name: chance.choice([1, 2, "1", True]) for name in chance.choice(["", "x", "xy"])},
        )
        for _ in range(chance.randint(0, most))
    ]


def values(scores: list[Score]) -> dict[str, Any]:
    return {score.name: score.value for score in scores}


@pytest.mark.parametrize("seed", range(60))
def test_calls_are_right_against_themselves_in_every_mode(seed: int) -> None:
    calls = some_calls(random.Random(seed))
    for mode in MODES:
        assert set(values(tool_scores(calls, calls, mode=mode)).values()) == {1.0}


@pytest.mark.parametrize("seed", range(60))
def test_no_permutation_changes_what_knows_no_order(seed: int) -> None:
    chance = random.Random(seed)
    called, expected = some_calls(chance), some_calls(chance)
    for mode in UNORDERED:
        first = values(tool_scores(called, expected, mode=mode))
        for other in permutations(called):
            again = values(tool_scores(list(other), expected, mode=mode))
            for name in ("tool_selection", "tool_arguments", "tool_call_match"):
                assert again[name] == pytest.approx(first[name])


@pytest.mark.parametrize("seed", range(60))
def test_both_sides_may_be_swapped_where_they_mean_the_same(seed: int) -> None:
    chance = random.Random(seed)
    first, second = some_calls(chance), some_calls(chance)
    for mode in SYMMETRIC:
        there = values(tool_scores(first, second, mode=mode))
        back = values(tool_scores(second, first, mode=mode))
        assert there == pytest.approx(back)
    subset = tool_call_match(first, second, mode="subset").value
    assert subset == tool_call_match(second, first, mode="superset").value
    swapped = tool_selection(second, first, measure="recall").value
    assert tool_selection(first, second, measure="precision").value == swapped


@pytest.mark.parametrize("seed", range(60))
def test_a_call_made_once_more_than_expected_is_an_extra_one(seed: int) -> None:
    chance = random.Random(seed)
    calls = some_calls(chance) or [A]
    once_more = [*calls, chance.choice(calls)]
    score = tool_call_match(once_more, calls, mode="any_order")
    assert score.metadata["miss_counts"] == {"extra": 1}
    assert tool_call_match(calls, once_more, mode="any_order").metadata["miss_counts"] == {"missing": 1}
    assert tool_call_match(once_more, calls, mode="superset").value is True
    assert tool_call_match(once_more, calls, mode="in_order").value is True


@pytest.mark.parametrize("seed", range(60))
def test_modes_imply_each_other(seed: int) -> None:
    chance = random.Random(seed)
    called, expected = some_calls(chance, 3), some_calls(chance, 3)
    right = {mode: tool_call_match(called, expected, mode=mode).value for mode in MODES}
    assert not right["exact"] or (right["in_order"] and right["any_order"])
    assert not right["in_order"] or right["superset"]
    assert right["any_order"] == (right["subset"] and right["superset"])


@pytest.mark.parametrize("seed", range(60))
def test_the_match_is_what_trying_every_assignment_finds(seed: int) -> None:
    chance = random.Random(1000 + seed)
    expected = some_calls(chance, 3)
    called = chance.sample(expected, len(expected)) if chance.random() < 0.5 else some_calls(chance, 3)
    is_equal = len(called) == len(expected) and any(
        all(_same(made, wanted) for made, wanted in zip(other, expected, strict=True))
        for other in permutations(called)
    )
    assert tool_call_match(called, expected, mode="any_order").value is is_equal
    is_run = any(
        all(_same(made, wanted) for made, wanted in zip(chosen, expected, strict=True))
        for chosen in _runs(called, len(expected))
    )
    assert tool_call_match(called, expected, mode="in_order").value is is_run


def _runs(calls: list[ToolCall], count: int) -> list[list[ToolCall]]:
    from itertools import combinations

    return [[calls[place] for place in places] for places in combinations(range(len(calls)), count)]


def _same(first: ToolCall, second: ToolCall) -> bool:
    def typed(call: ToolCall) -> Any:
        return sorted((name, type(value).__name__, value) for name, value in call.arguments.items())

    return first.name == second.name and typed(first) == typed(second)


def test_misses_are_none_exactly_where_all_is_right() -> None:
    chance = random.Random(5)
    for _ in range(200):
        called, expected = some_calls(chance), some_calls(chance)
        for mode in MODES:
            score = tool_call_match(called, expected, mode=mode)
            assert score.value is ("misses" not in score.metadata)
            selection = tool_selection(called, expected).value
            exact = tool_call_match(called, expected, arguments="ignore", mode="any_order").value
            assert (selection == 1.0) is exact


def test_schema_needs_no_expected_calls() -> None:
    tools = {"a": SCHEMA}
    assert tool_schema_valid([A, ToolCall("a", {"x": "1"})], tools).value == 0.5


def test_two_calls_of_one_tool_in_the_wrong_order_are_told_apart() -> None:
    first, second = ToolCall("a", {"c": 1}), ToolCall("a", {"c": 2})
    reason = tool_call_match([second, first], [first, second]).metadata["misses"][0]["reason"]
    assert reason == "a(c=2) was called before a(c=1), expected after it"
