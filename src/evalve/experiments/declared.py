"""An experiment of the file, read to the end: its datasets, whom it asks, what it asks them, what scores."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalve.conversations.scoring import SCORES
from evalve.declare.rows import lacks
from evalve.declare.templates import TemplateProblem, columns_of, filled
from evalve.errors import DatasetError, OptionError
from evalve.experiments.file.document import Document
from evalve.experiments.file.keys import EXPERIMENT
from evalve.experiments.file.resolving import Entry, entry_of, over
from evalve.experiments.ordering import Order
from evalve.experiments.parts.conversations import (
    MODE,
    DeclaredConversations,
    conversations_of,
    refuse_keys_of_conversations,
    with_ids,
)
from evalve.experiments.parts.lanes import check_lanes
from evalve.experiments.parts.models import Asked, asked_named
from evalve.experiments.parts.rows import Source, file_entry, is_file_name, source_of
from evalve.experiments.parts.scoring import Scorer, check_gates, scorers_of
from evalve.experiments.parts.tools import OfferedTools, tools_of
from evalve.options import Threshold, from_mapping, suggestion

_THROUGHPUT = frozenset(key.name for key in EXPERIMENT.keys if key.throughput) | {"datasets", "models"}


@dataclass(frozen=True, slots=True)
class Declared:
    """An experiment that can be run."""

    entry: Entry
    folder: Path
    """Where the file is: `{project}` for agents."""
    sources: Sequence[Source]
    asked: Sequence[Asked]
    judge: Asked | None
    prompt: str
    files: Mapping[str, Any]
    expected: str | None
    """A template, or `None`."""
    scorers: Sequence[Scorer]
    document: Document
    """The file, for what the experiment names in it."""
    tools: OfferedTools | None = None
    conversations: DeclaredConversations | None = None
    """In place of prompt, files, expected, scorers and tools, where conversations are played."""

    @property
    def name(self) -> str:
        return self.entry.name

    def columns(self, source: Source) -> tuple[str, ...]:
        """Those that the experiment needs of a dataset's rows."""
        if self.conversations is not None:
            return ("turns",)
        if any("row" in inspect.signature(scorer.function).parameters for scorer in self.scorers):
            return tuple(source.first() or ())
        templates = [self.prompt, *([self.expected] if self.expected else []), *_file_templates(self.files)]
        others = [column for scorer in self.scorers for column in scorer.columns().values()]
        if self.tools is not None and self.tools.column is not None:
            others.append(self.tools.column)
        return tuple(dict.fromkeys([*(c for one in templates for c in columns_of(one)), *others]))

    def recorded(self) -> str:
        """What of it belongs to an evaluation; how fast it runs, and how much of it, may change."""
        plain = {
            key: [value] if key == "evaluators" and not isinstance(value, list) else value
            for key, value in self.entry.values.items()
            if key in EXPERIMENT.by_name and key not in _THROUGHPUT
        }
        return json.dumps(plain, indent=1, sort_keys=True, default=str)


def is_runnable(document: Document, name: Any) -> bool:
    return "datasets" in entry_of(document, "experiments", name).values


def runnable_names(document: Document) -> list[str]:
    """The experiments that `evalve run` can run."""
    return [str(name) for name in document.section("experiments") if is_runnable(document, name)]


def declared_named(
    document: Document,
    name: str,
    said: Mapping[str, Any] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Declared:
    """The experiment, with what was `said` in place of its keys; `OptionError` with file, line and remedy.

    `flags` are those that said it, where they are not called like the keys.
    """
    entry = over(entry_of(document, "experiments", _key(document, name)), said or {}, flags)
    declared = _declared(document, name, entry)
    check_lanes(declared)
    Order.of(declared.entry, document, [asked.name for asked in declared.asked])
    return declared


def _declared(document: Document, name: str, entry: Entry) -> Declared:
    folder = document.path.parent
    if "datasets" not in entry.values:
        raise OptionError(
            f"{entry.place}: experiments.{name} has no `datasets:`, so there is nothing to run; its options "
            f"hold for `evalve run FILE --experiment {name}`"
        )
    sources = [source_of(dataset_named(document, entry, one)) for one in entry.names("datasets")]
    where = entry.where("models")
    asked = [
        asked_named(document, one, where=where, who=f"experiments.{name}") for one in entry.names("models")
    ]
    _check_models(entry, asked)
    sandbox = entry.get("sandbox")
    if sandbox is not None and sandbox not in document.section("sandboxes"):
        raise OptionError(
            f"{entry.where('sandbox')}: experiments.{name}: `sandboxes:` has no {sandbox!r}; add it there"
        )
    judge = entry.get("judge_model")
    judged = judge and asked_named(
        document, str(judge), where=entry.where("judge_model"), who=f"experiments.{name}"
    )
    if judged and (judged.is_agent or judged.is_pair):
        kind = "an agent" if judged.is_agent else "a student with a teacher"
        raise OptionError(
            f"{entry.where('judge_model')}: experiments.{name}: the judge {judge!r} is {kind}; name an API "
            "model"
        )
    if entry.get("evaluation_mode") == MODE:
        return _of_conversations(document, entry, [with_ids(one) for one in sources], asked, judged or None)
    refuse_keys_of_conversations(entry)
    _check_names(entry)
    prompt, expected = _texts(entry)
    declared = Declared(
        entry=entry,
        folder=folder,
        sources=sources,
        asked=asked,
        judge=judged or None,
        prompt=prompt,
        files=entry.get("files", {}),
        expected=expected,
        scorers=scorers_of(entry, judge=judged or None),
        document=document,
        tools=tools_of(entry),
    )
    _check_columns(declared)
    _check_paths(declared)
    check_gates_of(declared, _gates(entry), f"{entry.where('fail_under')}: experiments.{name}: fail_under")
    return declared


def _of_conversations(
    document: Document, entry: Entry, sources: Sequence[Source], asked: Sequence[Asked], judge: Asked | None
) -> Declared:
    declared = Declared(
        entry=entry,
        folder=document.path.parent,
        sources=sources,
        asked=asked,
        judge=judge,
        prompt="",
        files={},
        expected=None,
        scorers=(),
        document=document,
        conversations=conversations_of(entry, sources, asked, judge),
    )
    where = f"{entry.where('fail_under')}: experiments.{entry.name}: fail_under"
    check_gates_of(declared, _gates(entry), where)
    return declared


def _gates(entry: Entry) -> Sequence[Threshold]:
    said = {"fail_under": entry.get("fail_under")}
    return from_mapping(said, said_by=f"experiments.{entry.name}").fail_under or ()


def check_gates_of(declared: Declared, gates: Sequence[Threshold], where: str) -> None:
    """`OptionError` for a gate that no score of the experiment can have."""
    names = [str(scorer.arguments.get("name") or scorer.name) for scorer in declared.scorers]
    if not any(scorer.is_own for scorer in declared.scorers):  # whose scores may have any names
        check_gates(SCORES if declared.conversations is not None else names, gates, where)


def _key(document: Document, name: str) -> Any:
    known = {str(key): key for key in document.section("experiments")}
    if name not in known:
        hint = suggestion(name, known) or (f"; there is: {', '.join(known)}" if known else "")
        raise OptionError(f"{document.path}: no experiment {name!r}{hint}")
    return known[name]


def dataset_named(document: Document, entry: Entry, name: str) -> Entry:
    known = {str(key): key for key in document.section("datasets")}
    if name not in known and is_file_name(name):
        return file_entry(document, entry, name)
    if name not in known:
        hint = suggestion(name, known) or (
            f" (there is: {', '.join(known)})" if known else "; add it under `datasets:`"
        )
        raise OptionError(
            f"{entry.where('datasets')}: experiments.{entry.name}: there is no dataset {name!r}{hint}"
        )
    return entry_of(document, "datasets", known[name])


def _check_models(entry: Entry, asked: Sequence[Asked]) -> None:
    whose = f"experiments.{entry.name}"
    if not asked:
        raise OptionError(f"{entry.place}: {whose} names no model: add `models: [NAME]`, or say --model NAME")
    mode = entry.get("evaluation_mode")
    if mode == MODE:
        return
    if pair := next((one.name for one in asked if one.is_pair), None):
        raise OptionError(
            f"{entry.where('models')}: {whose}: {pair!r} is a student with a teacher, which is for "
            f"`evaluation_mode: {MODE}`"
        )
    for one in asked:
        if mode is not None and one.mode != mode:
            is_one = "an agent" if one.is_agent else "a model that is asked directly"
            raise OptionError(
                f"{entry.where('evaluation_mode')}: {whose} says evaluation_mode: {mode}, and {one.name!r} "
                f"is {is_one}; write evaluation_mode: {one.mode}, or name another model"
            )
        if not one.is_agent and "files" in entry.values:
            raise OptionError(
                f"{entry.where('files')}: {whose}: files are for agents, which have a workspace, and "
                f"{one.name!r} is asked directly: put the column into `prompt:`"
            )
        for key in ("system", "tools"):
            if one.is_agent and key in entry.values:
                raise OptionError(
                    f"{entry.where(key)}: {whose}: `{key}:` is for models, {one.name!r} is an agent"
                )
        if not one.is_agent and "sandbox" in entry.values:
            raise OptionError(
                f"{entry.where('sandbox')}: {whose}: a sandbox is for agents, and {one.name!r} is asked "
                "directly: nobody would use the database; conversations with tools that use it need "
                f"`evaluation_mode: {MODE}`"
            )


def _texts(entry: Entry) -> tuple[str, str | None]:
    prompt = entry.get("prompt")
    if prompt is None:
        raise OptionError(
            f'{entry.place}: experiments.{entry.name} says nothing to ask: add `prompt: "{{question}}"`, '
            "with a column of the dataset in braces"
        )
    expected = entry.get("expected")
    if expected is not None and "{" not in str(expected):
        expected = "{" + str(expected) + "}"
    texts = [
        ("prompt", prompt),
        ("expected", expected),
        *(("files", one) for one in _file_templates(entry.get("files", {}))),
    ]
    for key, text in texts:
        if text is not None:
            try:
                columns_of(text)
            except TemplateProblem as problem:
                raise OptionError(f"{entry.where(key)}: experiments.{entry.name}: {key}: {problem}") from None
    return str(prompt), expected


def _check_names(entry: Entry) -> None:
    for name in entry.get("files", {}):
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts or name.startswith("~"):
            raise OptionError(
                f"{entry.where('files')}: experiments.{entry.name}: files: {name!r} leads out of the"
                " workspace; a name is a relative path inside it"
            )


def _file_templates(files: Mapping[str, Any]) -> list[str]:
    return [one["path"] if isinstance(one, dict) else str(one) for one in files.values()]


def _check_paths(declared: Declared) -> None:
    """What is copied for every row must be there; what a column names is told by its sample."""
    entry = declared.entry
    for name, content in declared.files.items():
        if isinstance(content, dict) and not columns_of(content["path"]):
            path = entry.folder("files") / Path(filled(content["path"], {})).expanduser()
            if not path.exists():
                where = f"{entry.where('files')}: experiments.{entry.name}"
                raise OptionError(f"{where}: files: {name}: there is no {str(path)!r} to copy")


def _check_columns(declared: Declared) -> None:
    """What the first row of each dataset tells."""
    entry = declared.entry
    for source in declared.sources:
        if source.path is None:
            continue  # nothing is fetched for the sake of looking
        try:
            first = source.first()
        except DatasetError as error:
            raise OptionError(f"{source.where}: {error}") from None
        if first is None:
            continue
        for key, templates in (
            ("prompt", [declared.prompt]),
            ("files", _file_templates(declared.files)),
            ("expected", [declared.expected] if declared.expected else []),
            ("tools", [f"{{{declared.tools.column}}}"] if declared.tools and declared.tools.column else []),
            (
                "evaluators",
                [f"{{{one}}}" for scorer in declared.scorers for one in scorer.columns().values()],
            ),
        ):
            for column in (column for one in templates for column in columns_of(one)):
                if column not in first:
                    raise OptionError(
                        f"{entry.where(key)}: experiments.{entry.name}: {key} names the column {column!r}, "
                        f"and row 1 of {source.label} {lacks(column, [str(name) for name in first])}"
                    )
