"""Where workspaces are, and who removes them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from evalve.contracts import SampleContext
from evalve.sandboxes.homes import Home, forget_experiment, plain_name

A = SampleContext("exp", "eval_x[gpt]", "a", 0, 1, evaluation_key="x.py::eval_x[gpt]", argument="workspace")

KILLED = """
import os, signal, sys
from pathlib import Path
from evalve.contracts import SampleContext
from evalve.sandboxes.homes import Home

home = Home(Path(sys.argv[1]))
(home.new_directory(SampleContext("exp", "eval_x", "killed", 0, 1)) / "file").write_text("left")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


def workspaces(base: Path) -> list[Path]:
    return sorted(base.glob("workspaces/*/*"))


def test_a_directory_is_named_after_its_sample(home: Home) -> None:
    first, second = home.new_directory(A), home.new_directory(A)

    assert first != second
    assert first.name.startswith("a-0-")
    assert list(first.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    left = [path.name for path in workspaces(tmp_path)]

    home = Home(tmp_path)
    seen = workspaces(tmp_path)
    home.close()

    assert [name[:9] for name in left] == ["killed-0-"]
    assert seen == []


def test_what_a_live_process_has_is_left_alone(home: Home, tmp_path: Path) -> None:
    path = home.new_directory(A)

    other = Home(tmp_path)
    other.close()

    assert path.is_dir()


def test_a_process_that_ends_leaves_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.new_directory(A)

    home.close()

    assert list((tmp_path / "workspaces").iterdir()) == []


def test_what_is_kept_has_a_place_that_a_person_can_read(home: Home, tmp_path: Path) -> None:
    kept = home.kept_directory(A)

    evaluation = kept.relative_to(tmp_path).parts[2]
    assert evaluation.startswith("eval_x[gpt]-")
    assert kept == tmp_path / "kept" / "exp" / evaluation / "a-0" / "workspace"


def test_evaluations_of_one_name_in_two_files_keep_apart(home: Home) -> None:
    other = SampleContext(
        "exp", "eval_x[gpt]", "a", 0, 1, evaluation_key="y.py::eval_x[gpt]", argument="workspace"
    )

    assert home.kept_directory(A) != home.kept_directory(other)


def test_what_is_kept_replaces_what_was_kept_before(home: Home) -> None:
    old, new, kept = home.new_directory(A), home.new_directory(A), home.kept_directory(A)
    (old / "old").touch()
    (new / "new").touch()

    first, second = home.keep(old, kept), home.keep(new, kept)

    assert first is None
    assert second is not None
    assert [path.name for path in kept.iterdir()] == ["new"]
    assert [path.name for path in second.iterdir()] == ["old"]


def test_what_is_forgotten_leaves_no_empty_directories(home: Home, tmp_path: Path) -> None:
    kept = home.kept_directory(A)
    home.keep(home.new_directory(A), kept)

    home.forget_kept(kept)

    assert list((tmp_path / "kept").iterdir()) == []


def test_what_is_kept_of_others_stays(home: Home) -> None:
    b = SampleContext(A.experiment, A.evaluation, "b", 0, 1, evaluation_key=A.evaluation_key)
    for context in (A, b):
        home.keep(home.new_directory(context), home.kept_directory(context))

    home.forget_kept(home.kept_directory(A))

    assert home.kept_directory(b).is_dir()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a-1_b.c[x=1,y]", "a-1_b.c[x=1,y]"),
        ("../../etc", "_.._etc-"),
        ("..", "-"),
        ("", "-"),
        ("a/b c", "a_b_c-"),
        ("é" * 300, "é" * 60 + "-"),
    ],
)
def test_any_text_becomes_a_name_of_a_file(text: str, plain: str) -> None:
    name = plain_name(text)

    assert name.startswith(plain)
    assert "/" not in name
    assert name not in (".", "..", "")


def test_two_texts_that_look_alike_as_names_are_told_apart() -> None:
    assert len({plain_name("a/b"), plain_name("a b"), plain_name("a_b")}) == 3


def test_an_experiment_that_is_deleted_takes_what_is_kept_beside_its_store_along(tmp_path: Path) -> None:
    base = tmp_path / "a b" / ".evalve"
    home = Home(base)
    kept = home.kept_directory(A)
    home.keep(home.new_directory(A), kept)

    forget_experiment(f"sqlite:///{quote(str(tmp_path / 'other.db'))}", "exp")
    forget_experiment(f"sqlite:///{quote(str(base / 'evalve.db'))}", "another")
    is_there_still = kept.exists()
    forget_experiment(f"sqlite:///{quote(str(base / 'evalve.db'))}?sync=full", "exp")
    home.close()

    assert is_there_still
    assert not (base / "kept" / "exp").exists()


@contextmanager
def nobody_special() -> Iterator[Path]:
    """A directory and, where the tests run as root, a user whom permissions stop."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o777)
        if is_root:
            os.seteuid(65534)
        try:
            yield path
        finally:
            if is_root:
                os.seteuid(0)


def test_directories_that_a_sample_made_read_only_are_removed() -> None:
    with nobody_special() as base:
        home = Home(base)
        path = home.new_directory(A)
        inner = path / "locked" / "inner"
        inner.mkdir(parents=True)
        (inner / "file").touch()
        inner.chmod(0o500)
        inner.parent.chmod(0o000)

        home.remove(path)
        is_there = path.exists()
        home.close()

    assert not is_there


def test_a_directory_that_a_sample_made_read_only_is_kept() -> None:
    with nobody_special() as base:
        home = Home(base)
        path, kept = home.new_directory(A), home.kept_directory(A)
        path.chmod(0o500)

        home.keep(path, kept)
        is_there = kept.exists()
        home.close()

    assert is_there


def test_what_cannot_be_removed_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with nobody_special() as base:
        home = Home(base)
        path = home.new_directory(A)
        home_of_all = path.parent
        home_of_all.chmod(0o500)

        with caplog.at_level(logging.WARNING):
            home.remove(path)
            home.remove(path)
        home_of_all.chmod(0o700)
        home.close()

    (told,) = caplog.messages
    assert told.startswith(f"the workspace {path} cannot be removed: [Errno 13] Permission denied")
