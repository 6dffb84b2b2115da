"""What a storage of doteval's can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from doteval.models import Evaluation, EvaluationStatus, Record

__all__ = ["Storage"]


class Storage(ABC):
    """Experiments by name, in them evaluations by name, in them records by item."""

    @abstractmethod
    def create_experiment(self, experiment_name: str) -> None: ...
    @abstractmethod
    def delete_experiment(self, experiment_name: str) -> None: ...
    @abstractmethod
    def rename_experiment(self, old_name: str, new_name: str) -> None: ...
    @abstractmethod
    def list_experiments(self) -> list[str]: ...
    @abstractmethod
    def create_evaluation(self, experiment_name: str, evaluation: Evaluation) -> None: ...
    @abstractmethod
    def load_evaluation(self, experiment_name: str, evaluation_name: str) -> Evaluation | None: ...
    @abstractmethod
    def update_evaluation_status(
        self, experiment_name: str, evaluation_name: str, status: EvaluationStatus
    ) -> None: ...
    @abstractmethod
    def completed_items(self, experiment_name: str, evaluation_name: str) -> list[int]: ...
    @abstractmethod
    def list_evaluations(self, experiment_name: str) -> list[str]: ...
    @abstractmethod
    def add_results(self, experiment_name: str, evaluation_name: str, results: Sequence[Record]) -> None: ...
    @abstractmethod
    def get_results(self, experiment_name: str, evaluation_name: str) -> list[Record]: ...
    @abstractmethod
    def remove_error_result(self, experiment_name: str, evaluation_name: str, item_id: int) -> None: ...

    def remove_error_results_batch(
        self, experiment_name: str, evaluation_name: str, item_ids: Sequence[int]
    ) -> None:
        for item_id in item_ids:
            self.remove_error_result(experiment_name, evaluation_name, item_id)
