"""What happens to one row: files, prompt, the model's or the agent's answer, scores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalve.contracts import SAMPLE
from evalve.declare.templates import columns_of, filled
from evalve.errors import AnswerError, DatasetError, DeclarationError, InfrastructureError
from evalve.experiments.parts.keyless import stops_without_key
from evalve.experiments.parts.scoring import Scorer
from evalve.experiments.parts.tools import OfferedTools
from evalve.records import AnswerOnly, Result
from evalve.sandboxes.seeds import Seed

Ask = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Awaitable[Any]]
"""From a prompt, the row and what was lent to the answer: as a string its text, beside it its tool calls."""


@dataclass(frozen=True, slots=True)
class Task:
    """The same for every row of an evaluation. Its `evaluate` is the evaluation's function."""

    prompt: str
    expected: str | None
    scorers: Sequence[Scorer]
    ask: Ask
    tools: OfferedTools | None = None
    lent: tuple[str, ...] = ()
    """Which arguments are lent, not columns."""

    @stops_without_key
    async def evaluate(self, /, **values: Any) -> Result:
        row = {name: value for name, value in values.items() if name not in self.lent}
        prompt = filled(self.prompt, row)
        expected = None if self.expected is None else self._expected(self.expected, row)
        answer = await self._answer(prompt, row, values)
        tools = None if self.tools is None else self.tools.of_row(row)
        context = {"question": prompt, "prompt": prompt, "row": row, "tools": tools}
        scores = [await scorer.score(answer, expected, context) for scorer in self.scorers]
        made = Result if self.scorers else AnswerOnly
        is_run = bool(self.lent) and isinstance(answer, RecordedAnswer)
        has_calls = is_run or (tools is not None and bool(getattr(answer, "tool_calls", None)))
        return made(*scores, prompt=prompt, response=answer if has_calls else str(answer))

    def _expected(self, template: str, row: Mapping[str, Any]) -> Any:
        """Before anybody is asked: what no answer could be is a mistake in the dataset."""
        expected = expected_of(template, row)
        needing = [one.name for one in self.scorers if one.needs_expected and not one.takes_calls]
        if expected is None and needing:
            raise DatasetError(
                f"expected: {template} has no value in this row, and {needing[0]} compares the answer with it"
            )
        comparing = [scorer.name for scorer in self.scorers if scorer.compares_texts]
        if isinstance(expected, bool) and comparing:
            raise DatasetError(
                f"expected: {template} is {expected}, and {comparing[0]} compares texts: write it in quotes,"
                " as YAML reads yes, no, on and off as true and false"
            )
        return expected

    async def _answer(self, prompt: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """What was answered before where only scores are missing: nobody is asked, or paid, twice."""
        sample = SAMPLE.get()
        if sample is not None and sample.answer is not None:
            return self._recorded(sample.answer)
        answer = await self.ask(prompt, row, {name: values[name] for name in self.lent})
        if self.lent and (self._scores_calls or (not self.scorers and answer.tool_calls)):
            answer = RecordedAnswer.of_run(answer)  # else what it called is in its trace alone
        if sample is not None:
            is_whole = isinstance(answer, RecordedAnswer) or self.tools is not None
            sample.answer = answer if is_whole else str(answer)
            if any(scorer.may_take_long for scorer in self.scorers):
                await sample.keep_answer()
        return answer

    def _recorded(self, answer: Any) -> Any:
        if self.lent and self._scores_calls and isinstance(answer, str):
            raise AnswerError(
                "the record of this answer does not say what the agent called, which is scored now; the next "
                "run asks the agent again"
            )
        return RecordedAnswer.of(answer) if isinstance(answer, dict) or self.tools is not None else answer

    @property
    def _scores_calls(self) -> bool:
        return any(scorer.takes_calls for scorer in self.scorers)


class RecordedAnswer(dict[str, Any]):
    """An answer with its tool calls, as a record has it."""

    @classmethod
    def of(cls, answer: Any) -> Any:
        """The answer itself where it is this run's own; its text stands for one that called nothing."""
        if isinstance(answer, str):
            return cls(text=answer, tool_calls=[])
        return cls(answer) if isinstance(answer, dict) else answer

    @classmethod
    def of_run(cls, run: Any) -> RecordedAnswer:
        """What an agent said and called."""
        calls = [{"name": call.name, "arguments": call.arguments} for call in run.tool_calls]
        return cls(text=str(run), tool_calls=calls)

    @property
    def tool_calls(self) -> Any:
        return self.get("tool_calls")

    def __str__(self) -> str:
        return str(self.get("text") or "")


def expected_of(template: str, row: Mapping[str, Any]) -> Any:
    """What is right; a number as its text, because an answer is one."""
    columns = columns_of(template)
    if len(columns) != 1 or template != f"{{{columns[0]}}}":
        return filled(template, row)
    value = row[columns[0]]
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def asking_model(
    model: Any, arguments: Mapping[str, Any], system: str | None, tools: OfferedTools | None = None
) -> Ask:
    said = dict(arguments) if system is None else {**arguments, "system": system}

    async def ask(prompt: str, row: Mapping[str, Any], lent: Mapping[str, Any]) -> Any:
        offered = {} if tools is None else {"tools": tools.of_row(row)}
        return await model.generate(prompt, **said, **offered)

    return ask


def files_for(files: Mapping[str, Any], row: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What a workspace gets for a row: texts as they are, files by their paths, unread."""
    found: dict[str, Any] = {}
    for name, content in files.items():
        if not isinstance(content, dict):
            found[name] = filled(str(content), row)
            continue
        path = folder / Path(filled(content["path"], row)).expanduser()
        if not path.exists():
            raise DatasetError(f"files: {name}: there is no {str(path)!r} to put into the workspace")
        found[name] = path
    return found


async def fill_workspace(
    directory: Path, files: Mapping[str, Any], row: Mapping[str, Any], folder: Path
) -> None:
    """Copy what the row needs; large files share their blocks with the originals where they can."""
    try:
        seed = Seed(files_for(files, row, folder), folder=folder)
        await asyncio.to_thread(seed.copy, directory)
    except DeclarationError as error:
        raise DatasetError(str(error)) from None
    except OSError as error:
        raise InfrastructureError(f"the workspace {directory} cannot be filled: {error}") from error
