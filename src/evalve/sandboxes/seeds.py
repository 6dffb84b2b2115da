"""What a workspace begins with: files and texts that are checked, told apart by content, and copied."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_IMODE
from typing import Any, BinaryIO

from evalve.errors import DeclarationError

_FICLONE = 0x40049409
"""Linux: let one file share the blocks of another until either is written to."""
_CANNOT_CLONE = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.ENOSYS})
_MAY_NOT_CLONE = _CANNOT_CLONE | {errno.EINVAL, errno.EPERM}
_CHUNK_BYTES = 1 << 20
_MOST_READ_BYTES = 64 << 20
"""How much is read to tell a changed seed: a tenth of a second. Of files beyond it, the size tells."""
_MOST_NAMED = 50
"""With more files than this, a fingerprint tells that something changed, not which file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a workspace."""

    name: str
    """Its path below the workspace."""
    source: Path | None = None
    """The file or directory to copy."""
    content: bytes | None = None
    """What is in the file, where a person wrote that."""
    points_to: str | None = None
    """Where it is a symbolic link."""
    is_directory: bool = False


class Seed:
    """A directory's content, a list of paths, or names with texts, bytes or paths."""

    def __init__(self, files: Any, *, folder: Path | None = None, leaving_out: Path | None = None) -> None:
        """Relative paths are seen from the current directory, else from `folder`."""
        self._folder = folder
        self._leaving_out = None if leaving_out is None else os.path.realpath(leaving_out)
        self._uncloned: set[int] = set()
        """Devices whose files cannot be cloned to where workspaces are."""
        self._roots = list(self._found(files))
        for entry in self.entries():
            _check_readable(entry)

    def entries(self) -> Iterator[Entry]:
        """As they are now, a directory before what is in it."""
        for root in self._roots:
            if root.source is None:
                yield root
            else:
                yield from self._walk(root.source, root.name)

    def size_bytes(self) -> int:
        return sum(_size_bytes(entry) for entry in self.entries())

    def settings(self) -> dict[str, str]:
        """What tells this seed from another: the content of files and whether they can be executed.

        Times, owners and empty directories are left out: a fresh checkout is not a change.
        """
        left_bytes = _MOST_READ_BYTES
        told: dict[str, str] = {}
        for entry in self.entries():
            if not entry.is_directory:
                size_bytes = _size_bytes(entry)
                told[f"file {entry.name}"] = _told(entry, read=size_bytes <= left_bytes)
                left_bytes -= size_bytes if size_bytes <= left_bytes else 0
        if len(told) <= _MOST_NAMED:
            return told
        together = hashlib.blake2b("\n".join(f"{k} {v}" for k, v in told.items()).encode(), digest_size=8)
        return {"files": f"{len(told)} files, {together.hexdigest()}"}

    def copy(self, to: Path, *, is_abandoned: Callable[[], bool] = lambda: False) -> None:
        """Fill an empty directory; files share their blocks with the originals where they can."""
        directories: list[tuple[Path, Path]] = []
        for entry in self.entries():
            if is_abandoned():
                return
            target = to / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not entry.is_directory:
                target.unlink(missing_ok=True)  # a file of its own in a directory that was copied before
            if entry.points_to is not None:
                target.symlink_to(entry.points_to)
            elif entry.content is not None:
                target.write_bytes(entry.content)
            elif entry.source is not None and entry.is_directory:
                target.mkdir(exist_ok=True)
                directories.append((entry.source, target))
            elif entry.source is not None:
                self._copy_file(entry.source, target)
        for source, target in reversed(directories):  # last, because one may forbid writing
            shutil.copystat(source, target)

    # -- finding

    def _found(self, files: Any) -> Iterator[Entry]:
        if files is None:
            return
        if isinstance(files, Mapping):
            for name, value in files.items():
                yield self._named(name, value)
        elif isinstance(files, str | os.PathLike):
            root = self._path(files)
            if not root.is_dir():
                raise DeclarationError(
                    f"files={str(files)!r} is not a directory: pass a list to copy single files, "
                    f"as in files=[{str(files)!r}]"
                )
            yield Entry("", root)
        elif isinstance(files, list | tuple):
            yield from self._listed(files)
        else:
            raise DeclarationError(
                "files= is a directory, a list of paths, or a dict of names with texts, bytes or paths; "
                f"got {files!r}"
            )

    def _listed(self, paths: Sequence[Any]) -> Iterator[Entry]:
        named: dict[str, Any] = {}
        for path in paths:
            if not isinstance(path, str | os.PathLike):
                raise DeclarationError(f"files=[…] holds paths; got {path!r}")
            found = self._path(path)
            if found.name in named:
                raise DeclarationError(
                    f"files=[…]: {str(named[found.name])!r} and {str(path)!r} have one name; "
                    f"give each its own, as in files={{'{found.name}': Path({str(path)!r}), …}}"
                )
            named[found.name] = path
            yield Entry(found.name, found)

    def _named(self, name: Any, value: Any) -> Entry:
        if not isinstance(name, str) or not _stays_inside(name):
            raise DeclarationError(f"files={{{name!r}: …}}: a name is a relative path inside the workspace")
        if isinstance(value, str):
            return Entry(name, content=value.encode())
        if isinstance(value, bytes):
            return Entry(name, content=value)
        if isinstance(value, os.PathLike):
            return Entry(name, self._path(value))
        raise DeclarationError(f"files={{{name!r}: …}} takes a text, bytes or a Path; got {value!r}")

    def _path(self, path: str | os.PathLike[str]) -> Path:
        meant = Path(path).expanduser()
        candidates = [Path.cwd() / meant]
        if self._folder is not None:
            candidates.append(self._folder.absolute() / meant)
        for candidate in candidates:
            if candidate.exists():
                return Path(os.path.realpath(candidate))
        looked = " and in ".join(dict.fromkeys(str(candidate.parent) for candidate in candidates))
        raise DeclarationError(f"there is no {str(path)!r} to put into the workspace; looked in {looked}")

    # -- walking

    def _walk(self, source: Path, name: str) -> Iterator[Entry]:
        if source.is_dir():
            if name:
                yield Entry(name, source, is_directory=True)
            yield from self._inside(source, source, name)
        else:
            yield Entry(name, source)

    def _inside(self, folder: Path, root: Path, name: str) -> Iterator[Entry]:
        with os.scandir(folder) as scanned:
            found = sorted(scanned, key=lambda one: one.name)
        for one in found:
            path = folder / one.name
            inner = f"{name}/{one.name}" if name else one.name
            if one.is_symlink():
                yield _link(path, root, inner)
            elif one.is_dir(follow_symlinks=False):
                if str(path) != self._leaving_out:  # a workspace within a workspace, without end
                    yield Entry(inner, path, is_directory=True)
                    yield from self._inside(path, root, inner)
            elif one.is_file(follow_symlinks=False):
                yield Entry(inner, path)
            else:
                raise DeclarationError(f"{path} is neither a file nor a directory, and cannot be copied")

    # -- copying

    def _copy_file(self, source: Path, target: Path) -> None:
        with source.open("rb") as reader, target.open("xb") as writer:
            if not self._clone(reader, writer):
                shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
        shutil.copystat(source, target)

    def _clone(self, reader: BinaryIO, writer: BinaryIO) -> bool:
        device = os.fstat(reader.fileno()).st_dev
        if sys.platform != "linux" or device in self._uncloned:
            return False
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError as error:
            if error.errno not in _MAY_NOT_CLONE:
                raise
            if error.errno in _CANNOT_CLONE:
                self._uncloned.add(device)
            return False
        return True


def _link(path: Path, root: Path, name: str) -> Entry:
    """A link that stays in the copy, or in its place the file that it leads to."""
    text = str(path.readlink())
    leads_to = Path(os.path.realpath(path))
    if leads_to.is_relative_to(root):
        within = PurePosixPath(os.path.relpath(path.parent, root)) / text
        if text.startswith("/") or os.path.normpath(within).startswith(".."):
            text = os.path.relpath(leads_to, path.parent)
        return Entry(name, points_to=text)
    if leads_to.is_file():
        return Entry(name, leads_to)
    raise DeclarationError(
        f"the link {path} leads out of {root}, to {text}: a sample could change what is there; "
        "put a copy in its place"
    )


def _check_readable(entry: Entry) -> None:
    if entry.source is not None and not os.access(entry.source, os.R_OK):
        raise DeclarationError(f"{entry.source} cannot be read: its permissions forbid it")


def _stays_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith(("/", "~")) and ".." not in parts and "\0" not in name


def _size_bytes(entry: Entry) -> int:
    if entry.content is not None:
        return len(entry.content)
    return entry.source.stat().st_size if entry.source is not None and not entry.is_directory else 0


def _told(entry: Entry, *, read: bool) -> str:
    if entry.points_to is not None:
        return f"link to {entry.points_to}"
    if entry.source is None:
        return hashlib.blake2b(entry.content or b"", digest_size=8).hexdigest()
    mode = " executable" if S_IMODE(entry.source.stat().st_mode) & 0o100 else ""
    if not read:
        return f"{_size_bytes(entry)} bytes{mode}"
    with entry.source.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest() + mode
