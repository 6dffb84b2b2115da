"""Samples on a terminal: a table of them, or each in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from evalve import metrics
from evalve.contracts import EvaluationInfo, Store
from evalve.records import Failure, FailureClass, Record, Score, Status
from evalve.show import figures
from evalve.show.overview import skip_reason
from evalve.show.sample.conversation import conversation_lines, is_conversation, what_was_wrong
from evalve.show.tables import Column, block, table, visible, width_of

Which = Literal["all", "errors", "failed", "skipped"]
"""all; errors: samples that broke; failed: samples that were scored and are wrong; skipped: neither."""

LIMIT = 20
_TRACEBACK_LINES = 8
_SCORE_CELLS = 24
_STATUS: dict[Which, Status] = {"errors": "failed", "skipped": "skipped"}
_NONE: dict[Which, str] = {
    "all": "no samples yet",
    "errors": "no sample failed",
    "failed": "no wrong answers",
    "skipped": "no sample was skipped",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Which samples to show, how many of them, and how much of each."""

    which: Which = "all"
    limit: int | None = None
    full: bool = False
    failure_class: FailureClass | None = None
    """Only failures of this class, where errors are chosen."""

    @property
    def at_most(self) -> int | None:
        """`None` for all: asked for with `full`, unless a limit is said."""
        if self.limit is not None:
            return self.limit
        return None if self.full else LIMIT


def chosen(store: Store, info: EvaluationInfo, choice: Choice) -> Iterator[Record]:
    """The evaluation's records in dataset order, read as they are asked for."""
    records = store.records(info, status=_STATUS.get(choice.which))
    if choice.which == "failed":
        return filter(is_wrong, records)
    wanted = choice.failure_class
    return records if wanted is None else (record for record in records if record.failure_class == wanted)


def is_wrong(record: Record) -> bool:
    """Scored, and one of the scores says so. A sample that broke is not wrong: it is unscored."""
    return record.ok and any(metrics.is_wrong(score.value, score.metrics) for score in record.scores)


def samples_text(
    store: Store, info: EvaluationInfo, choice: Choice, *, width: int | None, hints: bool = True
) -> Iterator[str]:
    """The lines that show the chosen samples, and how many were left out; `hints` name the options."""
    shown, left_out = _first(store, info, choice)
    if choice.full:
        for record in shown:
            yield from _in_full(record)
    elif choice.which in ("errors", "skipped"):
        for record in shown:
            yield from _error(record)
    elif shown:
        yield from _table(shown, choice.which, width)
    if not shown and not left_out:
        whose = f" of class {choice.failure_class}" if choice.failure_class else ""
        yield f"{_NONE[choice.which]}{whose}"
    if left_out:
        yield f"… and {left_out} more" + (": --full shows all, --limit N the first N" if hints else "")
    if hints and choice.which == "all" and not choice.full and info.failed:
        yield "--errors shows why samples failed"
    if hints and choice.which == "all" and not choice.full and info.skipped:
        yield "--skipped shows why samples were skipped"


def _first(store: Store, info: EvaluationInfo, choice: Choice) -> tuple[list[Record], int]:
    """The first samples, and how many more there are: counted for wrong answers, otherwise known."""
    records = chosen(store, info, choice)
    shown = list(islice(records, choice.at_most))
    if choice.which == "failed":
        return shown, sum(1 for _ in records)
    return shown, max(0, _known(info, choice) - len(shown))


def _known(info: EvaluationInfo, choice: Choice) -> int:
    if choice.failure_class is not None:
        return info.failures.get(choice.failure_class, 0)
    if choice.which == "errors":
        return info.failed
    return info.skipped if choice.which == "skipped" else info.done + info.failed + info.skipped


def _table(records: Sequence[Record], which: Which, width: int | None) -> list[str]:
    repeats = any(record.repeat for record in records)
    answers = which == "failed"
    names = list(dict.fromkeys(score.name for record in records for score in record.scores))
    columns = [
        Column("sample"),
        *([Column("repeat", align="right")] if repeats else []),
        *([] if answers else [Column("status")]),
        *_score_columns(names),
        Column("time", align="right"),
        *([] if answers else [Column("tries", align="right")]),
        Column("prompt or row", flexible=True, minimum=13),
        *([Column("response", flexible=True, minimum=12)] if answers else []),
    ]
    rows = [
        [
            record.sample_id,
            *([str(record.repeat)] if repeats else []),
            *([] if answers else [status_text(record)]),
            *_score_cells(record, names),
            figures.duration(record.wall_s),
            *([] if answers else [str(record.tries)]),
            asked(record),
            *([_answer(record)] if answers else []),
        ]
        for record in records
    ]
    return table(columns, rows, width=width)


def _answer(record: Record) -> str:
    if is_conversation(record.response):
        return what_was_wrong(record.response)
    return figures.text_of(record.response)


def _score_columns(names: Sequence[str]) -> list[Column]:
    """A column per score while they are few, otherwise one for all."""
    if not _fit_in_columns(names):
        return [Column("scores", flexible=True, minimum=16)]
    return [Column(visible(name), flexible=True) for name in names]


def _fit_in_columns(names: Sequence[str]) -> bool:
    return len(names) == 1 or sum(width_of(visible(name)) for name in names) <= _SCORE_CELLS


def _score_cells(record: Record, names: Sequence[str]) -> list[str]:
    if not _fit_in_columns(names):
        return [scores_text(record) or "–"]
    values = {name: [score.value for score in record.scores if score.name == name] for name in names}
    return [_values_text(several) or "–" for several in values.values()]


def scores_text(record: Record) -> str:
    """`success False, turn 3/4`."""
    values: dict[str, list[Any]] = {}
    for score in record.scores:
        values.setdefault(score.name, []).append(score.value)
    return ", ".join(f"{name} {_values_text(several)}" for name, several in values.items())


def _values_text(values: Sequence[Any]) -> str:
    """One as it is; of several that are right or wrong, how many are right."""
    if len(values) > 1 and all(isinstance(value, bool) for value in values):
        return figures.out_of(sum(values), len(values))
    return ", ".join(map(figures.score_text, values))


def status_text(record: Record) -> str:
    """`done`, `skipped` or `failed: provider`."""
    return f"failed: {record.failure_class}" if record.failure_class else record.status


def asked(record: Record) -> str:
    """What the sample was about: its prompt, else its row."""
    return figures.text_of(record.prompt if record.prompt is not None else record.row)


def _title(record: Record) -> str:
    parts = [
        visible(record.sample_id),
        *([f"repeat {record.repeat}"] if record.repeat else []),
        status_text(record),
        figures.duration(record.wall_s),
        figures.tries(record),
    ]
    return " · ".join(parts)


def _error(record: Record) -> Iterator[str]:
    yield _title(record)
    failure = record.failure or Failure("unknown", "no failure was stored")
    yield from block(skip_reason(record) if record.status == "skipped" else str(failure), indent="  ")
    tail = _last_frames(failure.traceback)
    # a traceback's last line is the message again
    if tail and failure.message and tail[-1].endswith(failure.message.split("\n")[-1]):
        tail.pop()
    for line in tail:
        yield from block(line, indent="  │ ")
    yield ""


def _last_frames(traceback: str) -> list[str]:
    """The end of a traceback, beginning with a whole frame."""
    lines = traceback.rstrip().split("\n") if traceback.strip() else []
    tail = lines[-_TRACEBACK_LINES:]
    first = next((index for index, line in enumerate(tail) if line.lstrip().startswith("File ")), 0)
    return tail[first:]


def _in_full(record: Record) -> Iterator[str]:
    yield _title(record)
    for score in record.scores:
        yield f"  {visible(score.name)}: {visible(figures.score_text(score.value))}{_metadata(score)}"
    if record.failure is not None:
        yield from block(_why(record, record.failure), indent="  ")
    contents = {"prompt": record.prompt, "response": record.response, "row": record.row}
    if is_conversation(record.response):
        yield from conversation_lines(record.response, full=True)
        contents = {"row": record.row}
    for name, content in contents.items():
        if content is not None:
            yield f"  {name}:"
            yield from block(figures.text_of(content), indent="    ")
    for number, one in enumerate(record.history, start=1):
        outcome = visible(one.error) if one.error else "done"
        yield f"  try {number}: {one.started_at}, {figures.duration(one.wall_s)}, {outcome}"
    yield ""


def _why(record: Record, failure: Failure) -> str:
    if record.status == "skipped":
        return skip_reason(record)
    return failure.traceback.rstrip() or str(failure)


def _metadata(score: Score) -> str:
    return f"  {visible(figures.text_of(score.metadata))}" if score.metadata else ""
