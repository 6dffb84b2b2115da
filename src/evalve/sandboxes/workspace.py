"""A workspace: a directory for each attempt, filled with files, removed when its record is committed."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evalve.callers import at_caller, caller
from evalve.contracts import SampleContext
from evalve.errors import DeclarationError, LenderError
from evalve.sandboxes.homes import Home, home_in
from evalve.sandboxes.seeds import Seed

_LOG = logging.getLogger(__name__)

Files = (
    str
    | os.PathLike[str]
    | Sequence[str | os.PathLike[str]]
    | Mapping[str, str | bytes | os.PathLike[str]]
    | None
)
Keep = Literal["failed", "always", "never"]
_KEEPS = ("failed", "always", "never")


@dataclass(frozen=True, slots=True)
class Directory:
    """What an attempt is lent: a directory that is its own. It can be sent to another process."""

    path: Path

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


class Workspace:
    """Lends each attempt a fresh directory: `workspace.path`.

    `files` is a directory whose content is copied, a list of paths, or names with texts, bytes or paths.
    `keep` says which directories stay when the sample has ended: `"failed"`, `"always"` or `"never"`.
    `directory` is where they are made, `.evalve` in the current directory unless told otherwise.
    """

    def __init__(
        self,
        files: Files = None,
        keep: Keep = "failed",
        *,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        __tracebackhide__ = True  # of a mistake, pytest shows the line that a person wrote
        if keep not in _KEEPS:
            raise at_caller(DeclarationError(f'keep= is "failed", "always" or "never"; got {keep!r}'))
        self._keep = keep
        self._base = Path(directory if directory is not None else ".evalve").expanduser().absolute()
        try:
            folder = Path(caller().rpartition(":")[0]).parent
            self._seed = Seed(files, folder=folder, leaving_out=self._base)
        except DeclarationError as error:
            raise at_caller(error) from None

    @property
    def settings(self) -> dict[str, str]:
        """The files, by content. What is kept and where is no part of what is evaluated."""
        try:
            return self._seed.settings()
        except OSError as error:  # they were there when it was declared
            raise DeclarationError(f"the files of the workspace cannot be read: {error}") from error

    @property
    def path(self) -> Path:
        raise AttributeError(
            "a Workspace has no path of its own: it lends a directory to each sample of an evaluation; "
            "make it an argument of the function under @foreach"
        )

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[Directory]:
        abandoned = threading.Event()
        try:
            home, path = await asyncio.to_thread(self._made, context, abandoned)
        except asyncio.CancelledError:
            abandoned.set()  # the thread goes on: it removes what it has made
            raise
        try:
            yield Directory(path)
        finally:
            if context.ended == "retried":
                await asyncio.to_thread(home.remove, path)
            elif context.ended is not None and self._keep in (context.ended, "always"):
                self._kept(home, path, context)
            else:
                self._removed_when_committed(home, path, context)

    def _made(self, context: SampleContext, abandoned: threading.Event) -> tuple[Home, Path]:
        """In a thread, because copying may take long."""
        try:
            home = home_in(self._base)
            path = home.new_directory(context)
        except OSError as error:
            raise self._told(error, context) from error
        try:
            self._seed.copy(path, is_abandoned=abandoned.is_set)
        except BaseException as error:
            home.remove(path)
            if isinstance(error, OSError):
                raise self._told(error, context) from error
            raise
        if abandoned.is_set():
            home.remove(path)
        return home, path

    def _kept(self, home: Home, path: Path, context: SampleContext) -> None:
        kept = home.kept_directory(context)
        try:
            replaced = home.keep(path, kept)
        except OSError as error:  # the sample has ended well or badly, whatever becomes of its directory
            _LOG.warning("the workspace %s cannot be kept: %s", path, error)
            self._removed_when_committed(home, path, context)
            return
        context.lent["path"] = str(kept)
        if replaced is not None:
            context.when_committed(lambda: home.remove(replaced))

    def _removed_when_committed(self, home: Home, path: Path, context: SampleContext) -> None:
        def remove() -> None:
            home.remove(path)
            if context.ended is not None:  # what is recorded now replaces what failed before
                home.forget_kept(home.kept_directory(context))

        context.when_committed(remove)

    def _told(self, error: OSError, context: SampleContext) -> LenderError:
        whose = f"the workspace of sample {context.sample_id!r}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needed, free = _megabytes(self._seed.size_bytes()), _megabytes(_free_bytes(self._base))
            return LenderError(
                f"the disk is full: {whose} needs {needed} in {self._base}, where {free} are free; remove "
                f"{self._base / 'kept'} if you do not need it, or put workspaces elsewhere with "
                "Workspace(directory=…)"
            )
        return LenderError(f"{whose} could not be made in {self._base}: {error}")


def _free_bytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
