"""The writer's thread: what is queued goes in few transactions, and a failed one stops nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from evalve.contracts import EvaluationSpec, Placed, RecordDraft
from evalve.errors import StorageError
from evalve.records import Sample
from evalve.storage.database import FileDatabase, MemoryDatabase
from evalve.storage.sqlite import SqliteStore
from evalve.storage.writer import InlineWriter, ThreadWriter
from recorded import at_once


class Calls:
    """A sink that keeps each call."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.errors: list[BaseException | None] = []
        self.threads: set[str] = set()

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        self.groups.append([draft.sample.id for draft in drafts])
        self.errors.append(error)
        self.threads.add(threading.current_thread().name)


class FlakyDatabase(MemoryDatabase):
    """Its disk is full until someone makes room."""

    full = False

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        if self.full:
            raise StorageError("the disk is full")
        with super().writing() as connection:
            yield connection


def a_draft(sample_id: str) -> RecordDraft:
    sample = Sample(sample_id, 0, {}, "{}")
    return RecordDraft(1, sample, 0, "done", "[]", None, None, None, "t", 0.0, 0.0, 1, None, "r")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[FileDatabase]:
    database = FileDatabase(tmp_path / "a.db", url="sqlite:///a.db")
    at_once(SqliteStore(database).open_evaluation(EvaluationSpec("exp", "key", "name")))
    yield database
    database.close()


def test_what_waits_goes_in_groups_of_at_most_500_in_order(database: FileDatabase) -> None:
    writer, calls = ThreadWriter(database), Calls()
    ids = [f"s{number}" for number in range(1201)]

    with database.writing():  # the writer has to wait, and the rest queues behind
        for sample_id in ids:
            writer.add(a_draft(sample_id), calls)
    writer.close()

    assert [sample_id for group in calls.groups for sample_id in group] == ids
    assert max(map(len, calls.groups)) <= 500
    assert len(calls.groups) <= 4
    assert calls.errors == [None] * len(calls.groups)
    assert calls.threads == {"evalve-writer"}


def test_each_sink_hears_of_its_own_drafts(database: FileDatabase) -> None:
    writer, one, other = ThreadWriter(database), Calls(), Calls()

    for sample_id, sink in (("a", one), ("b", other), ("c", one)):
        writer.add(a_draft(sample_id), sink)
    writer.close()

    assert [sample_id for group in one.groups for sample_id in group] == ["a", "c"]
    assert other.groups == [["b"]]


def test_flush_returns_when_everything_before_is_committed(database: FileDatabase) -> None:
    writer, calls = ThreadWriter(database), Calls()
    writer.flush()
    writer.add(a_draft("a"), calls)

    writer.flush()

    assert calls.groups == [["a"]]
    writer.close()


def test_a_failed_transaction_is_told_and_the_next_one_succeeds() -> None:
    database = FlakyDatabase()
    at_once(SqliteStore(database).open_evaluation(EvaluationSpec("exp", "key", "name")))
    writer, calls = ThreadWriter(database), Calls()

    database.full = True
    writer.add(a_draft("a"), calls)
    writer.flush()
    database.full = False
    writer.add(a_draft("a"), calls)
    writer.close()

    assert calls.groups == [["a"], ["a"]]
    assert [str(error) for error in calls.errors] == ["the disk is full", "None"]
    database.close()


def test_a_closed_writer_takes_nothing_more(database: FileDatabase) -> None:
    writer = ThreadWriter(database)
    writer.close()

    with pytest.raises(StorageError, match="closed"):
        writer.add(a_draft("a"), Calls())


def test_an_inline_writer_has_told_its_sink_when_add_returns(database: FileDatabase) -> None:
    calls = Calls()

    InlineWriter(database).add(a_draft("a"), calls)

    assert calls.groups == [["a"]]
    assert calls.threads == {threading.current_thread().name}


def test_new_places_that_cannot_be_stored_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    database = FlakyDatabase()
    database.full = True

    InlineWriter(database).reindex(1, [Placed("a", 0)])

    assert "the disk is full" in caplog.text
    database.close()
