"""`Evaluation` of dotevals: what its decorators return, which here is a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from doteval.core import AwaitedForEach, Batch
from evalve.declare.foreach import MARK
from evalve.errors import DeclarationError

__all__ = ["Evaluation"]


class _OfFunctions(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return callable(instance) and hasattr(instance, MARK)


class Evaluation(metaclass=_OfFunctions):
    """`Evaluation(function, rows, "foreach", "question,answer")` is the function that a decorator returns."""

    def __new__(  # type: ignore[misc]  # it makes functions
        cls,
        eval_fn: Callable[..., Any],
        dataset: Any,
        executor_name: str,
        column_spec: str,
        executor_kwargs: Mapping[str, Any] | None = None,
        resolved_fixtures: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        if executor_name not in _DECORATORS:
            raise DeclarationError(
                f"Unknown executor type: {executor_name}; there are foreach and batch."
                " Where a function runs is said with --engine"
            )
        declare = _DECORATORS[executor_name]()
        made: Any = declare(column_spec, dataset, **dict(executor_kwargs or {}))(eval_fn)
        made.resolved_fixtures = dict(resolved_fixtures or {})
        return made  # type: ignore[no-any-return]


_DECORATORS: dict[str, Callable[[], Any]] = {"foreach": AwaitedForEach, "batch": Batch}
