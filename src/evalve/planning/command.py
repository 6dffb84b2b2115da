"""`evalve plan`: from a file or an experiment to what running it will take."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from evalve import wiring
from evalve.checking import check_calls
from evalve.errors import NotFound, OptionError
from evalve.experiments.declared import declared_named, is_runnable, runnable_names
from evalve.experiments.file.configuration import Configuration
from evalve.experiments.ordering import Order, phases_in_text
from evalve.gate.planning import plan
from evalve.options import Options, merged, suggestion
from evalve.planning.agents import AgentPlan
from evalve.planning.durations import order_lines, orders_of, orders_plain
from evalve.planning.experiments import outlooks
from evalve.planning.providers import Provider, limits_known, with_batches, work_of
from evalve.planning.subjects import (
    OpenStore,
    Subject,
    refuse_nothing,
    subjects_of,
)
from evalve.secrecy import Environment
from evalve.show.plans import plan_json, plan_text


def plan_lines(said: argparse.Namespace, *, open_store: OpenStore, width: int) -> Iterable[str]:
    options = Options(
        samples=said.samples,
        repeat=said.repeat,
        max_concurrency=getattr(said, "concurrency", None),
        model=_typed_models(said),
    )
    environ = Environment(os.environ)
    settings = wiring.settings(options, folder=Path.cwd(), environ=environ)
    chosen = tuple(dict.fromkeys(settings.options_for_any().model or ()))
    if _is_of_file(said.what, settings.configuration):
        return _experiment_lines(said, settings, open_store, width)
    check_calls(chosen, settings.configuration, environ)
    try:
        subjects = subjects_of(said, settings, open_store)
    except NotFound as error:
        raise _with_those_of_file(error, said.what, settings.configuration) from None
    refuse_nothing(subjects)
    model = _model(chosen, subjects)
    provider = Provider.of(model, settings.configuration, environ)
    planned = plan(
        [work_of(subject, said, provider) for subject in subjects],
        limits_known(provider, said.tier, environ),
    )
    planned = with_batches(planned, provider, said)
    if said.json:
        return [plan_json(planned, model=model)]
    return plan_text(planned, model=model, width=width)


def _typed_models(said: argparse.Namespace) -> tuple[str, ...] | None:
    """Of `--model` and `--models`, as `evalve run` takes them."""
    typed = [*([said.model] if said.model else []), *(said.models or "").split(",")]
    return tuple(name.strip() for name in typed if name.strip()) or None


def _is_of_file(what: str, configuration: Configuration) -> bool:
    """Whether it is an experiment of `evalve.yaml` that can be run; a file of that name wins."""
    document = configuration.document
    if document is None or "::" in what or Path(what).is_file():
        return False
    known = {str(name): name for name in document.section("experiments")}
    return what in known and is_runnable(document, known[what])


def _with_those_of_file(error: NotFound, what: str, configuration: Configuration) -> NotFound:
    """The error, with the experiment of `evalve.yaml` that was meant, or those that there are."""
    document = configuration.document
    if document is None or what.endswith(".py") or "::" in what:
        return error
    known = runnable_names(document)
    if not known:
        return error
    hint = suggestion(what, known) or f" (there is: {', '.join(known)})"
    return NotFound(f"no experiment {what!r} is recorded, and {document.path} has none of that name{hint}")


def _experiment_lines(
    said: argparse.Namespace, settings: wiring.Settings, open_store: OpenStore, width: int
) -> Iterator[str]:
    """A plan for each agent: its calls, and what they take of this machine; then the orders."""
    environ = Environment(os.environ)
    configuration = settings.configuration
    assert configuration.document is not None
    asked_for = merged(settings.said, settings.environment, configuration.options_for(said.what))
    models = asked_for.model if settings.said.model or settings.environment.model else None
    keys: dict[str, Any] = {"models": list(models)} if models else {}
    if said.phases is not None:
        keys["phases"] = phases_in_text(said.phases)
    if said.models_at_once is not None:
        keys["models_at_once"] = said.models_at_once
    declared = declared_named(configuration.document, said.what, keys)
    found = outlooks(declared, asked_for, environ)
    agents = [AgentPlan.of(outlook, said, configuration, open_store) for outlook in found]
    order = Order.of(declared.entry, configuration.document, [agent.outlook.asked.name for agent in agents])
    orders = orders_of(
        [agent.time for agent in agents],
        order,
        has_phases="phases" in declared.entry.values,
        in_lanes=[agent.outlook.asked.name for agent in agents if agent.outlook.in_lanes],
    )
    if said.json:
        plans = [agent.plain() for agent in agents]
        yield json.dumps({"experiment": said.what, "plans": plans, "orders": orders_plain(orders)}, indent=2)
        return
    for place, agent in enumerate(agents):
        yield from [""] if place else []
        yield f"{said.what} · {agent.outlook.asked.name}"
        yield from agent.lines(width)
    notes = dict.fromkeys(note for agent in agents for note in agent.notes())
    yield from [""] if notes else []
    for note in notes:
        yield from note.splitlines()
    if len(agents) > 1:
        yield ""
        calls = {agent.outlook.asked.name: agent.calls for agent in agents}
        yield from order_lines(orders, [agent.time for agent in agents], calls)


def _model(said: tuple[str, ...], subjects: Iterable[Subject]) -> str | None:
    """What was said, else what all earlier runs were made with."""
    if len(said) > 1:
        raise OptionError(f"a plan is for one model: say which with --model ({', '.join(said)})")
    if said:
        return said[0]
    recorded = {subject.past.model for subject in subjects if subject.past is not None}
    return recorded.pop() if len(recorded) == 1 else None
