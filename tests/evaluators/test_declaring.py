"""`@evaluator`, and what it refuses."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import numpy as np
import pytest

from evalve.errors import DeclarationError, ResultError
from evalve.evaluators import evaluator, exact_match
from evalve.metrics import accuracy, mean
from evalve.records import Score


async def generate(prompt: str = "") -> str:
    return "4"


def test_a_bare_decorator_names_the_score_after_the_function() -> None:
    @evaluator
    def is_short(result: str, limit: int = 3) -> bool:
        """Whether it is short."""
        return len(result) <= limit

    score = is_short("four")

    assert (score.name, score.value, score.metrics) == ("is_short", False, ())
    assert is_short("four", limit=4).value is True
    assert is_short.__doc__ == "Whether it is short."


def test_metrics_and_name_can_be_given() -> None:
    @evaluator(metrics=accuracy(), name="brevity")
    def is_short(result: str) -> bool:
        return len(result) <= 3

    score = is_short("abc")

    assert (score.name, score.value, score.metrics) == ("brevity", True, (accuracy,))


def test_metrics_may_be_names_and_lists() -> None:
    @evaluator(metrics=["mean", accuracy])
    def length(result: str) -> int:
        return len(result)

    assert length("abcd").metrics == (mean, accuracy)
    assert length("abcd").value == 4


def test_an_unknown_metric_is_an_error_at_the_declaration() -> None:
    with pytest.raises(DeclarationError) as caught:

        @evaluator(metrics=["acuracy"])
        def anything(result: str) -> bool:
            return True

    line = caught.traceback[0].lineno + 1
    assert str(caught.value).startswith(
        f"{__file__}:{line}: there is no metric 'acuracy'; did you mean 'accuracy'?; known are accuracy, "
    )


async def test_an_async_function_stays_async() -> None:
    @evaluator(metrics=accuracy)
    async def judged(result: str) -> bool:
        await asyncio.sleep(0)
        return result == "4"

    score = await judged("4")

    assert inspect.iscoroutinefunction(judged)
    assert (score.name, score.value, score.metrics) == ("judged", True, (accuracy,))


async def test_a_partial_of_an_async_function_is_awaited_too() -> None:
    async def judged(model: str, result: str) -> float:
        return 0.5

    judge: Any = evaluator(name="judged")(functools.partial(judged, "gpt"))

    assert (await judge("4")) == Score("judged", 0.5, metadata={"result": "4"})


def test_a_score_keeps_what_was_compared_and_no_key() -> None:
    @evaluator
    def near(answer: Any, expected: str, api_key: str, *, threshold: float = 0.5) -> bool:
        return True

    score = near("Paris " * 99, "Paris", "secret", threshold=0.6)
    assert score.metadata == {"answer": ("Paris " * 99)[:199] + "…", "expected": "Paris", "threshold": 0.6}
    assert near(object(), expected="Paris", api_key="secret").metadata == {"expected": "Paris"}
    assert near("a", "b", "c", name="other").metadata == {"answer": "a", "expected": "b"}


def test_a_score_that_the_function_makes_keeps_its_name_and_gets_metrics_if_it_has_none() -> None:
    @evaluator(metrics=accuracy)
    def graded(result: str) -> Score:
        return Score("grade", True, metadata={"why": "because"})

    @evaluator(metrics=accuracy)
    def measured(result: str) -> Score:
        return Score("measure", 3, [mean])

    assert (graded("x").name, graded("x").metrics) == ("grade", (accuracy,))
    assert graded("x").metadata == {"why": "because"}
    assert measured("x").metrics == [mean]


async def test_a_caller_may_name_the_score() -> None:
    @evaluator(metrics=accuracy)
    def is_short(result: str) -> bool:
        return len(result) <= 3

    @evaluator
    async def judged(result: str) -> Score:
        return Score("grade", 0.5, metadata={"why": "because"})

    assert is_short("abc", name="title").name == "title"
    assert is_short("abc").name == "is_short"
    assert await judged("abc", name="title") == Score("title", 0.5, metadata={"why": "because"})


def test_a_score_that_is_handed_out_twice_keeps_its_name() -> None:
    shared = Score("grade", True)

    @evaluator
    def graded(result: str) -> Score:
        return shared

    assert (graded("x", name="title").name, graded("x").name) == ("title", "grade")


def test_a_function_with_a_parameter_of_that_name_gets_it() -> None:
    @evaluator
    def mentions(result: str, name: str) -> bool:
        return name in result

    score = mentions("Dear Ada", name="Ada")

    assert (score.name, score.value) == ("mentions", True)


def test_numbers_of_numpy_become_pythons_own() -> None:
    @evaluator
    def close(result: float) -> np.bool_:
        return np.isclose(result, 1.0)

    @evaluator
    def distance(result: float) -> np.float32:
        return np.float32(0.5)

    assert close(1.0).value is True
    assert type(distance(1.0).value) is float


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("yes", r"the evaluator 'odd' returned 'yes' \(str\); return a bool, a number or a Score$"),
        (None, r"returned None \(NoneType\); .* or a Score; is a `return` missing\?$"),
        (np.array([1, 2]), r"returned array\(\[1, 2\]\) \(ndarray\)"),
    ],
)
def test_anything_else_is_refused_and_named(returned: Any, message: str) -> None:
    @evaluator
    def odd(result: str) -> object:
        return returned

    with pytest.raises(ResultError, match=message):
        odd("x")


def test_a_missing_await_is_named_with_evaluator_and_argument() -> None:
    with pytest.raises(ResultError) as caught:
        exact_match(generate(), "4")

    assert str(caught.value) == (
        "the evaluator 'exact_match' was given a coroutine as 'result' instead of its result; "
        "write `await` before the call that makes it, as in `result = await model(…)`"
    )


def test_a_missing_await_is_found_among_keyword_arguments() -> None:
    with pytest.raises(ResultError, match="was given a coroutine as 'expected'"):
        exact_match("4", expected=generate())


def test_every_coroutine_is_closed_so_that_python_does_not_warn_later() -> None:
    first, second = generate(), generate()

    with pytest.raises(ResultError):
        exact_match(first, expected=second)

    assert inspect.getcoroutinestate(first) == inspect.getcoroutinestate(second) == "CORO_CLOSED"


async def test_a_missing_await_is_found_by_async_evaluators() -> None:
    @evaluator
    async def judged(*results: object) -> bool:
        return True

    with pytest.raises(ResultError, match="the evaluator 'judged' was given a coroutine as 'argument 2'"):
        await judged("4", generate())


async def test_a_future_is_a_missing_await_too_and_stays_its_owners() -> None:
    task = asyncio.ensure_future(generate())

    with pytest.raises(ResultError, match="write `await`"):
        exact_match(task, "4")

    assert await task == "4"


def test_an_error_of_the_function_passes_unchanged() -> None:
    @evaluator
    def broken(result: str) -> bool:
        raise KeyError("label")

    with pytest.raises(KeyError, match="label"):
        broken("x")
