"""`sqlite://FILE`: the records in that file, in evalve's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doteval.models import Record
from doteval.storage.recorded import RecordedStorage

__all__ = ["SQLiteStorage"]


class SQLiteStorage(RecordedStorage):
    """The records in one file."""

    def __init__(self, db_path: str | Path = "evaluations.db") -> None:
        self.db_path = Path(db_path)
        super().__init__(f"sqlite:///{self.db_path.absolute()}")

    def get_failed_results(
        self, experiment_name: str, evaluation_name: str | None = None, evaluator_name: str | None = None
    ) -> list[dict[str, Any]]:
        """Every score of false or 0, with its sample."""
        return [
            {**of_sample, "evaluator_name": score.name, "value": score.value, "metadata": score.metadata}
            for of_sample, record in self._results(experiment_name, evaluation_name)
            for score in record.scores
            if not score.value and evaluator_name in (None, score.name)
        ]

    def get_error_results(
        self, experiment_name: str, evaluation_name: str | None = None
    ) -> list[dict[str, Any]]:
        """Every sample that broke."""
        results = self._results(experiment_name, evaluation_name)
        return [of_sample for of_sample, record in results if record.error is not None]

    def _results(
        self, experiment_name: str, evaluation_name: str | None
    ) -> Iterator[tuple[dict[str, Any], Record]]:
        for name in sorted(self.list_evaluations(experiment_name)):
            if evaluation_name in (None, name):
                for record in self.get_results(experiment_name, name):
                    of_sample = {
                        "evaluation_name": name,
                        "item_id": record.item_id,
                        "dataset_row": record.dataset_row,
                        "error": record.error,
                        "timestamp": record.timestamp,
                    }
                    yield of_sample, record
