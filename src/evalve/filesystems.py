"""Whether a folder lies on a network: machines share it there, and their locks do not reach each other."""

from __future__ import annotations

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
        ),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"),
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def on_network(folder: Path, mounts: str | None = None) -> bool:
    """By the kernel's table of mounts; where there is none, it is taken for a disk."""
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="replace")
        except OSError:
            return False
    place, kind = "", ""
    name = str(folder.absolute())
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
