"""Datasets by name: what a class registers here, `foreach.NAME(split)` finds."""

from doteval.datasets.base import Dataset
from doteval.datasets.registry import DatasetRegistry, get_dataset_info, list_available, registry
from doteval.exceptions import DatasetNotFoundError

_registry = registry
"""Its name in early versions."""

__all__ = ["Dataset", "DatasetRegistry", "get_dataset_info", "list_available", "registry"]


def __getattr__(name: str) -> type[Dataset]:
    """`from doteval.datasets import my_dataset`: the registered class of that name."""
    if name.startswith("_"):
        raise AttributeError(f"module 'dotevals.datasets' has no attribute {name!r}")
    try:
        return registry.get_dataset_class(name)
    except DatasetNotFoundError:
        known = ", ".join(registry.list_datasets()) or "none"
        raise AttributeError(
            f"module 'dotevals.datasets' has no attribute {name!r}; registered datasets: {known}"
        ) from None


def __dir__() -> list[str]:
    return [*__all__, *registry.list_datasets()]
