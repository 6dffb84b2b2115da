"""doteval's session manager: an experiment and the storage that it is in."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from doteval.models import Evaluation, EvaluationStatus, Record
from doteval.storage import Storage, get_storage
from evalve.wiring import git_commit

__all__ = ["EvaluationProgress", "SessionManager", "get_default_session_manager", "get_git_commit"]


class EvaluationProgress:
    """How many results were added by hand."""

    def __init__(self, evaluation_name: str) -> None:
        self.evaluation_name = evaluation_name
        self.completed_count = 0
        self.error_count = 0
        self.start_time = time.time()


class SessionManager:
    """Names an experiment and its storage: hand it to an evaluation, or add and read results with it.

    The first argument is a storage as in doteval, or the name of an evaluation as in dotevals.
    """

    def __init__(
        self,
        *args: Any,
        storage: Storage | str | None = None,
        experiment_name: str | None = None,
        evaluation_name: str | None = None,
        storage_path: str | None = None,
    ) -> None:
        first, second, third = (*args, None, None, None)[:3]
        if isinstance(first, Storage) or "://" in str(first):
            storage = first
        else:
            evaluation_name = first if first is not None else evaluation_name
        experiment_name = second if second is not None else experiment_name
        storage = third if third is not None else storage
        place = storage if storage is not None else storage_path
        self.storage: Storage = place if isinstance(place, Storage) else get_storage(place)
        self.current_experiment = experiment_name or _ephemeral_name()
        self.current_evaluation = evaluation_name
        self.evaluation_progress: EvaluationProgress | None = None
        self.active_evaluations: set[str] = set()
        self.storage.create_experiment(self.current_experiment)

    def start_evaluation(self, evaluation_name: str | None = None) -> None:
        """Create the evaluation where there is none of this name yet."""
        name = self._named(evaluation_name)
        if self.storage.load_evaluation(self.current_experiment, name) is None:
            commit = get_git_commit()
            evaluation = Evaluation(
                name, EvaluationStatus.RUNNING, time.time(), {"git_commit": commit} if commit else {}
            )
            self.storage.create_evaluation(self.current_experiment, evaluation)
        self.evaluation_progress = EvaluationProgress(name)
        self.active_evaluations.add(name)

    def add_results(
        self, evaluation_name: str | Sequence[Record], results: Sequence[Record] | None = None
    ) -> None:
        """`add_results(name, records)`, or `add_results(records)` for the manager's own evaluation."""
        if isinstance(evaluation_name, str):
            name, records = evaluation_name, list(results or ())
        else:
            name, records = self._named(None), list(evaluation_name)
        self.storage.add_results(self.current_experiment, name, records)
        if self.evaluation_progress is not None:
            self.evaluation_progress.completed_count += len(records)
            self.evaluation_progress.error_count += sum(record.error is not None for record in records)

    def get_results(self, evaluation_name: str | None = None) -> list[Record]:
        return self.storage.get_results(self.current_experiment, self._named(evaluation_name))

    def finish_evaluation(self, evaluation_name: str | None = None, success: bool = True) -> None:
        status = EvaluationStatus.COMPLETED if success else EvaluationStatus.FAILED
        name = self._named(evaluation_name)
        self.storage.update_evaluation_status(self.current_experiment, name, status)

    def finish_all(self, success: bool = True) -> None:
        for name in sorted(self.active_evaluations):
            self.finish_evaluation(name, success)

    def _named(self, evaluation_name: str | None) -> str:
        name = evaluation_name or self.current_evaluation
        if name is None:
            raise TypeError("which evaluation? Pass its name, or SessionManager(evaluation_name=…)")
        return name


def get_default_session_manager() -> SessionManager:
    """One for an experiment of its own in the default storage."""
    return SessionManager(evaluation_name="evaluation")


def get_git_commit() -> str | None:
    """The first eight digits of the commit that this directory is at; `None` outside a repository."""
    commit = git_commit(Path.cwd())
    return re.sub("-dirty$", "", commit)[:8] if commit else None


def _ephemeral_name() -> str:
    return f"{datetime.now():%Y%m%d_%H%M%S}_{os.urandom(4).hex()}"
