"""The names that dotevals keeps here."""

from doteval.metrics import Metric, accuracy, metric, registry

__all__ = ["Metric", "accuracy", "metric", "registry"]
