"""doteval's metrics are evalve's; those of installed plugins can be imported from here too."""

from collections.abc import Callable
from typing import Any

from doteval.metrics.registry import registry as metric_registry
from evalve.metrics import Metric, accuracy, count, mean, pass_at, pass_hat, resolve, sum
from evalve.metrics import metric as declared

__all__ = [
    "Metric",
    "accuracy",
    "count",
    "mean",
    "metric",
    "metric_registry",
    "pass_at",
    "pass_hat",
    "registry",
    "resolve",
    "sum",
]

registry: dict[str, Any] = {one.name: one for one in (accuracy, mean, sum, count)}
"""Those that `@metric` declares are entered; a file may enter others."""


def metric(function: Callable[..., Any] | None = None, /, **how: Any) -> Any:
    """evalve's `@metric`, which enters what it makes into `registry`."""
    if function is None:
        return lambda later: _entered(declared(**how)(later))
    return _entered(declared(function))


def _entered(made: Metric) -> Metric:
    registry[made.name] = made
    return made


def __getattr__(name: str) -> Any:
    """`from doteval.metrics import f1`: one that a package registers."""
    if name.startswith("_") or (found := metric_registry.get(name)) is None:
        known = ", ".join(metric_registry.list_metrics())
        raise AttributeError(f"No metric named {name!r}. Available metrics: {known}")
    return found


def __dir__() -> list[str]:
    return [*__all__, *metric_registry.list_metrics()]
