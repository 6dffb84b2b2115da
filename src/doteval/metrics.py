"""doteval's metrics are evalve's."""

from evalve.metrics import Metric, accuracy, count, mean, metric, pass_at, pass_hat, resolve, sum

__all__ = ["Metric", "accuracy", "count", "mean", "metric", "pass_at", "pass_hat", "resolve", "sum"]
