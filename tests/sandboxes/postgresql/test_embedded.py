"""The embedded server: one for all processes of a user, gone with the last of them, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from evalve.errors import LenderError
from evalve.sandboxes.postgresql import embedded
from postgres_server import private_place

JOINS = """
import sys
from pathlib import Path
from evalve.sandboxes.postgresql import embedded
server = embedded.join(Path(sys.argv[1]))
print(server.port, flush=True)
sys.stdin.read()
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    """A server of its own: these tests kill it."""
    with private_place() as found:
        yield found


def process(place: Path, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", JOINS, str(place)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def port_of(started: subprocess.Popen[str]) -> int:
    assert started.stdout is not None
    return int(started.stdout.readline())


def processes_of(place: Path) -> list[psutil.Process]:
    """The server's first process, and its keeper."""
    told = json.loads((place / "server.json").read_text())
    postmaster = psutil.Process(told["pid"])
    keeper = postmaster.parent()
    assert keeper is not None and "keeper.py" in " ".join(keeper.cmdline())
    return [postmaster, keeper]


def test_a_killed_process_leaves_the_server_to_the_others_and_the_last_one_takes_it_along(
    place: Path,
) -> None:
    first, second = process(place), process(place)
    port = port_of(first)
    assert port_of(second) == port

    first.kill()
    first.communicate()
    password = embedded._running(place)
    assert password is not None
    with psycopg.connect(
        host="127.0.0.1", port=port, user="postgres", password=password["password"]
    ) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)

    running = processes_of(place)
    second.kill()
    second.communicate()
    psutil.wait_procs(running)
    assert not place.exists()


def test_a_killed_keeper_takes_the_server_along_and_the_next_process_starts_another(place: Path) -> None:
    server = embedded.join(place)
    postmaster, keeper = processes_of(place)
    keeper.kill()
    psutil.wait_procs([postmaster, keeper])

    again = embedded.join(place)
    assert again.port != server.port or again.password != server.password
    running = processes_of(place)
    again.close()
    server.close()
    psutil.wait_procs(running)
    assert not place.exists()


def test_the_server_listens_on_loopback_alone_and_asks_for_a_password(place: Path) -> None:
    server = embedded.join(place)
    addresses = {
        one.laddr.ip
        for one in psutil.net_connections("tcp")
        if one.laddr and one.laddr.port == server.port and one.status == psutil.CONN_LISTEN
    }
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=server.port, user="postgres", password="wrong")
    assert addresses == {"127.0.0.1"}
    assert (place / "server.json").stat().st_mode & 0o077 == 0
    assert server.password not in repr(server)
    running = processes_of(place)
    server.close()
    psutil.wait_procs(running)


@as_root
def test_where_the_servers_account_may_not_go_binaries_are_copied_and_no_permission_is_changed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = place.parent / "private"
    private.mkdir(mode=0o700)
    copied = embedded._copied(embedded._installed(), private / "packages")
    monkeypatch.setattr(embedded, "_installed", lambda: copied)

    server = embedded.join(place)

    assert (place / "install").exists()
    assert private.stat().st_mode & 0o777 == 0o700
    running = processes_of(place)
    server.close()
    psutil.wait_procs(running)
    assert not place.exists()


NOBODY: dict[str, Any] = {
    "user": 65534,
    "group": 65534,
    "extra_groups": [],
    "cwd": "/",
    "env": {"PATH": "/usr/bin:/bin"},
}
STARTS = """
import sys
place, install, *folders = sys.argv[1:]
sys.path[:0] = folders
from pathlib import Path
from evalve.sandboxes.postgresql import embedded
embedded._installed = lambda: Path(install)
server = embedded.join(Path(place))
status = Path(place).stat()
print(status.st_uid, oct(status.st_mode & 0o777))
server.close()
"""


def python_for_all() -> str:
    """One that is not in a folder of root's."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            told = "import sys; sys.exit(sys.version_info < (3, 11))"
            subprocess.run([python, "-c", told], check=True, **NOBODY)
            return python
        except (OSError, subprocess.CalledProcessError):
            pass
    pytest.skip("there is no Python 3.11 that an account beside root may run")


@as_root
def test_a_user_who_is_not_root_starts_one_too(place: Path) -> None:
    place.parent.chmod(0o777)
    install = embedded._copied(embedded._installed(), place.parent / "pg")  # what is here may be root's alone
    package, others = place.parent / "src", place.parent / "packages"
    shutil.copytree(Path(embedded.__file__).parents[3] / "evalve", package / "evalve")
    shutil.copytree(Path(psutil.__file__).parent, others / "psutil")

    told = subprocess.run(
        [python_for_all(), "-c", STARTS, str(place), str(install), str(package), str(others)],
        capture_output=True,
        text=True,
        check=False,
        **NOBODY,
    )

    assert told.stdout == "65534 0o700\n", told.stderr


def test_where_memory_has_no_room_data_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(embedded, "_ROOM_BYTES", 10**18)
    assert embedded._folder(Path("/elsewhere")).parent == tmp_path


def test_a_server_that_cannot_start_says_why(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "MAX_CONNECTIONS", 10_000_000)
    with pytest.raises(LenderError, match=r"did not start in .*: PostgreSQL did not start"):
        embedded.join(place)
    assert not (place / "data").exists()


def test_signals_of_the_terminal_do_not_reach_it(place: Path) -> None:
    started = process(place, start_new_session=True)
    port_of(started)
    running = processes_of(place)
    os.killpg(started.pid, signal.SIGINT)
    started.communicate()
    psutil.wait_procs(running)
    assert not place.exists()
