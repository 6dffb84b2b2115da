"""`@foreach`: from a function and a dataset to an evaluation.

The decorator returns a real function whose signature hides the dataset's columns, so that pytest sees
the rest as fixtures and a direct call runs the whole evaluation.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalve.callers import caller
from evalve.contracts import EvaluationSpec, Runnable, Strategy
from evalve.declare.captured import captured_values
from evalve.declare.datasets import Dataset
from evalve.declare.fingerprint import defined_twice, defines, fingerprint
from evalve.declare.lanes import Lane, lane_function, lane_parts
from evalve.declare.lenders import lenders_among, settings_of
from evalve.declare.scripts import declared_in_script
from evalve.errors import DeclarationError
from evalve.options import Options, Threshold, from_mapping, option_for, read_threshold, suggestion

Runner = Callable[["Evaluation", tuple[Any, ...], dict[str, Any]], Any]

MARK = "__evalve__"


@dataclass(slots=True)
class Evaluation:
    """A declared evaluation: the function, its dataset, and how it wants to be run."""

    function: Callable[..., Any]
    columns: tuple[str, ...]
    dataset: Dataset
    name: str
    path: Path | None
    """The file that declares it, or `None` at an interactive prompt."""
    line: int
    options: Options = field(default_factory=Options)
    strategy: Strategy | None = None
    retries: Any = None
    require: tuple[Threshold, ...] = ()
    storage: Any = None
    captured: Mapping[str, str] = field(default_factory=dict)
    """What the function captured from the one around it, as it was at the declaration."""
    lane: Lane | None = None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def is_method(self) -> bool:
        return next(iter(inspect.signature(self.function).parameters), "") == "self"

    @property
    def where(self) -> str:
        return f"{self.path or 'the prompt'}:{self.line}"

    def key(self, root: Path, variant: str = "") -> str:
        """File, function and variant: one evaluation of an experiment."""
        place = "prompt" if self.path is None else _place_within(self.path, root)
        return f"{place}::{self.name}{variant}"

    def bound(
        self,
        *,
        experiment: str,
        key: str,
        variant: str,
        arguments: Mapping[str, Any],
        options: Options,
        leading: tuple[Any, ...] = (),
        parameters: Mapping[str, str] | None = None,
    ) -> Runnable:
        """Everything the runner needs, with the fixtures bound."""
        lenders = lenders_among(self.function, self.columns, arguments)
        arguments = {name: value for name, value in arguments.items() if name not in lenders}
        spec = EvaluationSpec(
            experiment=experiment,
            key=key,
            name=self.name + variant,
            columns=self.columns,
            fingerprint=fingerprint(self.function, self.columns, self.captured)
            | settings_of(lenders)
            | lane_parts(self.lane),
        )
        bound = (
            functools.partial(self.function, *leading, **arguments) if leading or arguments else self.function
        )
        return Runnable(
            spec=spec,
            function=self.function,
            call=bound,
            is_async=self.is_async,
            rows=lambda: self.dataset.open(options.samples),
            options=options,
            strategy=self.strategy,
            retries=self.retries,
            require=self.require,
            lenders=lenders,
            arguments=arguments,
            leading=leading,
            path=None if self.path is None else str(self.path),
            variant=parameters or {},
            lane=lane_function(self.lane, self.where),
        )


@functools.lru_cache(maxsize=256)
def _place_within(path: Path, root: Path) -> str:
    """Asked several times of each evaluation of a file."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


class ForEach:
    """A configured `foreach`: `ForEach(concurrency=SlidingWindow(20))("question,answer", dataset)`."""

    def __init__(
        self,
        dataset: Any = None,
        name: str | None = None,
        concurrency: Strategy | None = None,
        retries: Any = None,
        storage: Any = None,
        lane: Lane | None = None,
        **options: Any,
    ) -> None:
        if concurrency is not None and not callable(getattr(concurrency, "execute", None)):
            raise DeclarationError(
                f"{caller()}: concurrency= takes a strategy such as SlidingWindow(max_concurrency=10); "
                f"got {concurrency!r}"
            )
        if concurrency is not None:
            _check_execute(concurrency, caller())
        self._dataset = dataset
        self._name = name
        self._concurrency = concurrency
        self._retries = retries
        self._storage = storage
        self._lane = lane
        lane_function(lane, caller())
        self._options = from_mapping(options, said_by=f"{caller()}: ForEach")

    def __call__(
        self, columns: str | list[str] | tuple[str, ...], dataset: Any = None, *, lane: Lane | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        source = dataset if dataset is not None else self._dataset
        declaring = self
        if lane is not None:
            lane_function(lane, caller())
            declaring = copy.copy(self)
            declaring._lane = lane
        return functools.partial(declaring._declared, _column_names(columns, caller()), source)

    def __getattr__(self, name: str) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
        """`foreach.NAME(...)`: a dataset that an installed package registers in `evalve.datasets`."""
        if name.startswith("_"):
            raise AttributeError(name)
        from importlib.metadata import entry_points

        registered = entry_points(group="evalve.datasets")
        if name not in registered.names:
            known = ", ".join(sorted(registered.names)) or "none"
            raise AttributeError(
                f"no installed package registers the dataset {name!r} under evalve.datasets"
                f"{suggestion(name, registered.names)} (registered: {known}); install one that does, or write"
                ' @foreach("question,answer", rows)'
            )
        return self._of_registered(name, registered[name].load(), caller())

    def _of_registered(self, name: str, make: Callable[..., Any], where: str) -> Callable[..., Any]:
        def declare(*args: Any, columns: Any = None, **kwargs: Any) -> Any:
            source = make(*args, **kwargs)
            named = columns or getattr(source, "columns", None) or getattr(make, "columns", None)
            if named is None:
                raise DeclarationError(f"{where}: the dataset {name!r} names no columns; pass columns=…")
            return self(named, source)

        return declare

    def _declared(
        self, columns: tuple[str, ...], source: Any, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        _refuse_other_than_function(function)
        path, line = _place(function)
        where = f"{path or 'the prompt'}:{line}"
        if (declared := getattr(function, MARK, None)) is not None:
            raise DeclarationError(
                f"{declared.where}: {function.__name__} has two @foreach decorators; one is enough"
            )
        if source is None:
            raise DeclarationError(
                f"{where}: {function.__name__} has no dataset: write @foreach(columns, dataset) "
                "or ForEach(dataset=…)"
            )
        signature = _checked_signature(function, columns, where)
        if self._options.engine == "processes" and inspect.iscoroutinefunction(function):
            raise DeclarationError(
                f"{where}: {function.__name__} is async, and engine='processes' is for sync functions:"
                " write it as `def`, or leave engine= out"
            )
        _refuse_second(function, path, where)
        name = self._name or _name_of(function)
        if self._name is not None and path is not None:
            _NAMED_IN.add(path)
        if path in _NAMED_IN:
            _refuse_second_of_name(name, function, path, where)
        if path is not None and function.__module__ == "__main__":
            declared_in_script(path, name)
        evaluation = Evaluation(
            function=function,
            columns=columns,
            dataset=Dataset(source, columns, where, folder=path.parent if path else None),
            name=name,
            path=path,
            line=line,
            options=self._options,
            strategy=self._concurrency,
            retries=self._retries,
            require=getattr(function, "__evalve_require__", ()),
            storage=self._storage,
            captured=captured_values(function),
            lane=self._lane,
        )
        return _callable(evaluation, signature)


def require(*gates: str, **minimums: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gates of an evaluation: `@evalve.require(accuracy=0.9)`, above or below `@foreach`.

    A double underscore stands for the dot: `exact_match__accuracy=0.9`, `accuracy__low=0.85` for the low
    end of the interval. As text, a gate may be one from above: `@evalve.require("toxic<=0.1")`.
    """
    thresholds = (
        *(_written(gate) for gate in gates),
        *(_gate(name, minimum) for name, minimum in minimums.items()),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        evaluation: Evaluation | None = getattr(function, MARK, None)
        if evaluation is not None:
            evaluation.require += thresholds
        else:
            already = getattr(function, "__evalve_require__", ())
            function.__evalve_require__ = already + thresholds  # type: ignore[attr-defined]
        return function

    return decorate


def _written(gate: Any) -> Threshold:
    try:
        return read_threshold(str(gate))
    except ValueError as error:
        raise DeclarationError(f"{caller()}: require({gate!r}): a gate {error}") from None


def _gate(name: str, minimum: Any) -> Threshold:
    try:
        number = math.nan if isinstance(minimum, bool) else float(minimum)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DeclarationError(
            f"{caller()}: require({name}={minimum!r}): a gate needs a number, as in {name}=0.9"
        )
    return Threshold(name.replace("__", "."), number)


def _callable(evaluation: Evaluation, signature: inspect.Signature) -> Callable[..., Any]:
    """A real function, async for async ones, that runs the evaluation when it is called."""
    function = evaluation.function

    if evaluation.is_async:

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            from evalve import wiring  # the one upward import: a direct call needs the whole machine

            return await wiring.run_directly_async(as_called(declared), args, kwargs)

        declared: Any = run_async
    else:

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            from evalve import wiring  # the one upward import: a direct call needs the whole machine

            return wiring.run_directly(as_called(declared), args, kwargs)

        declared = run
    del declared.__wrapped__  # or inspect and pytest would look through to the columns
    declared.__signature__ = signature
    declared.place_as = function  # where pytest says that it is
    setattr(declared, MARK, evaluation)
    return declared  # type: ignore[no-any-return]


def as_called(declared: Any) -> Evaluation:
    """The evaluation of a decorated function under the name that it has now.

    Functions that a loop or a factory makes have one name when they are decorated, and get their own before
    or later: as `__name__`, or as variables of their module. pytest names them by those variables too.
    """
    evaluation: Evaluation = getattr(declared, MARK)
    within, dot, first = evaluation.name.rpartition(".")
    if first != evaluation.function.__name__:
        return evaluation  # a person has chosen the name
    names: Mapping[str, Any] = getattr(evaluation.function, "__globals__", {})
    now = declared.__name__
    if now == first and names.get(now) is not declared:
        variables = [name for name, value in names.items() if value is declared]
        if _is_named_by_hand(evaluation.function):  # then the variable of a loop is no better name
            variables = [name for name in variables if name.startswith("eval_")]
        now = variables[0] if variables else now
    return evaluation if now == first else replace(evaluation, name=f"{within}{dot}{now}")


def _is_named_by_hand(function: Callable[..., Any]) -> bool:
    """Whether its `__name__` is not the one of its `def`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and code.co_name != function.__name__


def split_arguments(
    evaluation: Evaluation, kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A direct call's keyword arguments: those of the function, and those that are options."""
    parameters = inspect.signature(evaluation.function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in evaluation.columns:
            raise TypeError(f"{evaluation.name}: {name!r} is a column of the dataset and cannot be passed")
        if name in parameters:
            arguments[name] = value
        elif option_for(name) is not None:
            options[name] = value
        elif takes_any:
            arguments[name] = value
        else:
            known = [*parameters, *(n for n in Options.__dataclass_fields__)]
            raise TypeError(
                f"{evaluation.name} has no parameter and no option {name!r}{suggestion(name, known)}"
            )
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty
        and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and p.name not in (*evaluation.columns, *arguments, "self")
    ]
    if missing:
        raise TypeError(f"{evaluation.name} needs {', '.join(missing)}: pass it as {missing[0]}=…")
    return arguments, options


def _check_execute(strategy: Strategy, where: str) -> None:
    try:
        inspect.signature(strategy.execute).bind(None, None)
    except ValueError:
        pass  # something that does not tell its signature
    except TypeError as error:
        name = f"{type(strategy).__name__}.execute"
        raise DeclarationError(
            f"{where}: {name} is called as execute(tasks, progress_callback): {error}"
        ) from None


def _name_of(function: Callable[..., Any]) -> str:
    """`Class.eval_x`, by the name that the function has now: those made in a loop are renamed."""
    within = function.__qualname__.rpartition("<locals>.")[2].rpartition(".")
    return f"{within[0]}{within[1]}{function.__name__}"


def _column_names(columns: Any, where: str) -> tuple[str, ...]:
    names = columns.split(",") if isinstance(columns, str) else columns
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DeclarationError(f'{where}: columns are written "question,answer" or as a list of names')
    stripped = tuple(name.strip() for name in names)
    for name in stripped:
        if not name.isidentifier():
            raise DeclarationError(f"{where}: {name!r} is no column name")
    if len(set(stripped)) < len(stripped):
        raise DeclarationError(f"{where}: a column is named twice in {', '.join(stripped)!r}")
    return stripped


def _refuse_other_than_function(function: Any) -> None:
    if hasattr(function, "__code__"):
        return
    kind = "class" if inspect.isclass(function) else type(function).__name__
    name = getattr(function, "__name__", repr(function))
    remedy = "; decorate its methods, each by itself" if inspect.isclass(function) else ""
    raise DeclarationError(f"{caller()}: @foreach is for functions, and {name} is a {kind}{remedy}")


def _checked_signature(
    function: Callable[..., Any], columns: tuple[str, ...], where: str
) -> inspect.Signature:
    """The signature without the columns; a column that is no parameter is a mistake."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for column in columns:
        if column not in parameters and not takes_any:
            raise DeclarationError(
                f"{where}: {function.__name__} has no parameter for the column {column!r}"
                f"{suggestion(column, parameters)}"
            )
    rest = [p for p in parameters.values() if p.name not in columns]
    return signature.replace(parameters=rest)


def _refuse_second(function: Callable[..., Any], path: Path | None, where: str) -> None:
    """Two evaluations of one name in one file: the second would hide the first."""
    there = getattr(function, "__globals__", {}).get(function.__name__)
    earlier: Evaluation | None = getattr(there, MARK, None)
    if earlier is None or path is None or earlier.path != path or "." in function.__qualname__:
        return
    lines = defined_twice(str(path), function.__name__)
    if lines:
        raise DeclarationError(
            f"{where}: {function.__name__} is also defined at line {lines[0]} of the same file; "
            "the second would hide the first, so give them two names"
        )


_NAMED_IN: set[Path] = set()
"""Files in which a person has given an evaluation a name: elsewhere no two have the same."""


def _refuse_second_of_name(name: str, function: Callable[..., Any], path: Path | None, where: str) -> None:
    """Two functions of one file under one `ForEach(name=…)`: their records could not be told apart."""
    for there in list(getattr(function, "__globals__", {}).values()):
        earlier: Evaluation | None = getattr(there, MARK, None) if inspect.isfunction(there) else None
        if earlier is None or path is None or earlier.name != name or earlier.path != path:
            continue
        other = earlier.function.__name__
        if other != function.__name__ and defines(str(path), other):
            raise DeclarationError(
                f"{where}: {function.__name__} has the name {name!r}, as {other} at line {earlier.line} "
                "of the same file does; give them two names"
            )


def _place(function: Callable[..., Any]) -> tuple[Path | None, int]:
    code = function.__code__
    path = code.co_filename
    in_notebook = "ipykernel" in code.co_filename or code.co_filename.startswith("<")
    return (None if in_notebook else _resolved(path)), code.co_firstlineno


@functools.lru_cache(maxsize=8)
def _resolved(path: str) -> Path:
    return Path(path).resolve()


foreach = ForEach()
