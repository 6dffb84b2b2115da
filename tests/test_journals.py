"""The journals of SQLite files: write-ahead on a disk, a rollback journal where machines share the folder."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evalve import filesystems
from evalve.gate.cache.file import CacheFile
from evalve.storage import open_store
from recorded import done, record


def journal_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    return str(journal)


@pytest.fixture
def on_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "on_network", lambda folder: True)


def test_on_a_disk_records_have_a_write_ahead_log(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "a.db")) as store:
        record(store, "exp", done("a", right=True))

    assert journal_of(tmp_path / "a.db") == "wal"


@pytest.mark.usefixtures("on_a_network")
def test_on_a_network_records_have_none(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "a.db")) as store:
        record(store, "exp", done("a", right=True))

        assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
    assert journal_of(tmp_path / "a.db") == "delete"


def test_records_that_were_copied_to_a_network_lose_theirs(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with closing(open_store(tmp_path / "a.db")) as store:
        record(store, "exp", done("a", right=True))
    request.getfixturevalue("on_a_network")

    with closing(open_store(tmp_path / "a.db")) as store:
        assert [info.name for info in store.experiments()] == ["exp"]

    assert journal_of(tmp_path / "a.db") == "delete"


@pytest.mark.usefixtures("on_a_network")
def test_without_a_write_ahead_log_one_may_write_while_reading(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "a.db")) as store:
        record(store, "exp", *(done(f"s{n}", right=True) for n in range(1200)))
        (info,) = store.evaluations("exp")

        async def leave_all_out() -> None:
            async for sample_ids in store.sample_ids(info.id):
                await store.leave_out(info.id, sample_ids)

        asyncio.run(leave_all_out())

        assert store.evaluations("exp")[0].left_out == 1200


@pytest.mark.usefixtures("on_a_network")
def test_on_a_network_the_cache_has_none(tmp_path: Path) -> None:
    with closing(CacheFile(tmp_path)) as file, file.writing() as connection:
        assert connection is not None

    assert journal_of(tmp_path / "responses.db") == "delete"
