"""Where records are. doteval's URLs and storage classes lead to stores of evalve's."""

from doteval.storage.base import Storage
from doteval.storage.json import JSONStorage
from doteval.storage.registry import StorageRegistry, registry
from doteval.storage.sqlite import SQLiteStorage
from evalve.errors import DeclarationError
from evalve.storage import CommitSink, RecordDraft, SqliteStore, Store, open_store

__all__ = [
    "CommitSink",
    "JSONStorage",
    "RecordDraft",
    "SQLiteStorage",
    "SqliteStore",
    "Storage",
    "StorageRegistry",
    "Store",
    "get_storage",
    "list_backends",
    "open_store",
    "place_of",
    "register",
    "registry",
]

get_storage = registry.get_storage
list_backends = registry.list_backends
register = registry.register


def place_of(storage: object) -> object:
    """What evalve takes as `storage=`: a URL, a path or a store of its own."""
    if isinstance(storage, JSONStorage | SQLiteStorage):
        return storage.url
    if isinstance(storage, Storage):
        name = type(storage).__name__
        raise DeclarationError(
            f"a run cannot record into {name}, a storage of your own: leave storage= out, and then write"
            f" `{name[:1].lower()}{name[1:]}.add_results(experiment, evaluation, result.records)`"
        )
    return storage
