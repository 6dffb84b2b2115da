"""What each of many small evaluations asks of the machine: counted, because times depend on its load."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalve.concurrency import SlidingWindow
from evalve.contracts import Store
from evalve.engines import threads
from evalve.runner import telling, unheard
from evalve.storage import open_store
from evalve.storage.database import FileDatabase
from running import runnable, running

HERE, WRITER = "MainThread", "evalve-writer"


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How many of which kind were executed, by the thread that did."""
    counted: Counter[tuple[str, str]] = Counter()
    connect = FileDatabase._connect

    def connect_and_count(database: FileDatabase, how: str) -> sqlite3.Connection:
        connection = connect(database, how)
        connection.set_trace_callback(
            lambda text: counted.update([(threading.current_thread().name, text.split(maxsplit=1)[0])])
        )
        return connection

    monkeypatch.setattr(FileDatabase, "_connect", connect_and_count)
    monkeypatch.setattr(telling, "FIRST_S", 600.0)  # a slow machine would tell its progress besides
    return counted


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "records.db")
    evaluate(store, "the first makes the file")
    yield store
    store.close()


def evaluate(store: Store, key: str) -> None:
    evaluation = runnable(lambda n: n >= 0, range(3), key=key, strategy=SlidingWindow(1))
    outcome = asyncio.run(running(evaluation, store))
    assert (outcome.info.done, outcome.problems) == (3, [])


def test_a_new_evaluation_executes_25_statements_in_three_transactions(
    statements: Counter[tuple[str, str]], store: Store
) -> None:
    statements.clear()

    evaluate(store, "new")

    here = {kind: count for (thread, kind), count in statements.items() if thread == HERE}
    assert sum(here.values()) <= 25, here
    assert here["BEGIN"] == here["COMMIT"] == 5  # three that write, and two for reading at one moment


def test_records_are_committed_after_one_look_at_what_is_there(
    statements: Counter[tuple[str, str]], store: Store
) -> None:
    statements.clear()

    evaluate(store, "new")

    written = {kind: count for (thread, kind), count in statements.items() if thread == WRITER}
    assert written["BEGIN"] == written["SELECT"] == written["COMMIT"] <= 3, written
    # three records, in one transaction where the machine is slow, and their counts in each of them
    assert written["INSERT"] == 3 + written["COMMIT"], written


def test_an_evaluation_with_nothing_left_executes_12_statements_and_writes_nothing(
    statements: Counter[tuple[str, str]], store: Store
) -> None:
    evaluate(store, "again")
    statements.clear()

    evaluate(store, "again")

    assert sum(statements.values()) <= 12, statements
    assert {kind for _, kind in statements} <= {"BEGIN", "SELECT", "COMMIT"}


def test_evaluations_after_the_first_start_no_threads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (threads, unheard):  # long enough for the slowest machine
        monkeypatch.setattr(module, "_IDLE_S", 600.0)
    end_idle_threads()
    evaluate(store, "first")
    started: list[str] = []
    start = threading.Thread.start

    def start_and_note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_and_note)

    for number in range(5):
        evaluate(store, f"later {number}")

    assert started == []
    end_idle_threads()


def end_idle_threads() -> None:
    while threads._IDLE:
        threads._IDLE.pop().give(lambda: False)
    while unheard._IDLE:
        unheard._IDLE.pop()._end()
