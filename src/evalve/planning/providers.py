"""What calls to one model take: tokens, money, limits."""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evalve.errors import OptionError
from evalve.experiments.file.configuration import Configuration
from evalve.gate.doors.naming import target_of
from evalve.gate.doors.wires import wire_of
from evalve.gate.limits.booking import ScopeState
from evalve.gate.limits.presets import limits_for, read_limits
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.limits.tiers import tiers_of
from evalve.gate.messages import Call, Cost, Dialect, Limits, Request, Usage
from evalve.gate.planning import Plan, Work, in_force
from evalve.gate.prices import Prices, prices_from
from evalve.gating import limits_path, limits_reader
from evalve.options import OPTIONS, parse_text, suggestion
from evalve.planning.subjects import (
    Subject,
)
from evalve.show.plans import HERE

_HAVE_BATCHES = ("anthropic", "openai")
_DEADLINE = next(option for option in OPTIONS if option.field == "deadline_s")
_ANY_MODEL = "anthropic/any"
"""Whose wire and tiers are taken where no model is known."""


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


def with_batches(planned: Plan, provider: Provider, said: argparse.Namespace) -> Plan:
    if provider.name not in _HAVE_BATCHES:
        return planned
    asked = getattr(said, "deadline", None)
    deadline_s = None if asked is None else parse_text(_DEADLINE, asked, said_by="--deadline")
    return planned.with_batches(deadline_s)


def work_of(subject: Subject, said: argparse.Namespace, provider: Provider) -> Work:
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


def limits_known(provider: Provider, tier: str | None, environ: Mapping[str, str]) -> dict[str, Limits]:
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
