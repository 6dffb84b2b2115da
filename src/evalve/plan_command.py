"""`evalve plan`: from a file or an experiment to what running it will take, before anything is spent."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalve import wiring
from evalve.checking import check_calls
from evalve.errors import NotFound, OptionError
from evalve.experiments.configuration import Configuration
from evalve.experiments.declared import declared_named, is_runnable, runnable_names
from evalve.experiments.durations import AgentTime, order_lines, orders_of, orders_plain
from evalve.experiments.models import Asked
from evalve.experiments.ordering import Order, phases_in_text
from evalve.experiments.planning import Outlook, outlook_lines, outlook_plain, outlooks
from evalve.gate.booking import ScopeState
from evalve.gate.doors.naming import target_of
from evalve.gate.doors.wires import wire_of
from evalve.gate.messages import Call, Cost, Dialect, Limits, Request, Usage
from evalve.gate.planning import Plan, Work, in_force, plan
from evalve.gate.presets import limits_for, read_limits
from evalve.gate.prices import Prices, prices_from
from evalve.gate.state_sqlite import SqliteState
from evalve.gate.tiers import tiers_of
from evalve.gating import limits_path, limits_reader
from evalve.options import OPTIONS, Options, merged, parse_text, suggestion
from evalve.plan_subjects import OpenStore, Subject, Timed, subjects_of, subjects_of_outlook
from evalve.secrecy import Environment
from evalve.show.plans import HERE, plan_json, plan_text

_HAVE_BATCHES = ("anthropic", "openai")
_DEADLINE = next(option for option in OPTIONS if option.field == "deadline_s")
_ANY_MODEL = "anthropic/any"
"""Whose wire and tiers are taken where no model is known."""


def plan_lines(said: argparse.Namespace, *, open_store: OpenStore, width: int) -> Iterable[str]:
    options = Options(
        samples=said.samples,
        repeat=said.repeat,
        max_concurrency=getattr(said, "concurrency", None),
        model=None if said.model is None else (said.model,),
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
    _refuse_nothing(subjects)
    model = _model(chosen, subjects)
    provider = Provider.of(model, settings.configuration, environ)
    planned = plan(
        [_work(subject, said, provider) for subject in subjects],
        _limits(provider, said.tier, environ),
    )
    planned = _with_batches(planned, provider, said)
    if said.json:
        return [plan_json(planned, model=model)]
    return plan_text(planned, model=model, width=width)


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
    if len(agents) > 1:
        yield ""
        calls = {agent.outlook.asked.name: agent.calls for agent in agents}
        yield from order_lines(orders, [agent.time for agent in agents], calls)


@dataclass(frozen=True, slots=True)
class Part:
    """The calls of one agent to one model: a pair makes those of a student and of a teacher."""

    model: str | None
    planned: Plan | None
    """`None` where none of the recorded samples called a model."""
    scope: str = ""
    """Whose limits hold them back."""

    @classmethod
    def of(
        cls,
        asked: Asked,
        subjects: Sequence[Subject],
        timed: Timed | None,
        said: argparse.Namespace,
        configuration: Configuration,
    ) -> Part:
        environ = Environment(os.environ)
        model = asked.callable_name(environ)
        if timed is not None and not timed.made_calls and said.calls_per_sample is None:
            return cls(model, None)
        provider = Provider.of(model, configuration, environ)
        works = [_work(subject, said, provider) for subject in subjects]
        is_anyones = model is None and said.tier is None  # only the agent knows whom it calls
        planned = plan(works, {} if is_anyones else _limits(provider, said.tier, environ))
        if not asked.is_agent:  # whose own program asks, and waits for no batch
            planned = _with_batches(planned, provider, said)
        return cls(model, planned, "" if is_anyones else provider.call.scope)

    @property
    def limited_s(self) -> dict[str, float]:
        """How long its calls take by the limits that hold here, or else by those of the only tier."""
        scopes = () if self.planned is None else self.planned.scopes
        known = [scope for scope in scopes if scope.name == HERE] or (scopes if len(scopes) == 1 else ())
        return {self.scope: known[0].duration_s} if known and known[0].binding else {}


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """What one agent of an experiment will take."""

    outlook: Outlook
    parts: tuple[Part, ...]
    sample_s: float | None
    source: str

    @classmethod
    def of(
        cls,
        outlook: Outlook,
        said: argparse.Namespace,
        configuration: Configuration,
        open_store: OpenStore,
    ) -> AgentPlan:
        parts: list[Part] = []
        timed: Timed | None = None
        for role, asked in zip(outlook.roles, outlook.asked.members, strict=True):
            subjects, timed = subjects_of_outlook(outlook, said, open_store, role)
            _refuse_nothing(subjects)
            parts.append(Part.of(asked, subjects, timed, said, configuration))
        if timed is not None:
            return cls(outlook, tuple(parts), timed.sample_s, timed.source)
        return cls(outlook, tuple(parts), _by_latency(parts), "calls × latency")

    @property
    def calls(self) -> int:
        return sum(part.planned.calls for part in self.parts if part.planned is not None)

    @property
    def time(self) -> AgentTime:
        own_s = self.outlook.duration_s(self.sample_s)
        limited: dict[str, float] = {}
        for part in self.parts:
            for scope, limited_s in part.limited_s.items():
                limited[scope] = limited.get(scope, 0.0) + limited_s
        alone_s = None if own_s is None else max(own_s, *limited.values(), 0.0)
        return AgentTime(self.outlook.asked.name, alone_s, limited)

    def lines(self, width: int) -> Iterator[str]:
        for place, part in enumerate(self.parts):
            yield from [""] if place else []
            if part.planned is None:
                yield "calls     0: none of the recorded samples called a model through evalve"
            else:
                yield from plan_text(part.planned, model=part.model, width=width)
        yield from outlook_lines(self.outlook, self.sample_s, self.source)

    def plain(self) -> dict[str, Any]:
        own = [
            {"calls": 0} if part.planned is None else json.loads(plan_json(part.planned, model=part.model))
            for part in self.parts
        ]
        outlook = {**outlook_plain(self.outlook, self.sample_s), "alone_s": self.time.alone_s}
        if len(own) == 1:
            return {**own[0], **outlook}
        roles = dict(zip(self.outlook.roles, own, strict=True))
        return {"calls": sum(part["calls"] for part in own), "roles": roles, **outlook}


def _by_latency(parts: Sequence[Part]) -> float | None:
    """How long a sample takes whose calls follow each other."""
    plans = [part.planned for part in parts if part.planned is not None]
    if not plans or any(one.one_by_one_s is None for one in plans):
        return None
    return sum((one.one_by_one_s or 0.0) / max(1, one.attempts) for one in plans)


@dataclass(frozen=True, slots=True)
class Provider:
    """The model that will be asked; where none is known, some model of Anthropic's without a price."""

    model: str | None
    name: str
    """Whose tiers are planned for: a server that only speaks like OpenAI has none."""
    call: Call
    dialect: Dialect
    prices: Prices
    configured: Limits

    @classmethod
    def of(cls, model: str | None, configuration: Configuration, environ: Mapping[str, str]) -> Provider:
        target = target_of(model or _ANY_MODEL, environ=environ)
        wire = wire_of(target.provider)
        body = json.dumps({"model": target.model, "messages": []}).encode()
        call = wire.dialect.read(
            Request("POST", wire.url(target.base_url), wire.headers(target.api_key), body)
        )
        assert call is not None, "every wire writes what its dialect reads"
        configured = limits_reader(configuration, environ)(call) if model is not None else Limits()
        prices = prices_from(configuration.prices, environ)
        return cls(model, target.provider.name, call, wire.dialect, prices, configured)

    def cost_usd(self, usage: Usage) -> float | None:
        return self.prices.cost(self.call.model, usage) if self.model is not None else None


def _with_batches(planned: Plan, provider: Provider, said: argparse.Namespace) -> Plan:
    if provider.name not in _HAVE_BATCHES:
        return planned
    asked = getattr(said, "deadline", None)
    deadline_s = None if asked is None else parse_text(_DEADLINE, asked, said_by="--deadline")
    return planned.with_batches(deadline_s)


def _refuse_nothing(subjects: Sequence[Subject]) -> None:
    if not any(subject.samples for subject in subjects):
        labels = ", ".join(subject.label for subject in subjects)
        raise OptionError(f"there is nothing to plan: {labels} with 0 samples makes no calls")


def _model(said: tuple[str, ...], subjects: Iterable[Subject]) -> str | None:
    """What was said, else what all earlier runs were made with."""
    if len(said) > 1:
        raise OptionError(f"a plan is for one model: say which with --model ({', '.join(said)})")
    if said:
        return said[0]
    recorded = {subject.past.model for subject in subjects if subject.past is not None}
    return recorded.pop() if len(recorded) == 1 else None


def _work(subject: Subject, said: argparse.Namespace, provider: Provider) -> Work:
    past = subject.past.calls if subject.past is not None else None
    calls_per_sample, latency_s = said.calls_per_sample, said.latency_s
    input_tokens, output_tokens, read, written = said.input_tokens, said.output_tokens, 0.0, 0.0
    if past is not None:
        calls_per_sample = past.calls_per_sample if calls_per_sample is None else calls_per_sample
        latency_s = past.latency_s if latency_s is None else latency_s
        output_tokens = past.output_tokens if output_tokens is None else output_tokens
        if input_tokens is None and past.input_tokens is not None:
            read, written = past.cache_read_tokens or 0.0, past.cache_write_tokens or 0.0
            input_tokens = past.input_tokens
    usage = Usage(round(input_tokens or 0), round(output_tokens or 0), round(read), round(written))
    return Work(
        label=subject.label,
        samples=subject.samples,
        repeat=subject.repeat,
        calls_per_sample=_calls_per_sample(subject, calls_per_sample),
        input_tokens=None if input_tokens is None else input_tokens + read + written,
        output_tokens=output_tokens,
        latency_s=latency_s,
        cost_usd=_cost_usd(subject, said, provider, usage)
        if input_tokens is not None and output_tokens is not None
        else None,
        takes=_takes(provider, usage, input_tokens, output_tokens),
        source=_sources(subject, said),
    )


def _calls_per_sample(subject: Subject, known: float | None) -> float:
    if known is not None:
        return known
    return 1.0 if subject.calls_expected is None else subject.calls_expected


def _cost_usd(subject: Subject, said: argparse.Namespace, provider: Provider, usage: Usage) -> float | None:
    """What earlier calls cost, where the next are like them; else by the table of prices."""
    past = subject.past
    alike = said.input_tokens is None and said.output_tokens is None
    if past is not None and alike and provider.model == past.model and past.calls.cost_usd is not None:
        return past.calls.cost_usd
    return provider.cost_usd(usage)


def _takes(provider: Provider, usage: Usage, input_tokens: float | None, output_tokens: float | None) -> Cost:
    """What a call takes of each limit; what is not known is left out."""
    unknown = set()
    if input_tokens is None:
        unknown |= {"input_tokens", "tokens"}
    if output_tokens is None:
        unknown |= {"output_tokens", "tokens"}
    charged = provider.dialect.charged(provider.call, usage)
    return {dimension: amount for dimension, amount in charged.items() if dimension not in unknown}


def _sources(subject: Subject, said: argparse.Namespace) -> str:
    flags = (said.calls_per_sample, said.input_tokens, said.output_tokens, said.latency_s)
    sources = ["flags"] if any(flag is not None for flag in flags) else []
    if subject.past is not None and any(flag is None for flag in flags):
        sources.append(subject.past.source)
    elif said.calls_per_sample is None:
        is_told = subject.calls_expected not in (None, 1.0)
        sources.append("turns × steps" if is_told else "1 call assumed")
    return ", ".join(sources)


def _limits(provider: Provider, tier: str | None, environ: Mapping[str, str]) -> dict[str, Limits]:
    """What holds here, where anything does, and each tier that there are presets for."""
    scopes: dict[str, Limits] = {}
    if provider.model is not None:
        learnt, now_s = _learnt(provider.call.scope, limits_path(environ))
        here = in_force(provider.configured, learnt, now_s)
        if here.by_dimension or here.concurrency is not None:
            scopes[HERE] = here
    whose, call = provider.name, provider.call
    known = tiers_of(whose)
    if tier is not None and tier not in known:
        hint = suggestion(tier, known) or (f"; known: {', '.join(known)}" if known else "")
        raise OptionError(f"--tier: {whose} has no tier {tier!r}{hint}")
    for name in known if tier is None else [tier]:
        limits = limits_for(whose, call.model, call.pool, read_limits({whose: {"tier": name}}), {})
        if limits.by_dimension:
            scopes[f"tier {name}"] = limits
    return scopes


def _learnt(scope: str, path: Path) -> tuple[ScopeState, float]:
    """What answers to this key have stated, and the instant by the same clock."""
    state = SqliteState(path, only_look=True)
    if not path.exists() or path.stat().st_size == 0:
        return ScopeState(), state.now_s()  # nothing is made for the sake of looking

    async def look() -> ScopeState:
        try:
            return await state.peek(scope)
        finally:
            await state.close()

    try:
        return asyncio.run(look()), state.now_s()
    except sqlite3.Error:
        return ScopeState(), state.now_s()  # of use, but not needed
