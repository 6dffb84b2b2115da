"""Which evaluations the tests of a session read, and which of them are run together. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from evalve.concurrency import Adaptive, choose, workers_for
from evalve.contracts import Strategy
from evalve.declare.foreach import Evaluation
from evalve.options import Options


@dataclass(frozen=True, slots=True)
class Wanted:
    """An evaluation that some test reads, in one variant."""

    key: str
    evaluation: Evaluation
    variant: str
    fixtures: tuple[str, ...]
    """The arguments that it must be given, by name."""
    model: str | None
    """The model for which the tests that read it are parametrised, if they are."""


@dataclass(frozen=True, slots=True)
class Group:
    """Evaluations that one process runs side by side."""

    name: str
    members: tuple[Wanted, ...]


def fixtures_of(evaluation: Callable[..., Any]) -> tuple[str, ...]:
    """What a decorated function takes beside its columns, which its signature hides."""
    parameters = inspect.signature(evaluation).parameters.values()
    return tuple(
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    )


def parametrised_model(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    name = call.params.get("model") if call is not None else None
    return name if isinstance(name, str) else None


def grouped(wanted: Iterable[Wanted], *, together: bool) -> list[Group]:
    """Those for the same model in one group, or each in its own."""
    members: dict[str, list[Wanted]] = {}
    for one in wanted:
        members.setdefault(f"all {one.model}" if together else one.key, []).append(one)
    return [Group(name, tuple(group)) for name, group in members.items()]


def following(groups: Sequence[Group], own: Group) -> list[Group]:
    """The others, from the next one on: who helps begins at another place than who began there."""
    place = groups.index(own) if own in groups else -1
    return [*groups[place + 1 :], *groups[: max(place, 0)]]


def places_for(asked: Sequence[tuple[Evaluation, Options]]) -> int | None:
    """How many samples of all these evaluations may be in flight; `None` where they cannot share places.

    Sharing needs a known number: not what finds its own, and nothing that spaces its starts by itself.
    """
    at_once = []
    for evaluation, options in asked:
        strategy = strategy_of(evaluation, options)
        found = getattr(strategy, "max_concurrency", None)
        if isinstance(strategy, Adaptive) or options.throttle_s or not isinstance(found, int):
            return None
        if not evaluation.is_async:
            return None
        at_once.append(found)
    return max(at_once, default=None)


def strategy_of(evaluation: Evaluation, options: Options) -> Strategy:
    """As the run would choose it, less the time between starts."""
    return choose(
        evaluation.strategy,
        is_async=evaluation.is_async,
        workers=workers_for(options),
        max_concurrency=options.max_concurrency,
    )
