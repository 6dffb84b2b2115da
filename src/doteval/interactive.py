"""`dotevals.run`: an evaluation from a notebook, and its records with `summary()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from doteval.models import EvaluationSummary, Record
from doteval.storage import Storage, get_storage, place_of
from doteval.storage.recorded import RecordedStorage
from evalve import wiring
from evalve.declare.foreach import MARK

__all__ = ["Results", "run"]


def run(
    eval_fn: Callable[..., Any],
    experiment: str | None = None,
    samples: int | None = None,
    storage: Any = None,
    **kwargs: Any,
) -> Results:
    """Run an evaluation from anywhere; other keyword arguments are its fixtures and options."""
    if not hasattr(eval_fn, MARK):
        raise ValueError("The evaluation function must be decorated with @foreach('col1,col2', dataset)")
    experiment = experiment or f"run_{datetime.now():%Y%m%d_%H%M%S}_{os.urandom(2).hex()}"
    said = {"experiment": experiment, "samples": samples, "storage": place_of(storage)}
    given = {name: value for name, value in said.items() if value is not None}
    result = wiring.run(eval_fn, **given, **kwargs)
    named = storage if isinstance(storage, Storage) else get_storage(storage) if storage else None
    kept = named or RecordedStorage(result.storage.url, result.storage)
    return Results(kept, result.experiment, result.evaluation)


class Results:
    """The records of one evaluation; `summary()` counts a failed sample as wrong, as dotevals does."""

    def __init__(self, storage: Storage, experiment: str, evaluation: str) -> None:
        self.storage = storage
        self.experiment = experiment
        self.evaluation = evaluation
        self._records: list[Record] | None = None

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            self._records = self.storage.get_results(self.experiment, self.evaluation)
        return self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]

    def summary(self) -> dict[str, Any]:
        return {
            "total": len(self.records),
            "errors": sum(record.error is not None for record in self.records),
            "metrics": EvaluationSummary(self.records).summary,
        }
