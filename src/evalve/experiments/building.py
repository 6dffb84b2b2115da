"""From a declared experiment to ordinary evaluations: one for each dataset and each model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evalve.concurrency import Adaptive
from evalve.contracts import EvaluationSpec, Lender, Rows, Runnable, Strategy
from evalve.declare.datasets import Dataset
from evalve.declare.rows import lacks
from evalve.errors import AgentError, DatasetError, OptionError
from evalve.experiments.answering import Ask, Task, asking_model
from evalve.experiments.declared import Declared
from evalve.experiments.file.configuration import project_folder
from evalve.experiments.parts.conversations import (
    COLUMN,
    ConversationRows,
    ConversationTask,
    DeclaredConversations,
    OpenAgent,
    always,
)
from evalve.experiments.parts.lanes import in_lanes
from evalve.experiments.parts.models import Asked, open_model
from evalve.experiments.parts.rows import SizedRows, Source
from evalve.experiments.parts.sandboxes import postgres_in
from evalve.experiments.parts.scoring import Scorer
from evalve.experiments.parts.scripts import check_scripts, sources_of
from evalve.jsontext import to_json
from evalve.options import Options
from evalve.runner.retries import is_network_error

DATABASE = "database"
"""Under this name a conversation is lent its database."""
METHOD = "yaml 2"
"""How the fingerprint is made: another method tells nothing about a change."""


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who answers: how to ask, what each attempt is lent, how many at once by default."""

    evaluate: Callable[[Sequence[Scorer]], Callable[..., Any]]
    """From the scorers to the function that answers and scores a row."""
    lenders: Mapping[str, Lender]
    recommended_concurrency: int | None = None
    models: tuple[str, ...] | None = None
    """The model, as `--model` names it, where that is known."""


@dataclass(frozen=True, slots=True)
class Built:
    """An evaluation, and what takes a while before it can run: counting its rows. On any thread."""

    runnable: Runnable
    prepare: Callable[[], object]


def build(
    declared: Declared, options: Options, environ: Mapping[str, str], *, experiment: str
) -> list[Built]:
    """The evaluations of an experiment, in the order of the file."""
    scorers = [_with_judge(scorer, environ) for scorer in declared.scorers]
    found = []
    for asked in declared.asked:
        named = asked.callable_name(environ)
        who = replace(_who(declared, asked, environ), models=None if named is None else (named,))
        for source in declared.sources:
            runnable = _evaluation(declared, asked, source, who, scorers, options, experiment)
            runnable = in_lanes(runnable, declared, asked)
            found.append(Built(runnable, partial(_size, source, options.samples)))
    return found


def _size(source: Source, limit: int | None) -> tuple[int | None, bool]:
    """How many rows are asked for, and whether these are all: one more is looked for. May read the file."""
    found = source.count(None if limit is None else limit + 1)
    if found is None or limit is None or found <= limit:
        return found, True
    return limit, False


def _evaluation(
    declared: Declared,
    asked: Asked,
    source: Source,
    who: Who,
    scorers: Sequence[Scorer],
    options: Options,
    experiment: str,
) -> Runnable:
    columns = declared.columns(source)
    evaluate = who.evaluate(scorers)
    own = replace(options, model=who.models, experiment=experiment)
    if own.max_concurrency is None and who.recommended_concurrency is not None:
        own = replace(own, max_concurrency=who.recommended_concurrency)
    name = f"{source.name}[{asked.name}]"
    fingerprint = {
        "method": METHOD,
        "experiment": declared.recorded(),
        "captured model": asked.recorded(),
        **{f"lender {name}": str(settings) for name, settings in _states(who.lenders)},
        **({"judge_model": declared.judge.recorded()} if declared.judge is not None else {}),
        **sources_of(asked, declared.folder, declared.entry),
        **({"tools": to_json(declared.tools.tools)} if declared.tools is not None else {}),
        **({} if declared.conversations is None else declared.conversations.sources()),
    }
    return Runnable(
        spec=EvaluationSpec(
            experiment=experiment,
            key=f"{declared.entry.place.path.name}::{name}",
            name=name,
            columns=columns if declared.conversations is None else (COLUMN,),
            fingerprint=fingerprint,
        ),
        function=evaluate,
        call=evaluate,
        is_async=True,
        rows=_rows_of(declared, source, columns, own.samples),
        options=own,
        strategy=_auto(who) if own.max_concurrency == "auto" else None,
        retries=_retries(declared.entry.get("retries"), is_agent=asked.is_agent),
        lenders=who.lenders,
        variant={"model": asked.name},
        path=str(declared.entry.place.path),
        scores_answers=declared.conversations is not None or bool(scorers),
    )


def _states(lenders: Mapping[str, Lender]) -> Iterator[tuple[str, Any]]:
    """What lenders of databases begin with; workspaces begin with what the experiment itself says."""
    for name, lender in lenders.items():
        if hasattr(type(lender), "run_begins"):
            yield name, getattr(lender, "settings", {})


def _auto(who: Who) -> Strategy:
    """Where `auto` begins: with what the adapter recommends."""
    return Adaptive() if who.recommended_concurrency is None else Adaptive(who.recommended_concurrency)


def _retries(tries: int | None, *, is_agent: bool) -> Any:
    """For a model, when the network fails; for an agent, also when it breaks: it has no score yet."""
    if tries is None or not is_agent:
        return tries
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

    return AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, AgentError) or is_network_error(error)),
        stop=stop_after_attempt(tries),
        wait=wait_exponential_jitter(initial=1.0, max=30.0),
    )


def _rows_of(
    declared: Declared, source: Source, columns: tuple[str, ...], limit: int | None
) -> Callable[[], Rows]:
    if declared.conversations is None:
        return lambda: _rows(source, columns, limit)
    return lambda: ConversationRows(_rows(source, columns, limit))


def _rows(source: Source, columns: tuple[str, ...], limit: int | None) -> Rows:
    def checked() -> Any:
        for number, row in enumerate(source.open(), 1):
            for column in columns:
                if column not in row:
                    raise DatasetError(f"row {number} of {source.label} {lacks(column, list(row))}")
            yield row

    dataset = Dataset(checked, columns, source.where)
    dataset.label = source.label
    size, is_all = _size(source, limit)
    return SizedRows(dataset.open(limit), size, is_all=is_all)


def _answering(declared: Declared, ask: Ask, lent: Sequence[str] = ()) -> Callable[..., Any]:
    def evaluate(scorers: Sequence[Scorer]) -> Callable[..., Any]:
        task = Task(declared.prompt, declared.expected, scorers, ask, declared.tools, lent=tuple(lent))
        return task.evaluate

    return evaluate


def _who(declared: Declared, asked: Asked, environ: Mapping[str, str]) -> Who:
    if declared.conversations is not None:
        return _who_converses(declared, declared.conversations, asked, environ)
    if not asked.is_agent:
        model, arguments = open_model(asked, environ)
        ask = asking_model(model, arguments, declared.entry.get("system"), declared.tools)
        return Who(_answering(declared, ask), {})
    from evalve.experiments.parts import agents  # with the supervisor, which models do without

    taken = {column for source in declared.sources for column in declared.columns(source)}
    database = postgres_in(declared.document) if "sandbox" in declared.entry.values else None
    agent, lenders = _program(declared, asked, environ, taken, database)
    ask = agents.asking_agent(
        agent, declared.files, folder=declared.entry.folder("files"), lent=list(lenders)
    )
    return Who(_answering(declared, ask, list(lenders)), lenders, agent.recommended_concurrency)


def _who_converses(
    declared: Declared, conversations: DeclaredConversations, asked: Asked, environ: Mapping[str, str]
) -> Who:
    database = postgres_in(declared.document) if "sandbox" in declared.entry.values else None
    lenders: dict[str, Lender] = {} if database is None else {DATABASE: database}
    recommended = None
    if asked.is_program:
        program, lenders = _program(declared, asked, environ, {COLUMN}, database)
        open_agent: OpenAgent = partial(conversations.open_program, program)
        recommended = program.recommended_concurrency
    elif asked.is_agent:
        open_agent = always(conversations.open_function(asked))
    else:
        open_agent = always(conversations.open_models(asked, environ))
        if database is not None:
            database.keeps_addresses()  # models have tools, and nothing else
    scoring = conversations.scoring(declared.judge, environ)
    lent = None if database is None else DATABASE
    task = ConversationTask(open_agent, conversations.functions, scoring, lent)
    return Who(lambda scorers: task.evaluate, lenders, recommended)


def _program(
    declared: Declared,
    asked: Asked,
    environ: Mapping[str, str],
    taken: Collection[str],
    database: Lender | None,
) -> tuple[Any, dict[str, Lender]]:
    """An agent that can start, and what each attempt of it is lent."""
    from evalve.experiments.parts import agents  # with the supervisor, which models do without

    agent = agents.open_agent(asked, environ, folder=declared.folder)
    check_scripts(asked, declared.folder, declared.files)
    if (missing := agent.missing()) is not None:
        raise OptionError(f"{asked.entry.place}: models.{asked.name}: {missing}")
    keep = declared.entry.get("keep", "failed")
    return agent, agents.lenders_for(asked, project_folder(Path.cwd()), keep, taken, database)


def _with_judge(scorer: Scorer, environ: Mapping[str, str]) -> Scorer:
    judge = scorer.arguments.get("model")
    if not isinstance(judge, Asked):
        return scorer
    model, arguments = open_model(judge, environ)
    return replace(scorer, arguments={**scorer.arguments, **arguments, "model": model})
