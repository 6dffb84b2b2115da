"""The names of `doteval.core`, with evaluations that are awaited, as dotevals has them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from doteval.core import AwaitedForEach as ForEach
from doteval.core import Batch, batch

__all__ = ["Batch", "ForEach", "batch", "foreach", "run_evaluation"]

foreach = ForEach()


def run_evaluation(
    eval_fn: Callable[..., Any],
    column_spec: str,
    dataset: Any,
    session_manager: Any = None,
    samples: int | None = None,
    **kwargs: Any,
) -> Coroutine[Any, Any, Any]:
    """Run a plain function over a dataset; keyword arguments are its fixtures, and options as for a call."""
    names = ("concurrency", "retries", "storage")
    declaring = {name: kwargs.pop(name) for name in names if kwargs.get(name) is not None}
    evaluation = ForEach(**declaring)(column_spec, dataset)(eval_fn)
    called: Coroutine[Any, Any, Any] = evaluation(session_manager=session_manager, samples=samples, **kwargs)
    return called
