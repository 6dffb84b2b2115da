"""What a dataset is that can be found by its name."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

__all__ = ["Dataset"]


class Dataset(ABC):
    """Yields a tuple per row, in the order of `columns`."""

    name: ClassVar[str]
    splits: ClassVar[list[str]]
    columns: ClassVar[list[str]]
    num_rows: int | None = None

    @abstractmethod
    def __init__(self, split: str | None = None, **kwargs: Any) -> None: ...

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


def __getattr__(name: str) -> Any:
    """Early versions kept the registry here."""
    home = importlib.import_module("doteval.datasets.registry")
    if name in ("DatasetRegistry", "get_dataset_info", "list_available"):
        return getattr(home, name)
    if name == "_registry":
        return home.registry
    raise AttributeError(f"module 'doteval.datasets.base' has no attribute {name!r}")
