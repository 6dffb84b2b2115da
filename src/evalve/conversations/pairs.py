"""A student with a teacher, who guides the student's turn or reviews each step before it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from evalve.contracts import in_role
from evalve.conversations.models import ModelAgent, opened_model, step_by_step
from evalve.conversations.turns import Message, Turn
from evalve.errors import OptionError
from evalve.jsontext import to_json
from evalve.options import suggestion
from evalve.records import ToolCall
from evalve.tracing import trace

Teaching = Literal["review", "guide"]
TEACHINGS: tuple[str, ...] = get_args(Teaching)
STUDENT, TEACHER = "student", "teacher"
"""The roles under which calls are counted, beside the total."""
APPROVED = "APPROVED"
_REVIEW = (
    "You are the teacher of an assistant that serves a user with tools. You see the conversation and what"
    f" the assistant is about to do. Answer {APPROVED} if that is right. Otherwise say in one or two"
    " sentences what is wrong and what to do instead: which tool, with which arguments, or what to say."
)
_GUIDE = (
    "You are the teacher of an assistant that serves a user with tools. You see the conversation. Tell the"
    " assistant in one or two sentences what to do for what the user says last: which tools to call, with"
    " which arguments, and what to tell the user."
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A student and a teacher, both models. `teaching` is `review` or `guide`."""

    student: Any
    teacher: Any
    teaching: Teaching = "review"
    student_asked: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the student's calls alone: `temperature`, `max_tokens` …"""
    teacher_asked: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.teaching not in TEACHINGS:
            hint = suggestion(str(self.teaching), TEACHINGS) or f" (there is: {', '.join(TEACHINGS)})"
            raise OptionError(f"teaching={self.teaching!r} is not a way to teach{hint}")

    def opened(self, *, system: str | None, max_steps: int, asked: Mapping[str, Any]) -> PairAgent:
        student = ModelAgent(opened_model(self.student), system, max_steps, {**asked, **self.student_asked})
        return PairAgent(student, opened_model(self.teacher), self.teaching, {**asked, **self.teacher_asked})


@dataclass(frozen=True, slots=True)
class PairAgent:
    """Over the protocol of a turn, as a model by itself."""

    student: ModelAgent
    teacher: Any
    teaching: Teaching
    teacher_asked: Mapping[str, Any]

    async def __call__(self, turn: Turn) -> str:
        if self.teaching == "review":
            return await step_by_step(turn, partial(self._reviewed, turn), self.student.max_steps)
        advice = await self._taught(_GUIDE, _shown(turn))
        own = f"{self.student.system}\n\n" if self.student.system else ""
        system = f"{own}Advice of your teacher for this turn: {advice}"
        answer = partial(self._answered, turn, system=system)
        return await step_by_step(turn, answer, self.student.max_steps)

    async def _reviewed(self, turn: Turn, messages: list[Message]) -> Any:
        """What the student does next; nothing has run before the teacher has seen it."""
        proposal = await self._answered(turn, messages)
        about_to = _proposal(proposal)
        verdict = await self._taught(_REVIEW, f"{_shown(turn)}\n\nThe assistant is about to {about_to}")
        if verdict.upper().lstrip("*#\"' ").startswith("APPROVE"):
            return proposal
        again = (
            f"(Your teacher, before anything is done: you are about to {about_to}. {verdict} "
            "Do it again, better.)"
        )
        return await self._answered(turn, [*messages, {"role": "user", "content": again}])

    async def _answered(self, turn: Turn, messages: list[Message], *, system: str | None = None) -> Any:
        with in_role(STUDENT):
            return await self.student.answer(messages, turn, system=system)

    async def _taught(self, system: str, about: str) -> str:
        with in_role(TEACHER):
            answer = await self.teacher.generate(about, system=system, **self.teacher_asked)
        said = str(answer.text).strip()
        trace("note", text=f"teacher: {said}")
        return said


def _shown(turn: Turn) -> str:
    """The conversation as text, because the teacher has no tools and may speak another wire format."""
    tools = "\n".join(to_json(one) for one in turn.tools)
    said = "\n".join(line for message in turn.dialogue for line in _lines(message))
    return f"Tools of the assistant:\n{tools or '(none)'}\n\nThe conversation:\n{said}"


def _lines(message: Mapping[str, Any]) -> list[str]:
    if message["role"] == "tool":
        return [f"tool: {message['content']}"]
    said = [f"{message['role']}: {message['content']}"] if message.get("content") else []
    return [*said, *(f"{message['role']} calls {_call(call)}" for call in message.get("tool_calls", ()))]


def _proposal(answer: Any) -> str:
    if not answer.tool_calls:
        return f"reply: {answer.text}"
    return "call " + ", ".join(map(_call, answer.tool_calls))


def _call(call: ToolCall) -> str:
    return f"{call.name}({to_json(call.arguments)})"
