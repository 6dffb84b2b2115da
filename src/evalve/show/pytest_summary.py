"""What pytest tells about evaluations: why one fails, its JUnit properties, the summary at the end."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from evalve.contracts import EvaluationInfo, EvaluationSpec, Store
from evalve.records import Record
from evalve.show import figures
from evalve.show.finding import labels
from evalve.show.frames import own_frames, own_place
from evalve.show.overview import metric_text
from evalve.show.tables import shortened, visible
from evalve.tallies import MetricValue

NO_ROWS = "there were no rows, so nothing was evaluated"
_FAILURES_SHOWN = 3
_REASONS_SHOWN = 3
_TRACEBACK_LINES = 30

Warned = tuple[str, str, int]
"""The kind of a warning, the first one's text, and how many there were."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the summary says about one evaluation; plain values, so that it travels between processes."""

    name: str
    key: str
    experiment: str
    done: int
    failed: int
    total: int | None
    ran: int
    """Samples that ran now; the others were done before."""
    wall_s: float
    working_s: float
    metrics: list[dict[str, Any]]
    problems: list[str]
    interrupted: bool
    stop_reason: str = ""
    """Why it was stopped, where it was not a person who did."""
    calls: dict[str, float] = field(default_factory=dict)
    """What calls to models came to in this run; empty without any."""
    storage: str | None = None
    """Where `evalve show` must be told to look; `None` where it finds the records by itself."""
    broken: bool = False
    """Whether it broke off, for example because its dataset did."""
    left_out: int = 0
    """Recorded samples that are no longer in the dataset."""
    failures: dict[str, int] = field(default_factory=dict)
    """How many failed, by failure class."""
    skipped: int = 0
    """Samples whose function called `pytest.skip`."""
    skip_reasons: dict[str, int] = field(default_factory=dict)
    """How many were skipped for what; the most frequent reasons only."""
    rows_changed: int = 0
    """Rows with another content than what was recorded under their ids."""
    asked_for: str = ""
    """`the first 2 of 4 rows`, where not all were asked for."""

    @classmethod
    def about(
        cls,
        info: EvaluationInfo,
        metrics: Sequence[MetricValue],
        *,
        ran: int,
        problems: Sequence[str],
        interrupted: bool,
        stop_reason: str = "",
        calls: Mapping[str, float] | None = None,
        storage: str | None = None,
        rows_changed: int = 0,
        skip_reasons: Mapping[str, int] | None = None,
        asked_for: str = "",
    ) -> Told:
        return cls(
            name=info.spec.name,
            key=info.spec.key,
            experiment=info.spec.experiment,
            done=info.done,
            failed=info.failed,
            total=info.total,
            ran=ran,
            wall_s=info.wall_s,
            working_s=info.working_s,
            metrics=[metric.to_plain() for metric in metrics],
            problems=list(problems),
            interrupted=interrupted,
            stop_reason=stop_reason,
            calls=dict(calls or {}),
            storage=storage,
            left_out=info.left_out,
            failures=dict(info.failures),
            skipped=info.skipped,
            skip_reasons=dict(islice((skip_reasons or {}).items(), _REASONS_SHOWN)),
            rows_changed=rows_changed,
            asked_for=asked_for,
        )

    @classmethod
    def about_broken(cls, spec: EvaluationSpec, info: EvaluationInfo | None, reason: str) -> Told:
        """One that broke off; `info` is what is stored of it, where that can be read."""
        return cls(
            name=spec.name,
            key=spec.key,
            experiment=spec.experiment,
            done=info.done if info else 0,
            failed=info.failed if info else 0,
            total=info.total if info else None,
            ran=0,
            wall_s=info.wall_s if info else 0.0,
            working_s=info.working_s if info else 0.0,
            metrics=[],
            problems=[shortened(reason.partition("\n")[0].rstrip(":"), 300)],
            interrupted=False,
            broken=True,
            failures=dict(info.failures) if info else {},
            skipped=info.skipped if info else 0,
        )

    @property
    def is_empty(self) -> bool:
        """Whether it ended without a single sample."""
        return not (self.skipped or self._has_more_than_skips)

    @property
    def is_skipped(self) -> bool:
        """Whether it ended, and every sample was skipped."""
        return bool(self.skipped) and not self._has_more_than_skips

    @property
    def _has_more_than_skips(self) -> bool:
        return bool(self.done or self.failed or self.interrupted or self.stop_reason or self.broken)

    @property
    def was_complete(self) -> bool:
        """Whether everything was done before."""
        return self.ran == 0 and self.done + self.skipped > 0 and not self.failed and not self.broken

    def to_plain(self) -> dict[str, Any]:
        """Its own values, not copies: what is inside them is plain already."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def properties(told: Told) -> Iterator[tuple[str, object]]:
    """JUnit properties of an evaluation's item."""
    yield "evalve.experiment", told.experiment
    yield "evalve.samples", told.done + told.failed + told.skipped
    yield "evalve.failed", told.failed
    for failure_class, count in told.failures.items():
        yield f"evalve.failed.{failure_class}", count
    yield "evalve.skipped", told.skipped
    for metric in told.metrics:
        name = f"{metric['evaluator']}.{metric['metric']}"
        if metric["value"] is not None:
            yield name, metric["value"]
        if metric["low"] is not None:
            yield f"{name}.low", metric["low"]
            yield f"{name}.high", metric["high"]


def failure_text(told: Told, info: EvaluationInfo, store: Store) -> str:
    """Why an evaluation fails, with the first samples that broke and where to look further."""
    lines = [f"{told.name}: {visible(problem)}" for problem in told.problems]
    if told.failed:
        shown = list(islice(store.records(info, status="failed"), _FAILURES_SHOWN))
        lines += [_failed_sample(record) for record in shown]
        if told.failed > _FAILURES_SHOWN:
            lines.append(f"  … and {told.failed - _FAILURES_SHOWN} more")
        lines += _first_traceback(shown)
        lines += _see(told.experiment, [told.storage], "--errors")
    return "\n".join(lines)


def _failed_sample(record: Record) -> str:
    """`  sample 3 (code): ValueError: no digits (eval_math.py:12)`."""
    reason = shortened(visible(str(record.failure)), 300)
    whose = f" ({record.failure_class})" if record.failure_class else ""
    place = own_place(record.failure.traceback) if record.failure else None
    return f"  sample {visible(record.sample_id)}{whose}: {reason}" + (
        f" ({visible(place)})" if place else ""
    )


def _first_traceback(records: Sequence[Record]) -> Iterator[str]:
    """Of the first sample that has one, as far as it is in the person's own files."""
    for record in records:
        if record.failure is None or own_place(record.failure.traceback) is None:
            continue
        frames = own_frames(record.failure.traceback)
        left_out = ["…"] if len(frames) > _TRACEBACK_LINES else []
        yield ""
        yield f"  sample {visible(record.sample_id)}:"
        yield from (f"    {visible(line)}" for line in [*left_out, *frames[-_TRACEBACK_LINES:]])
        yield ""
        return


def summary_lines(
    told: Sequence[Mapping[str, Any]],
    *,
    experiment: str,
    all_told: bool,
    resume_command: str | None,
    storage: str | None = None,
) -> Iterator[str]:
    """The section at the end of a pytest run; with a command to go on where it was interrupted.

    `all_told` says whether every evaluation that was selected is there.
    """
    everything = [Told(**one) for one in told]
    for label, one in zip(labels([(one.name, one.key) for one in everything]), everything, strict=True):
        yield f"{visible(label)}  {_counts(one)}"
        for metric in map(MetricValue.from_plain, one.metrics):
            line = f"{metric.evaluator}  {metric.metric} {metric_text(metric)}  n={metric.observations}"
            yield f"  {visible(line)}"
        for who, made in figures.calls_by_role(one.calls):
            yield f"  {made}" if who == "calls" else f"  {who}: {made}"
        if one.rows_changed:
            yield f"  {figures.rows_changed(one.rows_changed)}"
        if one.left_out:
            yield f"  {figures.left_out(one.left_out)}"
        if one.stop_reason:
            yield f"  stopped: {visible(one.stop_reason)}"
        if one.is_empty:
            yield f"  {NO_ROWS}"
        if one.skipped:
            yield f"  {_skipped(one)}"
        for problem in one.problems if not one.interrupted else ():
            yield f"  not passed: {visible(problem)}"
    if resume_command is not None:
        yield f"interrupted; what was done is saved. To go on: {resume_command}"
    elif all_told and all(one.was_complete for one in everything):
        what = "has what was asked for" if any(one.asked_for for one in everything) else "is complete"
        yield f"experiment {experiment!r} {what}: nothing was left to run; --fresh starts it over"
    yield from _see(experiment, [one.storage for one in everything] or [storage])


def _see(experiment: str, storages: Sequence[str | None], *options: str) -> Iterator[str]:
    """A command for each storage; none for one in memory, of which nothing remains."""
    for storage in dict.fromkeys(storages):
        if storage is None or not storage.startswith("memory:"):
            yield f"see: {show_command(experiment, storage, *options)}"


def show_command(experiment: str, storage: str | None, *options: str) -> str:
    """As it has to be typed: quoted for a shell, a name that begins with `-` after `--`."""
    words = [*(["--storage", storage] if storage is not None else []), *options]
    named = [*words, "--", experiment] if experiment.startswith("-") else [experiment, *words]
    return shlex.join(["evalve", "show", *named])


def skip_text(told: Told) -> str:
    """Why pytest reports an evaluation as skipped."""
    if told.is_empty:
        return f"{told.name}: {NO_ROWS}"
    every = "the only sample was" if told.skipped == 1 else f"all {told.skipped} samples were"
    reasons = ", ".join(told.skip_reasons)
    return visible(f"{told.name}: {every} skipped: {shortened(reasons, 300)}")


def _skipped(one: Told) -> str:
    """`3 skipped: no gpu 2, no network 1`."""
    reasons = ", ".join(f"{shortened(reason, 100)} {count}" for reason, count in one.skip_reasons.items())
    more = ", …" if sum(one.skip_reasons.values()) < one.skipped else ""
    return visible(f"{one.skipped} skipped: {reasons}{more}" if reasons else f"{one.skipped} skipped")


def warning_lines(warned: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Each kind once, whichever processes it came from."""
    first: dict[str, str] = {}
    count: dict[str, int] = {}
    for kind, text, times in warned:
        first.setdefault(kind, text)
        count[kind] = count.get(kind, 0) + times
    for kind, text in first.items():
        more = f" (and {count[kind] - 1} more of this kind)" if count[kind] > 1 else ""
        yield f"warning: {visible(text)}{more}"


def _counts(one: Told) -> str:
    """`37/40 done, 2 failed (provider), 1 skipped, 1.2 s (×8.1)`."""
    asked_for = f" of {one.asked_for}" if one.asked_for else ""
    parts = [f"{figures.out_of(one.done, one.total)} done{asked_for}"]
    parts += figures.failed_and_skipped(one.failed, one.failures, one.skipped)
    before = one.done + one.failed + one.skipped - one.ran
    if before > 0 and not one.broken:
        parts.append(f"{before} of them before")
    if one.wall_s > 0:
        parts.append(f"{figures.duration(one.wall_s)} (×{one.working_s / one.wall_s:.1f})")
    return ", ".join(parts)
