"""Metrics by name, those of installed packages included."""

from __future__ import annotations

from doteval.plugins import Plugins
from evalve.metrics import accuracy, count, mean, sum

__all__ = ["MetricRegistry", "registry"]


class MetricRegistry(Plugins):
    def __init__(self) -> None:
        super().__init__("metrics", {one.name: one for one in (accuracy, mean, sum, count)})

    def list_metrics(self) -> list[str]:
        return self.names()


registry = MetricRegistry()
