"""Finds what a person named: an experiment, `latest`, an evaluation by label, name or key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evalve.contracts import EvaluationInfo, ExperimentInfo, Store
from evalve.errors import NotFound
from evalve.options import suggestion

LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Labelled:
    """An evaluation with the label that tells it from the others of its experiment."""

    label: str
    info: EvaluationInfo


def experiment_named(store: Store, name: str) -> ExperimentInfo:
    """The experiment of that name; `latest` is the one that was written to last."""
    experiments = store.experiments()
    if name == LATEST and experiments:
        return experiments[0]  # the store gives those last worked on first
    for experiment in experiments:
        if experiment.name == name:
            return experiment
    if not experiments:
        raise NotFound(f"no experiment {name!r}: {store.url} has no experiments yet")
    known = [experiment.name for experiment in experiments]
    hint = suggestion(name, known) or "; `evalve list` shows those that exist"
    raise NotFound(f"no experiment {name!r} in {store.url}{hint}")


def evaluations_of(store: Store, experiment: str, wanted: str | None = None) -> list[Labelled]:
    """The experiment's evaluations with their labels, or those that `wanted` names."""
    all_of_them = labelled(store.evaluations(experiment))
    if wanted is None:
        return all_of_them
    found = [one for one in all_of_them if wanted in (one.label, one.info.spec.name, one.info.spec.key)]
    if not found:  # a function stands for all of its variants
        found = [one for one in all_of_them if wanted == one.info.spec.name.partition("[")[0]]
    if not found:
        known = [one.label for one in all_of_them]
        hint = suggestion(wanted, known) or f"; it has: {', '.join(known)}"
        raise NotFound(f"experiment {experiment!r} has no evaluation {wanted!r}{hint}")
    return found


def labelled(infos: Sequence[EvaluationInfo]) -> list[Labelled]:
    found = labels([(info.spec.name, info.spec.key) for info in infos])
    return [Labelled(label, info) for label, info in zip(found, infos, strict=True)]


def labels(named: Sequence[tuple[str, str]]) -> list[str]:
    """A label for each name and key: the name, or `file::name` where two evaluations share a name."""
    shared = Counter(name for name, _ in set(named))
    return [key if shared[name] > 1 else name for name, key in named]
