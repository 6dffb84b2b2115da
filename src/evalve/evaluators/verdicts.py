"""From a judge's answer to its verdict. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalve.evaluators.questions import JudgeQuestion

Value = bool | float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says: why, and then what; with criteria, both for each of them."""

    reason: str
    value: Value | None
    """`None` where there are criteria."""
    criteria: Mapping[str, Verdict] = field(default_factory=dict)


class Unreadable(Exception):
    """Why an answer is no verdict, in words that its author understands."""


def read_verdict(text: str, question: JudgeQuestion) -> Verdict:
    """The verdict in an answer: JSON by itself, in a fence, or after further text; else `Unreadable`."""
    problem: Unreadable | None = None
    for found in _objects(text):
        try:
            return _verdict(found, question)
        except Unreadable as error:
            problem = error
    raise problem or Unreadable("there is no JSON object in the answer")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, the last first: a model that thinks aloud concludes at the end."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(value, dict):
                found.append(value)
        place = text.find("{", end)
    yield from reversed(found)


def _verdict(found: Mapping[str, Any], question: JudgeQuestion) -> Verdict:
    if not question.criteria:
        return _one(found, question.choices)
    verdicts = {}
    for name in question.criteria:
        one = found.get(name)
        if not isinstance(one, dict):
            raise Unreadable(f"the criterion {name!r} has no verdict")
        verdicts[name] = _one(one, question.choices)
    reason = "; ".join(f"{name}: {one.reason}" for name, one in verdicts.items())
    return Verdict(reason, None, verdicts)


def _one(found: Mapping[str, Any], choices: Mapping[str | int, Value]) -> Verdict:
    if "verdict" not in found:
        raise Unreadable("there is no verdict in it")
    value = chosen(found["verdict"], choices)
    if value is None:
        words = list(map(str, choices))
        allowed = ", ".join(words) if len(words) <= 10 else f"{words[0]} to {words[-1]}"
        raise Unreadable(f"the verdict {found['verdict']!r} is none of {allowed}")
    reason = found.get("reason")
    return Verdict(reason if isinstance(reason, str) else "", value)


def chosen(said: Any, choices: Mapping[str | int, Value]) -> Value | None:
    """The value that a verdict means, written as it may be: `Yes`, true, 4, 4.0 or "4"; else `None`."""
    if isinstance(said, bool):
        said = "yes" if said else "no"
    if isinstance(said, str):
        word: str | int = said.strip().strip(".\"'").lower()
        if word not in choices and isinstance(word, str) and word.removeprefix("-").isdecimal():
            word = int(word)
        return choices.get(word)
    if isinstance(said, float) and said.is_integer():
        said = int(said)
    return choices.get(said) if isinstance(said, int) else None
