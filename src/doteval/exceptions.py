"""doteval's exceptions about experiments, evaluations and datasets; all else that goes wrong is evalve's."""

from __future__ import annotations

from evalve.errors import DatasetError, EvalveError, OptionError, StorageError

__all__ = [
    "ConfigurationError",
    "DatasetError",
    "DatasetNotFoundError",
    "DotEvalError",
    "EvaluationError",
    "EvaluationNotFoundError",
    "EvaluatorError",
    "ExperimentExistsError",
    "ExperimentNotFoundError",
    "InvalidResultError",
    "MetricError",
    "PluginError",
    "PluginLoadError",
    "PluginNotFoundError",
    "StorageError",
]

DotEvalError = EvalveError
ConfigurationError = OptionError
EvaluationError = EvalveError


class PluginError(EvalveError):
    """Something that a package registers."""


class MetricError(EvalveError):
    """Something about a metric."""


class EvaluatorError(EvalveError):
    """Something about an evaluator."""


class ExperimentNotFoundError(StorageError, ValueError, FileNotFoundError):
    """There is no experiment of this name."""

    def __init__(self, experiment_name: str) -> None:
        super().__init__(f"Experiment '{experiment_name}' not found")
        self.experiment_name = experiment_name


class ExperimentExistsError(StorageError, ValueError, FileExistsError):
    """There is an experiment of this name already."""

    def __init__(self, experiment_name: str) -> None:
        super().__init__(f"Experiment '{experiment_name}' already exists")
        self.experiment_name = experiment_name


class EvaluationNotFoundError(StorageError, ValueError, FileNotFoundError):
    """The experiment has no evaluation of this name."""

    def __init__(self, experiment_name: str, evaluation_name: str) -> None:
        super().__init__(f"Evaluation '{evaluation_name}' not found in experiment '{experiment_name}'")
        self.experiment_name = experiment_name
        self.evaluation_name = evaluation_name


class DatasetNotFoundError(DatasetError, LookupError, ValueError):
    """Nobody has registered a dataset of this name."""

    def __init__(self, dataset_name: str) -> None:
        super().__init__(f"Dataset '{dataset_name}' not found")
        self.dataset_name = dataset_name


class PluginNotFoundError(PluginError, ModuleNotFoundError):
    """No installed package registers this."""

    def __init__(self, plugin_type: str, plugin_name: str) -> None:
        super().__init__(f"{plugin_type} plugin '{plugin_name}' not found")
        self.plugin_type = plugin_type
        self.plugin_name = plugin_name


class PluginLoadError(PluginError, ImportError):
    """A package registers this, and it cannot be imported."""

    def __init__(self, plugin_name: str, original_error: Exception) -> None:
        super().__init__(f"Failed to load plugin '{plugin_name}': {original_error}")
        self.plugin_name = plugin_name
        self.original_error = original_error


class InvalidResultError(EvaluatorError, TypeError):
    """An evaluator returned what is no score."""

    def __init__(self, evaluator_name: str, result_type: type) -> None:
        super().__init__(
            f"Evaluator '{evaluator_name}' returned {result_type.__name__}: return a bool, a number, a Score"
            " or Result objects"
        )
        self.evaluator_name = evaluator_name
        self.result_type = result_type
