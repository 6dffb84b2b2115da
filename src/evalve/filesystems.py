"""Folders: a person's own, those that lie on a network, and which journal a SQLite file may have there.

Machines share a folder on a network, and their locks do not reach each other. A write-ahead log is read
through memory that all processes share: two machines share none, and would destroy the file.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_OF_THE_NETWORK = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb2",
            "smb3",
            "smbfs",
            "afs",
            "ceph",
            "lustre",
            "gpfs",
            "glusterfs",
            "beegfs",
            "panfs",
            "wekafs",
        ),
        *("9p", "virtiofs", "vboxsf", "prl_fs", "fuse.grpcfuse"),  # shared with the host of a container or VM
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"),
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def home_folder() -> Path:
    """The person's own; among the temporary files for whoever has none: a container's user without a name."""
    try:
        return Path.home()
    except RuntimeError:
        return _own_folder(Path(tempfile.gettempdir()))


@cache
def _own_folder(among: Path) -> Path:
    """For this user alone. Anybody may have made one of its name, to read along: then it is a new one."""
    folder = among / f"evalve-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if is_ours else Path(tempfile.mkdtemp(prefix="evalve-", dir=among))


def on_network(folder: Path, mounts: str | None = None) -> bool:
    """By the kernel's table of mounts; where there is none, it is taken for a disk."""
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="replace")
        except OSError:
            return False
    place, kind = "", ""
    name = os.path.realpath(folder)  # on a cluster, `~/.cache` is often a link to another file system
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        mounted_at = fields[4].replace("\\040", " ")
        is_around = name == mounted_at or name.startswith(mounted_at.rstrip("/") + "/")
        if is_around and len(mounted_at) >= len(place):
            place, kind = mounted_at, right.split()[0]
    return kind in _OF_THE_NETWORK


def journal_for(folder: Path) -> str:
    """`wal` or `delete`, as SQLite calls them."""
    return "delete" if on_network(folder) else "wal"


def use_journal(connection: sqlite3.Connection, journal: str) -> None:
    """Switch the file, where it is not so already. Only inside `taking_turns`."""
    (now,) = connection.execute("PRAGMA journal_mode").fetchone()
    if now != journal:
        connection.execute(f"PRAGMA journal_mode = {journal}")


@contextmanager
def taking_turns(folder: Path) -> Iterator[None]:
    """Of several processes, one: SQLite does not wait when two connections switch at once."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network without such locks: what remains is to try
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
