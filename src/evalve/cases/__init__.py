"""Test cases with metrics, as DeepEval has them, on evalve's engine: `evaluate(test_cases, metrics)`."""

from evalve.cases.case import TestCase
from evalve.cases.configs import AsyncConfig, CacheConfig
from evalve.cases.evaluating import evaluate
from evalve.cases.metrics import ArgumentCorrectnessMetric, CaseMetric, ToolCorrectnessMetric

__all__ = [
    "ArgumentCorrectnessMetric",
    "AsyncConfig",
    "CacheConfig",
    "CaseMetric",
    "TestCase",
    "ToolCorrectnessMetric",
    "evaluate",
]
