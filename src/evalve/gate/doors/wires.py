"""What every wire format does for a model, and which one a provider speaks."""

from __future__ import annotations

from typing import Any, Protocol

from evalve.gate.doors.answers import Answer
from evalve.gate.doors.asks import Ask
from evalve.gate.doors.naming import Provider
from evalve.gate.doors.wire_anthropic import AnthropicWire
from evalve.gate.doors.wire_openai import OpenAIWire
from evalve.gate.messages import Dialect

MISSHAPEN = (ValueError, KeyError, TypeError, IndexError, AttributeError)
"""What reading raises for an answer that is not of its provider's form."""


class Assembly(Protocol):
    """Puts a streamed answer together."""

    def add(self, event: dict[str, Any]) -> str:
        """The text that an event adds."""

    def whole(self) -> dict[str, Any] | None:
        """The answer as if it had come at once; `None` where it broke off."""


class Wire(Protocol):
    """A provider's format. Pure, and shared by all models that speak it."""

    dialect: Dialect

    def url(self, base_url: str) -> str: ...

    def headers(self, api_key: str | None) -> dict[str, str]: ...

    def body(self, model: str, ask: Ask) -> dict[str, Any]: ...

    def answer(self, raw: dict[str, Any]) -> Answer: ...

    def assembly(self) -> Assembly: ...


_ANTHROPIC = AnthropicWire()
_OPENAI = OpenAIWire()
_COMPATIBLE = OpenAIWire(max_tokens_name="max_tokens")


def wire_of(provider: Provider) -> Wire:
    if provider.wire == "anthropic":
        return _ANTHROPIC
    return _OPENAI if provider.name == "openai" else _COMPATIBLE
