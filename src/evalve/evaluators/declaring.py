"""`@evaluator`: a function of a response and what was expected becomes one that returns a `Score`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, cast, overload

from evalve import metrics as known_metrics
from evalve.callers import at_caller
from evalve.errors import DeclarationError, ResultError
from evalve.jsontext import as_text
from evalve.records import Score
from evalve.secrecy import is_name_of_key

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_PLAIN = frozenset({str, bytes, int, float, bool, type(None), dict, list, tuple, set})
"""Types that are never awaitable, so that the check costs nothing for them."""


class Evaluator(Protocol[P, R_co]):
    """A declared function: called as it is, or with `name=` for a score of another name."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *args: Any, name: str | None, **kwargs: Any) -> R_co: ...


class Declare(Protocol):
    """The decorator that `evaluator(metrics=…)` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Awaitable[Any]], /
    ) -> Evaluator[P, Coroutine[Any, Any, Score]]: ...
    @overload
    def __call__(self, function: Callable[P, Any], /) -> Evaluator[P, Score]: ...


@overload
def evaluator(function: Callable[P, Awaitable[Any]], /) -> Evaluator[P, Coroutine[Any, Any, Score]]: ...
@overload
def evaluator(function: Callable[P, Any], /) -> Evaluator[P, Score]: ...
@overload
def evaluator(*, metrics: Any = None, name: str | None = None) -> Declare: ...
def evaluator(
    function: Callable[..., Any] | None = None, /, *, metrics: Any = None, name: str | None = None
) -> Any:
    """Declare an evaluator: a sync or async function that returns a bool, a number or a `Score`.

    Its score is named after the function unless `name` is given. `metrics` is a metric, a name, or a
    list of these; without any, bools are averaged to an accuracy and numbers to a mean. A `Score` that
    the function makes itself keeps its name, and its metrics if it has any.

    The score of a bool or a number has the function's arguments as metadata, texts and numbers, shortened: so
    what was answered and what was expected is recorded with it.

    Who calls an evaluator may give the score another name: `exact_match(answer, expected, name="first")`. A
    function with a parameter `name` of its own gets it as it is.
    """
    if function is None:
        return functools.partial(_declared, metrics=metrics, name=name)
    return _declared(function, metrics=metrics, name=name)


def known_by_row(*, metrics: Any) -> Declare:
    """For an evaluator that returns a plain `True` only where the response is what the row already has."""
    return cast(Declare, functools.partial(_declared, metrics=metrics, name=None, keeps=False))


def _declared(
    function: Callable[..., Any], /, *, metrics: Any, name: str | None, keeps: bool = True
) -> Callable[..., Any]:
    label = name or str(getattr(function, "__name__", type(function).__name__))
    try:
        resolved = known_metrics.resolve(metrics)
    except DeclarationError as error:
        raise at_caller(error) from error.__cause__
    renames = "name" not in _parameters(function)
    arguments = _Arguments(function if keeps else None)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def evaluate_async(*args: Any, **kwargs: Any) -> Score:
            given = kwargs.pop("name", None) if renames else None
            _check_awaited(label, function, args, kwargs)
            score = _score(label, resolved, await function(*args, **kwargs), arguments.kept(args, kwargs))
            return _named(given, score)

        return evaluate_async

    @functools.wraps(function)
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.pop("name", None) if renames and kwargs else None
        for argument in args:
            if type(argument) not in _PLAIN:
                _check_awaited(label, function, args, kwargs)
                break
        if kwargs:
            _check_awaited(label, function, args, kwargs)
        value = function(*args, **kwargs)
        if value is True or value is False:
            return Score(given or label, value, resolved, arguments.kept(args, kwargs))
        if inspect.isawaitable(value):  # a partial or an object whose call is async
            return _score_later(label, resolved, value, given, arguments.kept(args, kwargs))
        return _named(given, _score(label, resolved, value, arguments.kept(args, kwargs)))

    return evaluate


class _Arguments:
    """Which arguments of a call its score keeps."""

    def __init__(self, function: Callable[..., Any] | None) -> None:
        """`None` keeps none."""
        self._is_kept = function is not None
        self._names = () if function is None else tuple(_positional(function))

    def kept(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        if not self._is_kept:
            return None
        given = {**dict(zip(self._names, args, strict=False)), **kwargs}
        return {
            name: shown(value)
            for name, value in given.items()
            if type(value) in _SHOWN and not is_name_of_key(name)
        }


_SHOWN = frozenset({str, bool, int, float, type(None)})
_SHOWN_LENGTH = 200


def shown(value: Any) -> Any:
    """The value as metadata carries it: short."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else as_text(value)
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"


def _positional(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not tell
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _parameters(function: Callable[..., Any]) -> Collection[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions do not tell
        return ()


def _named(name: str | None, score: Score) -> Score:
    """The score under the name that the caller gave; a function may hand out one score many times."""
    if name is None or score.name == name:
        return score
    return Score(name, score.value, score.metrics, score.metadata)


async def _score_later(
    label: str,
    metrics: tuple[Any, ...],
    value: Awaitable[Any],
    name: str | None,
    arguments: dict[str, Any] | None,
) -> Score:
    return _named(name, _score(label, metrics, await value, arguments))


def _score(
    label: str, metrics: tuple[Any, ...], value: Any, arguments: dict[str, Any] | None = None
) -> Score:
    if isinstance(value, Score):
        if not value.metrics:
            value.metrics = metrics
        return value
    if not isinstance(value, bool | int | float):
        value = _plain_number(label, value)
    return Score(label, value, metrics, arguments)


def _plain_number(label: str, value: Any) -> bool | int | float:
    """A number of numpy's kind as Python's own."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", 0) == 0:
        plain = item()
        if isinstance(plain, bool | int | float):
            return plain
    hint = "; is a `return` missing?" if value is None else ""
    raise ResultError(
        f"the evaluator {label!r} returned {as_text(value)[:200]} ({type(value).__name__}); "
        f"return a bool, a number or a Score{hint}"
    )


def _check_awaited(
    label: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse a response that was never awaited: compared with anything, it would just be wrong."""
    for place, argument in enumerate(args):
        if type(argument) not in _PLAIN and inspect.isawaitable(argument):
            _refuse(label, _parameter_name(function, place), (*args, *kwargs.values()))
    for name, argument in kwargs.items():
        if type(argument) not in _PLAIN and inspect.isawaitable(argument):
            _refuse(label, name, (*args, *kwargs.values()))


def _refuse(label: str, parameter: str, arguments: tuple[Any, ...]) -> NoReturn:
    for argument in arguments:
        if inspect.iscoroutine(argument):
            argument.close()  # or Python warns, later and elsewhere, that it was never awaited
    raise ResultError(
        f"the evaluator {label!r} was given a coroutine as {parameter!r} instead of its result; "
        f"write `await` before the call that makes it, as in `{parameter} = await model(…)`"
    )


def _parameter_name(function: Callable[..., Any], place: int) -> str:
    parameters = list(inspect.signature(function).parameters.values())
    if place < len(parameters) and parameters[place].kind is not inspect.Parameter.VAR_POSITIONAL:
        return parameters[place].name
    return f"argument {place + 1}"
