"""Datasets by name: what a class registers here, `foreach.NAME(split)` finds."""

from doteval.datasets.base import Dataset
from doteval.datasets.registry import DatasetRegistry, get_dataset_info, list_available, registry

__all__ = ["Dataset", "DatasetRegistry", "get_dataset_info", "list_available", "registry"]


def __getattr__(name: str) -> type[Dataset]:
    """`from doteval.datasets import my_dataset`: the registered class of that name."""
    if name.startswith("_") or name not in registry:
        raise AttributeError(f"module 'doteval.datasets' has no attribute {name!r}")
    return registry.get_dataset_class(name)
