"""An evaluation's run, from the first row to the summary. Start reading here.

plan (what the store lacks) → turns (a strategy lends slots) → sample (call, retry, record) → summary
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from evalve import concurrency, options
from evalve.clock import utc_text
from evalve.contracts import (
    CLEAR,
    NO_CALLS,
    WAITS_FOR_LIMITS,
    CallCounts,
    CallsView,
    Engine,
    EngineFor,
    EvaluationInfo,
    EvaluationSpec,
    Host,
    HostPressure,
    Progress,
    Rows,
    RunInfo,
    Runnable,
    RunningStore,
    Store,
    Strategy,
    Tally,
    all_roles,
)
from evalve.errors import DatasetError, ExperimentChanged, Locked
from evalve.jsontext import digest
from evalve.runner import usage
from evalve.runner.asking import made_of
from evalve.runner.commits import Commits
from evalve.runner.interruption import interruptible
from evalve.runner.lanes import keeps_state, lane_of
from evalve.runner.leaving import belongs_to_a_run, runs_on_this_loop
from evalve.runner.loans import lenders_of_run
from evalve.runner.plan import Plan
from evalve.runner.replaying import outdated_drafts, replay_in_words
from evalve.runner.retries import retry_policy
from evalve.runner.sample import SampleRunner, SampleSettings
from evalve.runner.telling import agents_in_words, telling_progress
from evalve.runner.threads import carry_samples_into_threads
from evalve.runner.turns import LEAVE_AFTER_S, Turns
from evalve.runner.verdict import problems
from evalve.runner.watching import watching_for_blocking
from evalve.summary import Summary
from evalve.tallies import MetricValue
from evalve.traces import Trace

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of one evaluation came to."""

    info: EvaluationInfo
    metrics: list[MetricValue]
    run: RunInfo
    ran: int
    """Samples that ran now; the others were done before."""
    interrupted: bool
    """Whether it was told to stop; the run is complete all the same if nothing was left to start."""
    stop_reason: str = ""
    """Why it was stopped, where it was not a person who did."""
    problems: list[str] = field(default_factory=list)
    """Why the evaluation does not pass; empty where it does."""
    first_error: BaseException | None = None
    """What the first sample that failed raised, for a debugger to stop at."""


async def run_evaluation(
    evaluation: Runnable,
    *,
    store: Store,
    progress: Progress,
    engine_for: EngineFor,
    calls: CallsView | None = None,
    host: Host | None = None,
    git_commit: str | None = None,
    secrets: Sequence[str] = (),
    give_up: Callable[[], None] | None = None,
) -> Outcome:
    """Run what is missing, record it, and judge the whole. No trace shows one of the secrets.

    `give_up` ends the process, in whatever thread, where a run that was cancelled cannot be ended.
    """
    carry_samples_into_threads()
    belongs_to_a_run()
    spec, asked = evaluation.spec, evaluation.options
    before = await store.evaluation(spec.experiment, spec.key)
    if before is not None and not asked.fresh and not asked.accept_changes:
        _refuse_changes(spec, before, tell=progress.note)
    strategy = _with_room_for_files(_strategy(evaluation), host, tell=progress.note)
    async with _opened(evaluation.rows) as rows:
        with closing(engine_for(evaluation, strategy)) as engine:
            await engine.start()
            if asked.fresh:  # not before whoever may refuse to run it
                store.forget(spec.experiment, spec.key)
                before = None
            same = before if before is not None and before.spec == spec else None
            evaluation_id = same.id if same is not None else await store.open_evaluation(spec)
            journey = _Journey(
                evaluation, evaluation_id, rows, store, strategy, engine, calls, host, git_commit, secrets
            )
            journey.plan.is_new = before is None
            if same is not None and await _has_nothing_left(journey, store, same):
                return await _judged(evaluation, journey, store, same, begun=False)
            tally = journey.tally
            if before is not None:
                if asked.accept_changes or before.spec.fingerprint != spec.fingerprint:
                    await store.forget_deaths(evaluation_id)  # what killed a process may be mended
                journey.plan.deaths = await store.deaths(evaluation_id)
            async with lenders_of_run(
                evaluation.lenders, journey.max_concurrency, partial(_note, tally, progress)
            ):
                await store.begin_run(journey.run, total=journey.plan.total)
                if calls is not None:
                    calls.note_spending(store.noting_spending(journey.run))
                progress.started(tally)
                try:
                    with telling_progress(store, journey.run, tally):
                        await journey.travel(progress, partial(_saved, journey, store, progress, give_up))
                except BaseException:
                    await store.end_run(journey.ended("broken"), total=journey.plan.total, metrics=None)
                    raise
                finally:
                    journey.in_flight.close()
                    progress.finished(tally)
        await _leave_out_removed(journey, store)
        if journey.plan.deaths and not journey.samples.refused and not journey.turns.stopping:
            await store.forget_deaths(evaluation_id)
    return await _judged(evaluation, journey, store, before)


async def _has_nothing_left(journey: _Journey, store: RunningStore, before: EvaluationInfo) -> bool:
    """Whether a small dataset in memory is recorded as it is, by a run that is complete.

    Then no run is begun, and none is recorded: a project of a thousand evaluations that are done has only
    to read them.
    """
    plan, rows = journey.plan, journey.rows
    if before.last_run != "complete" or before.failed or not plan.reads_at_once:
        return False
    with suppress(DatasetError):  # a row that cannot be used: the run comes to it too, and tells
        await plan.refill(1)
    journey.tally.total, journey.tally.skipped = plan.total, plan.skipped
    return (
        plan.is_over
        and not plan.has_moved
        and plan.total == before.total
        and plan.skipped == sum(await store.counts(before.id))
        and rows.size() == plan.rows_read
    )


class _Journey:
    """The parts of one run, put together."""

    def __init__(
        self,
        evaluation: Runnable,
        evaluation_id: int,
        rows: Rows,
        store: RunningStore,
        strategy: Strategy,
        engine: Engine,
        calls: CallsView | None,
        host: Host | None,
        git_commit: str | None,
        secrets: Sequence[str],
    ) -> None:
        asked = evaluation.options
        self.max_concurrency: int | None = getattr(strategy, "max_concurrency", None)
        self._host = host
        self.tally = tally = Tally(
            evaluation.spec.experiment, evaluation.spec.name, started_s=time.monotonic()
        )
        if calls is not None:
            tally.held_by, tally.spent = calls.held_by, calls.spent
        self.rows = rows
        self.strategy = strategy
        self.engine = engine
        in_lanes = lane_of(evaluation)
        self.plan = Plan(
            rows,
            store,
            evaluation_id,
            key=evaluation.spec.key,
            repeat=asked.repeat or 1,
            longest_first=asked.order == "auto",
            scores_answers=evaluation.scores_answers,
            again=evaluation.runs_again,
            lane_of=in_lanes,
            whole_lanes=keeps_state(evaluation),
        )
        self.run = RunInfo(
            id=uuid.uuid4().hex[:12],
            evaluation_id=evaluation_id,
            started_at=utc_text(time.time()),
            ended_at=None,
            status="running",
            options=options.said(asked)
            | ({"variant": dict(evaluation.variant)} if evaluation.variant else {}),
            versions=usage.versions(),
            git_commit=git_commit,
            fingerprint={},
            report={},
        )
        self._evaluation = evaluation
        self._cpu_s = usage.cpu_s()
        self._calls = calls
        self._calls_before = calls.totals() if calls is not None else {}
        self._utilisation: list[dict[str, Any]] = []
        self._decisions_before = len(getattr(self.strategy, "history", ()))
        self._commits = Commits(store, tally)
        self.in_flight = store.in_flight(self.run)
        self.samples = SampleRunner(
            SampleSettings(
                experiment=evaluation.spec.experiment,
                evaluation=evaluation.spec.name,
                evaluation_key=evaluation.spec.key,
                evaluation_id=evaluation_id,
                run_id=self.run.id,
                timeout_s=asked.timeout_s,
                new_trace=None
                if asked.trace == "off"
                else partial(Trace, keep_file=store.keep_artefact, secrets=secrets),
                account=None if calls is None else calls.account,
                host=host,
                function=made_of(evaluation.spec.fingerprint),
                may_ask=asked.cache != "read",
                answered=partial(store.answered, evaluation_id) if evaluation.scores_answers else None,
            ),
            engine=self.engine,
            lenders=evaluation.lenders,
            retries=retry_policy(evaluation.retries),
            commits=self._commits,
            tally=tally,
            in_flight=self.in_flight,
        )
        tell_quiet = (lambda: "") if calls is None else calls.quiet
        self.turns = Turns(self.plan, self.samples.run, tally, owed=self._commits.owed, tell_quiet=tell_quiet)
        self._commits.on_commit, self._commits.on_error = self.turns.recheck, self._cannot_record
        if in_lanes is not None:
            self.plan.on_replay = self._replay

    async def travel(self, progress: Progress, give_up: Callable[[], None]) -> None:
        self.samples.tell = tell = partial(_note, self.tally, progress)
        if self.plan.run_again:
            tell(replay_in_words(self.tally.evaluation, self.plan.run_again))
        now = getattr(self.strategy, "concurrency", None)  # of an adaptive one
        self.tally.limit = now if isinstance(now, int) else self.max_concurrency
        watch = getattr(self.strategy, "watch", None)
        if watch is not None:
            watch(_Signals(self.tally, self._calls, self._host, usage.CpuOfAgents(self.tally)))
        with ExitStack() as stack:
            together = stack.enter_context(runs_on_this_loop())
            if self.engine.may_block_loop:
                name = self._evaluation.spec.name
                stack.enter_context(watching_for_blocking(self._evaluation.function, name, tell=tell))
            blocked = self.engine.occupies_loop
            under_way = partial(agents_in_words, self.tally)
            stack.enter_context(
                interruptible(self.turns, tell=tell, blocked=blocked, give_up=give_up, under_way=under_way)
            )
            try:
                await self.turns.run(self.strategy)
            finally:
                if left := self.turns.left_behind:
                    samples = "1 sample was" if left == 1 else f"{left} samples were"
                    tell(f"{samples} left behind: cancelled, and still running after {LEAVE_AFTER_S:.0f} s")
                left += self.samples.left_behind
                if (
                    left
                    or together.last_leaves
                    or self.turns.was_cancelled
                    or self.turns.is_reading
                    or "timeout" in self.tally.failures
                ):
                    await together.leave_the_rest()
        if self._calls is not None:
            self._utilisation = await self._calls.utilisation()

    def _cannot_record(self, error: BaseException) -> None:
        """What is under way ends, because its calls are paid for: their answers are kept, and by then there
        may be room for its record. Where another run has taken the experiment, that one pays for the same."""
        if isinstance(error, Locked):
            self.turns.fail(error)
        elif self.turns.end_with(error) and self.tally.in_flight:
            self.samples.tell(f"nothing more is started, and what is under way ends: {error}")

    def _replay(self) -> None:
        for draft in outdated_drafts(self.plan.outdated, self.run):
            self._commits.replace(draft)
        self.samples.tell(replay_in_words(self.tally.evaluation, self.plan.run_again))

    @property
    def first_error(self) -> BaseException | None:
        return self.samples.first_error

    def ended(self, status: str) -> RunInfo:
        function = self._evaluation.spec.fingerprint
        return replace(
            self.run,
            ended_at=utc_text(time.time()),
            status=status,
            fingerprint={
                "function": digest(function),
                "dataset": self.rows.fingerprint(),
                "rows": self.plan.rows_read,
                "is_whole": self.rows.is_whole(),
            },
            report=self._report(),
        )

    def _report(self) -> dict[str, Any]:
        tally = self.tally
        started_s, ended_s = self.samples.first_start_s, self._commits.last_commit_s
        return {
            "wall_s": ended_s - started_s if started_s is not None and ended_s is not None else 0.0,
            "ran": tally.done + tally.failed + tally.skipped_now,
            "skipped": self.plan.skipped,
            "failed": tally.failed,
            "failures": dict(tally.failures),
            "skipped_now": tally.skipped_now,
            "rows_changed": self.plan.rows_changed,
            "cpu_s": usage.cpu_s() - self._cpu_s,
            "peak_memory_bytes": usage.peak_memory_bytes(),
            "peak_in_flight": tally.peak_in_flight,
            "strategy": concurrency.name_of(self.strategy),
            "max_concurrency": self.max_concurrency,
            "decisions": list(getattr(self.strategy, "history", ()))[self._decisions_before :],
            "notes": list(tally.notes),
            "calls": self._calls_made(),
            **self._may_have_cost(),
            "utilisation": self._utilisation,
            **({} if tally.agent_totals is None else {"agents": asdict(tally.agent_totals)}),
        }

    def _may_have_cost(self) -> dict[str, float]:
        """Beside what calls came to: with those that were not answered, or did not say what they took."""
        usd = None if self._calls is None else self._calls.may_have_cost_usd()
        return {"may_have_cost_usd": usd} if usd else {}

    def _calls_made(self) -> dict[str, float]:
        """What the calls of this run came to; empty where no model was called."""
        now = self._calls.totals() if self._calls is not None else {}
        made = {name: value - self._calls_before.get(name, 0) for name, value in now.items()}
        return made if any(made.values()) else {}


@dataclass(frozen=True, slots=True)
class _Signals:
    """What `Adaptive` is told about the run, and who hears what it decides."""

    tally: Tally
    made: CallsView | None
    host: Host | None
    agents_cpu: usage.CpuOfAgents

    def held_back(self) -> int:
        return self.tally.waiting.get(WAITS_FOR_LIMITS, 0)

    def calls(self) -> CallCounts:
        if self.made is None:
            return NO_CALLS
        totals = all_roles(self.made.totals())
        refused = int(totals.get("refusals", 0))
        lost = int(totals.get("retries", 0)) - refused
        return CallCounts(int(totals.get("requests", 0)), lost, refused)

    def own_failures(self) -> int:
        return self.tally.own_failures

    def pressure(self) -> HostPressure:
        if self.host is None:
            return CLEAR
        return self.host.pressure(len(self.tally.agents), self.agents_cpu.cores_used())

    def decided(self, decision: Mapping[str, Any]) -> None:
        tally = self.tally
        tally.limit = decision["to"]
        tally.decided = f"{decision['from']} → {decision['to']}: {decision['reason']}"
        _LOG.info("%s: %s (%s)", tally.evaluation, tally.decided, decision["side"])


def _note(tally: Tally, progress: Progress, text: str) -> None:
    """Tell a person, now and in the record of the run."""
    tally.notes.append(text)
    progress.note(text)


def _strategy(evaluation: Runnable) -> Strategy:
    asked = evaluation.options
    return concurrency.choose(
        evaluation.strategy,
        is_async=evaluation.is_async,
        workers=concurrency.workers_for(asked),
        max_concurrency=asked.max_concurrency,
        throttle_s=asked.throttle_s,
    )


def _with_room_for_files(strategy: Strategy, host: Host | None, *, tell: Callable[[str], None]) -> Strategy:
    """The strategy, with as many samples at once as can have their files open."""
    at_once = getattr(strategy, "max_concurrency", None)
    if host is None or not isinstance(at_once, int):
        return strategy
    short = host.room_for_files(at_once)
    if short is None:
        return strategy
    fits, told = short
    tell(told)
    return concurrency.limited(strategy, fits)


@asynccontextmanager
async def _opened(open_rows: Callable[[], Rows]) -> AsyncIterator[Rows]:
    rows = open_rows()
    try:
        yield rows
    finally:
        closing_rows = asyncio.ensure_future(rows.close())
        belongs_to_a_run(closing_rows)  # a run beside this one may end meanwhile, and leave the rest
        await asyncio.shield(closing_rows)


def _saved(journey: _Journey, store: Store, progress: Progress, give_up: Callable[[], None] | None) -> None:
    """Save what there is, in a thread beside a loop that stands still, and give up."""
    if give_up is not None:
        with suppress(Exception):  # what is committed is safe, whatever becomes of the run's own line
            journey.in_flight.close()
            asyncio.run(store.end_run(journey.ended("interrupted"), total=journey.plan.total, metrics=None))
        progress.finished(journey.tally)
        give_up()


async def _leave_out_removed(journey: _Journey, store: RunningStore) -> None:
    """What is recorded of rows that the whole dataset no longer has stays, and does not count."""
    evaluation_id, rows, tally = journey.run.evaluation_id, journey.rows, journey.tally
    if journey.turns.stopping or not rows.is_whole() or journey.plan.is_new:
        return
    met = journey.plan.skipped + tally.done + tally.failed + tally.skipped_now
    if sum(await store.counts(evaluation_id)) == met:
        return  # the usual case, without a look at every id
    async for sample_ids in store.sample_ids(evaluation_id):
        if removed := rows.lacking(sample_ids):
            await store.leave_out(evaluation_id, removed)


async def _judged(
    evaluation: Runnable,
    journey: _Journey,
    store: RunningStore,
    before: EvaluationInfo | None,
    *,
    begun: bool = True,
) -> Outcome:
    evaluation_id = journey.run.evaluation_id
    metrics = await _metrics(store, evaluation_id, before)
    interrupted = journey.turns.stopping
    info = before
    if begun:
        total = journey.plan.total
        counts = await store.counts(evaluation_id)
        if total is not None:
            total = max(total, sum(counts))  # an earlier run may have gone further
        # what was in flight may have been the last
        is_complete = not interrupted or counts.done + counts.skipped == total
        run = journey.ended("complete" if is_complete else "interrupted")
        await store.end_run(run, total=total, metrics=[value.to_plain() for value in metrics])
        info = await store.evaluation(evaluation.spec.experiment, evaluation.spec.key)
    else:
        run = journey.ended("complete")
    assert info is not None
    return Outcome(
        info=info,
        metrics=metrics,
        run=run,
        ran=run.report["ran"],
        interrupted=interrupted,
        stop_reason=journey.turns.stop_reason,
        problems=problems(info, metrics, evaluation),
        first_error=journey.first_error,
    )


async def _metrics(
    store: RunningStore, evaluation_id: int, before: EvaluationInfo | None
) -> list[MetricValue]:
    summary, is_read = Summary(), False
    while not is_read:
        async for observations in store.scored(evaluation_id):
            summary.add(observations)
        is_read = not summary.begins_again()
    return summary.values(before.metrics if before is not None else ())


def _refuse_changes(spec: EvaluationSpec, before: EvaluationInfo, *, tell: Callable[[str], None]) -> None:
    """Stop where the stored samples came from another function than the one at hand."""
    if before.done + before.skipped == 0:
        return  # what failed runs again anyway
    if before.spec.fingerprint.get("method") != spec.fingerprint.get("method"):
        tell(
            f"experiment {spec.experiment!r} was recorded by another version of evalve:"
            f" whether {spec.name} has changed since cannot be told"
        )
        return  # this run records it anew
    changes = list(_changes(before.spec.fingerprint, spec.fingerprint))
    if changes:
        raise ExperimentChanged(
            f"{spec.name} has changed since the {before.done + before.skipped} samples of experiment "
            f"{spec.experiment!r} were recorded:\n\n" + "\n".join(changes) + "\n\n"
            "Use --fresh (fresh=True) to start the experiment over, --accept-changes (accept_changes=True) "
            "to go on with what is recorded, or another experiment's name."
        )


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for part in sorted({*before, *now}):
        old, new = before.get(part), now.get(part)
        if old == new:
            continue
        diff = difflib.unified_diff((old or "").splitlines(), (new or "").splitlines(), n=1, lineterm="")
        lines = [line for line in diff if not line.startswith(("---", "+++", "@@"))]
        shown = lines[:20] + ([f"… {len(lines) - 20} more lines"] if len(lines) > 20 else [])
        yield f"  {part}:\n" + "\n".join(f"    {line}" for line in shown)
