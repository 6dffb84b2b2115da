"""A directory for each attempt: fresh, filled, removed or kept."""

from __future__ import annotations

import asyncio
import errno
import pickle
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evalve
from evalve.contracts import Lender, SampleContext, Store
from evalve.errors import DeclarationError
from evalve.sandboxes.homes import home_in
from evalve.sandboxes.seeds import Seed
from evalve.sandboxes.workspace import Directory, Workspace
from evalve.storage import open_store
from lending import KeepsDrafts, Numbered
from running import records, rows, run, runnable, running


@pytest.fixture
def store() -> Iterator[Any]:
    store = open_store("memory://")
    yield KeepsDrafts(store)
    store.close()


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def live(project: Path) -> list[Path]:
    return sorted(project.glob(".evalve/workspaces/*/*"))


def kept(project: Path) -> list[str]:
    """Experiment, sample and repeat of every workspace that is kept, with the names in it."""
    found = sorted(project.glob(".evalve/kept/*/*/*/*"))
    return [
        f"{path.parts[-4]} {path.parts[-2]}: {' '.join(sorted(inner.name for inner in path.iterdir()))}"
        for path in found
    ]


def writes(id: str, workspace: Directory) -> bool:
    """Fails for ids that begin with `bad`."""
    (workspace / f"{id}.txt").write_text("made")
    if id.startswith("bad"):
        raise ValueError("no")
    return True


async def writes_async(id: str, workspace: Directory) -> bool:
    return writes(id, workspace)


def test_each_attempt_has_a_directory_of_its_own(store: Store) -> None:
    seen: dict[Path, list[str]] = {}

    async def evaluate(id: str, workspace: Directory) -> bool:
        seen[workspace.path] = [path.name for path in workspace.path.iterdir()]
        (workspace / "mine.txt").write_text(id)
        await asyncio.sleep(1)
        return (workspace / "mine.txt").read_text() == id

    run(runnable(evaluate, rows("a", "b"), lenders={"workspace": Workspace({"seed": "x"})}, repeat=2), store)

    assert list(seen.values()) == [["seed"]] * 4
    assert [record.scores[0].value for record in records(store)] == [True] * 4


@pytest.mark.parametrize("function", [writes, writes_async])
def test_it_is_gone_when_its_record_is_committed(store: Store, project: Path, function: Any) -> None:
    run(runnable(function, rows("a", "b"), lenders={"workspace": Workspace()}), store)

    assert (live(project), kept(project)) == ([], [])


def test_it_is_there_until_its_record_is_committed(store: Any, project: Path) -> None:
    there: list[int] = []

    class Looks(KeepsDrafts):
        def add(self, draft: Any, sink: Any) -> None:
            there.append(len(live(project)))
            super().add(draft, sink)

    looks: Any = Looks(store)
    run(runnable(writes_async, rows("a"), lenders={"workspace": Workspace()}), looks)

    assert there == [1]
    assert live(project) == []


def test_that_of_a_failed_sample_is_kept_and_its_path_is_recorded(store: Any, project: Path) -> None:
    run(runnable(writes, rows("good", "bad"), lenders={"workspace": Workspace({"seed": "x"})}), store)

    (path,) = project.glob(".evalve/kept/*/*/*/*")
    assert store.lent == {"good": None, "bad": {"workspace": {"path": str(path)}}}
    assert sorted(inner.name for inner in path.iterdir()) == ["bad.txt", "seed"]
    assert live(project) == []


def test_a_sample_that_succeeds_later_removes_what_was_kept_of_it(store: Store, project: Path) -> None:
    fails = {"a", "b"}

    async def evaluate(id: str, workspace: Directory) -> bool:
        if id in fails:
            raise ValueError("no")
        return True

    evaluation = runnable(evaluate, rows("a", "b"), lenders={"workspace": Workspace()})
    run(evaluation, store)
    before = kept(project)
    fails.remove("a")
    run(evaluation, store)

    assert before == ["exp a-0: ", "exp b-0: "]
    assert kept(project) == ["exp b-0: "]


def test_a_sample_that_fails_again_replaces_what_was_kept_of_it(store: Store, project: Path) -> None:
    names = iter(["first", "second"])

    async def evaluate(id: str, workspace: Directory) -> bool:
        (workspace / next(names)).touch()
        raise ValueError("no")

    evaluation = runnable(evaluate, rows("a"), lenders={"workspace": Workspace()})
    run(evaluation, store)
    run(evaluation, store)

    assert kept(project) == ["exp a-0: second"]
    assert live(project) == []


def test_always_keeps_all_and_never_keeps_none(store: Store, project: Path) -> None:
    run(runnable(writes, rows("good", "bad"), lenders={"workspace": Workspace(keep="always")}), store)
    always = kept(project)
    run(
        runnable(
            writes, rows("good", "bad"), lenders={"workspace": Workspace(keep="never")}, experiment="never"
        ),
        store,
    )

    assert always == ["exp bad-0: bad.txt", "exp good-0: good.txt"]
    assert kept(project) == always
    assert live(project) == []


def test_each_try_has_a_fresh_one_and_that_of_the_last_is_kept(store: Store, project: Path) -> None:
    seen: list[list[str]] = []

    async def evaluate(id: str, workspace: Directory) -> bool:
        seen.append([path.name for path in workspace.path.iterdir()])
        (workspace / f"{len(seen)}.txt").touch()
        raise ConnectionError("try again")

    run(runnable(evaluate, rows("a"), lenders={"workspace": Workspace()}), store)

    assert seen == [[], [], []]
    assert kept(project) == ["exp a-0: 3.txt"]
    assert live(project) == []


def test_two_workspaces_of_one_sample_are_kept_apart(store: Any) -> None:
    async def evaluate(id: str, left: Directory, right: Directory) -> bool:
        (left / "left").touch()
        (right / "right").touch()
        raise ValueError("no")

    run(runnable(evaluate, rows("a"), lenders={"left": Workspace(), "right": Workspace()}), store)

    paths = {name: Path(told["path"]) for name, told in store.lent["a"].items()}
    assert {name: [p.name for p in path.iterdir()] for name, path in paths.items()} == {
        "left": ["left"],
        "right": ["right"],
    }


def test_another_lender_that_cannot_take_back_leaves_it_to_be_looked_at(store: Any, project: Path) -> None:
    async def evaluate(id: str, workspace: Directory, thing: int) -> bool:
        (workspace / f"{thing}.txt").touch()
        return True

    lenders: dict[str, Lender] = {"workspace": Workspace(), "thing": Numbered(fails_to_take_back=9)}
    run(runnable(evaluate, rows("a"), lenders=lenders), store)

    assert kept(project) == ["exp a-0: 3.txt"]


async def test_a_cancelled_run_leaves_nothing(store: Store, project: Path) -> None:
    started = asyncio.Event()

    async def evaluate(id: str, workspace: Directory) -> bool:
        (workspace / "half").touch()
        started.set()
        await asyncio.sleep(3600)
        return True

    task = asyncio.ensure_future(
        running(runnable(evaluate, rows("a"), lenders={"workspace": Workspace()}), store)
    )
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (live(project), kept(project)) == ([], [])


async def test_a_run_that_is_cancelled_while_files_are_copied_leaves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying, cancelled, removed = (threading.Event() for _ in range(3))

    def copy(self: Seed, to: Path, *, is_abandoned: Any) -> None:
        (to / "half").touch()
        copying.set()
        cancelled.wait(30)

    workspace = Workspace()
    home = home_in(project / ".evalve")
    remove = home.remove
    monkeypatch.setattr(Seed, "copy", copy)

    def remove_and_tell(path: Path) -> None:
        remove(path)
        removed.set()

    monkeypatch.setattr(home, "remove", remove_and_tell)

    task = asyncio.ensure_future(_lent(workspace))
    await asyncio.to_thread(copying.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cancelled.set()

    assert await asyncio.to_thread(removed.wait, 30)
    assert live(project) == []


async def _lent(workspace: Workspace) -> None:
    async with workspace.lend(SampleContext("exp", "eval_x", "a", 0, 1)):
        raise AssertionError("is never lent")


def test_a_sample_may_remove_its_own(store: Any, project: Path) -> None:
    async def evaluate(id: str, workspace: Directory) -> bool:
        shutil.rmtree(workspace)
        if id == "bad":
            raise ValueError("no")
        return True

    run(runnable(evaluate, rows("good", "bad"), lenders={"workspace": Workspace()}), store)

    assert {record.sample_id: record.status for record in records(store)} == {"good": "done", "bad": "failed"}
    assert store.lent == {"good": None, "bad": None}


def test_a_full_disk_is_told_with_what_is_free_and_what_to_do(
    store: Store, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Seed, to: Path, **_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    free = shutil.disk_usage(project)._replace(free=1_500_000)
    monkeypatch.setattr(Seed, "copy", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)

    run(runnable(writes, rows("a"), lenders={"workspace": Workspace({"seed": "x" * 2_000_000})}), store)

    (record,) = records(store)
    assert record.failure is not None
    assert (record.failure.kind, record.failure.failure_class, record.tries) == (
        "LenderError",
        "infrastructure",
        3,
    )
    assert record.failure.message == (
        f"the disk is full: the workspace of sample 'a' needs 2.0 MB in {project}/.evalve, where 1.5 MB are "
        f"free; remove {project}/.evalve/kept if you do not need it, or put workspaces elsewhere with "
        "Workspace(directory=…)"
    )
    assert live(project) == []


def test_a_seed_that_vanishes_during_the_run_is_told_by_its_path(store: Store, project: Path) -> None:
    seed = project / "seed.txt"
    seed.touch()
    workspace = Workspace([seed])
    seed.unlink()

    run(runnable(writes, rows("a"), lenders={"workspace": workspace}), store)

    (record,) = records(store)
    assert record.failure is not None
    assert record.failure.message.startswith("the workspace of sample 'a' could not be made in ")
    assert record.failure.message.endswith(f"No such file or directory: '{seed}'")


def test_workspaces_may_be_elsewhere(store: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"

    run(runnable(writes, rows("bad"), lenders={"workspace": Workspace(directory=elsewhere)}), store)

    assert store.lent["bad"]["workspace"]["path"].startswith(str(elsewhere / "kept"))
    assert not (tmp_path / ".evalve").exists()


def test_mistakes_name_file_and_line_when_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match=r"test_workspace\.py:\d+: there is no 'nope'"):
        Workspace(files="nope")
    with pytest.raises(DeclarationError, match=r"test_workspace\.py:\d+: keep= is .*; got 'all'"):
        Workspace(keep="all")  # type: ignore[arg-type]


def test_files_are_found_beside_the_file_that_declares_it() -> None:
    assert list(Workspace(files=["test_workspace.py"]).settings) == ["file test_workspace.py"]


def test_files_that_are_gone_when_the_run_begins_are_told(project: Path) -> None:
    (project / "seed.txt").touch()
    workspace = Workspace(["seed.txt"])
    (project / "seed.txt").unlink()

    with pytest.raises(DeclarationError, match=r"the files of the workspace cannot be read: .*seed\.txt"):
        _ = workspace.settings


def test_what_is_kept_is_no_part_of_the_evaluation() -> None:
    assert Workspace({"a": "b"}, keep="always").settings == Workspace({"a": "b"}).settings


def test_a_workspace_that_is_not_lent_says_so() -> None:
    with pytest.raises(AttributeError, match="lends a directory to each sample of an evaluation"):
        _ = evalve.Workspace().path


def test_what_is_lent_is_a_path_and_crosses_to_other_processes(tmp_path: Path) -> None:
    lent = pickle.loads(pickle.dumps(Directory(tmp_path)))

    assert lent == Directory(tmp_path)
    assert (lent / "a", str(lent), Path(lent)) == (tmp_path / "a", str(tmp_path), tmp_path)
