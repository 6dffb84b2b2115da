"""Whose folders are where, and which lie on a network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evalve.experiments.file.configuration import project_folder
from evalve.filesystems import home_folder, on_network
from evalve.gating import cache_directory, limits_path

MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:44 / /home rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2
41 40 8:2 / /home/local rw - xfs /dev/sdb1 rw
42 22 0:45 / /my\040share rw - cifs //server/share rw
43 22 0:46 / /mnt/c rw,noatime - 9p C:\134 rw,dirsync
"""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/var/lib", False),
        ("/home", True),
        ("/home/me/.local/state", True),
        ("/homes", False),
        ("/home/local/me", False),
        ("/my share/a", True),
        ("/mnt/c/Users/me", True),
    ],
)
def test_the_innermost_mount_tells(folder: str, expected: bool) -> None:
    assert on_network(Path(folder), MOUNTS) is expected


def test_a_link_to_a_network_is_on_it(tmp_path: Path) -> None:
    (tmp_path / "cache").symlink_to("/home/scratch/me")

    assert on_network(tmp_path / "cache" / "evalve", MOUNTS)
    assert not on_network(tmp_path, MOUNTS)


def test_a_folder_that_is_named_relatively_stays_where_the_program_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    named = cache_directory({"EVALVE_CACHE_DIR": "cache"}), cache_directory({"XDG_CACHE_HOME": "xdg"})

    assert named == (tmp_path / "cache", tmp_path / "xdg" / "evalve")


def test_a_table_that_cannot_be_read_tells_of_no_network() -> None:
    assert not on_network(Path("/home"), "nonsense\n1 2 3\n")


def test_on_a_network_every_machine_has_limits_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"EVALVE_STATE_DIR": str(tmp_path)}
    alone = limits_path(environ).name

    monkeypatch.setattr("evalve.gating.on_network", lambda folder: True)
    monkeypatch.setattr("socket.gethostname", lambda: "node7.cluster")

    assert (alone, limits_path(environ).name) == ("limits.db", "limits-node7.cluster.db")


def test_whoever_has_no_name_and_no_home_has_a_folder_among_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a container's user whose number is in no list: limits and cache lie there."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))

    assert home_folder() == tmp_path / f"evalve-{os.getuid()}"
    assert limits_path({}).is_relative_to(home_folder())
    assert project_folder(tmp_path) == tmp_path


def test_a_folder_that_somebody_else_has_made_ready_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    theirs, temporary = tmp_path / "theirs", tmp_path / f"evalve-{os.getuid()}"
    theirs.mkdir()
    temporary.symlink_to(theirs)

    assert home_folder() not in (theirs, temporary)
    assert home_folder() == home_folder()
    assert home_folder().stat().st_mode & 0o077 == 0
