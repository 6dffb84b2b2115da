"""Where the rooms meet: the protocols that they fulfil for each other, and the context of a sample."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from evalve.options import Options, Threshold
from evalve.records import Artefact, FailureClass, Outcome, Record, Sample, Score, Status
from evalve.traces import Trace

T = TypeVar("T")

INSUFFICIENT = "insufficient: "
"""How the reason begins for which an evaluation does not pass because there is too little to say."""

Task = Callable[[], Awaitable[Any]]
"""A turn on a slot: a strategy awaits it once. It never raises."""


class Strategy(Protocol):
    """Decides how many tasks are in flight. What it yields is what the tasks returned."""

    def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]: ...


@dataclass(frozen=True, slots=True)
class EvaluationSpec:
    """What identifies an evaluation inside an experiment, and what it was made of."""

    experiment: str
    key: str
    """File, function and variant: `evals/eval_math.py::eval_math[gpt]`. Unique within an experiment."""
    name: str
    """What people see: `eval_math[gpt]`."""
    columns: tuple[str, ...] = ()
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """Source text by part: the function, its helpers, its constants."""


@dataclass(frozen=True, slots=True)
class EvaluationInfo:
    """A stored evaluation with its tallies."""

    id: int
    spec: EvaluationSpec
    total: int | None
    """How many samples (times repeats) it has; `None` while the dataset has not been read to its end."""
    done: int
    failed: int
    first_started_at: str | None
    last_ended_at: str | None
    wall_s: float
    """Sum over its runs of first start to last record: the time a person waited."""
    working_s: float
    metrics: Sequence[Mapping[str, Any]] = ()
    """The last computed value of every metric, for those whose function is not at hand."""
    left_out: int = 0
    """Recorded samples that are no longer in the dataset: kept, and not counted above."""
    skipped: int = 0
    """Samples whose function called `pytest.skip`: recorded, neither done nor failed."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """How many failed, by failure class; classes without any are left out."""
    last_run: str | None = None
    """How its latest run ended (`RunInfo.status`); `None` where there was none."""
    first_rows: int | None = None
    """How many rows were asked for, where `total` counts no more than these; `None` where it counts all."""


@dataclass(frozen=True, slots=True)
class ExperimentInfo:
    """A stored experiment."""

    name: str
    created_at: str
    updated_at: str
    evaluations: int
    done: int
    failed: int
    total: int | None
    running: str | None
    """Who holds it now, in words, or `None`."""
    skipped: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """How many failed, by failure class."""
    first_rows: int | None = None
    """The fewest rows that an evaluation was asked for; `None` where all were asked for all."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run of one evaluation: what it was asked, with what, and what it took."""

    id: str
    evaluation_id: int
    started_at: str
    ended_at: str | None
    status: str
    """running, complete, interrupted or broken."""
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    git_commit: str | None
    fingerprint: Mapping[str, Any]
    """`function`, `dataset`, `rows`, and whether these were all of the dataset (`is_whole`)."""
    report: Mapping[str, Any]
    """wall_s, cpu_s, peak_memory_bytes, peak_in_flight, strategy and its decisions."""


@dataclass(slots=True)
class Known:
    """What the store has of one (sample, repeat). Not frozen: resuming makes one for every sample."""

    status: Status
    index: int
    working_s: float
    row_hash: int | None = None
    failed_calls_json: str | None = None
    """What its calls came to (`RecordDraft.calls_json`), where it failed."""
    is_answered: bool = False
    """Whether there is an answer, and a score is missing: nobody need be asked again (`Answered`)."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What is recorded of an attempt that was answered, and of which a score is missing."""

    answer: Any
    working_s: float
    calls_json: str | None = None
    lent: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    """Its trace."""
    artefacts: tuple[str, ...] = ()
    """Hashes of the files that it left."""


Observation = tuple[str, int, list[Score]]
"""A sample's id, the repeat, its scores."""


class Counts(NamedTuple):
    """How many records of an evaluation count, by status."""

    done: int
    failed: int
    skipped: int


class Measured(NamedTuple):
    """What the store has of one attempt beside its scores and texts."""

    sample_id: str
    repeat: int
    status: Status
    row_hash: int | None
    working_s: float
    calls: Mapping[str, Any] | None


class Placed(NamedTuple):
    """A sample, with all its repeats, and where it stands in the dataset."""

    sample_id: str
    place: int
    row_hash: int | None = None
    """Of the row that stands there; what was recorded of another row has no place any more."""


@dataclass(slots=True)
class RecordDraft:
    """A record as the runner hands it to the store: texts that are already JSON stay so."""

    evaluation_id: int
    sample: Sample
    repeat: int
    status: Status
    scores_json: str
    failure_json: str | None
    prompt_json: str | None
    response_json: str | None
    started_at: str
    wall_s: float
    working_s: float
    tries: int
    history_json: str | None
    run_id: str
    calls_json: str | None = None
    failure_class: FailureClass | None = None
    lent_json: str | None = None
    trace_json: str | None = None
    """The attempt's events, as `Trace.to_json` writes them; `None` where it left none."""
    artefacts: tuple[str, ...] = ()
    """Hashes of the files that it left (`Store.keep_artefact`)."""


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """A score of this name that fulfils everything that is said here; nothing said, any score of the name."""

    name: str
    wrong: bool = False
    """Only false or 0."""
    equals: Any = None
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records are wanted: those that fulfil everything that is said here."""

    status: Status | None = None
    failure_class: FailureClass | None = None
    score: ScoreQuery | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Values of the row, by column."""
    text: str = ""
    """Found in row, prompt, response or failure, in whatever case."""
    with_texts: bool = True
    """Whether the records come with row, prompt, response and history; a table of many needs none."""


ALL_RECORDS = RecordQuery()


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the records that a query asks for."""

    records: list[Record]
    next: str | None
    """Where to go on; `None` at the end. A search returns after a while, with what it has found so far."""
    ticket: str
    """What `changes` takes, to tell of all that was committed later."""


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """How far a run is, as it last said: about once a second."""

    run_id: str
    evaluation_id: int
    evaluation: str
    started_at: str
    updated_at: str
    total: int | None
    before: int
    """Done in an earlier run."""
    done: int
    failed: int
    skipped: int
    in_flight: int
    limit: int | None
    """How many may be in flight, where that is known."""
    waiting: Mapping[str, int]
    """Why attempts wait, by reason."""
    held_by: str
    spent: str
    stopping: bool
    is_alive: bool = True
    """Whether its process lives; the run of one that was killed goes on when it is started again."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """How many failed, by failure class."""


class CommitSink(Protocol):
    """Told once per transaction which of its drafts are committed, or which are not and why.

    It is called on the store's own thread, in the order of `add`, and must not raise or block.
    """

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None: ...


class InFlight(Protocol):
    """The attempts of a run that are under way, noted for the case that the process dies. Next to free."""

    def begins(self, sample_id: str, repeat: int) -> None: ...
    def ended(self, sample_id: str, repeat: int) -> None: ...
    def rests(self, sample_id: str, repeat: int) -> None:
        """It waits for a batch, or an agent works: should the process die, it was not of this attempt."""

    def close(self) -> None:
        """The run has ended in order."""


class RunningStore(Protocol):
    """What a run asks of a store, on its event loop.

    Whatever may have to wait, for a network or a disk, is `async`. What only queues is not: `add` and
    `reindex` are grouped, and `add` tells when it is committed.
    """

    url: str

    async def evaluation(self, experiment: str, key: str) -> EvaluationInfo | None: ...
    async def open_evaluation(self, spec: EvaluationSpec) -> int: ...
    async def begin_run(self, run: RunInfo, *, total: int | None = None) -> None: ...
    async def known(
        self, evaluation_id: int, keys: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], Known]: ...
    async def answered(self, evaluation_id: int, sample_id: str, repeat: int) -> Answered | None:
        """What there is of an attempt that `known` calls answered."""

    async def durations(self, key: str, sample_ids: Sequence[str]) -> dict[str, float]: ...
    def reindex(self, evaluation_id: int, places: Sequence[Placed]) -> None: ...
    def add(self, draft: RecordDraft, sink: CommitSink) -> None: ...
    def keep_artefact(self, source: Path | bytes, *, name: str) -> Artefact:
        """Keep a file's content until no record refers to it (`RecordDraft.artefacts`). On any thread."""

    def tell_progress(self, progress: LiveProgress) -> None:
        """For other processes to read, until the run ends. It queues, as `add` does."""

    def in_flight(self, run: RunInfo) -> InFlight: ...
    async def deaths(self, evaluation_id: int) -> Mapping[tuple[str, int], int]:
        """How many processes have died while an attempt was under way, by sample and repeat."""

    async def forget_deaths(self, evaluation_id: int) -> None: ...
    async def counts(self, evaluation_id: int) -> Counts: ...
    def sample_ids(self, evaluation_id: int) -> AsyncIterator[list[str]]: ...
    async def leave_out(self, evaluation_id: int, sample_ids: Sequence[str]) -> None: ...
    def scored(self, evaluation_id: int) -> AsyncIterator[list[Observation]]: ...
    async def end_run(
        self, run: RunInfo, *, total: int | None, metrics: Sequence[Mapping[str, Any]] | None
    ) -> None: ...


class ReadStore(Protocol):
    """What is recorded, for whoever looks at it. Direct: call it where nothing else waits."""

    url: str

    def experiments(self) -> list[ExperimentInfo]: ...
    def evaluations(self, experiment: str) -> list[EvaluationInfo]: ...
    def runs(self, evaluation_id: int) -> list[RunInfo]: ...
    def records(self, evaluation: EvaluationInfo, *, status: Status | None = None) -> Iterator[Record]: ...
    def observations(self, evaluation_id: int) -> Iterator[Observation]: ...
    def measures(self, evaluation_id: int) -> Iterator[Measured]: ...
    def record(self, record_id: int) -> Record: ...
    def record_of(self, evaluation: EvaluationInfo, sample_id: str, repeat: int = 0) -> Record: ...
    def page(
        self,
        evaluation: EvaluationInfo,
        query: RecordQuery = ALL_RECORDS,
        *,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """In dataset order, from the beginning or `after` what an earlier page calls `next`."""

    def changes(
        self,
        evaluation: EvaluationInfo,
        query: RecordQuery = ALL_RECORDS,
        *,
        since: str,
        limit: int = 100,
    ) -> Page:
        """What was committed since the ticket was given, in that order, rewritten records included."""

    def live(self, experiment: str) -> list[LiveProgress]:
        """How far its runs are that have not ended."""

    def trace(self, record_id: int) -> list[dict[str, Any]]:
        """The events of the attempt; empty where it left none."""

    def open_artefact(self, hash: str) -> BinaryIO: ...


class Store(RunningStore, ReadStore, Protocol):
    """Where records live. What is here keeps house, before and after runs."""

    def lock(self, experiment: str, *, holder: str, party: str | None = None) -> Lock: ...
    def forget(self, experiment: str, key: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def delete(self, experiment: str) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    """Held on one experiment until released or until its process is dead.

    Several processes of one run hold it together, as a party: it is free when the last of them has ended.
    """

    def release(self) -> None: ...


@dataclass(slots=True)
class Tally:
    """The live numbers of a running evaluation; the runner counts, whoever shows them reads."""

    experiment: str
    evaluation: str
    started_s: float
    """`time.monotonic()` at the start."""
    total: int | None = None
    """Attempts in all, those done before included; `None` while unknown."""
    skipped: int = 0
    """Done in an earlier run."""
    done: int = 0
    failed: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """How many of this run failed, by failure class."""
    skipped_now: int = 0
    """Samples of this run whose function called `pytest.skip`."""
    in_flight: int = 0
    peak_in_flight: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    """Why attempts wait now, by reason, as in `{"retry": 3}`."""
    stopping: bool = False
    limit: int | None = None
    """How many may be in flight, where the strategy says."""
    notes: list[str] = field(default_factory=list)
    """Things to tell the person once: a blocked loop, a take-over of a lock."""
    running: dict[int, RunningSample] = field(default_factory=dict)
    """Attempts that have begun and not ended, in that order."""
    decided: str = ""
    """What an adaptive strategy has decided last, and why: `20 → 14: 18% of calls were lost`."""
    own_failures: int = 0
    """Failures that say nothing about provider or machine: of classes code, answer and agent."""
    held_by: Callable[[], str] = lambda: ""
    """What holds calls back now, in words: `input tokens 98%: next in 0.4 s`."""
    spent: Callable[[], str] = lambda: ""
    """What calls came to so far, in words: `34 cached, 0.120 USD`."""
    agents: dict[int, RunningAgent] = field(default_factory=dict)
    """Those that are running now, in the order of their beginning."""
    agent_totals: AgentTotals | None = None
    """Of those that have ended; `None` before the first."""


@dataclass(slots=True)
class AgentTotals:
    """What the agents of a run came to together."""

    runs: int = 0
    ran_s: float = 0.0
    waited_s: float = 0.0
    """For their start, after they had been asked for."""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    """Of the largest of them, with all that it started."""
    output_bytes: int = 0
    survivors: int = 0
    """Processes that they left behind, and that were ended."""
    confinement: dict[str, int] = field(default_factory=dict)
    """How many ran behind which walls."""

    def add(self, other: AgentTotals) -> None:
        for name in ("runs", "ran_s", "waited_s", "cpu_s", "output_bytes", "survivors"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.peak_memory_bytes = max(self.peak_memory_bytes, other.peak_memory_bytes)
        for level, count in other.confinement.items():
            self.confinement[level] = self.confinement.get(level, 0) + count


@dataclass(slots=True)
class RunningAgent:
    """An agent's process as it was last seen."""

    agent: str
    sample_id: str
    started_s: float | None = None
    """`time.monotonic()` at its real start; `None` before."""
    cpu_s: float = 0.0
    memory_bytes: int = 0
    output_bytes: int = 0
    doing: str = ""
    """The kind of its last event."""


@dataclass(slots=True)
class RunningSample:
    """An attempt that has begun and not ended."""

    sample_id: str
    repeat: int
    started_s: float
    """`time.monotonic()` at its beginning."""
    waits_for: Callable[[], str]
    """In words; empty while it works."""


class Progress(Protocol):
    """Shows tallies while evaluations run."""

    def started(self, tally: Tally) -> None: ...
    def note(self, text: str) -> None: ...
    def finished(self, tally: Tally) -> None: ...


class CallCounts(NamedTuple):
    """Calls to providers since the beginning."""

    sent: int = 0
    lost: int = 0
    """To overload, server errors and time-outs."""
    refused: int = 0
    """By a provider's limits."""


NO_CALLS = CallCounts()


Level = Literal["clear", "tight", "over"]
"""How much room a machine has: `tight` is for nothing more, `over` for fewer."""


class HostPressure(NamedTuple):
    """Whether the machine has room, and what there is too little of."""

    level: Level
    reason: str = ""
    at_least: int = 1
    """So many samples at once are no cause for it."""


CLEAR = HostPressure("clear")


@dataclass(slots=True)
class Admitted:
    """A process that has been let start; whoever runs it notes what it took."""

    peak_bytes: int = 0
    """At its end."""
    memory_bytes: Callable[[], int] = lambda: 0
    """What it takes now."""


class Host(Protocol):
    """The machine that samples run on."""

    def pressure(self, processes: int, cores_used: float) -> HostPressure:
        """How much room there is now; `processes` are those that samples of the run have started.

        `cores_used` is how many cores these kept busy since the last time.
        """

    def admission(
        self, kind: str, wait: Callable[[Awaitable[Any], str], Awaitable[Any]]
    ) -> AbstractAsyncContextManager[Admitted]:
        """Entered when there is memory for another process of its kind; in the block, it runs."""

    def room_for_files(self, at_once: int) -> tuple[int, str] | None:
        """Let so many samples open files at once; where not all can, how many, and what to tell."""


class RunSignals(Protocol):
    """What a strategy may know about its run beside its turns, and whom it tells what it decides."""

    def held_back(self) -> int:
        """How many samples wait now for a provider's limits."""

    def calls(self) -> CallCounts: ...

    def own_failures(self) -> int:
        """Samples so far whose failure says nothing about provider or machine."""

    def pressure(self) -> HostPressure: ...

    def decided(self, decision: Mapping[str, Any]) -> None:
        """An entry of the strategy's `history`."""


class CallsView(Protocol):
    """What the gate tells about the calls of one run."""

    account: Any
    """What the samples of the run carry (`SampleContext.account`), so that the gate knows whose a call is."""

    def totals(self) -> dict[str, float]:
        """Counts so far, by the names of `CallLog`; empty while no call was made."""

    def held_by(self) -> str:
        """What holds calls back now, in words."""

    def spent(self) -> str:
        """What calls came to so far, in words."""

    def quiet(self) -> str:
        """No sample of the run works now, and none can begin: all wait for a batch.

        Why the run shall stop here, where it is only to gather its calls; else empty.
        """

    async def utilisation(self) -> list[dict[str, Any]]:
        """For each limit that was used since the run began: its share over time."""


class Rows(Protocol):
    """A dataset as the runner reads it: samples with ids, a few at a time."""

    def size(self) -> int | None: ...
    async def next(self, at_most: int) -> list[Sample]: ...
    async def close(self) -> None: ...
    def fingerprint(self) -> str: ...
    def is_whole(self) -> bool:
        """Whether it has been read to its end, not only as far as was asked for."""

    def lacking(self, ids: Sequence[str]) -> list[str]:
        """Those of the ids that none of the samples read so far has."""


@dataclass(slots=True)
class CallLog:
    """What calls to providers came to: those of one attempt, or of a whole run."""

    requests: int = 0
    """Sent over the network, every try."""
    cached: int = 0
    """Answered from the cache."""
    retries: int = 0
    refusals: int = 0
    """Tries that met a rate limit."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    """Answers whose model's price or whose tokens are unknown; `cost_usd` leaves them out."""
    ungated: int = 0
    """Passed as they were, because nobody here knows their format."""
    waited_s: float = 0.0
    """For limits and between tries, summed over calls."""
    ordinals: dict[str, int] = field(default_factory=dict)
    """How often each request has been made by the attempt: asking twice is meant to give two answers."""
    roles: dict[str, CallLog] = field(default_factory=dict)
    """Calls by who made them: parts of the figures, as a `teacher`'s are, except for roles in `ABOUT`."""

    def in_role(self, role: str) -> CallLog:
        """What calls of that role came to; without a role, all that the sample made itself."""
        return self.roles.setdefault(role, CallLog()) if role else self

    def counting(self, role: str) -> tuple[CallLog, ...]:
        """Where a call of that role is counted."""
        if not role:
            return (self,)
        return (self.in_role(role),) if role in ABOUT else (self, self.in_role(role))

    def add(self, made: CallLog) -> None:
        """Add the figures of other calls; ordinals belong to one attempt, and stay as they are."""
        for name in _FIGURES:
            setattr(self, name, getattr(self, name) + getattr(made, name))
        for role, log in made.roles.items():
            self.in_role(role).add(log)

    def since(self, before: CallLog) -> CallLog:
        """What has been added to the figures."""
        added = CallLog(**{name: getattr(self, name) - getattr(before, name) for name in _FIGURES})
        for role, log in self.roles.items():
            added.roles[role] = log.since(before.roles.get(role) or CallLog())
        return added

    def add_plain(self, plain: Mapping[str, Any]) -> None:
        """Add what `to_plain` gave of other calls."""
        for role, figures in split_roles(plain).items():
            log = self.in_role(role)
            for name in _FIGURES:
                setattr(log, name, getattr(log, name) + figures.get(name, 0))

    def to_plain(self) -> dict[str, Any]:
        """The figures by name; those of a role as in `teacher.cost_usd`. Parts sum to the whole exactly."""
        plain = {name: getattr(self, name) for name in _FIGURES}
        parts: dict[str, float] = dict.fromkeys(_FIGURES, 0)
        # `list` first: another thread may count the first call of a role
        for role, log in list(self.roles.items()):
            for name in _FIGURES:
                plain[f"{role}.{name}"] = figure = getattr(log, name)
                parts[name] += 0 if role in ABOUT else figure
        # fractions were added in another order than here, and differ in their last digit
        return plain | {
            name: total for name, total in parts.items() if total and abs(total - plain[name]) < 1e-9
        }

    @property
    def made_any(self) -> bool:
        return bool(self.requests or self.cached) or any(log.made_any for log in self.roles.values())

    def spent_usd(self) -> float:
        """The cost of all calls: the sample's own, and those about it."""
        # `list` first: another thread may count the first call of a role
        about = [log.cost_usd for role, log in list(self.roles.items()) if role in ABOUT]
        return self.cost_usd + sum(about)


_FIGURES = tuple(figure.name for figure in fields(CallLog) if figure.name not in ("ordinals", "roles"))

JUDGE = "judge"
"""The role of calls that a judge makes (`CallLog.roles`)."""

ABOUT = frozenset({JUDGE})
"""Roles whose calls are made about a sample and not by it: none of its own figures has them."""


def split_roles(plain: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """What `CallLog.to_plain` gave, by role; all of the sample's own calls under the empty name."""
    by_role: dict[str, dict[str, float]] = {"": {}}
    for name, figure in plain.items():
        role, _, own = name.rpartition(".")
        by_role.setdefault(role, {})[own] = figure
    return by_role


def all_roles(plain: Mapping[str, float]) -> dict[str, float]:
    """The figures of all calls together: the sample's own, and those about it."""
    total: dict[str, float] = {}
    for name, figure in plain.items():
        role, _, own = name.rpartition(".")
        if not role or role in ABOUT:
            total[own] = total.get(own, 0) + figure
    return total


class Surroundings(Protocol):
    """What the runner does for an attempt whose code waits. Any thread and loop may ask for it."""

    def parked(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]: ...
    def held(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]: ...
    def call_begins(self) -> None: ...
    def call_ends(self) -> None: ...
    def stop_run(self, reason: str) -> None: ...
    def when_committed(self, callback: Callable[[], None]) -> None: ...
    def when_recorded(self, callback: Callable[[], None]) -> None: ...
    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]: ...
    def elsewhere(self) -> AbstractContextManager[None]: ...


Ended = Outcome | Literal["retried"]
"""How a try ended: as its record says, or with another try to follow."""


class LaneView(Protocol):
    """Attempts that run one after another (`Runnable.lane`), as one of them sees them."""

    @property
    def name(self) -> str: ...
    @property
    def repeat(self) -> int:
        """Each repeat of a lane is a lane of its own."""

    @property
    def is_ending(self) -> bool:
        """Whether no other attempt follows, as far as rows have been read."""


@dataclass(slots=True)  # not frozen: there is one for every try, and freezing triples its cost
class SampleContext:
    """What code called by a sample may know about it and ask for, and where it leaves what it learnt."""

    experiment: str
    evaluation: str
    sample_id: str
    repeat: int
    try_number: int
    calls: CallLog = field(default_factory=CallLog)
    tally: Tally | None = None
    surroundings: Surroundings | None = None
    """`None` where no run is around the sample."""
    trace: Trace | None = None
    """Where events go; `None` where tracing is off."""
    account: Any = None
    """The gate's own: cache mode, budget and totals of the run. `None` for those of the process."""
    lent: dict[str, Any] = field(default_factory=dict)
    """What lenders want recorded about what they lent, by argument. Plain values.

    Each lender sees one of its own, and writes into it what belongs under its argument."""
    ended: Ended | None = None
    """Known to lenders when they are given back what they lent; `None` where the try was cancelled."""
    evaluation_key: str = ""
    """File, function and variant: unlike the name, no two evaluations of an experiment share it."""
    argument: str = ""
    """For a lender: which argument of the evaluation it lends for."""
    failed_calls: dict[Any, Any] = field(default_factory=dict)
    """The gate's own: requests of this try that have failed for good, and what came of them."""
    role: str = ""
    """Who makes calls now (`in_role`); empty for the sample itself."""
    host: Host | None = None
    """The machine; `None` where no run is around the sample."""
    answer: Any = None
    """What was answered, so that only scores are missing: by this run, or by an earlier one that recorded it.

    Whoever asks notes it here, and asks nobody where it is there (`Runnable.scores_answers`)."""
    lane: LaneView | None = None
    """Whose turn it is; `None` where the evaluation has no lanes."""
    keep: Callable[[SampleContext], Awaitable[None]] | None = None
    """The runner's own: stores what there is of the attempt."""

    async def keep_answer(self) -> None:
        """Return when `answer` is stored: whatever ends the process while it is scored, it is not lost."""
        if self.keep is not None:
            await self.keep(self)

    def parked(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        """Wait for what is not the sample's own work.

        Meanwhile the slot is lent to other samples, the deadline stands still, progress shows the reason and
        the first Ctrl-C ends the wait. Afterwards the sample queues for a slot again.
        """
        surroundings = self.surroundings
        return awaitable if surroundings is None else surroundings.parked(awaitable, reason)

    def held(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        """Like `parked`, with the slot kept: for a wait in which another sample could do nothing either."""
        surroundings = self.surroundings
        return awaitable if surroundings is None else surroundings.held(awaitable, reason)

    def stop_run(self, reason: str) -> None:
        """End the whole run, saved and resumable: no call can succeed any more."""
        if self.surroundings is not None:
            self.surroundings.stop_run(reason)

    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]:
        """In the block, `tell` is told whenever the sample begins to do nothing but wait, and goes on.

        For clocks that run elsewhere: they stand still as the sample's own deadline does.
        """
        return nullcontext() if self.surroundings is None else self.surroundings.telling_still(tell)

    def elsewhere(self) -> AbstractContextManager[None]:
        """In the block another process does its work: should this one die, it was not of this sample."""
        return nullcontext() if self.surroundings is None else self.surroundings.elsewhere()

    def when_committed(self, callback: Callable[[], None]) -> None:
        """Call back, on any thread, once the sample's record is committed.

        At once where a cancelled sample will have none; never where the store could not commit it.
        """
        if self.surroundings is None:
            callback()
        else:
            self.surroundings.when_committed(callback)

    def when_recorded(self, callback: Callable[[], None]) -> None:
        """The same, and never where the sample will have no record: what it did is done again."""
        if self.surroundings is None:
            callback()
        else:
            self.surroundings.when_recorded(callback)


WAITS_FOR_LIMITS = "limits"
"""Why a sample waits (`Tally.waiting`) that a provider's limits hold back."""
WAITS_FOR_BATCH = "a batch"
WAITS_FOR_EQUAL_CALL = "an equal call"
WAITS_FOR_POOL = "pool"
"""Others have everything that the pool holds."""
WAITS_FOR_BUDGET = "the budget"
"""What calls under way may cost leaves nothing for another."""
WAITS_FOR_OTHERS = frozenset({WAITS_FOR_BATCH, WAITS_FOR_BUDGET, WAITS_FOR_EQUAL_CALL, WAITS_FOR_POOL})
"""What no sample that waits so can end by itself: where all do, a batch has everything that it will get."""

SAMPLE: ContextVar[SampleContext | None] = ContextVar("evalve_sample", default=None)


@contextmanager
def in_role(role: str) -> Iterator[None]:
    """In the block, and in tasks that are started in it, calls are counted under the role.

    A `judge`'s calls are about the sample, and none of its own (`ABOUT`); those of any other role, such as
    `student` and `teacher`, are part of its own figures and told apart beside them.

    Outside of samples, calls in the block are those of a sample that nobody records: equal calls in it are
    asked anew.
    """
    sample = SAMPLE.get()
    if sample is None:
        inside = SampleContext("", "", "", repeat=0, try_number=1, role=role)
    else:
        inside = replace(sample, role=role)
    token = SAMPLE.set(inside)
    try:
        yield
    finally:
        SAMPLE.reset(token)


@asynccontextmanager
async def admitted(kind: str) -> AsyncIterator[Admitted]:
    """Around a process that a sample starts: entered when there is memory for another one of its kind.

    Note in what it yields what the process takes, at the end and, where that is known, now.
    """
    sample = SAMPLE.get()
    if sample is None or sample.host is None:
        yield Admitted()
        return
    async with sample.host.admission(kind, sample.held) as place:
        yield place


async def parked(awaitable: Awaitable[T], reason: str) -> T:
    """`SampleContext.parked` of the sample that is under way; outside of samples, a plain `await`."""
    sample = SAMPLE.get()
    return await awaitable if sample is None else await sample.parked(awaitable, reason)


class Lender(Protocol):
    """An argument of an evaluation that is not handed over as it is: each attempt is lent something of it.

    It may have `settings`, a mapping of plain values: they belong to the evaluation's fingerprint.

    It may have `async run_begins(at_once)`, awaited before a run of the evaluation, to get ready or to
    refuse; `at_once` is how many attempts there may be, or `None`. Then it has `async run_ends()` as well,
    awaited after the run whatever happened: a text that it returns is told.

    It may say `kept_through`: `lane` where attempts of one lane are lent the same thing, one after another,
    and find what those before them left; `run` where all are, which makes one lane of them. As that is lost
    when the run ends, a lane that was not recorded to its end runs again from its first attempt.
    """

    def lend(self, context: SampleContext) -> AbstractAsyncContextManager[Any]:
        """Entered before the attempt, left after it whatever happens; `context.ended` then says how."""


@dataclass(frozen=True, slots=True)
class GatewayLease:
    """What an attempt, or a whole process, is lent of the gateway: an address that knows whose calls come.

    Programs are given it as their provider's address, and the token as their only key.
    """

    url: str = field(repr=False)
    """`http://127.0.0.1:PORT/t/TOKEN`: the token stands in the path, since not every client can send a
    header of its own."""
    token: str = field(repr=False)
    """Accepted as the key as well: in `authorization`, `x-api-key`, `api-key` or `x-goog-api-key`."""

    def base_url(self, upstream: str) -> str:
        """Where a provider is reached: `anthropic`, `openai`, `gemini`, or a name from `models:`.

        It stands for the origin of the provider; what a client appends by itself (`/v1/messages`) follows.
        """
        return f"{self.url}/{quote(upstream, safe='')}"

    def environment(self) -> dict[str, str]:
        """The variables with which a program calls through the gateway; the token stands for every key."""
        return {
            "ANTHROPIC_BASE_URL": self.base_url("anthropic"),
            "ANTHROPIC_API_KEY": self.token,
            "OPENAI_BASE_URL": self.base_url("openai") + "/v1",
            "OPENAI_API_KEY": self.token,
            "GOOGLE_GEMINI_BASE_URL": self.base_url("gemini"),
            "GEMINI_API_KEY": self.token,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }


LOST_WITHOUT_GATEWAY = (
    "with `gateway: off` the agent calls its provider by itself, on its own login: no limit holds its calls"
    " back, they share no cache and no retries, and are not in the sample's trace; tokens and cost are what"
    " the agent itself reports when it has ended, and a budget learns of them only then"
)
"""What is said where a person turns it off."""


def is_lender(value: object) -> bool:
    """Asked of its class: a mock has every attribute itself."""
    return not isinstance(value, type) and callable(getattr(type(value), "lend", None))


class Engine(Protocol):
    """Where the function of an evaluation runs: on this loop, in a thread, in another process."""

    lends_slots: bool
    """Whether a sample that only waits leaves room for another one to run."""
    may_block_loop: bool
    """Whether the function runs on the event loop's thread as a coroutine, and may block it by mistake."""
    leaves_behind: str
    """What remains of a call that nobody waits for any more, in words; empty where nothing does."""

    async def start(self) -> None:
        """Be ready for calls; raises where there will be none, before anything has run."""

    def call(self, values: dict[str, Any], context: SampleContext) -> Awaitable[Any]:
        """What the function returned for these columns and loans; raises what it raised.

        What its calls and its trace came to is in `context` afterwards, wherever it ran.
        """

    def occupies_loop(self) -> bool:
        """Whether a sync function keeps the loop's own thread busy right now."""

    def close(self) -> None:
        """The run is over."""


EngineFor = Callable[["Runnable", Strategy], Engine]
"""Chooses the engine of a run."""

TRACEBACK_ELSEWHERE = "__evalve_traceback__"
"""Attribute of an error that was raised in another process: the text of its traceback there."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """An evaluation with everything bound: what the runner needs to run it once."""

    spec: EvaluationSpec
    function: Callable[..., Any]
    """What the person wrote."""
    call: Callable[..., Any]
    """The same with fixtures bound: it takes the columns as keyword arguments."""
    is_async: bool
    rows: Callable[[], Rows]
    """Opens the dataset; called once per run."""
    options: Options
    strategy: Strategy | None = None
    retries: Any = None
    require: tuple[Threshold, ...] = ()
    lenders: Mapping[str, Lender] = field(default_factory=dict)
    """Arguments of which each attempt is lent something; `call` does not have them bound."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The other arguments that `call` has bound, by name."""
    leading: tuple[Any, ...] = ()
    """What `call` has bound by position: `self` of a method."""
    variant: Mapping[str, str] = field(default_factory=dict)
    """The parameters that tell it from the other variants of its function, in words."""
    path: str | None = None
    """The file that declares the function, or `None` at an interactive prompt."""
    runs_again: frozenset[tuple[str, int]] = frozenset()
    """Samples, each with its repeat, that are run although an earlier run has done them."""
    scores_answers: bool = False
    """Whether `call` scores an answer that `SampleContext.answer` has, without what the lenders lend."""
    lane: Callable[[Mapping[str, Any]], str] | None = None
    """Tells a row's lane: attempts of one lane run one after another, in dataset order, lanes beside each
    other."""
