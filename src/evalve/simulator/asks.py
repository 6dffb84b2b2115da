"""A request as the simulator understands it, whichever wire format it came in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evalve.simulator.conversations import tool_rounds_of, tools_of
from evalve.simulator.tokens import Part, count_parts

ApiName = Literal["anthropic", "openai", "gemini"]


class BadRequest(Exception):
    """The request lacks something or has something wrong: answered with status 400."""


@dataclass(frozen=True, slots=True)
class ForcedTool:
    """A tool that the request obliges the model to call."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a scripted answer may look at, and what limits are charged by."""

    api: ApiName
    model: str
    parts: list[Part]
    max_tokens: int | None
    stream: bool
    body: Mapping[str, Any]
    digest: int
    schema: Mapping[str, Any] | None = None
    forced_tool: ForcedTool | None = None
    choices: int = 1
    include_usage: bool = False
    thinks: bool = True

    @property
    def prompt(self) -> str:
        """All text of the request, in the order in which a model reads it."""
        return "\n".join(part.text for part in self.parts)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that the model may call."""
        return tuple(tool.name for tool in tools_of(self.body))

    @property
    def tool_rounds(self) -> tuple[tuple[str, ...], ...]:
        """What tools answered in this conversation, each time that the model called some."""
        return tool_rounds_of(self.body)

    @property
    def input_tokens(self) -> int:
        return max(1, count_parts(self.parts))


def digest_of(raw: bytes) -> int:
    """The same number for the same body, in every process."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "big")


def hash_of_key(key: str) -> str:
    """What is kept of an API key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12] if key else "none"


def required_text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name}: Field required")
    return value


def required_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages: at least one message is required")
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(f"messages.{place}.role: Field required")
    return messages


def optional_count(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(f"{name}: must be an integer of at least 1")
    return value


def mapping_at(value: Any, *path: str) -> Mapping[str, Any]:
    """The object at a path inside foreign JSON, or an empty one."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def tool_definitions(body: Mapping[str, Any]) -> list[Any]:
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise BadRequest("tools: must be a list")
    return tools
