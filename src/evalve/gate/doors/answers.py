"""What a model answered, or why it did not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalve.gate.messages import Usage
from evalve.records import ToolCall as ToolCall


@dataclass(slots=True)
class TextDelta:
    """A piece of text of an answer that is still arriving."""

    text: str

    def __str__(self) -> str:
        return self.text


class Answer:
    """A whole answer; as a string, its text."""

    __slots__ = (
        "cached",
        "cost_usd",
        "message",
        "model",
        "raw",
        "stop_reason",
        "text",
        "tool_calls",
        "usage",
    )

    def __init__(
        self,
        text: str = "",
        *,
        tool_calls: list[ToolCall] | None = None,
        usage: Usage | None = None,
        stop_reason: str | None = None,
        model: str = "",
        message: Mapping[str, Any] | None = None,
        raw: dict[str, Any] | None = None,
    ) -> None:
        self.text = text
        self.tool_calls = tool_calls if tool_calls is not None else []
        self.usage = usage
        self.stop_reason = stop_reason
        """`end_turn`, `max_tokens`, `tool_use` or `refusal`, whoever answered; any other as it came."""
        self.model = model
        """The model that the provider says answered."""
        self.message: Mapping[str, Any] = message or {"role": "assistant", "content": text}
        """The turn as this provider wants it back in the next request's messages."""
        self.raw = raw if raw is not None else {}
        """What the provider sent, parsed; a stream is put together as if it had come at once."""
        self.cost_usd: float | None = None
        """The price of its tokens, paid once, however often it comes from the cache; `None` where unknown."""
        self.cached = False

    def parsed(self) -> Any:
        """The text as JSON, as asked for by `response_schema`; `ValueError` where it is none."""
        return json.loads(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        calls = f", tool_calls={self.tool_calls!r}" if self.tool_calls else ""
        return f"Answer({self.text!r}{calls}, stop_reason={self.stop_reason!r}, model={self.model!r})"

    def _asdict(self) -> dict[str, Any]:
        """What a record keeps of it: all but `raw` and `message`, which say the same again."""
        kept = ("text", "tool_calls", "usage", "stop_reason", "model", "cost_usd", "cached")
        return {name: value for name in kept if (value := getattr(self, name)) not in (None, [])}
