"""What experiments have cost so far: a budget is for all runs of an experiment, not for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evalve.contracts import EvaluationInfo, LiveProgress, ReadStore, all_roles
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
    earlier = [
        _cost(store, info)
        for (url, experiment), store in by_place.items()
        for info in _evaluations(store, experiment)
        if (url, experiment, info.spec.key) not in anew
    ]
    earlier_usd = sum(cost.most_usd for cost in earlier)
    return SharedBudget(
        limit_usd,
        earlier_usd=earlier_usd,
        earlier_unstated_usd=earlier_usd - sum(cost.known_usd for cost in earlier),
    )


def spending_beside(planned: Sequence[Planned]) -> list[str]:
    """That the budget does not see what other processes spend meanwhile, in words."""
    by_place = {
        (one.store.url, one.runnable.spec.experiment): one.store for one in planned if one.budget is not None
    }
    running = {
        experiment: [one.evaluation for one in _live(store, experiment) if one.is_alive]
        for (_, experiment), store in by_place.items()
    }
    return [
        f"{experiment}: {', '.join(names)} {'is' if len(names) == 1 else 'are'} being run by another process:"
        " the budget counts what that has cost so far, not what it spends from now on"
        for experiment, names in running.items()
        if names
    ]


def _live(store: ReadStore, experiment: str) -> list[LiveProgress]:
    try:
        return store.live(experiment)
    except NotFound:
        return []


class _Cost(NamedTuple):
    known_usd: float
    most_usd: float
    """With what was set aside for calls that were not answered, or did not say what they took."""


def _evaluations(store: ReadStore, experiment: str) -> list[EvaluationInfo]:
    try:
        return store.evaluations(experiment)
    except NotFound:
        return []


def _cost(store: ReadStore, info: EvaluationInfo) -> _Cost:
    """Runs know of tries whose records were replaced, records of runs that were killed."""
    runs = [
        (_usd(run.report.get("calls")), run.report.get("may_have_cost_usd", 0.0))
        for run in store.runs(info.id)
    ]
    by_records_usd = sum(_usd(one.calls) for one in store.measures(info.id))
    known_usd = max(by_records_usd, sum(stated_usd for stated_usd, _ in runs))
    return _Cost(known_usd, max(known_usd, sum(max(run) for run in runs)))


def _usd(calls: object) -> float:
    return all_roles(calls).get("cost_usd", 0.0) if isinstance(calls, dict) else 0.0
