"""Wake-ups between processes, through real FIFOs."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalve.gate.limits.wakeups import Wakeups

PATIENCE_S = 60


class Ear:
    """Counts what it hears."""

    def __init__(self, folder: Path) -> None:
        self.heard = threading.Semaphore(0)
        self.wakeups = Wakeups(folder / "waiting", self.heard.release)

    def hears(self) -> bool:
        return self.heard.acquire(timeout=PATIENCE_S)


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    ear = Ear(tmp_path)
    yield ear
    ear.wakeups.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Ear]:
    ear = Ear(tmp_path)
    yield ear
    ear.wakeups.close()


def test_who_listens_hears_who_wakes_it(ear: Ear, other: Ear) -> None:
    assert ear.wakeups.listen("me")

    other.wakeups.wake("me")
    once = ear.hears()
    other.wakeups.wake("me")

    assert (once, ear.hears()) == (True, True)


def test_who_is_woken_while_it_stops_to_listen_ends_in_order(
    ear: Ear, other: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    assert ear.wakeups.listen("me")
    [thread] = [one for one in threading.enumerate() if one.name == "wakeups" and one not in before]
    unlink = Path.unlink

    def woken_then_unlinked(path: Path, missing_ok: bool = False) -> None:
        other.wakeups.wake("me")
        thread.join(PATIENCE_S)  # it has heard that all is over, and closed what it listened to
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", woken_then_unlinked)
        ear.wakeups.close()
    assert not thread.is_alive()


def test_nothing_is_made_before_somebody_listens(ear: Ear, tmp_path: Path) -> None:
    ear.wakeups.wake("nobody")

    assert list(tmp_path.iterdir()) == []


def test_a_wake_up_is_for_one(ear: Ear, other: Ear) -> None:
    ear.wakeups.listen("one")
    other.wakeups.listen("two")

    ear.wakeups.wake("two")

    assert other.hears()
    assert not ear.heard.acquire(blocking=False)


def test_what_is_made_is_for_this_person_alone(ear: Ear, tmp_path: Path) -> None:
    ear.wakeups.listen("me")

    modes = [(tmp_path / "waiting").stat().st_mode, (tmp_path / "waiting" / "me").stat().st_mode]

    assert [stat.S_IMODE(mode) for mode in modes] == [0o700, 0o600]


def test_who_closes_leaves_nothing_and_may_listen_again(ear: Ear, other: Ear, tmp_path: Path) -> None:
    ear.wakeups.listen("me")
    ear.wakeups.close()
    left = list((tmp_path / "waiting").iterdir())
    other.wakeups.wake("me")

    ear.wakeups.listen("me")
    other.wakeups.wake("me")

    assert left == []
    assert ear.hears()


def test_who_has_much_to_hear_keeps_nobody_waiting(other: Ear, tmp_path: Path) -> None:
    (tmp_path / "waiting").mkdir()
    os.mkfifo(tmp_path / "waiting" / "deaf")
    deaf = os.open(tmp_path / "waiting" / "deaf", os.O_RDWR | os.O_NONBLOCK)
    try:
        while True:
            os.write(deaf, b"!" * 4096)
    except BlockingIOError:
        other.wakeups.wake("deaf")
    finally:
        os.close(deaf)


PROGRAM = """
import sys, time
from pathlib import Path
from evalve.gate.limits.wakeups import Wakeups
Wakeups(Path(sys.argv[1]), lambda: print("heard", flush=True)).listen("child")
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that listens, and prints what it hears."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "waiting")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait(PATIENCE_S)
    process.stdin.close()
    process.stdout.close()


def test_another_process_is_woken_and_removes_what_it_made_when_it_ends(
    child: subprocess.Popen[str], ear: Ear, tmp_path: Path
) -> None:
    assert child.stdout is not None

    ear.wakeups.wake("child")
    heard = child.stdout.readline()
    child.communicate("\n", timeout=PATIENCE_S)

    assert (heard, child.returncode) == ("heard\n", 0)
    assert list((tmp_path / "waiting").iterdir()) == []


@pytest.mark.parametrize("finds", ["who wakes it", "who listens next"])
def test_what_a_killed_process_left_is_removed_by_who_finds_it(
    finds: str, child: subprocess.Popen[str], ear: Ear, tmp_path: Path
) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait(PATIENCE_S)
    left = [path.name for path in (tmp_path / "waiting").iterdir()]

    if finds == "who wakes it":
        ear.wakeups.wake("child")
    ear.wakeups.listen("me")

    assert left == ["child"]
    assert [path.name for path in (tmp_path / "waiting").iterdir()] == ["me"]


def test_who_listens_next_does_not_disturb_who_listens(ear: Ear, other: Ear, tmp_path: Path) -> None:
    ear.wakeups.listen("one")

    other.wakeups.listen("two")

    assert sorted(path.name for path in (tmp_path / "waiting").iterdir()) == ["one", "two"]
    assert not ear.heard.acquire(blocking=False)


def test_a_forked_child_listens_for_itself_and_leaves_its_parents_ear_alone(
    ear: Ear, other: Ear, tmp_path: Path
) -> None:
    ear.wakeups.listen("parent")

    child = os.fork()
    if child == 0:
        ear.wakeups.listen("child")
        ear.wakeups.wake("child")
        heard = ear.hears()
        ear.wakeups.close()
        os._exit(0 if heard else 1)
    _, status = os.waitpid(child, 0)
    other.wakeups.wake("parent")

    assert os.waitstatus_to_exitcode(status) == 0
    assert ear.hears()
    assert [path.name for path in (tmp_path / "waiting").iterdir()] == ["parent"]


def test_a_forked_child_that_closes_what_it_inherited_takes_nothing_from_its_parent(ear: Ear) -> None:
    ear.wakeups.listen("parent")

    child = os.fork()
    if child == 0:
        ear.wakeups.close()
        os._exit(0)
    os.waitpid(child, 0)
    ear.wakeups.wake("parent")

    assert ear.hears()


def test_where_no_fifo_can_be_made_nobody_listens(ear: Ear, tmp_path: Path) -> None:
    (tmp_path / "waiting").write_text("a file is in the way")

    assert not ear.wakeups.listen("me")
    assert not ear.wakeups.listen("me")


def test_a_reader_that_goes_in_the_very_moment_of_a_wakeup_harms_nobody(
    ear: Ear, other: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear.wakeups.listen("me")

    def broken(descriptor: int, data: bytes) -> int:
        raise BrokenPipeError

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", broken)
        other.wakeups.wake("me")
    other.wakeups.wake("me")

    assert ear.hears()
