"""`evaluation_mode: conversation`: what an experiment says of it, and the evaluation that is made of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from evalve.contracts import SAMPLE, Rows
from evalve.conversations.agents import as_agent
from evalve.conversations.models import MAX_STEPS
from evalve.conversations.pairs import Pair
from evalve.conversations.playing import check_database, play
from evalve.conversations.programs import ProgramAgent
from evalve.conversations.rows import Conversation, read_conversation
from evalve.conversations.scoring import Played, Scoring, score_conversation
from evalve.conversations.tools import Toolbox, tools_of
from evalve.conversations.turns import Agent
from evalve.errors import DatasetError, OptionError
from evalve.evaluators.tools.definitions import definitions
from evalve.evaluators.tools.rules import ArgumentRules, as_rules
from evalve.experiments.file.resolving import Entry
from evalve.experiments.parts.keyless import stops_without_key
from evalve.experiments.parts.models import Asked, open_model
from evalve.experiments.parts.own_functions import function_named, tool_functions
from evalve.experiments.parts.rows import Source
from evalve.experiments.parts.scripts import source_text
from evalve.jsontext import from_json
from evalve.records import Result, Sample

MODE = "conversation"
COLUMN = "conversation"
"""The argument of the evaluation: the whole row."""
_NOT_HERE = {
    "prompt": "the rows have what the user says",
    "expected": "the rows have what is expected of each turn",
    "evaluators": "turns and states are scored by what the rows expect",
    "files": "agents find what they need in the database",
}
_ONLY_HERE = ("max_steps", "arguments")
_MOST_TOLD = 10


OpenAgent = Callable[[Mapping[str, Any]], Agent]
"""From what an attempt is lent to whom it talks with."""


def always(agent: Agent) -> OpenAgent:
    return lambda lent: agent


@dataclass(frozen=True, slots=True)
class DeclaredConversations:
    """What an experiment says of conversations, read to the end."""

    functions: Sequence[Callable[..., Any]]
    """The tools."""
    system: str | None
    max_steps: int
    rules: ArgumentRules
    file: Path | None = None
    """Where the tools are."""
    asks_models: bool = False
    """Whether somebody takes part who has no tools but these."""

    def check_offers(self, conversation: Conversation) -> None:
        expected = [call.name for turn in conversation.turns for call in turn.calls or ()]
        if expected and self.asks_models and not self.functions:
            raise DatasetError(
                f"conversation {conversation.id!r}: the tool {expected[0]!r} is expected, and no tools are "
                "offered: name the file that has them, `tools: tools.py`"
            )

    def scoring(self, judge: Asked | None, environ: Mapping[str, str]) -> Scoring:
        schemas = definitions([one.definition for one in tools_of(self.functions)])
        if judge is None:
            return Scoring(schemas, self.rules)
        model, arguments = open_model(judge, environ)
        return Scoring(schemas, self.rules, model, arguments)

    def sources(self) -> dict[str, str]:
        """What the tools' file says, as a fingerprint has it: a change of it is told."""
        return {} if self.file is None else {f"script {self.file.name}": source_text(self.file)}

    def open_function(self, asked: Asked) -> Agent:
        """`{agent: python, function: module:name}`: an async function of a turn."""
        where = f"{asked.entry.where('function')}: models.{asked.name}: function"
        function = function_named(str(asked.entry.get("function", "")), asked.entry.folder("function"), where)
        try:
            return as_agent(function, system=None, max_steps=self.max_steps, asked={})
        except OptionError as error:
            raise OptionError(f"{where}: {error}") from None

    def open_program(self, program: Any, lent: Mapping[str, Any]) -> Agent:
        """A program, in the workspace that the attempt is lent."""
        return ProgramAgent(program, lent["workspace"].path, self.system, lent.get("gateway"))

    def open_models(self, asked: Asked, environ: Mapping[str, str]) -> Agent:
        """A model, or a student with a teacher, as one who takes part."""
        if asked.student is None or asked.teacher is None:
            model, arguments = open_model(asked, environ)
            return as_agent(model, system=self.system, max_steps=self.max_steps, asked=arguments)
        student, student_asked = open_model(asked.student, environ)
        teacher, teacher_asked = open_model(asked.teacher, environ)
        teaching = asked.entry.get("teaching", "review")
        pair = Pair(student, teacher, teaching, student_asked, teacher_asked)
        return as_agent(pair, system=self.system, max_steps=self.max_steps, asked={})


@dataclass(frozen=True, slots=True)
class ConversationTask:
    """The same for every row of an evaluation. Its `evaluate` is the evaluation's function."""

    open_agent: OpenAgent
    functions: Sequence[Callable[..., Any]]
    scoring: Scoring
    database: str | None = None
    """Which argument is a database."""

    @stops_without_key
    async def evaluate(self, /, **values: Any) -> Result:
        conversation = read_conversation(values[COLUMN])
        played = await self._played(conversation, values)
        return await score_conversation(conversation, played, self.scoring)

    async def _played(self, conversation: Conversation, values: Mapping[str, Any]) -> Played:
        """What was played before where only scores are missing: nobody is asked, or paid, twice."""
        sample = SAMPLE.get()
        if sample is not None and sample.answer is not None:
            return Played.of(sample.answer)
        db = None if self.database is None else values[self.database]
        toolbox = Toolbox(self.functions, db)
        played = await play(conversation, self.open_agent(values), toolbox, db, self.scoring)
        if sample is not None:
            sample.answer = played.to_plain()
            if conversation.needs_judge:
                await sample.keep_answer()
        return played


class ConversationRows:
    """Rows whose samples take the whole row as one argument, whichever keys it has."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.size = rows.size
        self.close = rows.close
        self.fingerprint = rows.fingerprint
        self.is_whole = rows.is_whole
        self.lacking = rows.lacking

    async def next(self, at_most: int) -> list[Sample]:
        samples = await self._rows.next(at_most)
        return [replace(one, values={COLUMN: from_json(one.row_json)}) for one in samples]


def with_ids(source: Source) -> Source:
    """`conversation_id` names rows where the dataset says nothing else."""

    def named() -> Iterator[dict[str, Any]]:
        for row in source.open():
            is_named = "id" in row or "conversation_id" not in row
            yield row if is_named else {**row, "id": row["conversation_id"]}

    return replace(source, open=named)


def row_problems(
    declared: DeclaredConversations, source: Source, judge: Asked | None, *, has_database: bool
) -> Iterator[str]:
    """What is wrong with rows of a file, before anybody is asked: with each of the first so many that are."""
    if source.path is None:
        return  # nothing is fetched for the sake of looking
    offered = definitions([one.definition for one in tools_of(declared.functions)])
    scoring = Scoring(offered, declared.rules, judge)
    wrong = 0
    ids: dict[str, int] = {}
    try:
        for number, row in enumerate(source.open(), 1):
            try:
                _check_id(row, number, ids)
                conversation = read_conversation(row)
                scoring.check(conversation)
                scoring.check_arguments(conversation)
                check_database(conversation, has_database=has_database)
                declared.check_offers(conversation)
            except (DatasetError, OptionError) as error:
                wrong += 1
                yield f"row {number} of {source.label}: {error}"
                if wrong == _MOST_TOLD:
                    return
    except DatasetError as error:
        yield str(error)


def _check_id(row: Mapping[str, Any], number: int, seen: dict[str, int]) -> None:
    if row.get("id") is not None and (first := seen.setdefault(str(row["id"]), number)) != number:
        raise DatasetError(f"row {first} has the id {row['id']!r}, too; ids must be unique within a dataset")


def refuse_keys_of_conversations(entry: Entry) -> None:
    """In an experiment of another mode."""
    for key in _ONLY_HERE:
        if key in entry.values:
            raise OptionError(
                f"{entry.where(key)}: experiments.{entry.name}: `{key}:` is for `evaluation_mode: {MODE}`"
            )


def conversations_of(
    entry: Entry, sources: Sequence[Source], asked: Sequence[Asked], judge: Asked | None
) -> DeclaredConversations:
    """What the experiment says; `OptionError` with file, line and remedy."""
    who = f"experiments.{entry.name}"
    for key, why in _NOT_HERE.items():
        if key in entry.values:
            raise OptionError(
                f"{entry.where(key)}: {who}: `{key}:` is not for `evaluation_mode: {MODE}`: {why}"
            )
    try:
        rules = as_rules(entry.get("arguments", "exact"))
    except OptionError as error:
        raise OptionError(f"{entry.where('arguments')}: {who}: {error}") from None
    functions, file = tool_functions(entry, f"{entry.where('tools')}: {who}: tools")
    found = DeclaredConversations(
        functions,
        entry.get("system"),
        int(entry.get("max_steps", MAX_STEPS)),
        rules,
        file,
        asks_models=any(not one.is_agent for one in asked),
    )
    _check_connections(entry, found, who)
    for source in sources:
        first = replace(source, open=lambda rows=source.open: islice(rows(), 1))  # type: ignore[misc]
        for problem in row_problems(found, first, judge, has_database="sandbox" in entry.values):
            raise OptionError(f"{source.where}: {problem}")
    return found


def _check_connections(entry: Entry, declared: DeclaredConversations, who: str) -> None:
    if "sandbox" in entry.values:
        return
    try:
        Toolbox(declared.functions)
    except OptionError as error:
        raise OptionError(f"{entry.where('tools')}: {who}: {error}") from None
