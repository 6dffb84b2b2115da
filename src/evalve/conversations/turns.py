"""The protocol of a turn: what an agent is given, what it may do, and what it leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalve.conversations.tools import MadeCall, Toolbox
from evalve.errors import ToolError
from evalve.evaluators.tools.definitions import ToolDefinition
from evalve.jsontext import to_json
from evalve.records import ToolCall

Message = dict[str, Any]
Agent = Callable[["Turn"], Awaitable[Any]]
"""Any `async def answer(turn) -> str`."""


class GaveUp(Exception):
    """The turn ended without a reply; the message says why. The turn is wrong, the conversation goes on."""


@dataclass(slots=True)
class PlayedTurn:
    """What was said and done in one turn."""

    number: int
    utterance: str
    calls: list[MadeCall] = field(default_factory=list)
    reply: str = ""
    problem: str = ""
    """Why the turn is wrong whatever was called: it did not end."""
    hides_calls: bool = False
    """The agent works by itself, and what it called is not known: nothing is said about its calls."""
    hides_results: bool = False
    """The agent works by itself, and what its calls came to is not known."""

    def to_plain(self) -> dict[str, Any]:
        plain = {"turn": self.number, "utterance": self.utterance, "reply": self.reply}
        more: dict[str, Any] = {"problem": self.problem} if self.problem else {}
        if self.hides_results:
            more["hides_results"] = True
        hidden = {"calls": None} if self.hides_calls else {"calls": [call.to_plain() for call in self.calls]}
        return {**plain, **hidden, **more}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> PlayedTurn:
        calls = plain.get("calls")
        return cls(
            number=plain["turn"],
            utterance=plain["utterance"],
            calls=[MadeCall.of(call) for call in calls or ()],
            reply=plain.get("reply") or "",
            problem=plain.get("problem") or "",
            hides_calls=calls is None,
            hides_results=bool(plain.get("hides_results")),
        )


class Turn:
    """One turn, as an agent sees it."""

    def __init__(self, played: PlayedTurn, dialogue: list[Message], toolbox: Toolbox, db: Any = None) -> None:
        self.number = played.number
        self.utterance = played.utterance
        self.db = db
        self._dialogue = dialogue
        self._played = played
        self._toolbox = toolbox

    @property
    def dialogue(self) -> list[Message]:
        """Neutral messages as `model.generate` takes them, up to now: what the user says, calls, results."""
        return list(self._dialogue)

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The definitions of the tools, as `model.generate` takes them."""
        return self._toolbox.definitions

    @property
    def schemas(self) -> Sequence[ToolDefinition]:
        """The same, read."""
        return self._toolbox.schemas

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Call a tool: its result; `ToolError` with the message where it fails."""
        (made,) = await self.call_all([ToolCall(name, {} if arguments is None else dict(arguments))])
        if made.error is not None:
            raise ToolError(made.error)
        return made.result

    async def call_all(self, calls: Sequence[ToolCall], text: str = "") -> list[MadeCall]:
        """Make the calls of one message, one after another; `text` is what the agent says beside them."""
        calls = [
            ToolCall(one.name, one.arguments, one.id or self._new_id(place), one.unparsed)
            for place, one in enumerate(calls)
        ]
        made = []
        for call in calls:
            made.append(await self._toolbox.run(call))
            self._played.calls.append(made[-1])
        self._dialogue.append({"role": "assistant", "content": text, "tool_calls": calls})
        self._dialogue += [result_message(call, one) for call, one in zip(calls, made, strict=True)]
        return made

    def _new_id(self, place: int) -> str:
        return f"call_{self.number}_{len(self._played.calls) + place + 1}"

    def saw_calls(self, calls: Sequence[ToolCall] | None) -> None:
        """For an agent that works by itself: what it says that it called; `None` where it does not."""
        self._played.hides_calls, self._played.hides_results = calls is None, True
        self._played.calls += [MadeCall(call.name, call.arguments) for call in calls or ()]


def result_message(call: ToolCall, made: MadeCall) -> Message:
    """What the agent is told of a call."""
    if made.error is not None:
        return {"role": "tool", "tool_call_id": call.id, "content": f"error: {made.error}", "is_error": True}
    content = made.result if isinstance(made.result, str) else to_json(made.result)
    return {"role": "tool", "tool_call_id": call.id, "content": content}
