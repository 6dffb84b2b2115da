"""Records are found whether their keys are merged, still in the tail, or written by another process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evalve.contracts import EvaluationSpec, RecordDraft
from evalve.errors import StorageError
from evalve.records import Sample
from evalve.storage.database import FileDatabase
from evalve.storage.inserts import Inserts
from evalve.storage.keys import Keys, marks, padded
from evalve.storage.sqlite import SqliteStore
from recorded import at_once

EVALUATION = 1


@pytest.fixture
def database(tmp_path: Path) -> Iterator[FileDatabase]:
    database = FileDatabase(tmp_path / "a.db", url="sqlite:///a.db")
    assert at_once(SqliteStore(database).open_evaluation(EvaluationSpec("exp", "key", "name"))) == EVALUATION
    yield database
    database.close()


def drafts(*sample_ids: str) -> list[RecordDraft]:
    return [
        RecordDraft(
            EVALUATION, Sample(i, 0, {}, "{}"), 0, "done", "[]", None, None, None, "t", 0, 0, 1, None, "r"
        )
        for i in sample_ids
    ]


def stored(database: FileDatabase) -> list[tuple[str, int]]:
    with database.reading() as connection:
        return connection.execute("SELECT sample_id, tries FROM records ORDER BY id").fetchall()


def merged(database: FileDatabase) -> list[str]:
    with database.reading() as connection:
        return [row[0] for row in connection.execute("SELECT sample_id FROM record_keys")]


def test_keys_are_merged_once_the_tail_is_long(database: FileDatabase) -> None:
    inserts = Inserts(database, Keys(merge_at=3))

    inserts.write(drafts("c", "a"))
    inserts.write(drafts("b"))
    assert merged(database) == []

    inserts.write(drafts("d"))
    assert merged(database) == ["a", "b", "c"]


def test_a_record_is_replaced_whether_its_key_is_merged_or_not(database: FileDatabase) -> None:
    inserts = Inserts(database, Keys(merge_at=2))
    inserts.write(drafts("a", "b"))
    inserts.write(drafts("c"))
    assert merged(database) == ["a", "b"]

    inserts.write(drafts("a", "c", "d"))

    assert stored(database) == [("a", 2), ("b", 1), ("c", 2), ("d", 1)]


def test_two_writers_see_each_others_records(database: FileDatabase) -> None:
    one, other = Inserts(database, Keys(merge_at=3)), Inserts(database, Keys(merge_at=1000))

    one.write(drafts("a", "b"))
    other.write(drafts("b", "c"))
    one.write(drafts("c", "d"))
    one.write(drafts("e"))
    other.write(drafts("a", "d", "e"))

    assert stored(database) == [("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 2)]


def test_what_was_rolled_back_is_not_remembered(database: FileDatabase) -> None:
    inserts = Inserts(database, Keys())
    broken = drafts("a", "b")
    broken[1].repeat = 2**70
    with pytest.raises(OverflowError):
        inserts.write(broken)

    inserts.write(drafts("a"))

    assert stored(database) == [("a", 1)]


def test_a_reader_follows_a_merge(database: FileDatabase) -> None:
    inserts, reader = Inserts(database, Keys(merge_at=2)), Keys()
    inserts.write(drafts("a", "b"))
    with database.reading() as connection:
        assert len(reader.find(connection, EVALUATION, [("a", 0), ("b", 0), ("c", 0)])) == 2

    inserts.write(drafts("c"))

    with database.reading() as connection:
        assert len(reader.find(connection, EVALUATION, [("a", 0), ("b", 0), ("c", 0)])) == 3


def test_records_of_an_unknown_evaluation_are_refused(database: FileDatabase) -> None:
    with database.reading() as connection, pytest.raises(StorageError, match="deleted"):
        Keys().find(connection, 7, [("a", 0)])


@pytest.mark.parametrize(("count", "places"), [(1, 1), (2, 2), (3, 4), (100, 128), (500, 512)])
def test_lists_are_padded_to_few_sizes(count: int, places: int) -> None:
    assert marks(count).count("?") == places
    assert padded(range(count)) == [*range(count), *[count - 1] * (places - count)]
