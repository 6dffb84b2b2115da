"""What experiments have cost so far: a budget is for all runs of an experiment, not for each of them."""

from __future__ import annotations

from collections.abc import Sequence

from evalve.contracts import EvaluationInfo, ReadStore, all_roles
from evalve.errors import NotFound
from evalve.experiments.running import Planned
from evalve.gate.budget import SharedBudget


def shared_budget(limit_usd: float, planned: Sequence[Planned]) -> SharedBudget:
    """For all of them together, less what their experiments have cost in earlier runs."""
    by_place = {(one.store.url, one.runnable.spec.experiment): one.store for one in planned}
    anew = {
        (one.store.url, one.runnable.spec.experiment, one.runnable.spec.key)
        for one in planned
        if one.runnable.options.fresh
    }
    earlier_usd = sum(
        _cost_usd(store, info)
        for (url, experiment), store in by_place.items()
        for info in _evaluations(store, experiment)
        if (url, experiment, info.spec.key) not in anew
    )
    return SharedBudget(limit_usd, earlier_usd=earlier_usd)


def _evaluations(store: ReadStore, experiment: str) -> list[EvaluationInfo]:
    try:
        return store.evaluations(experiment)
    except NotFound:
        return []


def _cost_usd(store: ReadStore, info: EvaluationInfo) -> float:
    """Runs know of tries whose records were replaced, records of runs that were killed."""
    by_runs = sum(_cost_of(run.report.get("calls")) for run in store.runs(info.id))
    by_records = sum(_cost_of(one.calls) for one in store.measures(info.id))
    return max(by_runs, by_records)


def _cost_of(calls: object) -> float:
    return all_roles(calls).get("cost_usd", 0.0) if isinstance(calls, dict) else 0.0
