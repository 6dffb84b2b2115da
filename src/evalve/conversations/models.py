"""A model as an agent: asked, its tool calls run, asked again with their results, until it replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalve.conversations.turns import GaveUp, Message, Turn, result_message

MAX_STEPS = 8

Propose = Callable[[list[Message]], Awaitable[Any]]
"""From the messages so far to the model's next answer."""


@dataclass(frozen=True, slots=True)
class ModelAgent:
    """Written over the protocol of a turn, as any agent is. One answer of the model is a step."""

    model: Any
    system: str | None = None
    max_steps: int = MAX_STEPS
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of every call: `temperature`, `max_tokens` …"""

    async def __call__(self, turn: Turn) -> str:
        return await step_by_step(turn, lambda messages: self.answer(messages, turn), self.max_steps)

    async def answer(self, messages: list[Message], turn: Turn, *, system: str | None = None) -> Any:
        """The model's next answer; `system` in place of its own."""
        said = {"system": system or self.system} if system or self.system else {}
        offered = {"tools": turn.tools} if turn.tools else {}
        return await self.model.generate(messages, **self.asked, **said, **offered)


async def step_by_step(turn: Turn, propose: Propose, max_steps: int) -> str:
    """Take steps until one of them is a reply."""
    # inside a turn, a model's answers go back as its provider wrote them, with what it thought between calls
    messages = turn.dialogue
    for _ in range(max_steps):
        answer = await propose(messages)
        if not answer.tool_calls:
            return str(answer.text)
        messages.append(answer.message)
        made = await turn.call_all(answer.tool_calls, answer.text)
        messages += map(result_message, answer.tool_calls, made)
    raise GaveUp(f"max_steps: {max_steps} answers, and the last one still called tools instead of replying")


def opened_model(model: Any) -> Any:
    """A model that is given by its name, opened where all models are."""
    if not isinstance(model, str):
        return model
    from evalve import gating  # with the gate, which functions do without

    return gating.model(model)
