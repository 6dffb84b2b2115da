"""evalve runs LLM and agent evaluations in parallel, records every sample, and resumes after a crash."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalve.agent_wiring import agent as agent
    from evalve.cases import ArgumentCorrectnessMetric as ArgumentCorrectnessMetric
    from evalve.cases import AsyncConfig as AsyncConfig
    from evalve.cases import CacheConfig as CacheConfig
    from evalve.cases import TestCase as TestCase
    from evalve.cases import ToolCorrectnessMetric as ToolCorrectnessMetric
    from evalve.cases import evaluate as evaluate
    from evalve.contracts import parked as parked
    from evalve.declare.foreach import ForEach as ForEach
    from evalve.declare.foreach import foreach as foreach
    from evalve.declare.foreach import require as require
    from evalve.errors import AgentError as AgentError
    from evalve.errors import AnswerError as AnswerError
    from evalve.errors import CrossingError as CrossingError
    from evalve.errors import DatasetError as DatasetError
    from evalve.errors import DeclarationError as DeclarationError
    from evalve.errors import EvalveError as EvalveError
    from evalve.errors import ExperimentChanged as ExperimentChanged
    from evalve.errors import InfrastructureError as InfrastructureError
    from evalve.errors import Interrupted as Interrupted
    from evalve.errors import LaneLost as LaneLost
    from evalve.errors import LenderError as LenderError
    from evalve.errors import LocalUnavailable as LocalUnavailable
    from evalve.errors import Locked as Locked
    from evalve.errors import MissingKey as MissingKey
    from evalve.errors import ModelError as ModelError
    from evalve.errors import NotFound as NotFound
    from evalve.errors import OptionError as OptionError
    from evalve.errors import ProcessDied as ProcessDied
    from evalve.errors import ResultError as ResultError
    from evalve.errors import SampleTimeout as SampleTimeout
    from evalve.errors import StorageError as StorageError
    from evalve.errors import StrategyError as StrategyError
    from evalve.errors import StreamBroken as StreamBroken
    from evalve.errors import ToolError as ToolError
    from evalve.errors import WorkerDied as WorkerDied
    from evalve.evaluators import evaluator as evaluator
    from evalve.gateways import gateway as gateway
    from evalve.gating import async_http_client as async_http_client
    from evalve.gating import http_client as http_client
    from evalve.gating import limiter as limiter
    from evalve.gating import model as model
    from evalve.metrics import metric as metric
    from evalve.reading.marks import reads as reads
    from evalve.records import Result as Result
    from evalve.records import Score as Score
    from evalve.sandboxes.pool import Pool as Pool
    from evalve.sandboxes.workspace import Workspace as Workspace
    from evalve.tracing import trace as trace
    from evalve.wiring import run as run

_ERRORS = (
    "AgentError",
    "AnswerError",
    "CrossingError",
    "DatasetError",
    "DeclarationError",
    "EvalveError",
    "ExperimentChanged",
    "InfrastructureError",
    "Interrupted",
    "LaneLost",
    "LenderError",
    "LocalUnavailable",
    "Locked",
    "MissingKey",
    "ModelError",
    "NotFound",
    "OptionError",
    "ProcessDied",
    "ResultError",
    "SampleTimeout",
    "StorageError",
    "StrategyError",
    "StreamBroken",
    "ToolError",
    "WorkerDied",
)
_CASES = (
    "ArgumentCorrectnessMetric",
    "AsyncConfig",
    "CacheConfig",
    "TestCase",
    "ToolCorrectnessMetric",
    "evaluate",
)
_HOMES = {
    **dict.fromkeys(_ERRORS, "evalve.errors"),
    **dict.fromkeys(_CASES, "evalve.cases"),
    "ForEach": "evalve.declare.foreach",
    "Pool": "evalve.sandboxes.pool",
    "Result": "evalve.records",
    "Score": "evalve.records",
    "Workspace": "evalve.sandboxes.workspace",
    "agent": "evalve.agent_wiring",
    "async_http_client": "evalve.gating",
    "evaluator": "evalve.evaluators",
    "foreach": "evalve.declare.foreach",
    "gateway": "evalve.gateways",
    "http_client": "evalve.gating",
    "limiter": "evalve.gating",
    "metric": "evalve.metrics",
    "model": "evalve.gating",
    "parked": "evalve.contracts",
    "reads": "evalve.reading.marks",
    "require": "evalve.declare.foreach",
    "run": "evalve.wiring",
    "trace": "evalve.tracing",
}
_MODULES = (
    "batches",
    "concurrency",
    "conversations",
    "errors",
    "evaluators",
    "metrics",
    "sandboxes",
    "simulator",
    "storage",
    "testing",
)

__version__ = "0.1.0"
__all__ = [
    "AgentError",
    "AnswerError",
    "ArgumentCorrectnessMetric",
    "AsyncConfig",
    "CacheConfig",
    "CrossingError",
    "DatasetError",
    "DeclarationError",
    "EvalveError",
    "ExperimentChanged",
    "ForEach",
    "InfrastructureError",
    "Interrupted",
    "LaneLost",
    "LenderError",
    "LocalUnavailable",
    "Locked",
    "MissingKey",
    "ModelError",
    "NotFound",
    "OptionError",
    "Pool",
    "ProcessDied",
    "Result",
    "ResultError",
    "SampleTimeout",
    "Score",
    "StorageError",
    "StrategyError",
    "StreamBroken",
    "TestCase",
    "ToolCorrectnessMetric",
    "ToolError",
    "WorkerDied",
    "Workspace",
    "agent",
    "async_http_client",
    "evaluate",
    "evaluator",
    "foreach",
    "gateway",
    "http_client",
    "limiter",
    "metric",
    "model",
    "parked",
    "reads",
    "require",
    "run",
    "trace",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing evalve costs next to nothing."""
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"evalve.{name}")
    raise AttributeError(f"module 'evalve' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
