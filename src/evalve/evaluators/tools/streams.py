"""Calls that came in pieces, as the events of a stream, put together again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalve.evaluators.tools.one_call import field as member
from evalve.evaluators.tools.one_call import is_list


@dataclass(slots=True)
class _Call:
    """A call as far as it has come."""

    name: Any = None
    id: Any = None
    given: Any = None
    """Arguments that came at once."""
    pieces: list[str] = field(default_factory=list)

    def whole(self) -> dict[str, Any]:
        arguments = "".join(self.pieces) or self.given or {}
        return {"name": self.name, "id": self.id, "arguments": arguments}


def whole_calls(items: Sequence[Any]) -> list[Any]:
    """The items, with a call in place of the events that amount to it; others stay as they are."""
    found: list[Any] = []
    open_calls: dict[Any, _Call] = {}
    for item in items:
        kind = member(item, "type")
        if kind == "message_start":
            open_calls = {}  # blocks are numbered within a message
        for place, piece in _pieces(item, kind):
            call = open_calls.get(place)
            if call is None:
                call = open_calls[place] = _Call()
                found.append(call)
            call.name, call.id = call.name or piece.name, call.id or piece.id
            call.given = call.given or piece.given
            call.pieces += piece.pieces
        if not _is_event(item, kind):
            found.append(item)
    return [one.whole() if isinstance(one, _Call) else one for one in found]


def _is_event(item: Any, kind: Any) -> bool:
    return kind in ("content_block_start", "content_block_delta") or _delta(item) is not None


def _pieces(item: Any, kind: Any) -> Iterator[tuple[Any, _Call]]:
    """To which call of the stream it adds what."""
    if kind == "content_block_start":
        block = member(item, "content_block")
        if isinstance(member(block, "name"), str) and member(block, "tool_use_id") is None:
            given = _Call(member(block, "name"), member(block, "id"), member(block, "input"))
            yield member(item, "index"), given
    elif kind == "content_block_delta":
        text = member(member(item, "delta"), "partial_json")
        if isinstance(text, str):
            yield member(item, "index"), _Call(pieces=[text])
    for place, call in enumerate(member(_delta(item), "tool_calls") or ()):
        function, index = member(call, "function"), member(call, "index")
        text = member(function, "arguments")
        piece = _Call(member(function, "name"), member(call, "id"), pieces=[text] if text else [])
        yield (member(item, "id"), place if index is None else index), piece


def _delta(item: Any) -> Any:
    """What a chunk of OpenAI's chat completions adds to its first choice."""
    choices = member(item, "choices")
    return member(choices[0], "delta") if is_list(choices) and choices else None
