"""doteval's records, for code that makes or reads them itself; a run hands out those of evalve."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from evalve.metrics import resolve
from evalve.records import Result, Score

__all__ = [
    "Evaluation",
    "EvaluationMetadata",
    "EvaluationResult",
    "EvaluationStatus",
    "EvaluationSummary",
    "Record",
    "Result",
    "Sample",
    "Score",
]

Sample = Result
"""The name of `Result` in early versions."""


class EvaluationStatus(Enum):
    """How far an evaluation is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass
class Evaluation:
    """What is known of a stored evaluation, apart from its records."""

    evaluation_name: str
    status: EvaluationStatus
    started_at: float
    metadata: dict[str, Any] = field(default_factory=dict)
    completed_at: float | None = None


EvaluationMetadata = Evaluation


class Record:
    """One row and what came of it: `Record(result, item_id)`, or with scores and prompt of its own."""

    def __init__(
        self,
        result: Result | None = None,
        item_id: int = 0,
        dataset_row: Mapping[str, Any] | None = None,
        error: str | None = None,
        timestamp: float | None = None,
        **parts: Any,
    ) -> None:
        self.result = result if result is not None else _result_of(parts)
        self.item_id = item_id
        self.dataset_row = dict(dataset_row or {})
        self.error = error if error is not None else self.result.error
        self.timestamp = time.time() if timestamp is None else timestamp
        self.dataset_name: str | None = parts.pop("dataset_name", None)
        self.dataset_class: str | None = parts.pop("dataset_class", None)
        if parts:
            raise TypeError(f"Record() got unexpected keyword arguments: {', '.join(sorted(parts))}")

    @property
    def scores(self) -> list[Score]:
        return self.result.scores

    @property
    def prompt(self) -> Any:
        return self.result.prompt

    @property
    def model_response(self) -> Any:
        return self.result.response

    def __repr__(self) -> str:
        return f"Record({self.result!r}, item_id={self.item_id}, error={self.error!r})"


EvaluationResult = Record
"""The name of `Record` in early versions."""


def _result_of(parts: dict[str, Any]) -> Result:
    scores: Iterable[Any] = parts.pop("scores", None) or ()
    return Result(*scores, prompt=parts.pop("prompt", None), response=parts.pop("model_response", None))


class EvaluationSummary:
    """Metrics over records, as doteval has them: a record with an error counts as wrong.

    The summary of a run is evalve's, in which a failed sample has no score.
    """

    def __init__(self, results: Sequence[Any]) -> None:
        self.results = results
        self.summary = self.compute_summary()

    def compute_summary(self) -> dict[str, dict[str, Any]]:
        """`summary["exact_match"]["accuracy"]`."""
        values: dict[str, list[Any]] = {}
        metrics: dict[str, Any] = {}
        for record in self.results:
            for score in record.scores if record.error is None else ():
                values.setdefault(score.name, []).append(score.value)
                metrics.setdefault(score.name, score.metrics)
        wrong = [False for record in self.results if record.error is not None]
        return {
            name: {metric.name: metric.compute([*values[name], *wrong]) for metric in resolve(spec)}
            for name, spec in metrics.items()
            if spec
        }
