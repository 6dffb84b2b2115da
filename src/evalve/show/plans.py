"""`evalve plan`: what a run will take, and how to run it under which limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from evalve.show import figures
from evalve.show.tables import Column, table, visible

HERE = "here"
"""The name of the limits that hold on this machine."""


class WorkLike(Protocol):
    """What one evaluation will ask for; tokens, seconds and dollars per call."""

    @property
    def label(self) -> str: ...
    @property
    def samples(self) -> int: ...
    @property
    def repeat(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def calls_per_sample(self) -> float: ...
    @property
    def input_tokens(self) -> float | None: ...
    @property
    def output_tokens(self) -> float | None: ...
    @property
    def latency_s(self) -> float | None: ...
    @property
    def cost_usd(self) -> float | None: ...
    @property
    def source(self) -> str: ...

    def total(self, per_call: float | None) -> float | None: ...


class ScopeLike(Protocol):
    """How the run goes under one set of limits."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def per_minute(self) -> Mapping[Any, float]: ...
    @property
    def duration_s(self) -> float: ...
    @property
    def binding(self) -> str: ...
    @property
    def used(self) -> Mapping[Any, float]: ...
    @property
    def calls_per_minute(self) -> float | None: ...
    @property
    def calls_at_once(self) -> float | None: ...
    @property
    def max_concurrency(self) -> int | None: ...
    @property
    def throttle_s(self) -> float: ...


class BatchLike(Protocol):
    """What the run takes in batches."""

    @property
    def rounds(self) -> int: ...
    @property
    def batch_usd(self) -> float | None: ...
    @property
    def typical_s(self) -> float: ...
    @property
    def longest_s(self) -> float: ...


class ChoiceLike(Protocol):
    """What `--batch=auto` would choose."""

    @property
    def in_batches(self) -> bool: ...
    @property
    def reason(self) -> str: ...


class PlanLike(Protocol):
    """What a run takes in all."""

    @property
    def works(self) -> Sequence[WorkLike]: ...
    @property
    def samples(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def input_tokens(self) -> float | None: ...
    @property
    def output_tokens(self) -> float | None: ...
    @property
    def cost_usd(self) -> float | None: ...
    @property
    def latency_s(self) -> float | None: ...
    @property
    def one_by_one_s(self) -> float | None: ...
    @property
    def scopes(self) -> Sequence[ScopeLike]: ...
    @property
    def batch(self) -> BatchLike | None: ...
    @property
    def choice(self) -> ChoiceLike | None: ...


def plan_text(plan: PlanLike, *, model: str | None, width: int | None) -> Iterator[str]:
    yield from figures_text(plan, width=width)
    for note in plan_notes(plan, model):
        yield from note.splitlines()


def figures_text(plan: PlanLike, *, width: int | None) -> Iterator[str]:
    """Without the notes, which are the same for most plans that stand below each other."""
    yield from _works(plan, width)
    if plan.one_by_one_s is not None:
        mean = f"{figures.duration(plan.latency_s or 0.0)} each"
        yield f"one call at a time, {mean}: {figures.duration(plan.one_by_one_s)}"
    if plan.scopes:
        yield ""
        yield from _scopes(plan, width)
        for scope in plan.scopes:
            if scope.name == HERE:
                yield visible(f"{HERE}: {_limits(scope)} ({scope.source})")
    yield ""
    yield from _batch_lines(plan)


def _batch_lines(plan: PlanLike) -> Iterator[str]:
    """The other way to run it: `--batch`."""
    batch = plan.batch
    if batch is None:
        return
    cost = "half the price" if batch.batch_usd is None else f"{batch.batch_usd:.4f} USD (half)"
    rounds = "1 round" if batch.rounds == 1 else f"{batch.rounds} rounds"
    yield (
        f"--batch   {cost}, {rounds} of batches: mostly within {figures.duration(batch.typical_s)},"
        f" at most {figures.duration(batch.longest_s)}"
    )
    if plan.choice is not None:
        way = "in batches" if plan.choice.in_batches else "live"
        yield visible(f"auto      {way}: {plan.choice.reason}")


def _works(plan: PlanLike, width: int | None) -> list[str]:
    columns = [
        Column("evaluation"),
        Column("samples", align="right"),
        Column("calls", align="right"),
        Column("input tokens", align="right"),
        Column("output tokens", align="right"),
        Column("cost", align="right"),
        Column("figures from", flexible=True, minimum=21),
    ]
    rows = [
        [
            work.label,
            f"{work.samples:,}" + (f" × {work.repeat}" if work.repeat > 1 else ""),
            f"{work.calls:,}",
            _count(work.total(work.input_tokens)),
            _count(work.total(work.output_tokens)),
            _usd(work.total(work.cost_usd)),
            work.source,
        ]
        for work in plan.works
    ]
    if len(rows) > 1:
        in_all = [f"{plan.attempts:,}", f"{plan.calls:,}", _count(plan.input_tokens)]
        rows.append(["in all", *in_all, _count(plan.output_tokens), _usd(plan.cost_usd), ""])
    return table(columns, rows, width=width)


def _scopes(plan: PlanLike, width: int | None) -> list[str]:
    columns = [
        Column("limits"),
        Column("duration", align="right"),
        Column("held by"),
        Column("calls/min", align="right"),
        Column("at once", align="right"),
        Column("concurrency", align="right"),
        Column("throttle", align="right"),
    ]
    at_least = "≥ " if _lacks_tokens(plan) else ""
    rows = [
        [
            scope.name,
            at_least + figures.duration(scope.duration_s),
            _held_by(scope) or ("–" if plan.latency_s is None else "latency"),
            "–" if scope.calls_per_minute is None else _count(scope.calls_per_minute),
            "–" if scope.calls_at_once is None else _at_once(scope.calls_at_once),
            "auto" if scope.max_concurrency is None else str(scope.max_concurrency),
            f"{scope.throttle_s:g} s" if scope.throttle_s else "0",
        ]
        for scope in plan.scopes
    ]
    return table(columns, rows, width=width)


def _held_by(scope: ScopeLike) -> str:
    share = scope.used.get(scope.binding)
    return _named(scope.binding) + (f" {share:.0%}" if share is not None else "")


def _limits(scope: ScopeLike) -> str:
    rates = [f"{_count(rate)} {_named(name)}" for name, rate in scope.per_minute.items()]
    return f"{', '.join(rates)} a minute" if rates else "concurrency"


def _named(dimension: str) -> str:
    """As the tables above name input and output tokens, `tokens` alone would leave open which."""
    return "combined tokens" if dimension == "tokens" else dimension.replace("_", " ")


def plan_notes(plan: PlanLike, model: str | None) -> Iterator[str]:
    """What the figures mean, and what would make them better. Some are of several lines."""
    if plan.scopes:
        yield (
            "at once: calls in flight that the limits can use, rate × latency. Any number of processes is\n"
            "safe (pytest -n), for they share one budget; what is more than this only waits.\n"
            "concurrency, throttle: what to say as --max-concurrency and --throttle, where a sample's calls\n"
            "follow each other. Nothing is taken to be answered from the cache."
        )
    if _lacks_tokens(plan):
        yield (
            "Tokens per call are not known, so durations count requests alone. Say --input-tokens and\n"
            "--output-tokens, or run with --samples 5 first and plan again: the records then tell."
        )
    if plan.latency_s is None:
        yield "Latency is not known: say --latency-s to learn how many calls at once the limits can use."
    if model is None and not plan.scopes:
        yield "Which model will be called is not known here, and so neither its tiers nor its price."
    elif model is None:
        yield (
            "No model was named: these are Anthropic's tiers. --model shows those of its provider, its\n"
            "price and the limits that hold here."
        )
    elif all(scope.name != HERE for scope in plan.scopes):
        yield visible(
            f"No limits of {model} are configured or learnt here yet: its first answer will state them."
        )


def _lacks_tokens(plan: PlanLike) -> bool:
    return plan.input_tokens is None or plan.output_tokens is None


def _count(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.0f}"


def _at_once(amount: float) -> str:
    return f"{amount:.1f}" if amount < 9.95 else f"{amount:,.0f}"


def _usd(amount: float | None) -> str:
    if amount is None:
        return "unknown"
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.3g}"


def plan_json(plan: PlanLike, *, model: str | None) -> str:
    return json.dumps(
        {
            "model": model,
            "samples": plan.samples,
            "attempts": plan.attempts,
            "calls": plan.calls,
            "input_tokens": plan.input_tokens,
            "output_tokens": plan.output_tokens,
            "cost_usd": plan.cost_usd,
            "latency_s": plan.latency_s,
            "one_by_one_s": plan.one_by_one_s,
            "evaluations": [_work(work) for work in plan.works],
            "limits": [_scope(scope) for scope in plan.scopes],
            "batch": _batch(plan),
        },
        indent=2,
    )


def _batch(plan: PlanLike) -> dict[str, Any] | None:
    batch, choice = plan.batch, plan.choice
    if batch is None or choice is None:
        return None
    return {
        "rounds": batch.rounds,
        "cost_usd": batch.batch_usd,
        "typical_s": batch.typical_s,
        "longest_s": batch.longest_s,
        "auto": "batch" if choice.in_batches else "live",
        "reason": choice.reason,
    }


def _work(work: WorkLike) -> dict[str, Any]:
    return {
        "evaluation": work.label,
        "samples": work.samples,
        "repeat": work.repeat,
        "calls": work.calls,
        "calls_per_sample": work.calls_per_sample,
        "input_tokens_per_call": work.input_tokens,
        "output_tokens_per_call": work.output_tokens,
        "latency_s": work.latency_s,
        "cost_usd_per_call": work.cost_usd,
        "source": work.source,
    }


def _scope(scope: ScopeLike) -> dict[str, Any]:
    return {
        "name": scope.name,
        "source": scope.source,
        "per_minute": dict(scope.per_minute),
        "duration_s": scope.duration_s,
        "binding": scope.binding,
        "used": dict(scope.used),
        "calls_per_minute": scope.calls_per_minute,
        "calls_at_once": scope.calls_at_once,
        "max_concurrency": scope.max_concurrency,
        "throttle_s": scope.throttle_s,
    }
