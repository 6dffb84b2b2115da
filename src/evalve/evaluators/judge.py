"""`llm_judge` and `llm_compare`: a model's verdict on a response, by a rubric."""

from __future__ import annotations

from typing import Any

from evalve.evaluators.declaring import evaluator
from evalve.evaluators.rubrics import CORRECTNESS, PREFERENCE, Rubric
from evalve.records import Score


@evaluator
async def llm_judge(
    response: Any,
    expected: Any = None,
    *,
    model: Any = None,
    rubric: Rubric | str | dict[str, Any] = CORRECTNESS,
    question: Any = None,
    label: Any = None,
    repeats: int = 1,
    **options: Any,
) -> Score:
    """A model's verdict on a response: true or false, or a grade where the rubric has a scale.

    `model` is a name (`openai/gpt-5-mini`) or what `evalve.model` returns. `expected`, the reference, and
    `question` may be left out. `label` is a person's verdict on the same response: then `kappa` tells how
    far the judge agrees with people. With `repeats`, the judge is asked so often, and the majority or the
    mean counts. `options` go to the model: `temperature`, `max_tokens`, `timeout_s` …

    A judge that gives no verdict (it refuses, does not keep to the form, or its provider fails) leaves the
    score without a value: unscored, not wrong.
    """
    raise NotImplementedError


@evaluator
async def llm_compare(
    first: Any,
    second: Any,
    *,
    model: Any = None,
    rubric: Rubric | str | dict[str, Any] = PREFERENCE,
    question: Any = None,
    expected: Any = None,
    repeats: int = 1,
    **options: Any,
) -> Score:
    """Which of two responses is better: 1 for the first, 0 for the second, 0.5 for a tie.

    The judge is asked twice, the second time with the responses swapped, and the mean counts: one that
    prefers a place over a response says nothing about the responses.
    """
    raise NotImplementedError
