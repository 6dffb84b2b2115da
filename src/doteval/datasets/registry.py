"""Which datasets have a name: those that were registered, and those of installed packages."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

from doteval.datasets.base import Dataset
from doteval.exceptions import DatasetNotFoundError

__all__ = ["DatasetRegistry", "get_dataset_info", "list_available", "registry"]

_GROUPS = ("doteval.datasets", "dotevals.datasets")


class DatasetRegistry:
    """Dataset classes by name."""

    def __init__(self) -> None:
        self._dataset_classes: dict[str, type[Dataset]] = {}
        self._discovery_completed = False

    def register(self, dataset_class: type[Dataset]) -> None:
        """Make a class known under its `name`; another class under that name is refused."""
        name = dataset_class.name
        if self._dataset_classes.setdefault(name, dataset_class) is not dataset_class:
            raise ValueError(f"Dataset '{name}' is already registered; give one of the two another name")

    def discover_plugins(self, force: bool = False) -> None:
        """Look at what installed packages register, once."""
        if self._discovery_completed and not force:
            return
        self._discovery_completed = True
        for group in _GROUPS:
            for entry in importlib.metadata.entry_points(group=group):
                try:
                    self._dataset_classes.setdefault(entry.name, entry.load())
                except Exception as error:  # another package's code, at import
                    text = f"the dataset {entry.name!r}, registered under {group}, cannot be loaded: {error}"
                    warnings.warn(text, stacklevel=2)

    def get_dataset_class(self, name: str) -> type[Dataset]:
        if name not in self:
            raise DatasetNotFoundError(name)
        return self._dataset_classes[name]

    def list_datasets(self) -> list[str]:
        self.discover_plugins()
        return sorted(self._dataset_classes)

    def __contains__(self, name: object) -> bool:
        if name not in self._dataset_classes:
            self.discover_plugins()
        return name in self._dataset_classes


registry = DatasetRegistry()


def list_available() -> list[str]:
    """The names that `foreach.NAME` finds."""
    return registry.list_datasets()


def get_dataset_info(name: str) -> dict[str, Any]:
    """Splits, columns and, where it is known without loading, the number of rows."""
    found = registry.get_dataset_class(name)
    return {
        "name": name,
        "splits": list(getattr(found, "splits", [])),
        "columns": list(getattr(found, "columns", [])),
        "num_rows": found.num_rows,
    }
