"""From what an evaluation function returned to scores."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import Any

from evalve.errors import AnswerError, ResultError
from evalve.jsontext import as_text, to_json
from evalve.metrics import resolve
from evalve.records import UNSCORED, AnswerOnly, Result, Score

ACCEPTED = "a Score, a Result, a bool, a number, or a list, tuple or dict of these"


@dataclass(slots=True)  # not frozen, for what that costs on every sample
class Scored:
    """What one call of the function gave."""

    scores: list[Score]
    prompt: Any = None
    response: Any = None


def to_scored(returned: Any) -> Scored:
    """The scores in a returned value; `ResultError` says what it was where there are none."""
    if isinstance(returned, Score):
        return Scored([_checked(returned)])
    if isinstance(returned, Result):
        if returned.error is not None:
            raise AnswerError(returned.error)
        scores = _flat(returned.scores)
        if not scores and not isinstance(returned, AnswerOnly):
            raise ResultError("the evaluation returned a Result without any score")
        if returned.metadata:
            for score in scores:
                score.metadata = {**returned.metadata, **score.metadata}
        return Scored(scores, returned.prompt, returned.response)
    return Scored(_flat_or_refused(returned))


def _flat_or_refused(returned: Any) -> list[Score]:
    scores = _scores_in(returned, name="score")
    if not scores:
        raise ResultError(f"the evaluation returned an empty {type(returned).__name__}; return {ACCEPTED}")
    return scores


def _flat(values: list[Any]) -> list[Score]:
    place = "a Result in which a score"
    return [score for value in values for score in _scores_in(value, name="score", place=place)]


def _scores_in(value: Any, *, name: str, place: str = "") -> list[Score]:
    """`place` tells in the refusal where a value stands that is not all that was returned."""
    if isinstance(value, Score):
        return [_checked(value)]
    if isinstance(value, Mapping):
        return _with_notes(value, [score for key, item in _scored(value) for score in _named(item, str(key))])
    if isinstance(value, list | tuple):
        inside = place or f"a {type(value).__name__} in which an item"
        return [score for item in value for score in _scores_in(item, name=name, place=inside)]
    plain = _plain_number(value)
    if plain is not None:
        return [_checked(Score(name, plain))]
    raise ResultError(_refusal(value, place))


def _scored(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """What is not text; everything where all is, so that the first text is refused by its key."""
    scored = [(key, item) for key, item in mapping.items() if not isinstance(item, str)]
    return scored or list(mapping.items())


def _with_notes(mapping: Mapping[Any, Any], scores: list[Score]) -> list[Score]:
    """A text beside scores, as a judge's reason, is kept with them: the sample has been paid for."""
    if notes := {str(key): item for key, item in mapping.items() if isinstance(item, str)}:
        for score in scores:
            score.metadata = {**notes, **score.metadata}
    return scores


def _named(value: Any, key: str) -> list[Score]:
    """What stands under a key is called by it, also where it already has a name; keys in keys by both."""
    if isinstance(value, Mapping):
        inside = [score for inner, item in _scored(value) for score in _named(item, f"{key}.{inner}")]
        return _with_notes(value, inside)
    if isinstance(value, Score):
        value = Score(key, value.value, value.metrics, value.metadata)
    return _scores_in(value, name=key, place=f"a dict whose value for {key!r}")


def _plain_number(value: Any) -> bool | int | float | None:
    """A bool, int or float; those of numpy and the like, decimals and fractions are converted."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Decimal | Fraction):
        return float(value)
    item = getattr(value, "item", None)
    is_numpy = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    if callable(item) and (isinstance(value, Number) or is_numpy):
        converted = item()
        return converted if isinstance(converted, bool | int | float) else None
    return None


def _checked(score: Score) -> Score:
    value = score.value
    if not isinstance(score.name, str):
        raise ResultError(f"a score has the name {_short(score.name)}; it must be text")
    if type(value) is bool or (value is None and UNSCORED in score.metadata):
        return score
    plain = _plain_number(value)
    if plain is None:
        refusal = f"the score {score.name!r} has the value {_short(value)}; it must be a bool or a number"
        raise ResultError(refusal if not inspect.isawaitable(value) else _refusal(value))
    if not _is_finite(plain):
        shown = plain if isinstance(plain, float) else "too large a number"
        raise ResultError(
            f"the score {score.name!r} is {shown}, which is no measurement; raise an error instead"
        )
    score.value = plain
    return score


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float can hold
        return False


def _refusal(value: Any, place: str = "") -> str:
    if inspect.isawaitable(value):
        close = getattr(value, "close", None)
        if callable(close):
            close()  # or Python warns later, far from here, that it was never awaited
        return (
            f"the evaluation returned {as_text(value)}, which was never awaited: "
            "write `await` before the call (and `async def` for the evaluation)"
        )
    if place:
        shown = "None" if value is None else _short(value)
        return f"the evaluation returned {place} is {shown}; it must be a Score, a bool or a number"
    if value is None:
        return f"the evaluation returned None: is a `return` missing? Return {ACCEPTED}"
    return f"the evaluation returned {_short(value)}; return {ACCEPTED}"


def _short(value: Any) -> str:
    text = as_text(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:79] + '…'}"


class ScoreWriter:
    """JSON text of scores. The commonest ones, a bool without metadata, are encoded once."""

    def __init__(self) -> None:
        self._common: dict[tuple[str, bool, int], str] = {}
        self._names: dict[int, tuple[Any, list[str]]] = {}

    def to_json(self, scores: list[Score]) -> str:
        if len(scores) == 1 and type(scores[0].value) is bool and not scores[0].metadata:
            score = scores[0]
            key = (score.name, score.value, id(score.metrics))
            text = self._common.get(key)
            if text is None:
                text = to_json([self._plain(score)])
                if id(score.metrics) in self._names and len(self._common) < 1000:
                    self._common[key] = text
            return text
        return to_json([self._plain(score) for score in scores])

    def _plain(self, score: Score) -> dict[str, Any]:
        return {
            "name": score.name,
            "value": score.value,
            "metrics": self._metric_names(score),
            "metadata": score.metadata,
        }

    def _metric_names(self, score: Score) -> list[str]:
        """None where the score names none: the summary then chooses by all values of that name."""
        spec = score.metrics
        if not spec:
            return []
        held = self._names.get(id(spec))
        if held is not None and held[0] is spec:
            return held[1]
        names = [metric.stored_name for metric in resolve(spec)]
        if len(self._names) < 1000:
            self._names[id(spec)] = (spec, names)  # holding the object keeps its id its own
        return names
