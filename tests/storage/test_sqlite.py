"""The store in a file: where it appears, who may share it, what it says when the file is no good."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar, cast

import pytest

from evalve.contracts import Answered, EvaluationSpec, RecordDraft
from evalve.errors import Locked, NotFound, StorageError
from evalve.records import Sample
from evalve.storage import open_store, schema
from evalve.storage.database import FileDatabase, _version
from evalve.storage.explanations import explained
from recorded import at_once, done, record

SPEC = EvaluationSpec("exp", "key", "name")

PROGRAM = """
import asyncio, os, sys
from evalve.contracts import EvaluationSpec, RecordDraft
from evalve.records import Sample
from evalve.storage import open_store

class Printing:
    def committed(self, drafts, error):
        text = "".join(f"{draft.sample.id}\\n" for draft in drafts) if error is None else f"error {error}\\n"
        os.write(1, text.encode())

path, prefix, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(path)
evaluation_id = asyncio.run(store.open_evaluation(EvaluationSpec("exp", "key", "name")))
sink = Printing()
for number in range(count):
    sample = Sample(f"{prefix}{number}", number, {}, '{"text": "%s"}' % ("x" * 300))
    store.add(RecordDraft(evaluation_id, sample, 0, "done", "[]", None, None, None,
                          "2026-01-01T00:00:00+00:00", 0.0, 0.0, 1, None, "run"), sink)
store.close()
"""


def start(path: Path, prefix: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), prefix, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# where it is


@pytest.mark.parametrize(
    "form", ["{}/a.db", "sqlite:///{}/a.db", "sqlite:////{}/a.db", "sqlite:///{}/a.db?sync=full"]
)
def test_paths_and_urls_name_the_same_file(tmp_path: Path, form: str) -> None:
    store = open_store(form.format(tmp_path))
    at_once(store.open_evaluation(SPEC))
    store.close()

    assert (tmp_path / "a.db").is_file()
    again = open_store(store.url)
    assert [info.name for info in again.experiments()] == ["exp"]
    again.close()


def test_three_slashes_are_relative_to_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    store = open_store("sqlite:///some%20dir/a.db")
    at_once(store.open_evaluation(SPEC))
    store.close()

    assert (tmp_path / "some dir" / "a.db").is_file()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://host/db", "no store is known by 'postgresql'.*sqlite:///FILE.*memory://"),
        ("sqlite://", "the file's name is missing.*sqlite:///FILE"),
        ("sqlite:results.db", "the slashes are missing.*sqlite:///FILE"),
        ("json://", "no store is known by 'json'.*json://DIRECTORY"),
        ("sqlite:///", "sqlite:///FILE"),
        ("sqlite:///a.db?sync=sometimes", "sync=normal or sync=full"),
        ("sqlite:///a.db?mode=ro", "sync=normal or sync=full"),
    ],
)
def test_a_url_that_names_no_store_says_which_ones_do(url: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        open_store(url)


@pytest.mark.parametrize(("url", "level"), [("sqlite:///{}", 1), ("sqlite:///{}?sync=full", 2)])
def test_sync_is_what_the_url_says(tmp_path: Path, url: str, level: int) -> None:
    store = open_store(url.format(tmp_path / "a.db"))
    at_once(store.open_evaluation(SPEC))

    with store._database.reading() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_the_file_appears_with_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / ".evalve" / "evalve.db"
    store = open_store(path)
    assert store.experiments() == []
    assert not path.parent.exists()

    at_once(store.open_evaluation(SPEC))
    store.close()

    assert path.is_file()
    assert (path.parent / ".gitignore").read_text() == "*\n"


def test_only_our_own_directory_is_hidden_from_git(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results" / "a.db")
    at_once(store.open_evaluation(SPEC))
    store.close()

    assert not (tmp_path / "results" / ".gitignore").exists()


def test_a_store_that_must_exist_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / ".evalve" / "evalve.db"

    with pytest.raises(NotFound, match=rf"{path}: nothing has been recorded"):
        open_store(path, create=False)

    assert not path.parent.exists()


# what may be wrong with it


def test_a_file_that_is_no_database_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_text("hello\n" * 1000)
    store = open_store(path)

    with pytest.raises(StorageError, match=rf"{path}: .*move it aside.*--storage.*not a database"):
        store.experiments()
    with pytest.raises(StorageError, match="move it aside"):
        at_once(store.open_evaluation(SPEC))
    store.close()


def test_a_damaged_database_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(path)
    at_once(store.open_evaluation(SPEC))
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))

    damaged = open_store(path)
    with pytest.raises(StorageError, match=rf"{path}: it is damaged.*\.recover.*malformed"):
        damaged.experiments()
    damaged.close()


def test_a_database_of_a_newer_evalve_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(path)
    at_once(store.open_evaluation(SPEC))
    with store._database.writing() as connection:
        connection.execute("PRAGMA user_version = 99")
    store.close()

    newer = open_store(path, create=False)
    with pytest.raises(StorageError, match=rf"{path}: .*newer evalve.*99.*upgrade evalve"):
        newer.experiments()
    newer.close()


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE t (x)")
    theirs.close()
    before = path.read_bytes()
    store = open_store(path)

    with pytest.raises(StorageError, match=rf"{path}: this is a database of another program"):
        at_once(store.open_evaluation(SPEC))
    store.close()

    assert path.read_bytes() == before


def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    with pytest.raises(NotFound):
        open_store(path, create=False)

    store = open_store(path)
    at_once(store.open_evaluation(SPEC))

    assert [info.name for info in store.experiments()] == ["exp"]
    store.close()


def test_a_directory_in_place_of_the_file_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    with pytest.raises(StorageError, match=rf"{tmp_path}: it cannot be opened"):
        at_once(store.open_evaluation(SPEC))
    store.close()


def test_a_file_in_place_of_the_directory_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = open_store(tmp_path / "file" / "a.db")

    with pytest.raises(StorageError, match=rf"{tmp_path}/file/a.db: .*--storage"):
        at_once(store.open_evaluation(SPEC))
    store.close()


def fill_the_disk(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    finally:
        connection.close()


def write_what_is_read_only(path: Path) -> None:
    sqlite3.connect(path).close()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        connection.execute("CREATE TABLE t (x)")
    finally:
        connection.close()


def write_what_is_locked(path: Path) -> None:
    holder, other = sqlite3.connect(path, isolation_level=None), sqlite3.connect(path, timeout=0)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE t (x)")
    finally:
        other.close()
        holder.close()


def create_where_it_is_forbidden(path: Path) -> None:
    raise PermissionError(13, "Permission denied", str(path.parent))


@pytest.mark.parametrize(
    ("mishap", "message"),
    [
        (fill_the_disk, "the disk is full"),
        (write_what_is_read_only, "cannot be written: check the permissions"),
        (write_what_is_locked, "another process has kept it locked"),
        (create_where_it_is_forbidden, "Permission denied: check the path, or name another file"),
    ],
)
def test_mishaps_are_told_with_the_path_and_a_remedy(
    tmp_path: Path, mishap: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "a.db"

    with pytest.raises(StorageError, match=f"{path}: .*{message}"), explained(str(path)):
        mishap(path)


# who shares it


def test_several_processes_fill_one_new_database_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / ".evalve" / "evalve.db"

    processes = [start(path, prefix, 500) for prefix in "abcd"]
    outputs = [process.communicate(timeout=60)[0] for process in processes]

    expected = [f"{prefix}{number}" for prefix in "abcd" for number in range(500)]
    assert "".join(outputs).split() == expected
    store = open_store(path, create=False)
    (info,) = store.evaluations("exp")
    assert sorted(record.sample_id for record in store.records(info)) == sorted(expected)
    assert len(at_once(store.known(info.id, [(sample_id, 0) for sample_id in expected]))) == 2000
    store.close()


def test_nothing_that_was_acknowledged_is_lost_or_doubled_by_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    acknowledged: set[str] = set()

    for lines in (1, 137, 611, 1500):
        process = start(path, "s", 20_000)
        assert process.stdout is not None
        acknowledged |= {process.stdout.readline().strip() for _ in range(lines)}
        process.send_signal(signal.SIGKILL)
        acknowledged |= set(process.stdout.read().split("\n")[:-1])
        process.stdout.close()
        process.wait()

    store = open_store(path, create=False)
    (info,) = store.evaluations("exp")
    stored = [record.sample_id for record in store.records(info)]
    known = at_once(store.known(info.id, [(sample_id, 0) for sample_id in acknowledged]))
    with store._database.reading() as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    store.close()
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(known) == len(acknowledged)


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    ids: list[int] = []

    def use() -> None:
        ids.append(at_once(store.open_evaluation(SPEC)))
        at_once(store.known(ids[0], [("s", 0)]))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()

    assert len(ids) == 8
    assert len(set(ids)) == 1


class _Meanwhile:
    """A connection after whose second statement another process does something."""

    def __init__(self, connection: sqlite3.Connection, do: Callable[[], object]) -> None:
        self._connection, self._do, self._count = connection, do, 0

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        rows = self._connection.execute(statement).fetchall()
        self._count += 1
        if self._count == 2:
            self._do()
        return _Rows(rows)


class _Rows(list[tuple[object, ...]]):
    def fetchone(self) -> tuple[object, ...]:
        return self[0]


def test_a_store_whose_tables_another_process_just_makes_is_ours(tmp_path: Path) -> None:
    def make() -> None:
        with closing(open_store(tmp_path / "a.db")) as store:
            at_once(store.open_evaluation(SPEC))

    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        version = _version(cast(sqlite3.Connection, _Meanwhile(connection, make)), "a.db")

    assert version == schema.VERSION


def test_a_forked_child_opens_connections_of_its_own(tmp_path: Path) -> None:
    program = f"""
import asyncio, os
from evalve.contracts import EvaluationSpec
from evalve.storage import open_store
store = open_store({str(tmp_path / "a.db")!r})
asyncio.run(store.open_evaluation(EvaluationSpec("parent", "key", "name")))
lock = store.lock("parent", holder="test")
pid = os.fork()
if pid == 0:
    asyncio.run(store.open_evaluation(EvaluationSpec("child", "key", "name")))
    lock.release()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert sorted((info.name, info.running is None) for info in store.experiments()) == [
    ("child", True), ("parent", False)]
lock.release()
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_an_unfinished_iteration_leaves_nothing_open(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    evaluation_id = at_once(store.open_evaluation(SPEC))
    told = threading.Semaphore(0)

    class Sink:
        def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
            told.release(len(drafts))

    sink = Sink()
    for number in range(3):
        sample = Sample(f"s{number}", number, {}, "{}")
        store.add(
            RecordDraft(evaluation_id, sample, 0, "done", "[]", None, None, None, "t", 0, 0, 1, None, "r"),
            sink,
        )
        told.acquire()

    reading = store.records(store.evaluations("exp")[0])
    next(reading)
    del reading
    store.close()

    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def turn_back_to_the_fourth_format(connection: sqlite3.Connection) -> None:
    connection.execute("DROP INDEX records_in_order")
    connection.execute("DROP INDEX records_not_done")
    connection.execute("ALTER TABLE records DROP COLUMN failure_class")
    connection.execute("ALTER TABLE records DROP COLUMN lent")
    connection.execute("ALTER TABLE evaluations DROP COLUMN tallied")
    for table in ("traces", "artefacts", "rewrites", "tallies", "progress"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 4")


def test_a_file_of_the_first_format_is_brought_up_to_date_with_its_records(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    start(path, "s", 3).communicate()
    with sqlite3.connect(path) as connection:
        turn_back_to_the_fourth_format(connection)
        connection.execute("ALTER TABLE records DROP COLUMN calls")
        connection.execute("ALTER TABLE locks DROP COLUMN party")
        connection.execute(
            "INSERT INTO locks SELECT 'token', name, ?, 0, 'elsewhere', 'pytest', '2026-01-01', ?"
            " FROM experiments",
            (os.getpid(), time.time()),
        )
        connection.execute("ALTER TABLE records DROP COLUMN row_hash")
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    told, _ = start(path, "t", 1).communicate()
    store = open_store(path)

    assert told == "t0\n"
    assert at_once(store.counts(at_once(store.open_evaluation(SPEC)))) == (4, 0, 0)
    with pytest.raises(Locked, match="on elsewhere"):
        store.lock(SPEC.experiment, holder="me")
    store.close()


def test_a_file_of_the_third_format_is_brought_up_to_date_and_its_samples_have_no_hash(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    start(path, "s", 3).communicate()
    with sqlite3.connect(path) as connection:
        turn_back_to_the_fourth_format(connection)
        connection.execute("ALTER TABLE records DROP COLUMN row_hash")
        connection.execute("PRAGMA user_version = 3")
    connection.close()

    store = open_store(path)
    evaluation_id = at_once(store.open_evaluation(SPEC))
    known = at_once(store.known(evaluation_id, [("s0", 0), ("s1", 0), ("s2", 0)]))

    assert [one.row_hash for one in known.values()] == [None, None, None]
    with store._database.reading() as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (5,)
    store.close()


def test_failures_of_the_fourth_format_count_as_those_of_the_code(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    start(path, "s", 3).communicate()
    with sqlite3.connect(path) as connection:
        connection.execute(
            """UPDATE records SET status = 'failed', failure = '{"kind":"E","message":"","traceback":""}'"""
            " WHERE sample_id = 's1'"
        )
        turn_back_to_the_fourth_format(connection)
    connection.close()

    store = open_store(path)
    (info,) = store.evaluations("exp")
    (failed,) = store.records(info, status="failed")

    assert (info.done, info.failed, info.failures) == (2, 1, {"code": 1})
    assert failed.failure is not None
    assert failed.failure.failure_class == "code"
    assert store.trace(failed.id) == []
    store.close()


def test_a_file_of_an_earlier_format_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    start(path, "s", 3).communicate()
    with sqlite3.connect(path) as connection:
        turn_back_to_the_fourth_format(connection)
    connection.close()

    with pytest.raises(StorageError, match=r"earlier evalve \(format 4\).*copy it to a directory"):
        FileDatabase(path, url=f"sqlite:///{path}")._open_at_rest()


# artefacts


def test_artefacts_lie_beside_the_file_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")

    kept = store.keep_artefact(b"hello", name="hello.txt")
    store.keep_artefact(b"hello", name="again.txt")
    store.close()

    (path,) = [path for path in (tmp_path / "a.db-artefacts").rglob("*") if path.is_file()]
    assert path == tmp_path / "a.db-artefacts" / kept.hash[:2] / kept.hash[2:]
    assert path.read_bytes() == b"hello"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_a_killed_process_was_writing_is_removed_with_the_next_deletion(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    at_once(store.open_evaluation(SPEC))
    store.keep_artefact(b"hello", name="left by an attempt of this process")
    left, new = (tmp_path / "a.db-artefacts" / name for name in ("left.part", "new.part"))
    left.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(left, (0, 0))

    store.delete("exp")
    store.close()

    assert not left.exists()
    assert new.exists()


def test_no_artefact_is_removed_while_another_process_runs(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    earlier = open_store(path)
    kept = earlier.keep_artefact(b"hello", name="left by another process")
    earlier.close()
    store = open_store(path)
    at_once(store.open_evaluation(SPEC))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO locks VALUES ('token', 'party', 'another', 1, 0, 'elsewhere', 'pytest', 'now', ?)",
            (time.time(),),
        )
    connection.close()

    store.delete("exp")

    store.open_artefact(kept.hash).close()
    store.close()


# live progress

RUNNING_PROGRAM = """
import asyncio, sys
from evalve import foreach

@foreach("n", range(3))
async def eval_waiting(n):
    if n:
        print("waits", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    return True

asyncio.run(eval_waiting(experiment="exp", storage=sys.argv[1], max_concurrency=2, progress="off"))
"""


def test_another_process_follows_a_run_and_sees_that_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    command = [sys.executable, "-c", RUNNING_PROGRAM, str(path)]
    running = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert running.stdout is not None
    assert running.stdin is not None
    assert [running.stdout.readline() for _ in range(2)] == ["waits\n", "waits\n"]
    store = open_store(path, create=False)

    (live,) = until(lambda: store.live("exp"), lambda live: [one.done for one in live] == [1])
    assert (live.evaluation, live.total, live.in_flight, live.is_alive) == ("eval_waiting", 3, 2, True)

    running.kill()
    running.wait()
    running.stdin.close()
    running.stdout.close()
    (live,) = store.live("exp")
    assert (live.done, live.is_alive) == (1, False)
    store.close()


T = TypeVar("T")


def until(look: Callable[[], T], is_there: Callable[[T], bool]) -> T:
    """What is looked at, once it is as it shall be: a run tells it about once a second."""
    ends_s = time.monotonic() + 30.0
    while not is_there(seen := look()):
        assert time.monotonic() < ends_s, seen
        time.sleep(0.05)
    return seen


@pytest.mark.parametrize(
    ("url", "file"),
    [("sqlite://agent_results.db", "agent_results.db"), ("json://records", "records/evalve.db")],
)
def test_the_urls_of_doteval_name_a_file(
    url: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_store(url)) as store:
        assert store.url == f"sqlite:///{tmp_path / file}"


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_disappears_while_it_is_in_use_is_noticed_and_made_anew(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "runs.db"
    with closing(open_store(path)) as store:
        asyncio.run(store.open_evaluation(EvaluationSpec("x", "k", "eval_x", ("n",), {})))
        for file in tmp_path.glob("runs.db*"):
            file.unlink()
        if replaced:
            with closing(open_store(path)) as other:
                asyncio.run(other.open_evaluation(EvaluationSpec("other", "k", "eval_x", ("n",), {})))

        with pytest.raises(StorageError, match=r"runs\.db: the file was deleted or replaced"):
            asyncio.run(store.open_evaluation(EvaluationSpec("x", "k2", "eval_y", ("n",), {})))
        asyncio.run(store.open_evaluation(EvaluationSpec("x", "k3", "eval_z", ("n",), {})))

    with closing(open_store(path, create=False)) as found:
        assert [one.spec.key for one in found.evaluations("x")] == ["k3"]


# damaged records


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[str], Path]:
    """A store with three samples, the second of which has `column` overwritten."""

    def damage(column: str, text: object = '[{"na') -> Path:
        path = tmp_path / "a.db"
        with closing(open_store(path)) as store:
            record(store, "exp", *(done(name, right=True, also={"row": {"q": 1}}) for name in "abc"))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f'UPDATE records SET "{column}" = ? WHERE sample_id = "b"', (text,))
        return path

    return damage


def test_scores_that_cannot_be_read_do_not_hide_other_records(damaged: Callable[[str], Path]) -> None:
    with closing(open_store(damaged("scores"))) as store:
        (info,) = store.evaluations("exp")
        records = list(store.records(info))

        assert [one.status for one in records] == ["done", "failed", "done"]
        assert str(records[1].failure) == (
            "DamagedRecord: what is stored of this sample cannot be read as a whole: scores;"
            " --fresh runs it again"
        )
        assert [sample_id for sample_id, _, _ in store.observations(info.id)] == ["a", "c"]
        assert [one.sample_id for one in store.page(info).records] == ["a", "b", "c"]


def test_of_a_damaged_record_the_rest_is_read(damaged: Callable[[str], Path]) -> None:
    with closing(open_store(damaged("response"))) as store:
        (info,) = store.evaluations("exp")
        broken = list(store.records(info))[1]

        assert broken.status == "done"
        assert [score.value for score in broken.scores] == [True]
        assert broken.failure is not None
        assert broken.failure.kind == "DamagedRecord"
        assert len(list(store.observations(info.id))) == 3


def test_bytes_that_are_no_text_do_not_hide_other_records(
    damaged: Callable[..., Path],
) -> None:
    path = damaged("started_at", "2026")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE records SET started_at = CAST(x'ff80' AS TEXT) WHERE sample_id = 'b'")

    with closing(open_store(path)) as store:
        (info,) = store.evaluations("exp")

        assert [one.sample_id for one in store.records(info)] == ["a", "b", "c"]


@pytest.mark.parametrize("column", ["repeat", "idx", "working_s", "wall_s", "tries"])
def test_text_in_the_place_of_a_number_does_not_hide_other_records(
    damaged: Callable[..., Path], column: str
) -> None:
    with closing(open_store(damaged(column, "long"))) as store:
        (info,) = store.evaluations("exp")
        broken = next(one for one in store.records(info) if one.sample_id == "b")

        assert (broken.status, [score.value for score in broken.scores]) == ("done", [True])
        assert str(broken.failure) == (
            f"DamagedRecord: what is stored of this sample cannot be read as a whole: {column};"
            " --fresh runs it again"
        )
        assert all(isinstance(one.working_s, float) for one in store.measures(info.id))


def test_a_damaged_record_is_replaced_by_a_new_attempt(damaged: Callable[[str], Path]) -> None:
    path = damaged("failure")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM runs")
    with closing(open_store(path)) as store:
        record(store, "exp", done("b", right=False))
        (info,) = store.evaluations("exp")

        assert store.record_of(info, "b").scores[0].value is False


@pytest.mark.parametrize("text", ['{"requ', "[]", "7"])
def test_calls_that_cannot_be_read_do_not_hide_other_records(damaged: Callable[..., Path], text: str) -> None:
    with closing(open_store(damaged("calls", text))) as store:
        (info,) = store.evaluations("exp")

        assert [(one.sample_id, one.calls) for one in store.measures(info.id)] == [
            ("a", None),
            ("b", None),
            ("c", None),
        ]
        assert [one.status for one in store.records(info)] == ["done", "done", "done"]


@pytest.mark.parametrize("text", ['{"requ', "[]", "7"])
def test_an_answer_is_read_whatever_became_of_its_calls_and_its_trace(
    damaged: Callable[..., Path], text: str
) -> None:
    path = damaged("calls", text)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("""UPDATE records SET response = '"42"', lent = '{"ag'""")
        connection.execute("INSERT INTO traces SELECT id, x'0102' FROM records")
    with closing(open_store(path)) as store:
        (info,) = store.evaluations("exp")

        assert asyncio.run(store.answered(info.id, "b", 0)) == Answered("42", 0.5, events=[])
