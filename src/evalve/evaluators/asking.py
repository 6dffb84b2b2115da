"""Asks a judge until it gives a verdict that can be read, and says why where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalve.contracts import JUDGE, in_role
from evalve.errors import LocalUnavailable, MissingKey, ModelError, OptionError
from evalve.evaluators.questions import JudgeQuestion
from evalve.evaluators.verdicts import Unreadable, Verdict, read_verdict

MAX_TOKENS = 4096
"""Models that think before they answer take some thousand tokens for a verdict of two lines."""
ASKED_AGAIN = 2
"""How often a judge that did not keep to the form is asked to."""
_KEY_OR_NAME = (401, 403, 404)
_ABOUT_SCHEMAS = ("response_format", "json_schema", "output_config", "output_format", "schema")


@dataclass(frozen=True, slots=True)
class NoVerdict:
    """Why a judge has none."""

    reason: str


class Judge:
    """A model with the options that every question of one score is asked with."""

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        self._model = _opened(model)
        self._options = {"max_tokens": MAX_TOKENS, **options}
        self.name = str(getattr(self._model, "name", type(self._model).__name__))

    async def verdicts(self, questions: Sequence[JudgeQuestion]) -> list[Verdict | NoVerdict]:
        """One for each question, asked at once. What concerns every question is raised."""
        with in_role(JUDGE):
            if len(questions) == 1:
                came = [await self._verdict_or_error(questions[0])]
            else:
                async with asyncio.TaskGroup() as group:
                    asked = [group.create_task(self._verdict_or_error(each)) for each in questions]
                came = [task.result() for task in asked]
        for one in came:
            if isinstance(one, Exception):
                raise one
        return [one for one in came if not isinstance(one, Exception)]

    async def _verdict_or_error(self, question: JudgeQuestion) -> Verdict | NoVerdict | Exception:
        try:
            return await self._verdict(question)
        except ModelError as error:
            return error if _concerns_all(error) else NoVerdict(str(error))
        except Exception as error:  # raised by `verdicts`, without the group that a task would make of it
            return error

    async def _verdict(self, question: JudgeQuestion) -> Verdict | NoVerdict:
        messages: list[Mapping[str, Any]] = [{"role": "user", "content": question.prompt}]
        problem = ""
        for _ in range(1 + ASKED_AGAIN):
            answer = await self._answer(question, messages)
            if answer.stop_reason == "refusal":
                said = f": {answer.text[:200]}" if answer.text else ""
                return NoVerdict(f"{self.name} refused to judge{said}")
            try:
                return read_verdict(answer.text, question)
            except Unreadable as unreadable:
                problem = str(unreadable)
            if answer.stop_reason == "max_tokens":
                most = self._options["max_tokens"]
                return NoVerdict(f"{self.name} was cut off before its verdict: raise max_tokens={most}")
            if answer.text:  # one that said nothing is asked the same again
                again = f"That cannot be read as a verdict: {problem}. {question.form}"
                messages = [messages[0], answer.message, {"role": "user", "content": again}]
        return NoVerdict(f"{self.name} gave no verdict when asked {1 + ASKED_AGAIN} times: {problem}")

    async def _answer(self, question: JudgeQuestion, messages: Sequence[Mapping[str, Any]]) -> Any:
        """Bound to the form where the server can do that."""
        asked = {"system": question.system, **self._options}
        try:
            return await self._model.generate(messages, response_schema=question.schema, **asked)
        except ModelError as error:
            told = str(error).lower()
            if error.status not in (400, 422) or not any(word in told for word in _ABOUT_SCHEMAS):
                raise
        return await self._model.generate(messages, **asked)


def _concerns_all(error: ModelError) -> bool:
    """Whether no question can be answered before a person has done something: a key, a name, a budget."""
    if isinstance(error, MissingKey | LocalUnavailable) or error.kind == "spent":
        return True
    return error.status in _KEY_OR_NAME or (error.kind == "permanent" and error.status is None)


def _opened(model: Any) -> Any:
    if isinstance(model, str):
        # a model that is given by its name is opened where all models are
        from evalve.gating import model as open_model

        return open_model(model)
    if model is None:
        raise OptionError(
            "a judge needs a model: write model='openai/gpt-5-mini', or judge_model: in an experiment"
        )
    if not callable(getattr(model, "generate", None)):
        raise OptionError(f"a judge's model is a name or what evalve.model returns; got {model!r}")
    return model
