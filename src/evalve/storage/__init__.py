"""Where records live: `open_store` gives the store that a path or URL names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from evalve.contracts import CommitSink, RecordDraft, Store
from evalve.errors import StorageError
from evalve.storage.database import FileDatabase, MemoryDatabase
from evalve.storage.sqlite import SqliteStore

__all__ = ["CommitSink", "RecordDraft", "SqliteStore", "Store", "open_store"]

_KNOWN = (
    "a path, sqlite:///FILE (sqlite:////FILE where it begins with a slash), json://DIRECTORY, or memory://"
)
_FILE_NAME = "evalve.db"


def open_store(url: str | Path, *, create: bool = True) -> SqliteStore:
    """The store at a path or URL. Its file appears with the first write; without `create` it must exist.

    `sqlite://FILE` is read as `sqlite:///FILE`, and `json://DIRECTORY` as a file in that directory:
    people who come from doteval write so.
    """
    scheme, separator, rest = str(url).partition("://")
    if not separator and str(url).startswith(("sqlite:", "json:", "memory:")):
        raise StorageError(f"{url}: the slashes are missing; write {_KNOWN}")
    if not separator:
        return _in_file(Path(url), sync="normal", create=create)
    if scheme == "memory" and rest in ("", "/"):
        return SqliteStore(MemoryDatabase())
    if scheme == "json" and rest:
        return _in_file(Path(rest) / _FILE_NAME, sync="normal", create=create)
    if scheme != "sqlite":
        raise StorageError(f"{url}: no store is known by {scheme!r}; there is {_KNOWN}")
    path, _, query = rest.partition("?")
    if path in ("", "/"):
        raise StorageError(f"{url}: the file's name is missing; write {_KNOWN}")
    return _in_file(Path(unquote(path.removeprefix("/"))), sync=_sync(str(url), query), create=create)


def _in_file(path: Path, *, sync: str, create: bool) -> SqliteStore:
    absolute = path.expanduser().absolute()
    absolute = Path("/", *absolute.parts[1:]) if absolute.root == "//" else absolute
    url = f"sqlite:///{quote(str(absolute))}{'?sync=full' if sync == 'full' else ''}"
    return SqliteStore(FileDatabase(absolute, url=url, sync=sync, create=create))


def _sync(url: str, query: str) -> str:
    """How hard each commit is pressed to the disk: `full` also survives the loss of power."""
    settings = dict(parse_qsl(query, keep_blank_values=True))
    sync = settings.pop("sync", "normal")
    if settings or sync not in ("normal", "full"):
        raise StorageError(f"{url}: the only setting of a SQLite store is sync=normal or sync=full")
    return sync
