"""Rubrics: what a judge is asked, as data, and the form in which it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from evalve.errors import OptionError
from evalve.options import suggestion

MOST_GRADES = 101
"""A scale is written out as a list in the schema of the verdict; 0 to 100 is the longest."""

YES_OR_NO: Mapping[str | int, bool | float] = {"yes": True, "no": False}
FIRST_OR_SECOND: Mapping[str | int, bool | float] = {"first": 1.0, "second": 0.0, "tie": 0.5}


@dataclass(frozen=True, slots=True)
class Rubric:
    """What a judge looks for: a question about the response, answered by yes or no or by a grade.

    With criteria, each gets a verdict of its own: all must hold, or the grade is their mean.
    """

    text: str
    scale: tuple[int, int] | None = None
    """The lowest and the highest grade; `None` for yes or no."""
    criteria: Mapping[str, str] = field(default_factory=dict)
    """What each criterion asks, by its name."""

    def __post_init__(self) -> None:
        _check_text(self.text)
        if self.scale is not None:
            object.__setattr__(self, "scale", _checked_scale(self.scale))
        object.__setattr__(self, "criteria", _checked_criteria(self.criteria))

    @property
    def choices(self) -> Mapping[str | int, bool | float]:
        """What a verdict may say, and the value of each."""
        if self.scale is None:
            return YES_OR_NO
        low, high = self.scale
        return {grade: grade for grade in range(low, high + 1)}

    def value_of(self, values: Mapping[str, bool | float]) -> bool | float:
        """The value of the whole, from that of each criterion."""
        if self.scale is None:
            return all(values.values())
        return sum(values.values()) / len(values)


def as_rubric(given: Any) -> Rubric:
    """A rubric from a rubric, a text, or a mapping of its fields as YAML has it."""
    if isinstance(given, Rubric):
        return given
    if isinstance(given, str):
        return Rubric(given)
    if not isinstance(given, Mapping):
        raise OptionError(f"a rubric is a text, a Rubric or a mapping with text; got {given!r}")
    known = [each.name for each in fields(Rubric)]
    for name in given:
        if name not in known:
            raise OptionError(f"a rubric has {', '.join(known)}; got {name!r}{suggestion(str(name), known)}")
    if "text" not in given:
        raise OptionError("a rubric needs a text: what the judge is to look for")
    return Rubric(**given)


def verdict_schema(choices: Mapping[str | int, Any], criteria: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema of a verdict. The reason stands first, so that the verdict follows from it."""
    one = _object(
        {
            "reason": {"type": "string"},
            "verdict": {
                "type": "string" if any(isinstance(choice, str) for choice in choices) else "integer",
                "enum": list(choices),
            },
        }
    )
    return _object(dict.fromkeys(criteria, one)) if criteria else one


def verdict_form(choices: Mapping[str | int, Any], criteria: Mapping[str, str]) -> str:
    """The same in words, for models that are not bound to a schema."""
    words = list(choices)
    if isinstance(words[0], int):
        said = f"a whole number from {words[0]} to {words[-1]}"
    else:
        said = " or ".join(f'"{word}"' for word in words)
    one = f'{{"reason": "…", "verdict": …}}, in this order: first the reason, in a few sentences, then {said}'
    if not criteria:
        return f"Answer with JSON and nothing else: {one}."
    names = ", ".join(f'"{name}"' for name in criteria)
    return f"Answer with one JSON object and nothing else. Its keys are {names}; the value of each is {one}."


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _check_text(text: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"a rubric needs a text: what the judge is to look for; got {text!r}")


def _checked_scale(scale: Any) -> tuple[int, int]:
    ends = list(scale) if isinstance(scale, list | tuple) else []
    if len(ends) != 2 or any(type(end) is not int for end in ends) or ends[0] >= ends[1]:
        raise OptionError(
            f"a rubric's scale is its lowest and its highest grade, as in (1, 5); got {scale!r}"
        )
    if ends[1] - ends[0] >= MOST_GRADES:
        raise OptionError(f"a rubric's scale has at most {MOST_GRADES} grades; got {scale!r}: use 1 to 10")
    return ends[0], ends[1]


def _checked_criteria(criteria: Any) -> dict[str, str]:
    is_plain = isinstance(criteria, Mapping) and all(
        isinstance(name, str) and name and isinstance(text, str) for name, text in criteria.items()
    )
    if not is_plain:
        raise OptionError(
            f"a rubric's criteria are texts by name, as in {{'tone': 'Is it polite?'}}; got {criteria!r}"
        )
    return dict(criteria)


# below what they are checked by
CORRECTNESS = Rubric(
    "Is the response correct? Judge what it says, not how: wording, length, units written differently, and "
    "further explanation do not matter. With a reference, it is correct if it gives the same answer as the "
    "reference; without one, if it answers the question and what it says is true."
)
PREFERENCE = Rubric(
    "Which response answers the question better: more correct, more complete, more useful to the one who "
    "asked? Length and style do not matter by themselves. Say tie where neither is better."
)
