"""The store of kept answers: nothing acknowledged is lost, nothing damaged is believed, no run fails."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evalve.errors import OptionError
from evalve.gate.cache.entries import Entry, lasting_headers
from evalve.gate.cache.file import CacheFile
from evalve.gate.cache.file import _Connection as CacheConnection
from evalve.gate.cache.store import CacheStore
from evalve.gate.cache.unwritten import Unwritten
from evalve.gate.cache.upkeep import parse_age_s
from evalve.gate.messages import Usage

ENTRY = Entry(200, {"content-type": "application/json"}, b'{"text": "hello"}', "anthropic", "m", "exp")


def key_of(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


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
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(tmp_path: Path, clock: SetClock) -> Iterator[CacheStore]:
    store = CacheStore(tmp_path, clock=clock)
    yield store
    store.close()


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def broken_in(directory: Path) -> list[Path]:
    return list(directory.glob("responses.db.broken-*"))


# -- keeping


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY,
        Entry(201, {}, b""),
        Entry(200, {"x": "ü\udcff"}, "schön \ud800".encode("utf-8", "surrogatepass"), "p\udcff", "m\ud800"),
        Entry(200, {}, bytes(range(256)) * 8),
        Entry(200, {}, b"data: x\n\n" * 100_000, "openai", "gpt", "e", Usage(1, 2, 3, 4)),
        Entry(200, {}, os.urandom(3000), usage=Usage()),
    ],
    ids=["small", "empty", "surrogates", "binary", "large", "incompressible"],
)
async def test_what_is_put_is_got(store: CacheStore, entry: Entry) -> None:
    assert await store.put(key_of("a"), entry)
    got = store.get(key_of("a"))

    assert got is not None
    assert (got.status, got.headers, got.body, got.usage) == (
        entry.status,
        entry.headers,
        entry.body,
        entry.usage,
    )


async def test_a_second_put_replaces_the_first(store: CacheStore) -> None:
    await store.put(key_of("a"), ENTRY)
    await store.put(key_of("a"), Entry(200, {}, b"second"))

    got = store.get(key_of("a"))
    assert got is not None
    assert got.body == b"second"
    assert store.stats().entries == 1


def test_looking_makes_no_file(tmp_path: Path, store: CacheStore) -> None:
    assert store.get(key_of("a")) is None
    assert store.stats().entries == 0
    assert store.verify().checked == 0
    assert store.clear().entries == 0
    assert list(tmp_path.iterdir()) == []


def modes_in(directory: Path) -> dict[str, str]:
    paths = [directory, *directory.iterdir()]
    return {path.name: oct(path.stat().st_mode & 0o777) for path in paths}


async def test_the_cache_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = CacheStore(tmp_path / "made")
        await store.put(key_of(1), ENTRY)
        modes = modes_in(tmp_path / "made")
        store.close()
    finally:
        os.umask(before)

    assert modes.pop("made") == "0o700"
    assert {"responses.db", "responses.db-wal", "responses.db-shm"} <= set(modes)
    assert set(modes.values()) == {"0o600"}


async def test_a_cache_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    place = tmp_path / "made"
    store = CacheStore(place)
    await store.put(key_of(1), ENTRY)
    store.close()
    place.chmod(0o755)
    (place / "responses.db").chmod(0o644)

    store = CacheStore(place)
    kept = store.get(key_of(1))
    store.close()

    assert kept == ENTRY
    assert modes_in(place) == {"made": "0o700", "responses.db": "0o600", "responses.db.lock": "0o600"}


async def test_a_folder_with_other_things_in_it_stays_as_open_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir(mode=0o755)
    (place / "notes.txt").touch()

    store = CacheStore(place)
    await store.put(key_of(1), ENTRY)
    store.close()

    assert modes_in(place)["shared"] == "0o755"
    assert modes_in(place)["responses.db"] == "0o600"


async def test_a_cancelled_put_is_kept_all_the_same(store: CacheStore) -> None:
    task = asyncio.create_task(store.put(key_of("a"), ENTRY))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    store.flush()
    assert store.get(key_of("a")) == ENTRY


def test_loops_in_several_threads_share_one_store(store: CacheStore) -> None:
    async def fill(thread: int) -> None:
        await asyncio.gather(*(store.put(key_of((thread, n)), ENTRY) for n in range(50)))
        assert all(store.get(key_of((thread, n))) == ENTRY for n in range(50))

    threads = [threading.Thread(target=asyncio.run, args=(fill(thread),)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.stats().entries == 200


async def test_a_put_after_closing_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    store = CacheStore(tmp_path)
    store.close()

    assert not await store.put(key_of("a"), ENTRY)
    assert store.get(key_of("a")) is None


async def test_an_inline_store_writes_without_a_thread(tmp_path: Path) -> None:
    store = CacheStore(tmp_path, inline=True, cap_bytes=200_000)
    before = set(threading.enumerate())

    for n in range(100):
        await store.put(key_of(n), Entry(200, {}, os.urandom(4000)))

    assert set(threading.enumerate()) - before == set()  # those of other tests may have ended meanwhile
    assert 0 < store.stats().entries < 60
    store.close()


# -- processes


def put_many(directory: Path, process: int) -> None:
    async def fill() -> None:
        store = CacheStore(directory)
        for n in range(40):
            await asyncio.gather(*(store.put(key_of((process, n, part)), ENTRY) for part in range(5)))
        store.close()

    asyncio.run(fill())


def test_four_processes_write_at_once(tmp_path: Path, store: CacheStore) -> None:
    spawning = multiprocessing.get_context("spawn")
    processes = [spawning.Process(target=put_many, args=(tmp_path, n)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert store.stats().entries == 800
    assert store.verify().corrupt == ()


PUT_UNTIL_KILLED = """
import asyncio, hashlib, sys
from pathlib import Path
from evalve.gate.cache.entries import Entry
from evalve.gate.cache.store import CacheStore

async def worker(store, part):
    n = 0
    while True:
        name = f"{part}-{n}"
        await store.put(hashlib.sha256(name.encode()).hexdigest(), Entry(200, {}, name.encode() * 500))
        sys.stdout.write(name + "\\n")
        sys.stdout.flush()
        n += 1

async def main():
    store = CacheStore(Path(sys.argv[1]))
    await asyncio.gather(*(worker(store, part) for part in range(8)))

asyncio.run(main())
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, store: CacheStore) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PUT_UNTIL_KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip() for _ in range(300)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    acknowledged += rest.split("\n")[:-1]

    kept = [store.get(key_of(name)) for name in acknowledged]

    assert [entry.body if entry else None for entry in kept] == [name.encode() * 500 for name in acknowledged]
    assert store.verify().corrupt == ()


def test_a_forked_child_uses_the_store_of_its_parent(tmp_path: Path, store: CacheStore) -> None:
    program = f"""
import asyncio, os
from pathlib import Path
from evalve.gate.cache.entries import Entry
from evalve.gate.cache.store import CacheStore
store = CacheStore(Path({str(tmp_path)!r}))
asyncio.run(store.put({key_of("parent")!r}, Entry(200, {{}}, b"parent")))
store.get({key_of("parent")!r})
child = os.fork()
if child == 0:
    assert store.get({key_of("parent")!r}).body == b"parent"
    asyncio.run(store.put({key_of("child")!r}, Entry(200, {{}}, b"child")))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.get({key_of("child")!r}).body == b"child"
store.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    assert store.verify().checked == 2


async def test_what_another_user_has_kept_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = CacheStore(tmp_path)
    await theirs.put(key_of("a"), ENTRY)
    theirs.close()
    lock = tmp_path / "responses.db.lock"
    lock.unlink()
    lock.mkdir()  # a file that is not ours to open, even for root
    monkeypatch.setattr(os, "access", lambda path, _: path == tmp_path)
    ours = CacheStore(tmp_path)

    assert ours.get(key_of("a")) == ENTRY
    ours.close()


# -- damage


@pytest.mark.parametrize(
    "damage",
    [
        "body = zeroblob(length(body))",
        "body = substr(body, 1, 5)",
        "headers = '{'",
        "status = 500",
        "packing = 1 - packing",
        "output_tokens = 7",
        "body = 'text'",
    ],
)
async def test_a_damaged_entry_is_a_miss_with_one_warning_and_is_removed(
    store: CacheStore, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    await store.put(key_of("a"), Entry(200, {}, b"long " * 500))
    await store.put(key_of("b"), ENTRY)
    change(store.path, f"UPDATE entries SET {damage} WHERE id = 1")

    assert store.get(key_of("a")) is None
    store.flush()
    assert store.get(key_of("a")) is None

    (warning,) = warnings_in(caplog)
    assert f"the entry {key_of('a')[:12]}… is damaged" in warning
    assert store.get(key_of("b")) == ENTRY
    assert store.stats().entries == 1


async def test_only_looking_leaves_a_damaged_entry_where_it_is(store: CacheStore) -> None:
    await store.put(key_of("a"), ENTRY)
    change(store.path, "UPDATE entries SET status = 500")

    assert store.get(key_of("a"), only_look=True) is None
    assert store.stats().entries == 1


async def test_verify_reports_and_removes_damaged_entries(store: CacheStore) -> None:
    for n in range(250):
        await store.put(key_of(n), ENTRY)
    change(store.path, "UPDATE entries SET checksum = 1 WHERE id IN (7, 220)")

    verified = store.verify()

    assert verified.checked == 250
    assert verified.corrupt == (key_of(6), key_of(219))
    assert store.verify().checked == 248


@pytest.mark.parametrize("content", [b"this is no database " * 500, b"SQLite format 3\0" + b"\xff" * 9000])
async def test_a_damaged_file_is_moved_aside_and_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / "responses.db").write_bytes(content)
    store = CacheStore(tmp_path)

    assert store.get(key_of("a")) is None
    assert await store.put(key_of("a"), ENTRY)
    assert store.get(key_of("a")) == ENTRY

    (aside,) = broken_in(tmp_path)
    assert aside.read_bytes() == content
    (warning,) = warnings_in(caplog)
    assert "is damaged" in warning
    store.close()


async def test_damage_that_shows_while_the_file_is_in_use_loses_no_put(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = CacheStore(tmp_path)
    for n in range(200):
        await first.put(key_of(n), Entry(200, {}, os.urandom(2000)))
    first.close()
    overwrite_pages(tmp_path / "responses.db")
    store = CacheStore(tmp_path)

    got = [store.get(key_of(n)) for n in range(200)]
    put = await asyncio.gather(*(store.put(key_of(("new", n)), ENTRY) for n in range(20)))

    assert None in got
    assert put == [True] * 20
    assert all(store.get(key_of(("new", n))) == ENTRY for n in range(20))
    assert len(warnings_in(caplog)) == 1
    assert len(broken_in(tmp_path)) == 1
    store.close()


def overwrite_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xa5" * (path.stat().st_size - 4096 * 3))


async def test_a_damaged_file_stays_while_another_has_it_open(tmp_path: Path) -> None:
    other = CacheStore(tmp_path)
    await other.put(key_of("a"), ENTRY)
    assert other.get(key_of("a")) == ENTRY
    store = CacheStore(tmp_path)
    with pytest.raises(sqlite3.DatabaseError), store.file.reading():
        raise damage()

    assert store.get(key_of("a")) is None
    assert not await store.put(key_of("b"), ENTRY)
    assert broken_in(tmp_path) == []

    other.close()
    assert await store.put(key_of("b"), ENTRY)
    assert len(broken_in(tmp_path)) == 1
    store.close()


def damage() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorname = "SQLITE_CORRUPT"
    return error


@pytest.mark.parametrize("kind", ["directory", "foreign"])
async def test_a_file_that_cannot_be_used_fails_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    if kind == "directory":
        (tmp_path / "responses.db").mkdir()
    else:
        change(tmp_path / "responses.db", "CREATE TABLE theirs (a)")
    store = CacheStore(tmp_path)

    assert store.get(key_of("a")) is None
    assert not await store.put(key_of("a"), ENTRY)
    assert len(warnings_in(caplog)) == 1
    assert broken_in(tmp_path) == []
    store.close()


async def test_what_another_program_keeps_from_being_written_is_there_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalve.gate.cache.file._WRITE_WITHIN_S", 0.1)
    store = CacheStore(tmp_path)
    await store.put(key_of("before"), ENTRY)
    locking = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    locking.execute("BEGIN IMMEDIATE")

    kept = [await store.put(key_of(name), ENTRY) for name in ("one", "two")]
    meanwhile = store.get(key_of("one"))
    locking.execute("COMMIT")
    await store.put(key_of("after"), ENTRY)
    store.close()

    assert kept == [False, False]
    assert meanwhile == ENTRY
    assert len(warnings_in(caplog)) == 1
    again = CacheStore(tmp_path)
    assert [again.get(key_of(name)) for name in ("before", "one", "two", "after")] == [ENTRY] * 4
    again.close()
    locking.close()


async def test_nobody_waits_longer_than_a_second_for_another_programs_lock(tmp_path: Path) -> None:
    store = CacheStore(tmp_path)
    await store.put(key_of("before"), ENTRY)
    locking = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    locking.execute("BEGIN IMMEDIATE")

    async with asyncio.timeout(2.5):
        kept = await store.put(key_of("one"), ENTRY)

    assert (kept, store.get(key_of("one"))) == (False, ENTRY)
    locking.execute("COMMIT")
    locking.close()
    store.close()
    again = CacheStore(tmp_path)
    assert again.get(key_of("one")) == ENTRY
    again.close()


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Another program has the cache, which has one answer, and lets go of it with `COMMIT`."""
    monkeypatch.setattr("evalve.gate.cache.file._WRITE_WITHIN_S", 0.1)
    monkeypatch.setattr("evalve.gate.cache.file._WRITE_WITHIN_S_AT_THE_END", 0.1)
    store = CacheStore(tmp_path)
    asyncio.run(store.put(key_of("before"), ENTRY))
    store.close()
    other = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_verify_takes_another_programs_lock_for_no_damage(tmp_path: Path, locked: sqlite3.Connection) -> None:
    store = CacheStore(tmp_path)
    whole = store.verify()
    locked.execute("UPDATE entries SET checksum = 1")
    locked.execute("COMMIT")
    locked.execute("BEGIN IMMEDIATE")

    with pytest.raises(sqlite3.OperationalError, match="locked"):
        store.verify()

    assert (whole.checked, whole.corrupt, whole.file_damage) == (1, (), None)
    locked.execute("COMMIT")
    assert store.verify().corrupt == (key_of("before"),)
    store.close()


def left_in(directory: Path) -> list[Path]:
    return list(directory.glob("responses.db.left-*"))


def test_what_could_not_be_written_is_written_at_the_end(tmp_path: Path, locked: sqlite3.Connection) -> None:
    store = CacheStore(tmp_path)
    asyncio.run(store.put(key_of("one"), ENTRY))
    locked.execute("COMMIT")
    store.close()

    assert left_in(tmp_path) == []
    again = CacheStore(tmp_path)
    assert again.get(key_of("one")) == ENTRY
    again.close()


async def test_who_is_cancelled_while_it_waits_for_a_lock_leaves_its_answer_to_be_written_later(
    tmp_path: Path, locked: sqlite3.Connection
) -> None:
    store = CacheStore(tmp_path)
    putting = asyncio.create_task(store.put(key_of("one"), ENTRY))
    await asyncio.sleep(0)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    store.flush()
    locked.execute("COMMIT")
    store.close()

    again = CacheStore(tmp_path)
    assert again.get(key_of("one")) == ENTRY
    again.close()


LARGE = Entry(200, {}, b"data: x\n\n" * 1000, "openai", "gpt", "e", Usage(1, 2, 3, 4))


def test_what_is_locked_to_the_end_lies_beside_the_cache_and_the_next_process_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, locked: sqlite3.Connection
) -> None:
    store = CacheStore(tmp_path)
    asyncio.run(store.put(key_of("one"), ENTRY))
    asyncio.run(store.put(key_of("two"), LARGE))
    store.close()

    told = warnings_in(caplog)
    assert [path.stat().st_mode & 0o777 for path in left_in(tmp_path)] == [0o600]
    second = CacheStore(tmp_path)  # while it is still locked
    assert [second.get(key_of(name)) for name in ("one", "two")] == [ENTRY, LARGE]
    second.close()
    assert len(left_in(tmp_path)) == 1
    locked.execute("COMMIT")
    third = CacheStore(tmp_path)
    asyncio.run(third.put(key_of("three"), ENTRY))
    third.close()

    assert left_in(tmp_path) == []
    last = CacheStore(tmp_path)
    assert [last.get(key_of(name)) for name in ("before", "one", "two", "three")] == [
        ENTRY,
        ENTRY,
        LARGE,
        ENTRY,
    ]
    assert told[-1].endswith(
        "answers that could not be written lie in a file beside it; whoever uses the cache next takes them in"
    )
    last.close()


def test_what_lies_beside_the_cache_while_its_process_goes_on_is_still_had_by_it(
    tmp_path: Path, locked: sqlite3.Connection
) -> None:
    store = CacheStore(tmp_path)
    asyncio.run(store.put(key_of("one"), ENTRY))
    store.settle()
    asyncio.run(store.put(key_of("two"), ENTRY))
    store.settle()

    assert [store.get(key_of(name)) for name in ("one", "two")] == [ENTRY, ENTRY]
    assert len(left_in(tmp_path)) == 1
    locked.execute("COMMIT")
    assert store.stats().entries == 3
    assert left_in(tmp_path) == []
    store.close()


def test_clearing_the_cache_clears_what_lies_beside_it(tmp_path: Path, locked: sqlite3.Connection) -> None:
    store = CacheStore(tmp_path)
    asyncio.run(store.put(key_of("one"), ENTRY))
    store.close()
    locked.execute("COMMIT")

    again = CacheStore(tmp_path)
    assert again.clear().entries == 2
    assert left_in(tmp_path) == []
    assert again.get(key_of("one")) is None
    again.close()


@pytest.mark.parametrize("damage", ["not JSON\n", "[1, 2]\n", '[{"bytes": "AA=="}]\n'])
def test_what_cannot_be_read_beside_the_cache_is_told_and_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    (tmp_path / "responses.db.left-1-a").write_text(damage)
    store = CacheStore(tmp_path)

    assert store.get(key_of("one")) is None
    assert left_in(tmp_path) == []
    assert len(broken_in(tmp_path)) == 1
    assert "cannot be read" in warnings_in(caplog)[0]
    store.close()


def test_answers_are_lost_where_they_cannot_lie_beside_the_cache_either_and_it_is_told_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    locked: sqlite3.Connection,
) -> None:
    monkeypatch.setattr("evalve.gate.cache.leftovers._LIE_UP_TO_BYTES", -1)
    store = CacheStore(tmp_path)
    asyncio.run(store.put(key_of("one"), ENTRY))
    asyncio.run(store.put(key_of("two"), ENTRY))
    store.settle()
    store.close()

    told = [text for text in warnings_in(caplog) if "could not be kept" in text]
    assert len(told) == 1
    assert told[0].endswith("2 answers could not be kept; they will be asked for again")


@pytest.mark.parametrize("is_open", [True, False], ids=["after it was opened", "before"])
async def test_of_readers_whom_a_lock_keeps_out_one_waits_for_it_and_the_others_do_not(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """They wait on the event loop. Without a write-ahead log, as on a network, a writer keeps them out."""
    monkeypatch.setattr("evalve.gate.cache.schema.journal_for", lambda folder: "delete")
    store = CacheStore(tmp_path, clock=clock)
    await store.put(key_of("a"), ENTRY)
    store.flush()
    if not is_open:
        store.close()
        store = CacheStore(tmp_path, clock=clock)
    waits: list[float] = []
    opened, wait_at_most = CacheFile._connection, CacheConnection.wait_at_most

    def told_when_opened(file: CacheFile, how: str, within_s: float) -> CacheConnection:
        waits.append(within_s)
        return opened(file, how, within_s)

    def told(connection: CacheConnection, seconds: float) -> None:
        waits.append(seconds)
        wait_at_most(connection, seconds)

    locking = sqlite3.connect(tmp_path / "responses.db", isolation_level=None)
    locking.execute("BEGIN EXCLUSIVE")
    with monkeypatch.context() as patch:
        patch.setattr(CacheFile, "_connection", told_when_opened)
        patch.setattr(CacheConnection, "wait_at_most", told)
        meanwhile = [store.get(key_of("a")) for _ in range(3)]
    locking.close()
    afterwards = store.get(key_of("a"))
    store.close()

    assert (meanwhile, afterwards) == ([None] * 3, ENTRY)
    assert waits == [0.25, 0.0, 0.0]


async def test_memory_holds_the_newest_of_what_cannot_be_written() -> None:
    unwritten = Unwritten(most_bytes=25)
    for name in "abc":
        unwritten.add(name, Entry(200, {}, b"0123456789"))

    assert [unwritten.get(name) is not None for name in "abc"] == [False, True, True]
    assert unwritten.dropped() == 1
    assert unwritten.dropped() == 0


@pytest.mark.parametrize("removed", ["file", "folder"])
async def test_a_file_that_is_removed_while_it_is_open_is_begun_anew(tmp_path: Path, removed: str) -> None:
    folder = tmp_path / "cache"
    store = CacheStore(folder)
    await store.put(key_of("before"), ENTRY)
    if removed == "folder":
        shutil.rmtree(folder)
    else:
        for each in folder.glob("responses.db*"):
            each.unlink()

    kept = [await store.put(key_of(name), ENTRY) for name in ("one", "two")]

    assert kept == [True, True]
    assert store.get(key_of("one")) == ENTRY
    other = CacheStore(folder)
    assert other.get(key_of("one")) == ENTRY
    store.close()
    assert other.get(key_of("two")) == ENTRY
    other.close()


async def test_on_a_network_no_memory_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalve.filesystems.on_network", lambda folder: True)
    store = CacheStore(tmp_path)
    await store.put(key_of("a"), ENTRY)

    assert store.get(key_of("a")) == ENTRY
    assert names_in(tmp_path) == ["responses.db", "responses.db.lock"]
    store.close()


async def test_the_file_stays_under_its_cap_and_the_least_recently_used_go_first(
    tmp_path: Path, clock: SetClock
) -> None:
    store = CacheStore(tmp_path, cap_bytes=1_500_000, clock=clock)
    for n in range(200):
        await store.put(key_of(n), Entry(200, {}, os.urandom(4000)))
    clock.now += timedelta(hours=2)
    for n in range(20):
        assert store.get(key_of(n)) is not None
    store.flush()
    for n in range(200, 400):
        await store.put(key_of(n), Entry(200, {}, os.urandom(4000)))
    store.flush()

    gone = [n for n in range(400) if store.get(key_of(n), only_look=True) is None]

    assert set(range(20, 84)) <= set(gone) <= set(range(20, 200))
    assert store.stats().size_bytes < 1_500_000
    store.close()


async def test_a_use_within_the_hour_is_not_written(store: CacheStore, clock: SetClock) -> None:
    await store.put(key_of("a"), ENTRY)
    clock.now += timedelta(minutes=59)
    store.get(key_of("a"))
    store.flush()
    assert last_used_at(store) == datetime(2026, 1, 1, tzinfo=UTC)

    clock.now += timedelta(minutes=1)
    store.get(key_of("a"))
    store.flush()
    assert last_used_at(store) == datetime(2026, 1, 1, 1, tzinfo=UTC)


def test_a_process_that_only_read_writes_its_uses_when_it_ends(tmp_path: Path, store: CacheStore) -> None:
    asyncio.run(store.put(key_of("a"), ENTRY))
    program = f"""
import atexit
from pathlib import Path
from evalve.gate.cache.store import CacheStore
store = CacheStore(Path({str(tmp_path)!r}))
atexit.register(store.close)
store.get({key_of("a")!r})
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stderr == ""
    assert store.stats().hits == 1


def last_used_at(store: CacheStore) -> datetime:
    with store.file.reading() as connection:
        assert connection is not None
        (seconds,) = connection.execute("SELECT last_used_at FROM entries").fetchone()
    return datetime.fromtimestamp(seconds, UTC)


# -- upkeep


async def fill(store: CacheStore, clock: SetClock) -> None:
    await store.put(key_of("old"), Entry(200, {}, b"1234", "anthropic", "claude", "first"))
    clock.now += timedelta(days=8)
    await store.put(key_of("new"), Entry(200, {}, b"12", "anthropic", "claude", "second"))
    await store.put(key_of("gpt"), Entry(200, {}, b"123456789", "openai", "gpt", "first"))


async def test_stats(store: CacheStore, clock: SetClock) -> None:
    await fill(store, clock)
    store.get(key_of("gpt"))
    store.get(key_of("nothing"))

    stats = store.stats()

    assert (stats.entries, stats.size_bytes, stats.hits) == (3, 15 + 3 * len("{}"), 1)
    assert (stats.oldest_at, stats.newest_at) == ("2026-01-01T00:00:00+00:00", "2026-01-09T00:00:00+00:00")
    assert [(share.provider, share.model, share.entries) for share in stats.models] == [
        ("openai", "gpt", 1),
        ("anthropic", "claude", 2),
    ]
    assert stats.path == str(store.path)
    assert stats.file_bytes > 4096


@pytest.mark.parametrize(
    ("model", "older_than_s", "experiment", "left"),
    [
        (None, None, None, set()),
        ("claude", None, None, {"gpt"}),
        ("openai/gpt", None, None, {"old", "new"}),
        (None, 7 * 86_400.0, None, {"new", "gpt"}),
        (None, None, "first", {"new"}),
        ("claude", None, "first", {"new", "gpt"}),
        ("gemini", None, None, {"old", "new", "gpt"}),
    ],
)
async def test_clear(
    store: CacheStore,
    clock: SetClock,
    model: str | None,
    older_than_s: float | None,
    experiment: str | None,
    left: set[str],
) -> None:
    await fill(store, clock)

    cleared = store.clear(model=model, older_than_s=older_than_s, experiment=experiment)

    assert {name for name in ("old", "new", "gpt") if store.get(key_of(name))} == left
    assert cleared.entries == 3 - len(left)


async def test_clearing_everything_removes_damaged_files_and_gives_the_room_back(tmp_path: Path) -> None:
    (tmp_path / "responses.db.broken-20260101T000000-1").write_text("damaged")
    store = CacheStore(tmp_path)
    await asyncio.gather(*(store.put(key_of(n), Entry(200, {}, os.urandom(2000))) for n in range(1200)))

    assert store.clear().entries == 1200

    assert store.stats().file_bytes < 120_000
    assert broken_in(tmp_path) == []
    store.close()


async def test_clearing_a_part_gives_its_room_back_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalve.gate.cache.upkeep._PAGES_AT_ONCE", 10)
    store = CacheStore(tmp_path)
    for model in ("one", "two"):
        entries = [Entry(200, {}, os.urandom(2000), "p", model) for _ in range(300)]
        await asyncio.gather(*(store.put(key_of((model, n)), each) for n, each in enumerate(entries)))
    before_bytes = store.stats().file_bytes

    assert store.clear(model="one").entries == 300

    assert store.stats().file_bytes < 0.7 * before_bytes
    assert store.verify().checked == 300
    store.close()


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("12 H", 43_200), ("1.5m", 90), ("2w", 1_209_600)]
)
def test_ages(text: str, seconds: float) -> None:
    assert parse_age_s(text) == seconds


@pytest.mark.parametrize("text", ["7", "d", "-1d", "1y", ""])
def test_an_age_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="as in 7d"):
        parse_age_s(text)


def test_headers_that_were_true_only_then_or_only_for_us_are_not_kept() -> None:
    headers = {
        "Content-Type": "application/json",
        "Date": "today",
        "Set-Cookie": "a=b",
        "Connection": "keep-alive",
        "anthropic-ratelimit-requests-remaining": "3",
        "x-ratelimit-limit-tokens": "4",
        "Retry-After": "5",
        "request-id": "req_1",
    }

    assert lasting_headers(headers) == {"content-type": "application/json", "request-id": "req_1"}
