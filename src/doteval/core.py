"""doteval's decorators: evalve's own, whose functions are called with doteval's keyword arguments."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from doteval.batches import BatchEvaluation
from doteval.datasets import registry
from doteval.exceptions import DatasetNotFoundError
from doteval.sessions import SessionManager
from doteval.storage import place_of
from evalve import wiring
from evalve.callers import caller
from evalve.checked_numbers import whole
from evalve.declare.foreach import MARK, Evaluation, as_called
from evalve.declare.foreach import ForEach as EvalveForEach

__all__ = ["Batch", "ForEach", "batch", "foreach", "run_evaluation"]


class ForEach(EvalveForEach):
    """`evalve.ForEach` that also takes doteval's storages and datasets."""

    def __init__(
        self, dataset: Any = None, name: str | None = None, *, storage: Any = None, **options: Any
    ) -> None:
        super().__init__(dataset, name, storage=place_of(storage), **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """`foreach.NAME(split)`: a registered dataset, or one of an installed package."""
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        registered = None
        with suppress(DatasetNotFoundError):
            registered = registry.get_dataset_class(name)
        if registered is None:
            return super().__getattr__(name)
        return self._of_registered(name, registered, caller())

    def _declared(
        self, columns: tuple[str, ...], source: Any, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        called: Any = self._called(super()._declared(columns, source, _by_name(function, columns)))
        called.dataset = source if source is not None else self._dataset
        return called  # type: ignore[no-any-return]

    def _called(self, declared: Callable[..., Any]) -> Callable[..., Any]:
        return _called_as_in_doteval(declared, awaited=getattr(declared, MARK).is_async)


def _by_name(function: Callable[..., Any], columns: tuple[str, ...]) -> Callable[..., Any]:
    """A function that takes its columns as `*args`, in their order: one that has them as parameters."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    starred = [p for p in parameters.values() if p.kind is p.VAR_POSITIONAL]
    named = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    if not starred or len(parameters) > 1 + len(named) or any(column in parameters for column in columns):
        return function

    @functools.wraps(function)
    def call(**values: Any) -> Any:
        args = [values.pop(column) for column in columns]
        return function(*args, **values)

    @functools.wraps(function)
    async def call_async(**values: Any) -> Any:
        return await call(**values)

    taken: Any = call_async if inspect.iscoroutinefunction(function) else call
    own = [inspect.Parameter(column, inspect.Parameter.KEYWORD_ONLY) for column in columns]
    taken.__signature__ = signature.replace(parameters=[*own, *named])
    return taken  # type: ignore[no-any-return]


class AwaitedForEach(ForEach):
    """That of dotevals, where every evaluation is awaited when it is called, a sync one too."""

    def _called(self, declared: Callable[..., Any]) -> Callable[..., Any]:
        return _called_as_in_doteval(declared, awaited=True)


def run_evaluation(
    eval_fn: Callable[..., Any],
    column_spec: str,
    dataset: Any,
    evaluation_name: str | SessionManager | None = None,
    experiment_name: str | None = None,
    samples: int | None = None,
    **kwargs: Any,
) -> Any:
    """Run a plain function over a dataset; keyword arguments are its fixtures, and options as for a call.

    Where the function is not async, the result is there at once, and may be awaited too.
    """
    if isinstance(evaluation_name, SessionManager):
        kwargs["session_manager"], evaluation_name = evaluation_name, None
    kwargs |= {"evaluation_name": evaluation_name, "experiment_name": experiment_name, "samples": samples}
    names = ("concurrency", "retries", "storage")
    declaring = {name: kwargs.pop(name) for name in names if name in kwargs}
    return ForEach(**declaring)(column_spec, dataset)(eval_fn)(**kwargs)


def _called_as_in_doteval(declared: Callable[..., Any], *, awaited: bool) -> Callable[..., Any]:
    """The evaluation as a function that also takes `session_manager=`, `experiment_name=` and the like."""
    evaluation: Evaluation = getattr(declared, MARK)
    if evaluation.is_async:

        @functools.wraps(declared)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            return await wiring.run_directly_async(*_in_words_of_evalve(as_called(called), args, kwargs))

        called: Any = run_async
    else:
        # not `async def` where it is awaited: to pytest, a sync evaluation is a sync function
        run_it = wiring.run_directly_async if awaited else wiring.run_directly

        @functools.wraps(declared)
        def run(*args: Any, **kwargs: Any) -> Any:
            return run_it(*_in_words_of_evalve(as_called(called), args, kwargs))

        called = run
    batch_size = getattr(evaluation, "batch_size", None)
    called.eval_fn = evaluation.function
    called.column_names, called.column_spec = list(evaluation.columns), ",".join(evaluation.columns)
    called.executor_name = "batch" if isinstance(evaluation, BatchEvaluation) else "foreach"
    called.executor_kwargs = {} if batch_size is None else {"batch_size": batch_size}
    del called.__wrapped__  # or inspect and pytest would look through to the columns
    return called  # type: ignore[no-any-return]


def _in_words_of_evalve(
    evaluation: Evaluation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Evaluation, tuple[Any, ...], dict[str, Any]]:
    if args and isinstance(args[0], SessionManager):
        kwargs, args = kwargs | {"session_manager": args[0]}, args[1:]
    elif args and isinstance(args[0], str):
        kwargs, args = kwargs | dict(zip(_BY_PLACE, args, strict=False)), args[len(_BY_PLACE) :]
    said = {name: value for name, value in kwargs.items() if name not in _OF_DOTEVAL}
    given = {name: kwargs[name] for name in _OF_DOTEVAL if kwargs.get(name) is not None}
    if isinstance(session := given.get("session_manager"), SessionManager):
        said["experiment"] = session.current_experiment
        said["storage"] = place_of(session.storage)
        given.setdefault("evaluation_name", session.current_evaluation or evaluation.name)
    if "experiment_name" in given:
        said["experiment"] = given["experiment_name"]
    if "storage" in said:
        said["storage"] = place_of(said["storage"])
    if "evaluation_name" in given:
        evaluation = replace(evaluation, name=given["evaluation_name"])
    return evaluation, args, said


_OF_DOTEVAL = ("evaluation_name", "experiment_name", "progress_manager", "session_manager")
_BY_PLACE = ("evaluation_name", "experiment_name", "samples")


class Batch(AwaitedForEach):
    """`@batch(columns, dataset, batch_size=8)`: one call for several rows, whose columns are lists."""

    _batch_size: int | None = None

    def __call__(
        self,
        columns: str | list[str] | tuple[str, ...],
        dataset: Any = None,
        *,
        lane: Any = None,
        batch_size: int | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        if batch_size is not None:
            batch_size = whole("@batch: batch_size", batch_size, minimum=1)
        sized = copy.copy(self)
        sized._batch_size = batch_size if batch_size is not None else self._batch_size
        return super(Batch, sized).__call__(columns, dataset, lane=lane)

    def _of_registered(self, name: str, make: Callable[..., Any], where: str) -> Callable[..., Any]:
        def declare(*args: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
            sized = copy.copy(self)
            sized._batch_size = batch_size
            return super(Batch, sized)._of_registered(name, make, where)(*args, **kwargs)

        return declare

    def _called(self, declared: Callable[..., Any]) -> Callable[..., Any]:
        evaluation = BatchEvaluation.of(getattr(declared, MARK), self._batch_size)
        setattr(declared, MARK, evaluation)
        return super()._called(declared)


foreach = ForEach()
batch = Batch()
