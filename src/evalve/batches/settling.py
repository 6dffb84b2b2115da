"""`--batch=auto`: what a run will take, from its dataset and earlier records, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from evalve import gating
from evalve.contracts import EvaluationInfo, Runnable, Store
from evalve.errors import EvalveError
from evalve.experiments.file.configuration import read_configuration
from evalve.gate.batches.choosing import Prospect, choose
from evalve.gate.batches.shapes import PRICE_SHARE
from evalve.gate.doors.naming import target_of
from evalve.gate.doors.wires import wire_of
from evalve.gate.messages import Request
from evalve.gate.past_calls import PastCalls, past_calls

_MOST_RECORDS = 1_000
_USUAL_WINDOW = 10


def settled(
    evaluation: Runnable, store: Store, environ: Mapping[str, str], tell: Callable[[str], None]
) -> Runnable:
    """The evaluation with `auto` decided; the reason is told."""
    asked = evaluation.options
    if not evaluation.is_async:
        return _decided(evaluation, "off", "a sync function cannot wait for a batch", tell)
    if gating.cache_mode(asked, environ) != "on":
        return _decided(evaluation, "off", "batches need --cache on", tell)
    rows = evaluation.rows()
    evaluation = replace(evaluation, rows=lambda: rows)
    choice = choose(_prospect(evaluation, getattr(rows, "counted", rows.size)(), store, environ))
    return _decided(evaluation, "on" if choice.in_batches else "off", choice.reason, tell)


def _decided(evaluation: Runnable, batch: str, reason: str, tell: Callable[[str], None]) -> Runnable:
    tell(f"{evaluation.spec.name} runs {'in batches' if batch == 'on' else 'live'}: {reason}")
    return replace(evaluation, options=replace(evaluation.options, batch=batch))  # type: ignore[arg-type]


def _prospect(
    evaluation: Runnable, samples: int | None, store: Store, environ: Mapping[str, str]
) -> Prospect:
    asked = evaluation.options
    if samples is None:
        return Prospect(None, deadline_s=asked.deadline_s)
    own, past, was_batched = _past(evaluation, store)
    done = 0 if own is None or asked.fresh else own.done
    per_sample = past.calls_per_sample if past is not None else 1.0
    calls = math.ceil(max(0, samples * (asked.repeat or 1) - done) * per_sample)
    usd = past.cost_usd if past is not None else None
    if usd is not None and was_batched:
        usd /= PRICE_SHARE
    latency_s = past.latency_s if past is not None else None
    window = asked.max_concurrency if isinstance(asked.max_concurrency, int) else _USUAL_WINDOW
    times_s = [] if latency_s is None or was_batched else [calls * latency_s / window]
    if (per_minute := _calls_per_minute(evaluation, environ)) is not None:
        times_s.append(calls / per_minute * 60)
    return Prospect(
        calls=calls,
        rounds=max(1, round(per_sample)),
        live_s=max(times_s, default=None),
        live_usd=None if usd is None else usd * calls,
        deadline_s=asked.deadline_s,
    )


def _past(evaluation: Runnable, store: Store) -> tuple[EvaluationInfo | None, PastCalls | None, bool]:
    """What this experiment has recorded; what calls took in any that has this evaluation; if in batches."""
    spec, own, found = evaluation.spec, None, None
    was_batched = False
    for experiment in store.experiments():
        for info in store.evaluations(experiment.name):
            if info.spec.key != spec.key:
                continue
            if experiment.name == spec.experiment:
                own = info
            past = past_calls(islice(store.records(info, status="done"), _MOST_RECORDS))
            if past is not None and (found is None or found.cost_usd is None):
                runs = store.runs(info.id)
                was_batched = bool(runs) and runs[-1].options.get("batch") == "on"
                found = past
    return own, found, was_batched


def _calls_per_minute(evaluation: Runnable, environ: Mapping[str, str]) -> float | None:
    """What is configured for the model, where one is named."""
    models = evaluation.options.model or ()
    if len(models) != 1:
        return None
    try:
        target = target_of(models[0], environ=environ)
        wire = wire_of(target.provider)
        body = f'{{"model": "{target.model}", "messages": []}}'.encode()
        request = Request("POST", wire.url(target.base_url), wire.headers(target.api_key), body)
        call = wire.dialect.read(request)
        if call is None:
            return None
        limits = gating.limits_reader(read_configuration(Path.cwd()), environ)(call)
    except EvalveError:
        return None  # told when the first call is made
    limit = limits.by_dimension.get("requests")
    return None if limit is None else limit.per_minute
