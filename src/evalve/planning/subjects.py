"""What `evalve plan` is asked about: the evaluations, how many samples, and what their calls took before."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from evalve import wiring
from evalve.contracts import EvaluationInfo, Store
from evalve.errors import NotFound, OptionError
from evalve.gate.batches.shapes import PRICE_SHARE
from evalve.gate.past_calls import PastCalls, past_calls
from evalve.options import Options
from evalve.planning.experiments import Outlook, Share
from evalve.plugin.collect import Collected, collect
from evalve.show.finding import Labelled, evaluations_of, experiment_named

OpenStore = Callable[[], AbstractContextManager[Store]]

MOST_RECORDS = 1_000
"""Records of an experiment that are looked at: more would change no mean that matters."""


@dataclass(frozen=True, slots=True)
class Past:
    """An earlier run of the evaluation."""

    calls: PastCalls
    source: str
    model: str | None
    samples: int


@dataclass(frozen=True, slots=True)
class Subject:
    """An evaluation, how much of it, and what is known of its calls."""

    label: str
    samples: int
    repeat: int
    past: Past | None
    calls_expected: float | None = None
    """Calls of a sample as its row tells, where nothing is recorded."""


def subjects_of(said: argparse.Namespace, settings: wiring.Settings, open_store: OpenStore) -> list[Subject]:
    """The evaluations of the file or experiment that was named."""
    if "::" in said.what or said.what.endswith(".py"):
        return _of_file(said, settings, open_store)
    return _of_experiment(said, open_store)


def _of_file(said: argparse.Namespace, settings: wiring.Settings, open_store: OpenStore) -> list[Subject]:
    collected = collect(said.what, model=said.model, folder=Path.cwd())
    try:
        with open_store() as store:
            pasts = [_past(store, one.key) for one in collected]
    except NotFound:
        pasts = [None for _ in collected]  # nothing was recorded here yet, which is no mistake
    return [
        _declared(one, settings.options_for(one.evaluation), past)
        for one, past in zip(collected, pasts, strict=True)
    ]


def _declared(one: Collected, options: Options, past: Past | None) -> Subject:
    return Subject(one.label, _samples(one, options, past), options.repeat or 1, past)


def _samples(one: Collected, options: Options, past: Past | None) -> int:
    rows = one.evaluation.dataset.count()
    known = [number for number in (rows, options.samples) if number is not None]
    if known:
        return min(known)
    if past is not None:
        return past.samples
    raise OptionError(
        f"{one.label}: only reading {one.evaluation.dataset.label} tells how many samples it has; "
        "say how many with --samples N"
    )


def _of_experiment(said: argparse.Namespace, open_store: OpenStore) -> list[Subject]:
    try:
        with open_store() as store:
            experiment = experiment_named(store, said.what).name
            subjects = [_recorded(store, one, said) for one in evaluations_of(store, experiment)]
    except NotFound:
        if (file := _file_meant(said.what)) is None:
            raise
        raise NotFound(f"no experiment {said.what!r}; did you mean the file {file!r}?") from None
    figures = (said.calls_per_sample, said.input_tokens, said.output_tokens)
    if all(subject.past is None for subject in subjects) and all(figure is None for figure in figures):
        raise NotFound(
            f"experiment {experiment!r} has nothing to plan from: none of its samples called a model "
            "through evalve; say --calls-per-sample, --input-tokens, --output-tokens and --latency-s"
        )
    return subjects


def _recorded(store: Store, one: Labelled, said: argparse.Namespace) -> Subject:
    samples, repeat = _size(store, one.info)
    return Subject(
        one.label,
        samples if said.samples is None else said.samples,
        repeat if said.repeat is None else said.repeat,
        _past(store, one.info.spec.key, first=one.info),
    )


def refuse_nothing(subjects: Sequence[Subject]) -> None:
    if not any(subject.samples for subject in subjects):
        labels = ", ".join(subject.label for subject in subjects)
        raise OptionError(f"there is nothing to plan: {labels} with 0 samples makes no calls")


def _file_meant(what: str) -> str | None:
    guesses = [f"{what}.py", f"eval_{what}.py"]
    return next((guess for guess in guesses if Path(guess).is_file()), None)


@dataclass(frozen=True, slots=True)
class Timed:
    """How long earlier samples of an evaluation took, and whether any of them called a model."""

    sample_s: float
    source: str
    made_calls: bool


def subjects_of_outlook(
    outlook: Outlook, said: argparse.Namespace, open_store: OpenStore, role: str = ""
) -> tuple[list[Subject], Timed | None]:
    """The evaluations of an experiment of the file that ask one model; of a pair, what one `role` asks."""
    pasts: list[Past | None] = [None for _ in outlook.shares]
    timed: Timed | None = None
    try:
        with open_store() as store:
            own = [_own(store, said.what, share.key) for share in outlook.shares]
            pasts = [
                _past(store, share.key, first, role) for share, first in zip(outlook.shares, own, strict=True)
            ]
            times = [
                _timed(store, share.key, first) for share, first in zip(outlook.shares, own, strict=True)
            ]
            timed = next((found for found in times if found is not None), None)
    except NotFound:
        pass  # nothing was recorded here yet, which is no mistake
    subjects = [
        Subject(
            f"{share.label} {role}".rstrip(),
            _count_of(share, past, said),
            outlook.repeat,
            past,
            outlook.calls_per_sample(role),
        )
        for share, past in zip(outlook.shares, pasts, strict=True)
    ]
    return subjects, timed


def _count_of(share: Share, past: Past | None, said: argparse.Namespace) -> int:
    known = share.samples if share.samples is not None else past.samples if past else said.samples
    if known is None:
        raise OptionError(
            f"{share.label}: only reading its dataset tells how many samples it has; say --samples N"
        )
    return known


def _own(store: Store, experiment: str, key: str) -> EvaluationInfo | None:
    """What the experiment itself has recorded."""
    if all(one.name != experiment for one in store.experiments()):
        return None
    return next((info for info in store.evaluations(experiment) if info.spec.key == key), None)


def _timed(store: Store, key: str, first: EvaluationInfo | None) -> Timed | None:
    for info in (info for info in _candidates(store, key, first) if info.spec.key == key):
        records = list(islice(store.records(info, status="done"), MOST_RECORDS))
        if records:
            mean_s = sum(record.working_s for record in records) / len(records)
            source = f"{len(records)} record{'' if len(records) == 1 else 's'} of {info.spec.experiment}"
            return Timed(mean_s, source, any(record.calls for record in records))
    return None


# -- what is known of it


def _past(store: Store, key: str, first: EvaluationInfo | None = None, role: str = "") -> Past | None:
    """The newest run of this evaluation whose calls say what they took; another variant's, if need be."""
    found: Past | None = None
    for info in _candidates(store, key, first):
        calls = past_calls(islice(store.records(info, status="done"), MOST_RECORDS), role)
        if calls is None:
            continue
        calls = _as_if_live(calls, store, info)
        samples, _ = _size(store, info)
        past = Past(calls, _source(info, calls), _model_of(store, info), samples)
        if calls.input_tokens is not None:
            return past
        found = found or past  # everything came from the cache
    return found


def _as_if_live(calls: PastCalls, store: Store, info: EvaluationInfo) -> PastCalls:
    """Calls of a batch cost half, and say nothing about how long a call takes."""
    runs = store.runs(info.id)
    if not runs or runs[-1].options.get("batch") != "on":
        return calls
    cost_usd = None if calls.cost_usd is None else calls.cost_usd / PRICE_SHARE
    return replace(calls, cost_usd=cost_usd, latency_s=None)


def _candidates(store: Store, key: str, first: EvaluationInfo | None) -> Iterator[EvaluationInfo]:
    if first is not None:
        yield first
    infos = [info for each in store.experiments() for info in store.evaluations(each.name)]
    others = [info for info in infos if first is None or info.id != first.id]
    yield from (info for info in others if info.spec.key == key)
    base = key.partition("[")[0]
    yield from (info for info in others if info.spec.key != key and info.spec.key.partition("[")[0] == base)


def _size(store: Store, info: EvaluationInfo) -> tuple[int, int]:
    """How many samples an experiment's evaluation has, and how often each was repeated."""
    runs = store.runs(info.id)
    repeat = int(runs[-1].options.get("repeat") or 1) if runs else 1
    return math.ceil((info.total or info.done + info.failed + info.skipped) / repeat), repeat


def _model_of(store: Store, info: EvaluationInfo) -> str | None:
    runs = store.runs(info.id)
    models = runs[-1].options.get("model") if runs else None
    return str(models[0]) if isinstance(models, list) and len(models) == 1 else None


def _source(info: EvaluationInfo, calls: PastCalls) -> str:
    number = f"{calls.records} record" + ("" if calls.records == 1 else "s")
    return f"{number} of {info.spec.experiment}"
