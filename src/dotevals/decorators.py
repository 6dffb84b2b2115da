"""The decorators of dotevals, whose evaluations are awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dotevals.core import Batch, ForEach, batch, foreach

__all__ = ["Batch", "ForEach", "batch", "create_dataset_decorator", "create_decorator", "foreach"]

_DECORATORS: dict[str, ForEach] = {"batch": batch, "foreach": foreach}


def create_decorator(executor_type: str, column_spec: str, dataset: Any, **kwargs: Any) -> Callable[..., Any]:
    """`foreach(column_spec, dataset)`, or `batch(…, batch_size=…)`, by the name of the decorator."""
    return _DECORATORS[executor_type](column_spec, dataset, **kwargs)


def create_dataset_decorator(executor_type: str, dataset_name: str, **kwargs: Any) -> Callable[..., Any]:
    """`foreach.NAME`, or `batch.NAME`, by name."""

    def declare(split: str | None = None, **said: Any) -> Callable[..., Any]:
        found = getattr(_DECORATORS[executor_type], dataset_name)
        declared: Callable[..., Any] = found(*([] if split is None else [split]), **kwargs, **said)
        return declared

    return declare
