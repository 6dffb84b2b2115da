"""Datasets by name: what a class registers here, `foreach.NAME(split)` finds."""

from doteval.datasets.base import Dataset
from doteval.datasets.registry import DatasetRegistry, get_dataset_info, list_available, registry

_registry = registry
"""Its name in early versions."""

__all__ = ["Dataset", "DatasetRegistry", "get_dataset_info", "list_available", "registry"]


def __getattr__(name: str) -> type[Dataset]:
    """`from doteval.datasets import my_dataset`: the registered class of that name."""
    if name.startswith("_") or name not in registry:
        known = ", ".join(registry.list_datasets()) or "none"
        raise AttributeError(f"no dataset is named {name!r}; registered are {known}")
    return registry.get_dataset_class(name)


def __dir__() -> list[str]:
    return [*__all__, *registry.list_datasets()]
