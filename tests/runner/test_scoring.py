"""What an evaluation function may return."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest

from evalve import metrics
from evalve.errors import DeclarationError, ResultError
from evalve.records import Result, Score
from evalve.runner.scoring import ScoreWriter, to_scored


def named(returned: Any) -> list[tuple[str, Any]]:
    return [(score.name, score.value) for score in to_scored(returned).scores]


@pytest.mark.parametrize(
    ("returned", "scores"),
    [
        (True, [("score", True)]),
        (0, [("score", 0)]),
        (0.5, [("score", 0.5)]),
        (Score("match", False), [("match", False)]),
        (Score("grade", 3), [("grade", 3)]),
        (Result(Score("match", True)), [("match", True)]),
        (Result(True, Score("grade", 2)), [("score", True), ("grade", 2)]),
        (Result(scores=[Score("a", True), Score("b", False)]), [("a", True), ("b", False)]),
        (Result(scores={"a": True, "b": 0.5}), [("a", True), ("b", 0.5)]),
        (Result(scores=Score("a", True)), [("a", True)]),
        (Result(Score("a", True), scores=[Score("b", 1)]), [("a", True), ("b", 1)]),
        ([Score("m", True), Score("m", False)], [("m", True), ("m", False)]),
        ((Score("m", True), 0.5), [("m", True), ("score", 0.5)]),
        ({"a": True, "b": [1, 2]}, [("a", True), ("b", 1), ("b", 2)]),
        ({"a": Score("own", True)}, [("a", True)]),
        ({1: True}, [("1", True)]),
        (numpy.bool_(True), [("score", True)]),
        (numpy.float32(0.5), [("score", 0.5)]),
        (numpy.int64(3), [("score", 3)]),
        (Decimal("0.5"), [("score", 0.5)]),
        (Fraction(1, 4), [("score", 0.25)]),
        (Score("m", numpy.bool_(False)), [("m", False)]),
    ],
)
def test_scores_are_found_in_what_was_returned(returned: Any, scores: list[tuple[str, Any]]) -> None:
    assert named(returned) == scores


def test_numpy_values_become_plain_ones() -> None:
    assert type(to_scored(numpy.bool_(True)).scores[0].value) is bool
    assert type(to_scored(Score("m", numpy.float32(0.5))).scores[0].value) is float


def test_a_result_carries_prompt_and_response() -> None:
    scored = to_scored(Result(True, prompt="2+2?", model_response="4"))

    assert (scored.prompt, scored.response) == ("2+2?", "4")


NO_NAME: Any = None
ACCEPTED = "a Score, a Result, a bool, a number, or a list, tuple or dict of these"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, f"the evaluation returned None: is a `return` missing? Return {ACCEPTED}"),
        ("yes", f"the evaluation returned str 'yes'; return {ACCEPTED}"),
        ("x" * 200, f"the evaluation returned str '{'x' * 78}…; return {ACCEPTED}"),
        ({1, 2}, f"the evaluation returned set {{1, 2}}; return {ACCEPTED}"),
        ([], f"the evaluation returned an empty list; return {ACCEPTED}"),
        ((), f"the evaluation returned an empty tuple; return {ACCEPTED}"),
        ({}, f"the evaluation returned an empty dict; return {ACCEPTED}"),
        ([[], {}], f"the evaluation returned an empty list; return {ACCEPTED}"),
        (
            {"a": None},
            "the evaluation returned a dict whose value for 'a' is None; "
            "it must be a Score, a bool or a number",
        ),
        (
            {"a": True, "b": {"c": "high"}},
            "the evaluation returned a dict whose value for 'b.c' is str 'high'; "
            "it must be a Score, a bool or a number",
        ),
        (
            {"a": [0.5, None]},
            "the evaluation returned a dict whose value for 'a' is None; "
            "it must be a Score, a bool or a number",
        ),
        (
            [True, None],
            "the evaluation returned a list in which an item is None; it must be a Score, a bool or a number",
        ),
        (
            Result(None, prompt="2+2?"),
            "the evaluation returned a Result in which a score is None; "
            "it must be a Score, a bool or a number",
        ),
        (1j, f"the evaluation returned complex 1j; return {ACCEPTED}"),
        (numpy.array([1, 2]), f"the evaluation returned ndarray array([1, 2]); return {ACCEPTED}"),
        (Result(), "the evaluation returned a Result without any score"),
        (Result(scores=[]), "the evaluation returned a Result without any score"),
        (Result(scores={}), "the evaluation returned a Result without any score"),
        (
            Score("m", float("nan")),
            "the score 'm' is nan, which is no measurement; raise an error instead",
        ),
        (
            float("inf"),
            "the score 'score' is inf, which is no measurement; raise an error instead",
        ),
        (Score("m", "yes"), "the score 'm' has the value str 'yes'; it must be a bool or a number"),
        (Score("m", None), "the score 'm' has the value NoneType None; it must be a bool or a number"),
        (
            Score("m", 1j),
            "the score 'm' has the value complex 1j; it must be a bool or a number",
        ),
        (Score(NO_NAME, True), "a score has the name NoneType None; it must be text"),
        (
            10**400,
            "the score 'score' is too large a number, which is no measurement; raise an error instead",
        ),
    ],
)
def test_anything_else_is_refused_and_the_message_says_what_it_was(returned: Any, message: str) -> None:
    with pytest.raises(ResultError) as caught:
        to_scored(returned)

    assert str(caught.value) == message


async def unawaited() -> bool:
    return True


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda coroutine: coroutine,
        lambda coroutine: [True, coroutine],
        lambda coroutine: {"a": coroutine},
        lambda coroutine: Score("m", coroutine),
        Result,
    ],
)
def test_a_coroutine_that_nobody_awaited_is_told_so(wrapped: Callable[[Any], Any]) -> None:
    with pytest.raises(ResultError) as caught:
        to_scored(wrapped(unawaited()))

    assert str(caught.value) == (
        "the evaluation returned <coroutine object unawaited>, which was never awaited: "
        "write `await` before the call (and `async def` for the evaluation)"
    )


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([Score("m", True)], '[{"metadata":{},"metrics":[],"name":"m","value":true}]'),
        (
            [Score("m", 0.5, metrics=[metrics.mean, "count"], metadata={"k": 1})],
            '[{"metadata":{"k":1},"metrics":["mean","count"],"name":"m","value":0.5}]',
        ),
        (
            [Score("a", True, metrics="accuracy"), Score("b", 2)],
            '[{"metadata":{},"metrics":["accuracy"],"name":"a","value":true},'
            '{"metadata":{},"metrics":[],"name":"b","value":2}]',
        ),
    ],
)
def test_scores_are_written_with_the_names_of_their_metrics(scores: list[Score], text: str) -> None:
    assert ScoreWriter().to_json(scores) == text


def test_a_score_that_was_written_before_is_written_the_same_again() -> None:
    writer = ScoreWriter()
    first = writer.to_json([Score("m", True, metrics=(metrics.accuracy,))])

    again = writer.to_json([Score("m", True, metrics=(metrics.accuracy,))])
    other = writer.to_json([Score("m", False, metrics=(metrics.accuracy,))])

    assert first == again == '[{"metadata":{},"metrics":["accuracy"],"name":"m","value":true}]'
    assert other == '[{"metadata":{},"metrics":["accuracy"],"name":"m","value":false}]'


def test_scores_of_one_name_with_other_metrics_are_not_mixed_up() -> None:
    writer = ScoreWriter()
    accuracy, counted = (metrics.accuracy,), (metrics.count,)
    writer.to_json([Score("m", True, metrics=accuracy)])

    assert writer.to_json([Score("m", True, metrics=counted)]) == (
        '[{"metadata":{},"metrics":["count"],"name":"m","value":true}]'
    )


def test_a_metric_that_does_not_exist_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(DeclarationError, match=r"^there is no metric 'acuracy'; did you mean 'accuracy'\?"):
        ScoreWriter().to_json([Score("m", True, metrics="acuracy")])


def test_text_beside_scores_is_kept_with_them() -> None:
    scored = to_scored(
        Result(scores={"right": True, "reason": "as expected", "inner": {"tone": 0.5, "why": "dry"}})
    )
    assert [(score.name, score.value, score.metadata) for score in scored.scores] == [
        ("right", True, {"reason": "as expected"}),
        ("inner.tone", 0.5, {"reason": "as expected", "why": "dry"}),
    ]


def test_metadata_of_a_result_is_kept_with_each_score() -> None:
    scored = to_scored(
        Result(Score("a", 1, metadata={"by": "a"}), True, metadata={"by": "result", "docs": 3})
    )
    assert [(score.name, score.metadata) for score in scored.scores] == [
        ("a", {"by": "a", "docs": 3}),
        ("score", {"by": "result", "docs": 3}),
    ]


def test_text_without_any_score_is_refused() -> None:
    with pytest.raises(ResultError, match="'reason' is str 'as expected'"):
        to_scored({"reason": "as expected"})
