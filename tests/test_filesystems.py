"""Which folders lie on a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalve.filesystems import on_network
from evalve.gating import limits_path

MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:44 / /home rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2
41 40 8:2 / /home/local rw - xfs /dev/sdb1 rw
42 22 0:45 / /my\040share rw - cifs //server/share rw
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
    ],
)
def test_the_innermost_mount_tells(folder: str, expected: bool) -> None:
    assert on_network(Path(folder), MOUNTS) is expected


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
