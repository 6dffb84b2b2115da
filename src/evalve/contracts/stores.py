"""What is kept of evaluations, and who keeps it: stores as rooms see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from evalve.records import Artefact, FailureClass, Record, Sample, Score, Status


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
    """Only false or 0; where less is better, only true."""
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
    def noting_spending(self, run: RunInfo) -> Callable[[float], None]:
        """What notes how much the run may have cost, for the case that the process dies. On any thread.

        It is then in the report of the run, as `may_have_cost_usd`.
        """

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
