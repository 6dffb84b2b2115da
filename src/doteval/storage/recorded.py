"""A store of evalve's, seen as doteval's storage: scripts read what runs recorded, and may add to it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from doteval.exceptions import EvaluationNotFoundError, ExperimentExistsError, ExperimentNotFoundError
from doteval.models import Evaluation, EvaluationStatus, Record
from doteval.storage.base import Storage
from evalve.clock import utc_text
from evalve.contracts import EvaluationInfo, EvaluationSpec, RecordDraft, RunInfo, Store
from evalve.jsontext import to_json
from evalve.metrics import names
from evalve.records import Failure, Result, Sample
from evalve.records import Record as EvalveRecord
from evalve.wiring import shared_store, wait_for

_STATUS = {"complete": EvaluationStatus.COMPLETED, "broken": EvaluationStatus.FAILED}
_ENDED = {EvaluationStatus.COMPLETED: "complete", EvaluationStatus.FAILED: "broken"}


class RecordedStorage(Storage):
    """Reads and writes the store at a URL. Evaluations have the names that a run shows."""

    def __init__(self, url: str, store: Store | None = None) -> None:
        self.url = url
        self._opened = store
        self._empty: list[str] = []
        """Experiments without any evaluation: a store knows those that have one."""

    @property
    def _store(self) -> Store:
        return self._opened or shared_store(self.url)

    # experiments

    def create_experiment(self, experiment_name: str) -> None:
        if experiment_name not in self.list_experiments():
            self._empty.append(experiment_name)

    def delete_experiment(self, experiment_name: str) -> None:
        self._expect(experiment_name)
        if experiment_name in self._stored():
            self._store.delete(experiment_name)
        if experiment_name in self._empty:
            self._empty.remove(experiment_name)

    def rename_experiment(self, old_name: str, new_name: str) -> None:
        self._expect(old_name)
        if new_name in self.list_experiments():
            raise ExperimentExistsError(new_name)
        if old_name in self._stored():
            self._store.rename(old_name, new_name)
        self._empty = [new_name if name == old_name else name for name in self._empty]

    def list_experiments(self) -> list[str]:
        stored = self._stored()
        return [*stored, *(name for name in self._empty if name not in stored)]

    def _stored(self) -> list[str]:
        return [experiment.name for experiment in self._store.experiments()]

    def _expect(self, experiment_name: str) -> None:
        if experiment_name not in self.list_experiments():
            raise ExperimentNotFoundError(experiment_name)

    # evaluations

    def create_evaluation(self, experiment_name: str, evaluation: Evaluation) -> None:
        """Nothing where there is one of this name."""
        name = evaluation.evaluation_name
        if self._found(experiment_name, name) is not None:
            return
        spec = EvaluationSpec(experiment_name, f"prompt::{name}", name)
        evaluation_id = _done(lambda: self._store.open_evaluation(spec))
        run = RunInfo(
            id=uuid.uuid4().hex[:12],
            evaluation_id=evaluation_id,
            started_at=utc_text(evaluation.started_at),
            ended_at=None,
            status="running",
            options=dict(evaluation.metadata),
            versions={},
            git_commit=evaluation.metadata.get("git_commit"),
            fingerprint={},
            report={},
        )
        _done(lambda: self._store.begin_run(run))
        if evaluation.status is not EvaluationStatus.RUNNING:
            self.update_evaluation_status(experiment_name, name, evaluation.status)

    def load_evaluation(self, experiment_name: str, evaluation_name: str) -> Evaluation | None:
        found = self._found(experiment_name, evaluation_name)
        if found is None:
            return None
        runs = self._store.runs(found.id)
        last = runs[-1] if runs else None
        metadata = {} if last is None else {**last.options, "git_commit": last.git_commit}
        return Evaluation(
            evaluation_name=evaluation_name,
            status=_STATUS.get(last.status if last else "", EvaluationStatus.RUNNING),
            started_at=_seconds(runs[0].started_at if runs else found.first_started_at) or 0.0,
            metadata={name: value for name, value in metadata.items() if value is not None},
            completed_at=_seconds(last.ended_at) if last and last.status in _STATUS else None,
        )

    def update_evaluation_status(
        self, experiment_name: str, evaluation_name: str, status: EvaluationStatus
    ) -> None:
        found = self._expected(experiment_name, evaluation_name)
        runs = self._store.runs(found.id)
        if not runs or status not in _ENDED:
            return
        last = asdict(runs[-1]) | {"ended_at": utc_text(time.time()), "status": _ENDED[status]}
        _done(lambda: self._store.end_run(RunInfo(**last), total=None, metrics=None))

    def list_evaluations(self, experiment_name: str) -> list[str]:
        if experiment_name not in self._stored():
            return []
        return [info.spec.name for info in self._store.evaluations(experiment_name)]

    def _found(self, experiment_name: str, evaluation_name: str) -> EvaluationInfo | None:
        if experiment_name not in self._stored():
            return None
        evaluations = self._store.evaluations(experiment_name)
        return next(
            (info for info in evaluations if evaluation_name in (info.spec.name, info.spec.key)), None
        )

    def _expected(self, experiment_name: str, evaluation_name: str) -> EvaluationInfo:
        found = self._found(experiment_name, evaluation_name)
        if found is None:
            raise EvaluationNotFoundError(experiment_name, evaluation_name)
        return found

    # records

    def completed_items(self, experiment_name: str, evaluation_name: str) -> list[int]:
        results = self.get_results(experiment_name, evaluation_name)
        return [record.item_id for record in results if record.error is None]

    def get_results(self, experiment_name: str, evaluation_name: str) -> list[Record]:
        found = self._found(experiment_name, evaluation_name)
        return [] if found is None else [_as_in_doteval(record) for record in self._store.records(found)]

    def add_results(self, experiment_name: str, evaluation_name: str, results: Sequence[Any]) -> None:
        found = self._expected(experiment_name, evaluation_name)
        runs = self._store.runs(found.id)
        run_id = runs[-1].id if runs else ""
        told = _Told()
        for record in results:
            self._store.add(_draft(found.id, record, run_id), told)
        _done(lambda: self._store.counts(found.id))  # after everything that is queued
        if told.error is not None:
            raise told.error

    def remove_error_result(self, experiment_name: str, evaluation_name: str, item_id: int) -> None:
        """Its record counts no longer; the next one of that item takes its place."""
        found = self._found(experiment_name, evaluation_name)
        if found is None:
            return
        broken = self._store.records(found, status="failed")
        ids = [record.sample_id for record in broken if record.index == item_id]
        _done(lambda: self._store.leave_out(found.id, ids))


class _Told:
    """Remembers why a record was not committed."""

    error: BaseException | None = None

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        self.error = self.error or error


def _done(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return wait_for(make)


def _as_in_doteval(record: EvalveRecord) -> Record:
    return Record(
        Result(*record.scores, prompt=record.prompt, response=record.response),
        item_id=record.index,
        dataset_row=record.dataset_row,
        error=record.error,
        timestamp=_seconds(record.started_at),
    )


def _draft(evaluation_id: int, record: Any, run_id: str) -> RecordDraft:
    scores = [
        {"name": one.name, "value": one.value, "metrics": names(one.metrics), "metadata": one.metadata}
        for one in record.scores
    ]
    failure = None if record.error is None else asdict(_failure(record.error))
    return RecordDraft(
        evaluation_id=evaluation_id,
        sample=Sample(str(record.item_id), record.item_id, {}, to_json(record.dataset_row)),
        repeat=0,
        status="done" if failure is None else "failed",
        scores_json=to_json(scores if failure is None else []),
        failure_json=None if failure is None else to_json(failure),
        prompt_json=None if record.prompt is None else to_json(record.prompt),
        response_json=None if record.model_response is None else to_json(record.model_response),
        started_at=utc_text(record.timestamp),
        wall_s=0.0,
        working_s=0.0,
        tries=1,
        history_json=None,
        run_id=run_id,
        failure_class=None if failure is None else "code",
    )


def _failure(error: str) -> Failure:
    kind, separator, message = error.partition(": ")
    return Failure(kind, message) if separator and kind.isidentifier() else Failure("Error", error)


def _seconds(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
