"""Which storage a URL means."""

from __future__ import annotations

from typing import Any

from doteval.plugins import Plugins
from doteval.storage.base import Storage
from doteval.storage.json import JSONStorage
from doteval.storage.sqlite import SQLiteStorage

__all__ = ["StorageRegistry", "registry"]


class StorageRegistry(Plugins):
    """Storage classes by the scheme of their URLs."""

    def __init__(self) -> None:
        super().__init__("storage", {"json": JSONStorage, "sqlite": SQLiteStorage})

    def get_backend(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise ValueError(f"Unknown storage backend: {name}; known are {', '.join(self.names())}")
        return found

    def get_storage(self, storage_path: str | None = None) -> Storage:
        """The storage at `json://DIR`, `sqlite://FILE` or a scheme that was registered."""
        scheme, separator, path = (storage_path or "json://.doteval").partition("://")
        storage: Storage = self.get_backend(scheme if separator else "json")(path if separator else scheme)
        return storage

    def list_backends(self) -> list[str]:
        return self.names()


registry = StorageRegistry()
