"""Where workspaces are: a directory for each process, which others remove once the process is dead.

A process holds a lock on a file beside its directory for as long as it lives, however it ends. Processes of
other containers see that too, which their ids would not tell.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import logging
import os
import re
import shutil
import stat
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from evalve.contracts import SampleContext

_LOG = logging.getLogger(__name__)
_LONGEST_NAME = 60


class Home:
    """The directory of this process under one base."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._all = base / "workspaces"
        self._all.mkdir(parents=True, exist_ok=True)
        self._pid = os.getpid()
        self._path, self._lock = self._taken()
        self._has_warned = False
        self._remove_leftovers()

    def new_directory(self, context: SampleContext) -> Path:
        """An empty one, with a name that tells whose it is."""
        name = f"{plain_name(context.sample_id)}-{context.repeat}"
        path = self._path / f"{name}-{os.urandom(4).hex()}"
        path.mkdir(parents=True)
        return path

    def kept_directory(self, context: SampleContext) -> Path:
        """Where a workspace of this sample, repeat and argument is kept; it is the same in every run."""
        whose = hashlib.blake2b(context.evaluation_key.encode(), digest_size=3).hexdigest()
        return (
            self.base
            / "kept"
            / plain_name(context.experiment)
            / f"{plain_name(context.evaluation)}-{whose}"
            / f"{plain_name(context.sample_id)}-{context.repeat}"
            / plain_name(context.argument or "workspace")
        )

    def keep(self, path: Path, kept: Path) -> Path | None:
        """Move a workspace there. What was there before is moved aside, to be removed: its new path."""
        aside = self._path / f"replaced-{os.urandom(4).hex()}"
        is_replaced = kept.exists()
        if is_replaced:
            kept.rename(aside)
        path.chmod(path.stat().st_mode | stat.S_IRWXU)  # or it cannot be moved
        while True:
            kept.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.rename(kept)
                return aside if is_replaced else None
            except FileNotFoundError:
                if not path.exists():
                    raise  # the sample has removed it
                # somebody else removed the directory around it, because it was empty

    def forget_kept(self, kept: Path) -> None:
        """Remove it where it is, and the directories around it that are empty then."""
        if not kept.exists():
            return
        self.remove(kept)
        with suppress(OSError):  # not empty
            for folder in list(kept.parents)[:3]:
                folder.rmdir()

    def remove(self, path: Path) -> None:
        """Whatever a sample did to it. What cannot be removed is told, once, and left."""
        try:
            _remove(path)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                _LOG.warning("the workspace %s cannot be removed: %s; remove it yourself", path, error)

    def close(self) -> None:
        if os.getpid() != self._pid:  # a forked child: it is the parent's
            return
        self.remove(self._path)
        self._lock_path(self._path).unlink(missing_ok=True)
        os.close(self._lock)

    def _taken(self) -> tuple[Path, int]:
        """A name that no other process has, locked."""
        while True:
            path = self._all / f"{self._pid}-{os.urandom(4).hex()}"
            lock = os.open(self._lock_path(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_there(lock, self._lock_path(path)):
                path.mkdir()
                return path, lock
            os.close(lock)  # another process took it for a leftover before it was locked

    def _remove_leftovers(self) -> None:
        for lock_path in self._all.glob("*.lock"):
            try:
                lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue  # gone meanwhile, or another user's
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.remove(lock_path.with_suffix(""))
                lock_path.unlink(missing_ok=True)
            except BlockingIOError:
                pass  # its process lives
            finally:
                os.close(lock)

    def _lock_path(self, path: Path) -> Path:
        return path.with_name(f"{path.name}.lock")


def home_in(base: Path) -> Home:
    """This process's home under the base; the first call removes what dead processes have left there."""
    with _HOMES_LOCK:
        home = _HOMES.get(base)
        if home is None:
            home = _HOMES[base] = Home(base)
            atexit.register(home.close)
        return home


_HOMES: dict[Path, Home] = {}
"""A lock belongs to the process, and so does what it guards."""
_HOMES_LOCK = threading.Lock()


def forget_experiment(storage: str, experiment: str) -> None:
    """Remove the workspaces that are kept beside a store's file, of an experiment that it no longer has."""
    database = Path(unquote(urlsplit(storage).path))
    if urlsplit(storage).scheme != "sqlite" or database.parent.name != ".evalve":
        return  # workspaces are not kept beside this one
    try:
        _remove(database.parent / "kept" / plain_name(experiment))
    except OSError as error:
        _LOG.warning("kept workspaces of %s cannot be removed: %s", experiment, error)


def plain_name(text: str) -> str:
    """The text as a name of a file; where that is not the text itself, a digest keeps two of them apart."""
    plain = re.sub(r"[^\w.=,\[\]+-]", "_", text)[:_LONGEST_NAME]
    if plain == text and plain.strip("."):
        return text
    return f"{plain.strip('.')}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    try:
        shutil.rmtree(path)
    except OSError:  # directories without write permission, or something that was made meanwhile
        if not path.exists():
            return
        _allow_writing(path)
        shutil.rmtree(path)


def _allow_writing(path: Path) -> None:
    path.chmod(stat.S_IRWXU)
    for folder, names, _ in os.walk(path):  # from the top: what is allowed now can be looked into next
        for name in names:
            inner = Path(folder, name)
            if not inner.is_symlink():
                inner.chmod(stat.S_IRWXU)


def _is_there(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
