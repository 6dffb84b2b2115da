"""A dialect whose answers are read as pieces: the JSON values of an array, of lines, of events or of frames.

A whole answer is one piece. What differs between providers is a handful of questions about a piece.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalve.gate.dialects.answer_forms import no_answer, unreadable
from evalve.gate.dialects.answer_parts import (
    DONE,
    ParsedOnce,
    Told,
    body_text,
    broken,
    is_stream,
    kind_by_status,
    kind_in_200,
    problem_told,
    read_json,
)
from evalve.gate.dialects.stated_limits import stated_limits
from evalve.gate.events import ServerEvents
from evalve.gate.messages import Call, Cost, Dimension, Problem, Reply, Stated, Usage


def pieces_of(body: bytes) -> list[Any]:
    """What a body is made of. Raises `ValueError` or `RecursionError` where a piece is broken."""
    if not is_stream(body) and not body.startswith(b"\0"):
        try:
            parsed = read_json(body)
        except json.JSONDecodeError:
            pass  # several values, one a line
        else:
            return parsed if isinstance(parsed, list) else [parsed]
    events = ServerEvents()
    data = [*events.feed(body), *events.end()]
    return [read_json(each) for each in data if each.strip() != DONE.encode()]


class PieceDialect:
    """What the dialects below have in common. Each answers `told`, `is_end`, `precedes` and `is_answer`."""

    name = ""
    meaning_headers: frozenset[str] = frozenset()
    form = "an answer"

    def __init__(self) -> None:
        self._pieces = ParsedOnce(pieces_of)

    # -- what a provider differs in

    def told(self, piece: Any, headers: Mapping[str, str]) -> Told | None:
        """The error in a piece, or in the body of a refusal; `None` where there is none."""
        raise NotImplementedError

    def is_end(self, piece: Any) -> bool:
        """Whether nothing of the answer itself follows."""
        raise NotImplementedError

    def precedes(self, piece: Mapping[str, Any]) -> bool:
        """Whether there is nothing of the answer in a piece yet."""
        raise NotImplementedError

    def is_answer(self, call: Call, pieces: list[Any]) -> bool:
        """Whether they are an answer to what was asked."""
        raise NotImplementedError

    def usage_in(self, piece: Mapping[str, Any]) -> Usage | None:
        """The usage that a piece tells."""
        raise NotImplementedError

    # -- the rest of the protocol

    def booked(self, call: Call, *, input_tokens: float, output_tokens: float) -> Cost:
        return cost_of(input_tokens, output_tokens)

    def charged(self, call: Call, usage: Usage) -> Cost:
        return cost_of(usage.total_input_tokens, usage.output_tokens)

    def usage(self, call: Call, body: bytes) -> Usage | None:
        """What the last piece that tells any says."""
        for piece in reversed(self._pieces(body) or []):
            said = self.usage_in(piece) if isinstance(piece, dict) else None
            if said is not None:
                return said
        return None

    def stated(self, headers: Mapping[str, str]) -> dict[Dimension, Stated]:
        """None of these providers states any; a proxy before them may."""
        return stated_limits(headers)

    def begins(self, call: Call, data: bytes) -> bool:
        if data.strip() == DONE.encode():
            return False
        try:
            piece = read_json(data)
        except (ValueError, RecursionError):
            return True  # not ours to hold back
        return not isinstance(piece, dict) or not (self.told(piece, {}) or self.precedes(piece))

    def ends(self, data: bytes) -> bool:
        try:
            piece = read_json(data)
        except (ValueError, RecursionError):
            return data.strip() == DONE.encode()
        return isinstance(piece, dict) and (self.is_end(piece) or self.told(piece, {}) is not None)

    def problem(self, reply: Reply, call: Call | None = None) -> Problem | None:
        who = call.provider if call is not None else self.name
        pieces = self._pieces(reply.body)
        if not 200 <= reply.status < 300:
            refused = self._first_told(pieces, reply) or Told("", body_text(reply.body))
            return problem_told(who, reply, refused, kind_by_status(reply.status))
        if pieces is None:
            return unreadable(who, call, reply)
        told = self._first_told(pieces, reply)
        if told is not None:
            return problem_told(who, reply, told, kind_in_200(told.name))
        if call is None:
            return None
        if call.streams and pieces and not any(self.is_end(piece) for piece in pieces):
            return broken(reply, "its stream has no end")
        unasked = not call.streams and (len(pieces) > 1 or is_stream(reply.body))
        if not pieces or unasked or not self.is_answer(call, pieces):
            return no_answer(who, f"does not have the form of {self.form}", reply)
        return None

    def _first_told(self, pieces: list[Any] | None, reply: Reply) -> Told | None:
        told = (self.told(piece, reply.headers) for piece in pieces or [None])
        return next((each for each in told if each is not None), None)


def cost_of(input_tokens: float, output_tokens: float) -> Cost:
    """In every dimension: which of them a person limits is not ours to know."""
    return {
        "requests": 1.0,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "tokens": input_tokens + output_tokens,
    }
