"""Reading a store from outside: what a page of 100 records costs among a thousand and among a million."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measuring import Figure, timed_s
from evalve.contracts import EvaluationSpec, RecordDraft, RecordQuery, ScoreQuery
from evalve.jsontext import to_json
from evalve.records import Sample
from evalve.storage import open_store
from evalve.storage.pages import cursor_at

FEW = 1_000
DOUBLINGS = 10
ROUNDS = 50
FAILED = RecordQuery(status="failed")
WRONG = RecordQuery(score=ScoreQuery("exact_match", wrong=True))
SEARCH = "one step of a search that finds nothing"
PLACES = (0.25, 0.5, 0.75)
"""Pages begin after these shares of the records."""


def measure() -> list[Figure]:
    few, many = Path("few.db"), Path("many.db")
    for path in (few, many):
        _fill(path)
    for _ in range(DOUBLINGS):
        _double(many)
    count = FEW << DOUBLINGS
    few_s, many_s = _times_s(few, FEW), _times_s(many, count)
    figures = []
    for what in ("a page", "how many are done"):
        ratio = many_s[what] / few_s[what]
        figures.append(Figure(f"{what} among {count:,}, against {FEW:,}", ratio, "×", 1.5))
    for what, told_s in many_s.items():
        figures.append(Figure(f"{what} among {count:,}", told_s * 1e3, "ms"))
    return figures


def _times_s(path: Path, count: int) -> dict[str, float]:
    """The best of several rounds, since noise only adds."""
    store = open_store(path)
    (info,) = store.evaluations("pages")
    assert info.done + info.failed == count, info
    starts = [cursor_at(int(count * share), "", 0) for share in PLACES]
    asked: dict[str, Callable[[], object]] = {
        "a page": lambda: [store.page(info, after=after) for after in starts],
        "a page of failures": lambda: [store.page(info, FAILED, after=after) for after in starts],
        "how many are done": lambda: [store.evaluations("pages") for _ in starts],
        SEARCH: lambda: [store.page(info, WRONG, after=after) for after in starts],
    }
    best_s = {
        what: min(timed_s(ask) for _ in range(3 if what == SEARCH else ROUNDS)) / len(starts)
        for what, ask in asked.items()
    }
    store.close()
    return best_s


class _Sink:
    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        assert error is None, error


def _fill(path: Path) -> None:
    store = open_store(path)
    evaluation_id = asyncio.run(store.open_evaluation(EvaluationSpec("pages", "pages", "pages")))
    sink = _Sink()
    for number in range(FEW):
        store.add(_draft(evaluation_id, number), sink)
    store.close()


def _draft(evaluation_id: int, number: int) -> RecordDraft:
    has_failed = number % 100 == 99
    return RecordDraft(
        evaluation_id=evaluation_id,
        sample=Sample(f"{number:08}", number, {}, to_json({"question": f"question {number} " * 20})),
        repeat=0,
        status="failed" if has_failed else "done",
        scores_json=to_json([] if has_failed else [{"name": "exact_match", "value": True}]),
        failure_json=to_json({"kind": "ValueError", "message": "no"}) if has_failed else None,
        prompt_json=to_json("a prompt " * 20),
        response_json=to_json("a response " * 20),
        started_at="2026-01-02T03:04:05+00:00",
        wall_s=0.5,
        working_s=0.5,
        tries=1,
        history_json=None,
        run_id="run",
        failure_class="code" if has_failed else None,
    )


def _double(path: Path) -> None:
    """All records once more, behind the others: writing a million of them would take a minute."""
    with sqlite3.connect(path) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(records)")]
        values = {
            "id": "id + count",
            "idx": "idx + count",
            "sample_id": "printf('%08d', sample_id + count)",
        }
        names = ", ".join(f'"{name}"' for name in columns)
        copied = ", ".join(values.get(name, f'"{name}"') for name in columns)
        connection.execute(
            f"INSERT INTO records ({names}) SELECT {copied} FROM records,"
            " (SELECT count(*) AS count FROM records)"
        )
        connection.execute("UPDATE tallies SET count = 2 * count, working_s = 2 * working_s")
    connection.close()
