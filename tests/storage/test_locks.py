"""Locks: who counts as alive, and what happens to the lock of one who is not."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from evalve.contracts import EvaluationSpec, RecordDraft
from evalve.errors import Locked, StorageError
from evalve.processes import here
from evalve.processes import started as process_started
from evalve.storage import SqliteStore, open_store
from evalve.storage.database import MemoryDatabase
from evalve.storage.locks import Holder, Locks, is_alive
from recorded import at_once

HOLDER = Holder(
    "exp", "token", "party", 77, 1000.0, "here", "pytest evals", "2026-01-02T03:04:05+00:00", 5000.0
)


class SetClock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def now_s(self) -> float:
        return self.now.timestamp()

    def utc_now(self) -> datetime:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError("nothing here waits")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = open_store(tmp_path / "a.db")
    at_once(store.open_evaluation(EvaluationSpec("exp", "key", "name")))
    yield store
    store.close()


def lock_in_another_process(path: Path, *, then: str, party: str | None = None) -> subprocess.Popen[str]:
    program = (
        "import os, sys; from evalve.storage import open_store\n"
        f"lock = open_store({str(path)!r}).lock('exp', holder='the other', party={party!r})\n"
        f"print('held', flush=True)\n{then}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize(
    ("holder", "started", "now_s", "alive"),
    [
        (HOLDER, 1000.0, 9999.0, True),
        (HOLDER, 1001.0, 9999.0, False),
        (HOLDER, None, 5000.0, False),
        (HOLDER, 1500.0, 5000.0, False),
        (replace(HOLDER, host="there"), None, 5059.0, True),
        (replace(HOLDER, host="there"), 1000.0, 5060.0, False),
    ],
    ids=["running", "a tick later", "gone", "pid reused", "heard of elsewhere", "silent elsewhere"],
)
def test_who_is_alive(holder: Holder, started: float | None, now_s: float, alive: bool) -> None:
    assert is_alive(holder, here="here", now_s=now_s, started=lambda pid: started) is alive


def test_this_process_is_running_and_an_impossible_one_is_not() -> None:
    assert process_started(os.getpid()) is not None
    assert process_started(2**22 + 1) is None


def test_a_step_of_the_date_leaves_a_live_process_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process's start is worked out from, when it is told as a date, moves with the clock."""
    before = process_started(os.getpid())

    monkeypatch.setattr("psutil.boot_time", lambda: 0.0)
    monkeypatch.setattr("time.time", lambda: 0.0)

    assert process_started(os.getpid()) == before


def test_the_same_pid_in_another_container_is_judged_by_its_heartbeat() -> None:
    host, _, namespace = here().rpartition("/")
    elsewhere = replace(HOLDER, pid=os.getpid(), host=f"{host}/pid:[1]", heartbeat_at=5000.0)

    assert namespace
    assert is_alive(elsewhere, here=here(), now_s=5030.0)
    assert not is_alive(elsewhere, here=here(), now_s=5061.0)


class Sink:
    """Hears what became of drafts."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        self.errors += [error] * len(drafts)


def test_a_run_whose_lock_was_taken_over_adds_nothing_more(tmp_path: Path, store: SqliteStore) -> None:
    mine = store._locks.take("exp", "mine")
    store._locks.drop(mine._holder.token)
    taker = lock_in_another_process(tmp_path / "a.db", then="sys.stdin.read()")
    sink = Sink()
    try:
        store._locks.note_lost(mine._holder)
        store.add(cast(RecordDraft, object()), sink)
    finally:
        mine.release()
        taker.kill()
        taker.communicate()

    assert [type(error) for error in sink.errors] == [Locked]
    assert f"taken over by pid {taker.pid}" in str(sink.errors[0])


def test_a_lock_row_that_is_merely_gone_stops_nobody(store: SqliteStore) -> None:
    mine = store._locks.take("exp", "mine")
    with store._database.writing() as connection:
        connection.execute("DELETE FROM locks")

    store._locks.note_lost(mine._holder)
    mine.release()

    assert store._locks.lost is None


def test_a_live_process_keeps_its_lock(tmp_path: Path, store: SqliteStore) -> None:
    process = lock_in_another_process(tmp_path / "a.db", then="sys.stdin.read()")
    try:
        for attempt in (
            lambda: store.lock("exp", holder="me"),
            lambda: store.delete("exp"),
            lambda: store.rename("exp", "x"),
        ):
            with pytest.raises(Locked, match=rf"pid {process.pid} on {socket.gethostname()} \(the other\)"):
                attempt()
    finally:
        process.kill()
        process.communicate()


def test_a_dead_process_loses_its_lock(tmp_path: Path, store: SqliteStore) -> None:
    process = lock_in_another_process(tmp_path / "a.db", then="os._exit(1)")
    process.communicate()

    assert store.experiments()[0].running is None
    store.lock("exp", holder="me").release()


def test_a_party_keeps_its_lock_until_the_last_of_it_has_ended(tmp_path: Path, store: SqliteStore) -> None:
    first = lock_in_another_process(tmp_path / "a.db", party="us", then="sys.stdin.read()")
    second = lock_in_another_process(tmp_path / "a.db", party="us", then="sys.stdin.read()")
    try:
        with pytest.raises(Locked, match=f"pid {first.pid} "):
            store.lock("exp", holder="me")
        first.kill()
        first.communicate()

        with pytest.raises(Locked, match=f"pid {second.pid} "):
            store.lock("exp", holder="me")
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()

    store.lock("exp", holder="me").release()
    assert store.experiments()[0].running is None


def test_a_killed_process_that_nobody_has_waited_for_loses_its_lock(
    tmp_path: Path, store: SqliteStore
) -> None:
    process = lock_in_another_process(tmp_path / "a.db", then="os._exit(1)")
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now

    store.lock("exp", holder="me").release()

    process.communicate()


def test_another_machine_loses_its_lock_after_a_minute_of_silence() -> None:
    clock, database = SetClock(), MemoryDatabase()
    locks = Locks(database, clock=clock, heartbeat=False)
    theirs = locks.take("exp", "theirs")
    with database.writing() as connection:
        connection.execute("UPDATE locks SET host = 'elsewhere'")

    clock.now += timedelta(seconds=59)
    with pytest.raises(Locked, match="elsewhere"):
        locks.take("exp", "mine")

    clock.now += timedelta(seconds=1)
    mine = locks.take("exp", "mine")
    theirs.release()
    with pytest.raises(Locked, match="mine"):
        locks.take("exp", "third")
    mine.release()
    database.close()


def test_who_is_refused_by_another_machine_hears_how_long_it_has_been_silent() -> None:
    database, clock = MemoryDatabase(), SetClock()
    Locks(database, clock=clock, heartbeat=False).take("exp", holder="far away")
    with database.writing() as connection:
        connection.execute("UPDATE locks SET host = 'elsewhere/0/pid'")
    clock.now += timedelta(seconds=23)

    with pytest.raises(
        Locked, match=r"another machine, and was heard of 23 s ago: .* free after 60 s of silence$"
    ):
        Locks(database, clock=clock, heartbeat=False).take("exp", holder="nearby")


def test_a_heartbeat_puts_the_minute_off_and_tells_when_the_lock_is_lost() -> None:
    clock, database = SetClock(), MemoryDatabase()
    locks = Locks(database, clock=clock, heartbeat=False)
    locks.take("exp", "theirs")
    with database.writing() as connection:
        connection.execute("UPDATE locks SET host = 'elsewhere', token = 'theirs'")

    clock.now += timedelta(seconds=50)
    assert locks.beat("theirs")
    clock.now += timedelta(seconds=50)
    with pytest.raises(Locked):
        locks.take("exp", "mine")

    clock.now += timedelta(seconds=10)
    locks.take("exp", "mine")
    assert not locks.beat("theirs")
    database.close()


def test_a_store_may_delete_what_it_holds_itself(store: SqliteStore) -> None:
    lock = store.lock("exp", holder="me")

    store.delete("exp")

    lock.release()
    assert store.experiments() == []


def test_a_lock_follows_the_new_name(store: SqliteStore) -> None:
    lock = store.lock("exp", holder="me")

    store.rename("exp", "new")

    with pytest.raises(Locked):
        store.lock("new", holder="other")
    lock.release()
    store.lock("new", holder="other").release()


def test_closing_a_store_releases_its_locks(tmp_path: Path, store: SqliteStore) -> None:
    other = open_store(tmp_path / "a.db")
    lock = other.lock("exp", holder="other")

    other.close()
    lock.release()

    store.lock("exp", holder="me").release()


def test_a_lock_that_cannot_be_deleted_is_left_behind_without_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path / "b.db")
    lock = store.lock("exp", holder="pytest evals")
    (tmp_path / "b.db").unlink()  # as on a full disk, nothing can be written

    lock.release()
    store.close()


class FullDatabase(MemoryDatabase):
    """Takes nothing while it is full."""

    is_full = False

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        if self.is_full:
            raise StorageError("the disk is full")
        with super().writing() as connection:
            yield connection


def test_a_lock_that_could_not_be_deleted_does_not_hold_up_its_own_process() -> None:
    database = FullDatabase()
    locks = Locks(database, heartbeat=False)
    lock = locks.take("exp", "a notebook")
    database.is_full = True
    lock.release()
    database.is_full = False

    again = locks.take("exp", "a notebook")
    again.release()

    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM locks").fetchone() == (0,)
    database.close()
