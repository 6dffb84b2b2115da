"""A conversation as people read it: what was said, called and answered, turn by turn, and what was wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalve.show import figures
from evalve.show.tables import block, visible

_RESULT_CHARACTERS = 300
_INNER = "      "


def is_conversation(response: Any) -> bool:
    """Whether a response has turns, each with what the user said."""
    if not isinstance(response, Mapping):
        return False
    turns = response.get("turns")
    return (
        isinstance(turns, list)
        and bool(turns)
        and all(isinstance(turn, Mapping) and "utterance" in turn for turn in turns)
    )


def conversation_lines(response: Mapping[str, Any], *, full: bool) -> Iterator[str]:
    """All turns, then how the state differs from what was expected; long results cut, unless `full`."""
    turns = response["turns"]
    wrong = [turn for turn in turns if turn.get("right") is False]
    counted = figures.plural(len(turns), "turn")
    failed_at = response.get("failed_at_turn")
    at = f", first at turn {figures.text_of(failed_at)}" if wrong and failed_at is not None else ""
    is_right = any(turn.get("right") for turn in turns)
    told = f", {len(wrong)} wrong{at}" if wrong else ", all right" if is_right else ""
    yield visible(f"  conversation  {counted}{told}")
    for place, turn in enumerate(turns, start=1):
        yield from _turn(turn, place, full=full)
    if state := response.get("state"):
        yield "    state, where it is not as expected"
        yield from block(_text(state), indent=_INNER)


def what_was_wrong(response: Mapping[str, Any]) -> str:
    """`turn 3: no quote was made; state: …`, for a line of a table."""
    turns = enumerate(response["turns"], start=1)
    wrong = [
        f"turn {figures.text_of(turn.get('turn', place))}: {'; '.join(map(_text, _reasons(turn))) or 'wrong'}"
        for place, turn in turns
        if turn.get("right") is False
    ]
    state = response.get("state")
    return "; ".join([*wrong, *([f"state: {_text(state)}"] if state else [])])


def _turn(turn: Mapping[str, Any], place: int, *, full: bool) -> Iterator[str]:
    is_right = turn.get("right")
    verdict = "" if is_right is None else ": right" if is_right else ": wrong"
    yield visible(f"    turn {figures.text_of(turn.get('turn', place))}{verdict}")
    yield from _said("user", turn.get("utterance"))
    for call in turn.get("calls") or ():
        yield from _call(call, full=full)
    yield from _said("reply", turn.get("reply"))
    for reason in _reasons(turn):
        yield from _said("wrong", reason)


def _reasons(turn: Mapping[str, Any]) -> Sequence[Any]:
    why = turn.get("why") or ()
    return [why] if isinstance(why, str) else why


def _call(call: Any, *, full: bool) -> Iterator[str]:
    if not isinstance(call, Mapping):
        yield from _said("call", call)
        return
    yield from _said("call", f"{figures.text_of(call.get('name'))}({_arguments(call.get('arguments'))})")
    if call.get("error") is not None:
        yield from _said("error", call["error"])
    elif "result" in call:
        text = _text(call["result"])
        cut = len(text) - _RESULT_CHARACTERS
        if cut > 0 and not full:
            text = f"{text[:_RESULT_CHARACTERS]} … {cut:,} more characters: --full shows all"
        yield from _said("result", text)


def _arguments(arguments: Any) -> str:
    """`name="Acme", amount=120`."""
    if not isinstance(arguments, Mapping):
        return figures.text_of(arguments)
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _said(who: str, content: Any) -> Iterator[str]:
    """The first line beside who says it, the others below."""
    if content in (None, ""):
        return
    first, *others = block(_text(content), indent="")
    yield f"{_INNER}{who:<7} {first}"
    for line in others:
        yield f"{_INNER}{'':<7} {line}"
