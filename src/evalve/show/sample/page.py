"""`show NAME SAMPLE`: one sample in full, with the trace of what it did."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from evalve.contracts import EvaluationInfo, RecordQuery, Store
from evalve.errors import NotFound, StorageError
from evalve.options import suggestion
from evalve.records import Failure, Record, Score
from evalve.show import figures
from evalve.show.exports.exporting import export_row
from evalve.show.finding import evaluations_of, experiment_named
from evalve.show.overview import repeats_of
from evalve.show.sample.conversation import conversation_lines, is_conversation
from evalve.show.sample.timeline import timeline
from evalve.show.tables import block, visible

_SUGGESTED_FROM = 1000
_WITHOUT_TEXTS = RecordQuery(with_texts=False)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sample, as a person said it."""

    experiment: str
    sample_id: str
    evaluation: str | None = None
    repeat: int | None = None
    """`None` for all of them."""


@dataclass(frozen=True, slots=True)
class Found:
    """A record of the sample, and what it did."""

    label: str
    record: Record
    events: list[dict[str, Any]]


def find_sample(store: Store, wanted: Wanted) -> list[Found]:
    """Every record of the sample, by evaluation and repeat; there is at least one."""
    experiment = experiment_named(store, wanted.experiment).name
    evaluations = evaluations_of(store, experiment, wanted.evaluation)
    found = [
        Found(one.label, record, store.trace(record.id))
        for one in evaluations
        for record in _records_of(store, one.info, wanted.sample_id)
    ]
    if not found:
        pages = (store.page(one.info, _WITHOUT_TEXTS, limit=_SUGGESTED_FROM) for one in evaluations)
        known = [record.sample_id for page in pages for record in page.records]
        hint = suggestion(wanted.sample_id, known) or f"; `evalve show {experiment}` lists its samples"
        raise NotFound(f"experiment {experiment!r} has no record of a sample {wanted.sample_id!r}{hint}")
    chosen = [one for one in found if wanted.repeat in (None, one.record.repeat)]
    if not chosen:
        repeats = ", ".join(str(one.record.repeat) for one in found)
        raise NotFound(f"sample {wanted.sample_id!r} has no repeat {wanted.repeat}; it has {repeats}")
    return chosen


def _records_of(store: Store, info: EvaluationInfo, sample_id: str) -> Iterator[Record]:
    """Those of every repeat, each looked up: reading all records would take long where there are many."""
    repeats = repeats_of(store.runs(info.id))
    for repeat in count():
        try:
            yield store.record_of(info, sample_id, repeat)
        except NotFound:
            if repeat >= repeats - 1:
                return  # an earlier one may still be on its way


def sample_json(found: list[Found]) -> str:
    """The same for machines: a list, because a sample has a record per evaluation and repeat."""
    return json.dumps([_as_plain(one) for one in found], indent=2)


def _as_plain(one: Found) -> dict[str, Any]:
    record = one.record
    failure = record.failure
    return {
        **export_row(record, one.label),
        "failure_class": failure.failure_class if failure and record.status == "failed" else None,
        "history": [asdict(each) for each in record.history],
        "trace": one.events,
    }


def sample_text(found: list[Found], *, full: bool) -> Iterator[str]:
    for place, one in enumerate(found):
        if place:
            yield ""
        yield from _in_full(one, full=full)


def _in_full(one: Found, *, full: bool) -> Iterator[str]:
    record = one.record
    parts = [record.experiment, one.label, record.sample_id]
    if record.repeat:
        parts.append(f"repeat {record.repeat}")
    yield visible(" · ".join(parts))
    yield from _facts(record)
    yield from _scores(record, full=full)
    yield from _contents(record, full=full)
    if not one.events:
        yield "  trace     no events"
        return
    yield f"  trace     {figures.plural(len(one.events), 'event')}"
    yield from timeline(one.events, started_at=record.started_at, full=full, indent="    ")


def _facts(record: Record) -> Iterator[str]:
    more = f" ({record.failure.failure_class})" if record.status == "failed" and record.failure else ""
    more = " and not scored yet" if record.status == "answered" else more
    yield f"  status    {record.status}{more}"
    yield f"  started   {figures.when(record.started_at)}"
    yield (
        f"  time      {figures.duration(record.wall_s)} wall,"
        f" {figures.duration(record.working_s)} working, {figures.tries(record)}"
    )
    for number, one in enumerate(record.history, start=1):
        outcome = visible(one.error) if one.error else "done"
        yield f"  try {number:<6}{figures.duration(one.wall_s)}, {outcome}"
    for who, made in figures.calls_by_role(record.calls or {}):
        yield f"  {who:<9} {made}"
    for name, noted in (record.lent or {}).items():
        if name == "agents" and isinstance(noted, list):
            for run in noted:
                yield visible(f"  agent     {figures.agent(run)}")
        else:
            yield visible(f"  lent      {name}: {figures.text_of(noted)}")


def _scores(record: Record, *, full: bool) -> Iterator[str]:
    """Where a name has several that are right or wrong, right ones are only counted; so are all of a
    conversation's turns, which are shown with what was wrong."""
    of_name: dict[str, list[Score]] = {}
    for score in record.scores:
        of_name.setdefault(score.name, []).append(score)
    turns_are_shown = is_conversation(record.response)
    for name, scores in of_name.items():
        told, values = scores, [one.value for one in scores]
        is_of_turns = turns_are_shown and all("turn" in one.metadata for one in scores)
        is_counted = is_of_turns or (
            len(scores) > 1 and all(value in (True, False, None) for value in values)
        )
        if is_counted and not full:
            yield visible(f"  score     {name}: {_counted(values)}")
            told = [] if is_of_turns else [one for one in scores if not one.value]
        for score in told:
            metadata = f"  {figures.text_of(score.metadata)}" if score.metadata else ""
            yield visible(f"  score     {name}: {figures.score_text(score.value)}{metadata}")


def _counted(values: list[Any]) -> str:
    told = [value for value in values if value is not None]
    untold = f"{len(values) - len(told)} unscored" if len(told) < len(values) else ""
    right = figures.out_of(sum(map(bool, told)), len(told)) if told else ""
    return ", ".join(filter(None, [right, untold]))


def _contents(record: Record, *, full: bool) -> Iterator[str]:
    if record.failure is not None:
        yield "  failure" if record.status == "failed" else "  skipped"
        yield from block(_failure_text(record.failure), indent="    ")
    contents = {"row": record.row, "prompt": record.prompt, "response": record.response}
    if is_conversation(record.response):
        yield from conversation_lines(record.response, full=full)
        contents = {"row": record.row} if full else {}
    for name, content in contents.items():
        if content is not None:
            yield f"  {name}"
            yield from block(figures.text_of(content), indent="    ")


def _failure_text(failure: Failure) -> str:
    return failure.traceback.rstrip() or str(failure)


def save_files(store: Store, found: list[Found], folder: Path) -> Iterator[str]:
    """Write the files that the sample kept to the folder; says what was written where."""
    taken: set[str] = set()
    for one in found:
        for event in one.events:
            if event.get("kind") == "file" and isinstance(event.get("hash"), str):
                path = folder / _free_name(str(event.get("name")), taken)
                _save(store, event["hash"], path)
                yield visible(f"saved {path}")
    if not taken:
        yield "the sample kept no files"


def _free_name(name: str, taken: set[str]) -> str:
    """A name without folders, given once: what a sample calls a file must not lead anywhere else."""
    plain = Path(name.replace("\\", "/")).name
    if plain in ("", ".", "..") or "\0" in plain:
        plain = "file"
    stem, suffix = Path(plain).stem, Path(plain).suffix
    number = 1
    while plain in taken:
        number += 1
        plain = f"{stem}-{number}{suffix}"
    taken.add(plain)
    return plain


def _save(store: Store, content_hash: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with store.open_artefact(content_hash) as kept, path.open("xb") as file:
            shutil.copyfileobj(kept, file)
    except FileExistsError:
        raise StorageError(f"{path} exists already; nothing is written over: name another folder") from None
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
