"""`llm_judge` and `llm_compare`: a model's verdict on a response, by a rubric."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from evalve import metrics
from evalve.errors import OptionError
from evalve.evaluators.asking import Judge, NoVerdict
from evalve.evaluators.declaring import evaluator
from evalve.evaluators.questions import about_one, about_two
from evalve.evaluators.rubrics import CORRECTNESS, PREFERENCE, Rubric, as_rubric
from evalve.evaluators.verdicts import Value, Verdict, chosen
from evalve.metrics import LABEL, Metric
from evalve.records import Score

MOST_REPEATS = 100
_JUDGE, _COMPARE = "llm_judge", "llm_compare"


@evaluator(name=_JUDGE)
async def llm_judge(
    response: Any,
    expected: Any = None,
    *,
    model: Any = None,
    rubric: Rubric | str | Mapping[str, Any] = CORRECTNESS,
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
    asked, judge = checked_rubric(rubric, repeats), Judge(model, options)
    which = _metrics(asked, is_labelled=label is not None)
    noted: dict[str, Any] = {"judge": judge.name}
    if label is not None:
        noted[LABEL] = _label(label, asked)
    about = about_one(asked, response, question=question, expected=expected)
    came = await judge.verdicts([about] * repeats)
    verdicts = [one for one in came if isinstance(one, Verdict)]
    values = [_value(one, asked) for one in verdicts]
    decided = _decided(values, repeats, is_scale=asked.scale is not None)
    if decided is None:
        return Score.unscored(_JUDGE, _why_not(came, values), which, noted)
    return Score(_JUDGE, decided, which, {**_told(verdicts, values, decided), **noted})


@evaluator(name=_COMPARE)
async def llm_compare(
    first: Any,
    second: Any,
    *,
    model: Any = None,
    rubric: Rubric | str | Mapping[str, Any] = PREFERENCE,
    question: Any = None,
    expected: Any = None,
    repeats: int = 1,
    **options: Any,
) -> Score:
    """Which of two responses is better: 1 for the first, 0 for the second, 0.5 for a tie.

    The judge is asked twice, the second time with the responses swapped, and the mean counts: one that
    prefers a place over a response says nothing about the responses. With `repeats`, both so often.
    """
    asked, judge = as_rubric(rubric), Judge(model, options)
    _check_repeats(repeats, odd=False)
    beside = {"question": question, "expected": expected}
    as_given, swapped = about_two(asked, first, second, **beside), about_two(asked, second, first, **beside)
    came = await judge.verdicts([as_given] * repeats + [swapped] * repeats)
    places = [_places(came[:repeats]), _places(came[repeats:])]
    noted: dict[str, Any] = {"judge": judge.name}
    if not all(places):  # one order alone would say what the judge thinks of places
        return Score.unscored(_COMPARE, _why_not(came, []), (metrics.mean,), noted)
    given_share, swapped_share = statistics.fmean(places[0]), 1 - statistics.fmean(places[1])
    noted["reason"] = next(one.reason for one in came if isinstance(one, Verdict))
    noted["as_given"], noted["swapped"] = given_share, swapped_share
    noted["consistent"] = (given_share - 0.5) * (swapped_share - 0.5) > 0 or given_share == swapped_share
    return Score(_COMPARE, (given_share + swapped_share) / 2, (metrics.mean,), noted)


def checked_rubric(rubric: Any = CORRECTNESS, repeats: Any = 1) -> Rubric:
    """The rubric that `llm_judge` goes by; `OptionError` where it cannot be one, or be asked so often."""
    asked = as_rubric(rubric)
    _check_repeats(repeats, odd=asked.scale is None)
    return asked


def _check_repeats(repeats: Any, *, odd: bool) -> None:
    if type(repeats) is not int or not 1 <= repeats <= MOST_REPEATS:
        raise OptionError(f"repeats= needs a whole number from 1 to {MOST_REPEATS}; got {repeats!r}")
    if odd and repeats % 2 == 0:
        raise OptionError(
            f"repeats={repeats}: of an even number of verdicts, half may say yes and half no; "
            f"ask {repeats + 1} times"
        )


def _metrics(rubric: Rubric, *, is_labelled: bool) -> tuple[Metric, ...]:
    if rubric.scale is None:
        return (metrics.accuracy, metrics.kappa) if is_labelled else (metrics.accuracy,)
    return (metrics.mean, metrics.weighted_kappa) if is_labelled else (metrics.mean,)


def _label(label: Any, rubric: Rubric) -> Value:
    """A person's verdict, written as a judge's may be; on a scale also between the grades."""
    value = chosen(label, rubric.choices)
    if value is None and rubric.scale is None and label in (0, 1):
        value = bool(label)
    number = metrics.as_number(label)
    if value is None and rubric.scale is not None and number is not None and not isinstance(label, bool):
        value = number if rubric.scale[0] <= number <= rubric.scale[1] else None
    if value is None:
        wanted = (
            "yes or no" if rubric.scale is None else f"a grade from {rubric.scale[0]} to {rubric.scale[1]}"
        )
        raise OptionError(f"label={label!r} is no verdict by this rubric: it needs {wanted}")
    return value


def _value(verdict: Verdict, rubric: Rubric) -> Value:
    if verdict.value is not None:
        return verdict.value
    return rubric.value_of({name: one.value or False for name, one in verdict.criteria.items()})


def _decided(values: Sequence[Value], repeats: int, *, is_scale: bool) -> Value | None:
    """What the verdicts say together; `None` where half of them or more are missing, or yes equals no."""
    if 2 * len(values) <= repeats:
        return None
    if len(values) == 1:
        return values[0]
    if is_scale:
        return statistics.fmean(values)
    yes = sum(map(bool, values))
    return None if 2 * yes == len(values) else 2 * yes > len(values)


def _told(verdicts: Sequence[Verdict], values: Sequence[Value], decided: Value) -> dict[str, Any]:
    """The reason of a verdict that says what was decided, or comes nearest; with repeats, all values."""
    nearest = min(range(len(values)), key=lambda place: abs(values[place] - decided))
    told: dict[str, Any] = {"reason": verdicts[nearest].reason}
    if criteria := verdicts[nearest].criteria:
        told["criteria"] = {name: one.value for name, one in criteria.items()}
    if len(values) > 1:
        told["verdicts"] = list(values)
        told["spread"] = round(statistics.stdev(values), 4)
    return told


def _why_not(came: Sequence[Verdict | NoVerdict], values: Sequence[Value]) -> str:
    reasons = [one.reason for one in came if isinstance(one, NoVerdict)]
    if len(came) == 1:
        return reasons[0]
    said = f"{len(reasons)} of {len(came)} verdicts are missing: {reasons[0]}"
    return f"{said}; the others are divided" if values and 2 * len(values) > len(came) else said


def _places(came: Sequence[Verdict | NoVerdict]) -> list[float]:
    """How far each verdict prefers the response that stands first."""
    return [float(one.value) for one in came if isinstance(one, Verdict) and one.value is not None]
