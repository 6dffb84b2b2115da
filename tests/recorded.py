"""Fills a store as a run would, so that tests of what is shown start from written-out records."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

from evalve.contracts import EvaluationSpec, RecordDraft, RunInfo
from evalve.jsontext import to_json
from evalve.records import FailureClass, Sample, Status
from evalve.storage import Store

T = TypeVar("T")

STARTED_AT = "2026-11-03T14:02:00+00:00"


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that never waits, as those of the store on SQLite; a loop may run here."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return cast(T, ended.value)
    coroutine.close()
    raise AssertionError(f"{coroutine} waits")


class _Sink:
    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        if error is not None:
            raise error


def done(sample_id: str, *, repeat: int = 0, wall_s: float = 0.5, **said: Any) -> dict[str, Any]:
    """A sample that was scored: `done("s1", exact_match=True)`; further keys in `also`."""
    also: Mapping[str, Any] = said.pop("also", {})
    scores = [{"name": name, "value": value, "metrics": ["accuracy"]} for name, value in said.items()]
    return {"sample_id": sample_id, "repeat": repeat, "wall_s": wall_s, "scores": scores, **also}


def failed(
    sample_id: str,
    kind: str = "ValueError",
    message: str = "no",
    failure_class: FailureClass = "code",
    **also: Any,
) -> dict[str, Any]:
    """A sample that broke."""
    traceback = (
        f'Traceback (most recent call last):\n  File "eval_x.py", line 3, in f\n    g()\n{kind}: {message}\n'
    )
    failure = {
        "kind": kind,
        "message": message,
        "traceback": traceback,
        "failure_class": failure_class,
    }
    return {"sample_id": sample_id, "repeat": 0, "wall_s": 0.5, "failure": failure, "scores": [], **also}


def skipped(sample_id: str, reason: str = "no gpu", **also: Any) -> dict[str, Any]:
    """A sample whose function called `pytest.skip`."""
    failure = {"kind": "Skipped", "message": reason, "traceback": "", "failure_class": "code"}
    said = {"status": "skipped", "failure": failure, "scores": []}
    return {"sample_id": sample_id, "repeat": 0, "wall_s": 0.5, **said, **also}


def record(
    store: Store,
    experiment: str,
    *samples: Mapping[str, Any],
    name: str = "eval_math",
    file: str = "eval_x.py",
    total: int | None = -1,
    wall_s: float = 0.5,
    report: Mapping[str, Any] | None = None,
    status: str = "complete",
    variant: Mapping[str, str] | None = None,
    fingerprint: Mapping[str, str] | None = None,
    samples_asked: int | None = None,
) -> int:
    """One run with these samples, in this order; `total=-1` means as many as there are."""
    evaluation_id = at_once(
        store.open_evaluation(EvaluationSpec(experiment, f"{file}::{name}", name, (), fingerprint or {}))
    )
    repeats = max((sample["repeat"] for sample in samples), default=0) + 1
    run = RunInfo(
        id=f"run-{experiment}-{evaluation_id}",
        evaluation_id=evaluation_id,
        started_at=STARTED_AT,
        ended_at=None if status == "running" else "2026-11-03T14:02:10+00:00",
        status=status,
        options={
            "max_concurrency": 4,
            **({"repeat": repeats} if repeats > 1 else {}),
            **({"samples": samples_asked} if samples_asked else {}),
            **({"variant": dict(variant)} if variant else {}),
        },
        versions={"evalve": "0.1.0"},
        git_commit="abc123",
        fingerprint={},
        report={"wall_s": wall_s, "cpu_s": 0.25, "peak_memory_bytes": 1000, **(report or {})},
    )
    at_once(store.begin_run(run))
    for index, sample in enumerate(samples):
        store.add(_draft(evaluation_id, run.id, index, sample), _Sink())
    if status != "running":
        at_once(store.end_run(run, total=len(samples) if total == -1 else total, metrics=()))
    return evaluation_id


def _draft(evaluation_id: int, run_id: str, index: int, sample: Mapping[str, Any]) -> RecordDraft:
    row = sample.get("row", {"question": f"question {index}"})
    failure = sample.get("failure")
    status: Status = sample.get("status", "failed" if failure else "done")
    return RecordDraft(
        evaluation_id=evaluation_id,
        sample=Sample(
            sample["sample_id"], sample.get("index", index), {}, to_json(row), sample.get("row_hash")
        ),
        repeat=sample["repeat"],
        status=status,
        scores_json=to_json(sample["scores"]),
        failure_json=to_json(failure) if failure else None,
        prompt_json=to_json(sample["prompt"]) if "prompt" in sample else None,
        response_json=to_json(sample["response"]) if "response" in sample else None,
        started_at=STARTED_AT,
        wall_s=sample["wall_s"],
        working_s=sample["wall_s"],
        tries=sample.get("tries", 1),
        history_json=to_json(sample["history"]) if "history" in sample else None,
        run_id=run_id,
        calls_json=to_json(sample["calls"]) if "calls" in sample else None,
        failure_class=failure["failure_class"] if failure and status == "failed" else None,
        lent_json=to_json(sample["lent"]) if "lent" in sample else None,
        trace_json=to_json(sample["trace"]) if "trace" in sample else None,
    )
