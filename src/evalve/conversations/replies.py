"""Whether a reply says what is expected: by one of the answers, or by a judge's verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from evalve.conversations.rows import ExpectedResponse
from evalve.evaluators.judge import llm_judge
from evalve.evaluators.rubrics import Rubric
from evalve.jsontext import to_json
from evalve.records import UNSCORED

RUBRIC = Rubric(
    "Does the reply tell the user what the reference says? Other words, and more than the reference says, are"
    " right as well, as long as nothing contradicts it. If the reference lists several answers, one of them"
    " will do."
)
_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")


def says(reply: str, expected: ExpectedResponse) -> str | None:
    """Why the reply is wrong; `None` where it has one of the answers, or the text.

    An answer that is a list must be there with all its items. Case and spaces do not count, and numbers are
    compared as numbers.
    """
    allowed = [answer for answer in (*expected.answers, expected.text) if answer not in (None, "")]
    said, numbers = _normal(reply), _numbers_in(reply)
    for answer in allowed:
        items = answer if isinstance(answer, list) else [answer]
        if all(_is_said(item, said, numbers) for item in items):
            return None
    words = " or ".join(repr(_shortened(_text(answer))) for answer in allowed)
    return f"the reply is {_shortened(reply)!r}, expected {words}" if reply else f"no reply, expected {words}"


def _is_said(answer: Any, said: str, numbers: set[Decimal]) -> bool:
    text = _normal(_text(answer))
    if _NUMBER.fullmatch(text.lstrip("$€£ ")):
        return _number(text) in numbers
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", said) is not None


def _numbers_in(text: str) -> set[Decimal]:
    return {_number(match[0]) for match in _NUMBER.finditer(text)}


def _number(text: str) -> Decimal:
    return Decimal(re.sub(r"[^\d.-]", "", text))


async def judged(
    reply: str, expected: ExpectedResponse, *, utterance: str, judge: Any, options: Mapping[str, Any]
) -> tuple[bool | None, str]:
    """A judge's verdict with its reason; `None` where there is no verdict."""
    reference = expected.text or "; ".join(map(_text, expected.answers))
    score = await llm_judge(reply, reference, model=judge, rubric=RUBRIC, question=utterance, **options)
    if score.value is None:
        return None, str(score.metadata.get(UNSCORED, ""))
    return bool(score.value), str(score.metadata.get("reason", ""))


def _normal(text: str) -> str:
    return _SPACE.sub(" ", text).strip().strip(".!").casefold()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


def _shortened(text: str) -> str:
    return text if len(text) <= 120 else text[:119] + "…"
