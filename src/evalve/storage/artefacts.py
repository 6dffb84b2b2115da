"""Files that attempts leave, kept once per content: in a folder beside the database, or in memory."""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from evalve.errors import NotFound, StorageError
from evalve.storage.explanations import explained

_CHUNK_BYTES = 1 << 20
_LEFT_BEHIND_S = 3600.0
"""Nobody takes so long between two writes: whoever began the file was killed."""
_HASH = re.compile(r"[0-9a-f]{64}")


class Files(Protocol):
    """Contents by their SHA-256."""

    def keep(self, source: BinaryIO) -> tuple[str, int]:
        """The hash and the size of what it holds, up to its end."""

    def open(self, content_hash: str) -> BinaryIO: ...
    def hashes(self) -> list[str]: ...
    def remove(self, content_hashes: Iterable[str]) -> None: ...


class MemoryFiles:
    """Private to this object; gone with it."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def keep(self, source: BinaryIO) -> tuple[str, int]:
        content = source.read()
        content_hash = hashlib.sha256(content).hexdigest()
        self._contents[content_hash] = content
        return content_hash, len(content)

    def open(self, content_hash: str) -> BinaryIO:
        content = self._contents.get(content_hash)
        if content is None:
            raise _not_kept(content_hash, "memory://")
        return io.BytesIO(content)

    def hashes(self) -> list[str]:
        return list(self._contents)

    def remove(self, content_hashes: Iterable[str]) -> None:
        for content_hash in content_hashes:
            self._contents.pop(content_hash, None)


class FolderFiles:
    """`ab/cdef…` below a folder, readable by its owner only. Several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, source: BinaryIO) -> tuple[str, int]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = self._folder / f"{uuid.uuid4().hex}.part"
        try:
            content_hash, size_bytes = _copy(source, written)
            path = self._path(content_hash)
            if path.exists():
                os.utime(path)
                written.unlink()
            else:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                written.rename(path)
        except BaseException:
            written.unlink(missing_ok=True)
            raise
        return content_hash, size_bytes

    def open(self, content_hash: str) -> BinaryIO:
        if not _HASH.fullmatch(content_hash):  # it may come from outside, and must not lead out of the folder
            raise _not_kept(content_hash, self._folder)
        try:
            return self._path(content_hash).open("rb")
        except FileNotFoundError:
            raise _not_kept(content_hash, self._folder) from None

    def hashes(self) -> list[str]:
        return [path.parent.name + path.name for path in self._folder.glob("??/*")]

    def remove(self, content_hashes: Iterable[str]) -> None:
        for content_hash in content_hashes:
            self._path(content_hash).unlink(missing_ok=True)
        for part in self._folder.glob("*.part"):
            with suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > _LEFT_BEHIND_S:
                    part.unlink()

    def _path(self, content_hash: str) -> Path:
        return self._folder / content_hash[:2] / content_hash[2:]


class Artefacts:
    """Keeps files for the attempts of this process, and knows which of them no record refers to yet."""

    def __init__(self, files: Files, place: str) -> None:
        self._files = files
        self._place = place
        self._lock = threading.Lock()
        self._fresh: Counter[str] = Counter()
        """How often each was kept here by attempts whose records are not committed yet."""

    def keep(self, source: Path | bytes) -> tuple[str, int]:
        try:
            with closing(io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")) as opened:
                content_hash, size_bytes = self._files.keep(opened)
        except OSError as error:
            what = "a file of its own" if isinstance(source, bytes) else str(source)
            raise StorageError(
                f"{what} cannot be kept beside {self._place}: {error.strerror or error};"
                " check that it is a file that may be read, and that the disk has room"
            ) from error
        with self._lock:
            self._fresh[content_hash] += 1
        return content_hash, size_bytes

    def open(self, content_hash: str) -> BinaryIO:
        return self._files.open(content_hash)

    def committed(self, content_hashes: Iterable[str]) -> None:
        """Records that refer to them are there."""
        with self._lock:
            for content_hash in content_hashes:
                self._fresh[content_hash] -= 1
                if self._fresh[content_hash] <= 0:
                    del self._fresh[content_hash]

    def all_hashes(self) -> list[str]:
        return self._files.hashes()

    def remove(self, content_hashes: Iterable[str]) -> None:
        """Those that an attempt has just left stay: its record is on its way."""
        with self._lock:
            removable = set(content_hashes) - self._fresh.keys()
        with explained(self._place):
            self._files.remove(removable)


def _copy(source: BinaryIO, target: Path) -> tuple[str, int]:
    sha256, size_bytes = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as written:
        for chunk in _chunks(source):
            sha256.update(chunk)
            size_bytes += len(chunk)
            written.write(chunk)
    return sha256.hexdigest(), size_bytes


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk


def _not_kept(content_hash: str, place: object) -> NotFound:
    return NotFound(f"{place}: no file is kept under {content_hash!r}; it was deleted with its last record")
