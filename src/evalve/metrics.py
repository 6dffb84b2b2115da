"""Metrics: what the values of all samples become, one number each.

`accuracy`, `accuracy()` and `"accuracy"` mean the same wherever a metric is expected.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, overload

from evalve.agreement import Agreement as Agreement
from evalve.agreement import Weights, agreement
from evalve.callers import at_caller, caller
from evalve.errors import DeclarationError
from evalve.options import suggestion
from evalve.statistics import pass_at_k, pass_hat_k

Kind = Literal["proportion", "mean", "sum", "count", "pass_at", "pass_hat", "agreement", "other"]
"""Says which interval fits, and that running sums are enough; `other` needs all values at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A named function from values, one per observation, to a number."""

    name: str
    compute: Callable[..., Any]
    """`pass@k` and `pass^k` compute over the runs of one sample, all others over everything."""
    kind: Kind = "other"
    k: int = 0
    factory: Callable[..., Any] | None = None
    """Makes `compute` from arguments, where `@metric` stands on such a function."""
    higher_is_better: bool = True

    @property
    def stored_name(self) -> str:
        """Its name in a record, which also says which direction is the better one."""
        return self.name if self.higher_is_better else self.name + _LOWER

    @property
    def __name__(self) -> str:
        """As functions have it."""
        return self.name

    @overload
    def __call__(self) -> Metric: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The metric itself without arguments; its number of values; a variant where it is a factory.

        `mean(higher_is_better=False)` is the mean of something of which less is better.
        """
        if not args and kwargs.keys() == {"higher_is_better"}:
            return replace(self, higher_is_better=bool(kwargs["higher_is_better"]))
        if not args and not kwargs:
            return self
        made = (self.factory or self.compute)(*args, **kwargs)
        if not callable(made):
            return made
        said = [repr(value) for value in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        name = f"{self.name}({', '.join(said)})"
        return _remembered(Metric(name, made, higher_is_better=self.higher_is_better))

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


def as_number(value: Any) -> float | None:
    """The value as a number, or `None` for what is not a finite one: that is unscored, not zero."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def is_correct(number: float) -> bool:
    """Whether a value counts as a pass: true, or a full score of 1."""
    return number >= 1


def _numbers(values: Iterable[Any]) -> list[float]:
    return [number for value in values if (number := as_number(value)) is not None]


def _mean(values: Iterable[Any]) -> float | None:
    numbers = _numbers(values)
    return math.fsum(numbers) / len(numbers) if numbers else None


def _sum(values: Iterable[Any]) -> float:
    return math.fsum(_numbers(values))


def _count(values: Iterable[Any]) -> int:
    return len([value for value in values if value is not None])


accuracy = Metric("accuracy", _mean, "proportion")
"""The share of true values; of numbers, their mean."""
mean = Metric("mean", _mean, "mean")
sum = Metric("sum", _sum, "sum")
"""Shadows the built-in function in this module, which does not use it."""
count = Metric("count", _count, "count")
"""How many observations there are."""

LABEL = "label"
"""Under this key the metadata of a score has what a person says of the same response."""


def _kappa(pairs: Iterable[tuple[Any, Any]], weights: Weights | None = None) -> float | None:
    judged, labels = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    return agreement(judged, labels, weights=weights).kappa


kappa = Metric("kappa", _kappa, "agreement")
"""Cohen's kappa of the values and the labels beside them: agreement beyond chance."""
weighted_kappa = Metric("weighted_kappa", partial(_kappa, weights="quadratic"), "agreement")
"""The same for grades: a disagreement counts by the square of its distance."""

_BUILT_IN = {each.name: each for each in (accuracy, mean, sum, count, kappa, weighted_kappa)}

# A stated exception to "no registries": a stored experiment knows metrics only by name.
_OWN: dict[str, Metric] = {}


def pass_at(k: int) -> Metric:
    """`pass@k`: the chance that at least one of k runs of a sample is correct, averaged over samples."""
    _check_k("pass_at", k)
    return Metric(f"pass@{k}", lambda values: pass_at_k(*_runs(values), k), "pass_at", k)


def pass_hat(k: int) -> Metric:
    """`pass^k`: the chance that all of k runs of a sample are correct, averaged over samples."""
    _check_k("pass_hat", k)
    return Metric(f"pass^{k}", lambda values: pass_hat_k(*_runs(values), k), "pass_hat", k)


def _check_k(name: str, k: Any) -> None:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise DeclarationError(f"{caller()}: {name}(k) needs a whole number of runs, 1 or more; got {k!r}")


def _runs(values: Iterable[Any]) -> tuple[int, int]:
    numbers = _numbers(values)
    return len(numbers), len([number for number in numbers if is_correct(number)])


# -- one's own ---------------------------------------------------------------------------------------


@overload
def metric(function: Callable[..., Any], /) -> Metric: ...
@overload
def metric(
    *, name: str | None = None, higher_is_better: bool = True
) -> Callable[[Callable[..., Any]], Metric]: ...
def metric(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    higher_is_better: bool = True,
) -> Any:
    """Declare a metric: a function of the values, or one without required parameters that returns it.

    >>> @metric
    ... def worst(values):
    ...     return min(values)
    >>> @metric
    ... def share_above(threshold=0.5):
    ...     def calculate(values):
    ...         return sum(value > threshold for value in values) / len(values)
    ...     return calculate

    `share_above` and `share_above()` are the metric with its defaults, `share_above(0.9)` a variant of
    it. Values are the plain score values, one per observation. `higher_is_better=False` is for what is
    better the less there is of it, such as seconds: `compare` then calls more of it worse.
    """
    if function is None:
        return partial(_declared_here, name=name, higher_is_better=higher_is_better)
    return _declared_here(function, name=name, higher_is_better=higher_is_better)


def _declared_here(function: Callable[..., Any], *, name: str | None, higher_is_better: bool) -> Metric:
    try:
        return _declared(function, name, higher_is_better)
    except DeclarationError as error:
        raise at_caller(error) from error.__cause__


def _declared(function: Callable[..., Any], name: str | None, higher_is_better: bool = True) -> Metric:
    name = name or str(getattr(function, "__name__", type(function).__name__))
    if name == "<lambda>":
        raise DeclarationError('a metric needs a name: use @metric(name="…") or a function defined with def')
    if _built_in(name):
        raise DeclarationError(f"{name!r} is a metric of evalve's own; give yours another name")
    parameters = _parameters(function)
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if len(required) > 1:
        raise DeclarationError(
            f"the metric {name!r} has {len(required)} required parameters; it takes one, the list of values"
        )
    if required or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return _remembered(Metric(name, function, higher_is_better=higher_is_better))
    compute = function()
    if not callable(compute):
        raise DeclarationError(
            f"the metric {name!r} takes no values, so it must return the function that does; "
            f"it returned {compute!r}"
        )
    factory = function if parameters else None
    return _remembered(Metric(name, compute, factory=factory, higher_is_better=higher_is_better))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions have no signature; they take what they are given
        return [inspect.Parameter("values", inspect.Parameter.POSITIONAL_ONLY)]
    return [p for p in parameters if p.kind is not p.VAR_KEYWORD]


def _remembered(own: Metric) -> Metric:
    _OWN[own.name] = own  # the last one wins, as when a notebook cell is run again
    return own


# -- finding them ------------------------------------------------------------------------------------


def resolve(spec: Any) -> tuple[Metric, ...]:
    """The metrics meant by a metric, a function, a name, or a list or tuple of these."""
    if spec is None:
        return ()
    if isinstance(spec, list | tuple):
        return tuple(found for item in spec for found in resolve(item))
    if isinstance(spec, Metric):
        return (spec,)
    if isinstance(spec, str):
        found = lookup(spec)
        if found is None:
            known = [*_BUILT_IN, *_OWN, "pass@1", "pass^1"]
            raise DeclarationError(
                f"there is no metric {spec!r}{suggestion(spec, known)}; known are {', '.join(known[:-2])}, "
                "pass@k and pass^k, and one's own are declared with @metric"
            )
        return (found,)
    if spec is pass_at or spec is pass_hat:
        raise DeclarationError(f"{spec.__name__} needs the number of runs, as in {spec.__name__}(3)")
    if callable(spec):
        return (_declared(spec, None),)
    raise DeclarationError(f"a metric is a name, @metric or a function of the values; got {spec!r}")


def lookup(name: str) -> Metric | None:
    """The metric of that name, or `None`: a stored name may belong to a file that is not loaded."""
    plain = plain_name(name)
    found = _built_in(plain) or _OWN.get(plain)
    if found is None or plain == name:
        return found
    return replace(found, higher_is_better=False)


_LOWER = ":lower"


def plain_name(stored: str) -> str:
    """The name that people see, from one in a record."""
    return stored.removesuffix(_LOWER)


def is_higher_better(spec: Any) -> bool:
    """Which direction is the better one for scores with these metrics: the first of them says."""
    while isinstance(spec, list | tuple):
        if not spec:
            return True
        spec = spec[0]
    if isinstance(spec, str):
        return not spec.endswith(_LOWER)
    return spec.higher_is_better if isinstance(spec, Metric) else True


def is_wrong(value: Any, spec: Any) -> bool:
    """Whether a score with these metrics says that something is wrong: false or 0; where less is better,
    true. Of other numbers nobody has said which are wrong."""
    return as_number(value) == 0 if is_higher_better(spec) else value is True


def _built_in(name: str) -> Metric | None:
    if match := re.fullmatch(r"pass([@^])([1-9]\d*)", name):
        return (pass_at if match[1] == "@" else pass_hat)(int(match[2]))
    return _BUILT_IN.get(name)


def names(spec: Any) -> list[str]:
    """The names by which metrics are stored; names that are already such pass unseen."""
    if isinstance(spec, Metric):
        return [spec.stored_name]
    if isinstance(spec, str):
        return [spec]
    if isinstance(spec, list | tuple):
        return [name for item in spec for name in names(item)]
    return [found.stored_name for found in resolve(spec)]
