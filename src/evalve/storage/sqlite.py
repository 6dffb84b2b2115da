"""The store on SQLite: experiments, evaluations, runs and records of several processes in one file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from evalve.clock import LOOP_CLOCK, Clock
from evalve.contracts import (
    ALL_RECORDS,
    Answered,
    CommitSink,
    Counts,
    EvaluationInfo,
    EvaluationSpec,
    ExperimentInfo,
    InFlight,
    Known,
    LiveProgress,
    Measured,
    Observation,
    Page,
    Placed,
    RecordDraft,
    RecordQuery,
    RunInfo,
)
from evalve.errors import NotFound, StorageError
from evalve.jsontext import to_json
from evalve.options import suggestion
from evalve.records import Artefact, Record, Status
from evalve.storage.counting import count_if_given_up, read_tallied
from evalve.storage.database import Database, MemoryDatabase, snapshot
from evalve.storage.in_flight import NoFlights
from evalve.storage.inserts import read_trace
from evalve.storage.keys import Keys
from evalve.storage.live import read_progress
from evalve.storage.locks import ExperimentLock, Locks
from evalve.storage.pages import read_changes, read_page
from evalve.storage.rows import (
    find_record,
    read_answered,
    read_durations,
    read_known,
    read_measures,
    read_observations,
    read_record,
    read_records,
    read_sample_ids,
)
from evalve.storage.schema import NOWHERE, record_range
from evalve.storage.summaries import read_evaluations, read_experiments, read_latest_end, read_runs
from evalve.storage.writer import InlineWriter, ThreadWriter, Writer

_AT_ONCE = 500


class SqliteStore:
    """Any thread may use it. What `add` takes is written by a thread of its own; the rest is direct."""

    def __init__(self, database: Database, *, clock: Clock = LOOP_CLOCK) -> None:
        private = isinstance(database, MemoryDatabase)
        self.url = database.url
        self._database = database
        self._clock = clock
        self._writer: Writer = (InlineWriter if private else ThreadWriter)(database)
        self._locks = Locks(database, clock=clock, heartbeat=not private)
        self._known_lock = threading.Lock()
        self._known_keys = Keys()

    # running: what is `async` in the contract is direct here, because a disk answers at once

    async def evaluation(self, experiment: str, key: str) -> EvaluationInfo | None:
        with self._database.reading() as connection, snapshot(connection):
            return next(iter(read_evaluations(connection, experiment, key=key)), None)

    async def open_evaluation(self, spec: EvaluationSpec) -> int:
        """The evaluation's id; it is created where it is new, and made to agree with `spec` where not."""
        stored = (spec.name, to_json(list(spec.columns)), to_json(dict(spec.fingerprint)))
        with self._database.writing() as connection:
            experiment_id, evaluation_id = connection.execute(
                "SELECT x.id, v.id FROM experiments x LEFT JOIN evaluations v"
                " ON v.experiment_id = x.id AND v.key = ? WHERE x.name = ?",
                (spec.key, spec.experiment),
            ).fetchone() or (None, None)
            if evaluation_id is not None:
                connection.execute(
                    "UPDATE evaluations SET name = ?, columns = ?, fingerprint = ? WHERE id = ?",
                    (*stored, evaluation_id),
                )
                return int(evaluation_id)
            if experiment_id is None:
                experiment_id = connection.execute(
                    "INSERT INTO experiments (name, created_at) VALUES (?, ?)",
                    (spec.experiment, self._clock.utc_now().isoformat()),
                ).lastrowid
            made = connection.execute(
                "INSERT INTO evaluations (experiment_id, key, name, columns, fingerprint)"
                " VALUES (?, ?, ?, ?, ?)",
                (experiment_id, spec.key, *stored),
            )
            assert made.lastrowid is not None
            return made.lastrowid

    async def known(
        self, evaluation_id: int, keys: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], Known]:
        with self._database.reading() as connection, self._known_lock, snapshot(connection):
            return read_known(connection, evaluation_id, keys, self._known_keys)

    async def answered(self, evaluation_id: int, sample_id: str, repeat: int) -> Answered | None:
        with self._database.reading() as connection, self._known_lock, snapshot(connection):
            return read_answered(connection, evaluation_id, sample_id, repeat, self._known_keys)

    def reindex(self, evaluation_id: int, places: Sequence[Placed]) -> None:
        self._writer.reindex(evaluation_id, places)

    def add(self, draft: RecordDraft, sink: CommitSink) -> None:
        if self._locks.lost is not None:
            sink.committed([draft], self._locks.lost)  # which stops the run
            return
        self._writer.add(draft, sink)

    def keep_artefact(self, source: Path | bytes, *, name: str) -> Artefact:
        content_hash, size_bytes = self._database.artefacts.keep(source)
        return Artefact(content_hash, size_bytes, name)

    def tell_progress(self, progress: LiveProgress) -> None:
        self._writer.tell_progress(progress)

    def in_flight(self, run: RunInfo) -> InFlight:
        flights = self._database.flights
        return NoFlights() if flights is None else flights.open(run.evaluation_id, run.id)

    def noting_spending(self, run: RunInfo) -> Callable[[float], None]:
        notes = self._database.spending
        return _nowhere if notes is None else notes.noting(run.id)

    async def deaths(self, evaluation_id: int) -> Mapping[tuple[str, int], int]:
        flights = self._database.flights
        return {} if flights is None else flights.deaths(evaluation_id)

    async def forget_deaths(self, evaluation_id: int) -> None:
        if self._database.flights is not None:
            self._database.flights.forget(evaluation_id)

    async def sample_ids(self, evaluation_id: int) -> AsyncIterator[list[str]]:
        """The samples that count, some at a time; of repeats that may be more than once."""
        for some in self._database.iterate(lambda connection: read_sample_ids(connection, evaluation_id)):
            yield some

    async def leave_out(self, evaluation_id: int, sample_ids: Sequence[str]) -> None:
        """Keep samples without counting them, until they are given a place in the dataset again."""
        self._writer.reindex(evaluation_id, [Placed(sample_id, NOWHERE) for sample_id in sample_ids])
        self._writer.flush()

    async def begin_run(self, run: RunInfo, *, total: int | None = None) -> None:
        """Record that a run starts; earlier ones that never ended are called broken."""
        with self._database.writing() as connection:
            unended = connection.execute(
                "SELECT id FROM runs WHERE evaluation_id = ? AND status = 'running'", (run.evaluation_id,)
            ).fetchall()
            if unended:  # what a run told of its progress is deleted when it ends
                connection.execute("DELETE FROM progress WHERE evaluation_id = ?", (run.evaluation_id,))
            for (run_id,) in unended:  # as long as its records are the newest, they tell when it ended
                connection.execute(
                    "UPDATE runs SET status = 'broken', ended_at = ? WHERE id = ?",
                    (read_latest_end(connection, run.evaluation_id, run_id), run_id),
                )
            connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.id,
                    run.evaluation_id,
                    run.started_at,
                    run.ended_at,
                    run.status,
                    to_json(run.options),
                    to_json(run.versions),
                    run.git_commit,
                    to_json(run.fingerprint),
                    to_json(run.report),
                ),
            )
            if total is not None:
                connection.execute(
                    "UPDATE evaluations SET total = ? WHERE id = ?", (total, run.evaluation_id)
                )

    async def end_run(
        self, run: RunInfo, *, total: int | None, metrics: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Record how a run ended; what is not known of it (`None`) stays as it was."""
        self._writer.flush()
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE runs SET ended_at = ?, status = ?, fingerprint = ?, report = ? WHERE id = ?",
                (run.ended_at, run.status, to_json(run.fingerprint), to_json(run.report), run.id),
            )
            connection.execute(
                "UPDATE evaluations SET total = coalesce(?, total), metrics = coalesce(?, metrics)"
                " WHERE id = ?",
                (total, None if metrics is None else to_json(list(metrics)), run.evaluation_id),
            )
            count_if_given_up(connection, run.evaluation_id)
            connection.execute("DELETE FROM progress WHERE run_id = ?", (run.id,))
        self._forget_spending([run.id])  # its report has it from now on

    async def scored(self, evaluation_id: int) -> AsyncIterator[list[Observation]]:
        """The observations, some at a time."""
        observations = self.observations(evaluation_id)
        while some := list(islice(observations, _AT_ONCE)):
            yield some

    def forget(self, experiment: str, key: str) -> None:
        """Delete the evaluation's records and runs; the evaluation itself stays, empty."""
        self._writer.flush()
        with self._database.writing() as connection:
            evaluation_id = _evaluation_id(connection, experiment, key)
            runs = [] if evaluation_id is None else _run_ids(connection, evaluation_id)
            unused = [] if evaluation_id is None else _empty(connection, evaluation_id)
            others_run = bool(unused) and self._locks.others_run(connection)
        if evaluation_id is not None and self._database.flights is not None:
            self._database.flights.forget(evaluation_id)
        self._forget_spending(runs)
        if not others_run:  # an attempt of theirs may just have left one of these again
            self._database.artefacts.remove(unused)

    def lock(self, experiment: str, *, holder: str, party: str | None = None) -> ExperimentLock:
        """Held until released, together with every process that names the same `party`."""
        return self._locks.take(experiment, holder, party=party)

    # reading

    def experiments(self) -> list[ExperimentInfo]:
        """Those last worked on come first."""
        with self._database.reading() as connection, snapshot(connection):
            return read_experiments(connection, self._locks)

    def evaluations(self, experiment: str) -> list[EvaluationInfo]:
        with self._database.reading() as connection, snapshot(connection):
            self._expect(connection, experiment)
            return read_evaluations(connection, experiment)

    def runs(self, evaluation_id: int) -> list[RunInfo]:
        """Oldest first."""
        with self._database.reading() as connection:
            runs = read_runs(connection, evaluation_id)
        return [run if run.report else self._with_spending(run) for run in runs]

    def _with_spending(self, run: RunInfo) -> RunInfo:
        """One that was killed, or goes on, has no report; a later run says when a killed one ended."""
        notes = self._database.spending
        usd = None if notes is None else notes.noted_usd(run.id)
        return run if usd is None else replace(run, report={**run.report, "may_have_cost_usd": usd})

    def _forget_spending(self, run_ids: Sequence[str]) -> None:
        if self._database.spending is not None:
            self._database.spending.forget(run_ids)

    def records(self, evaluation: EvaluationInfo, *, status: Status | None = None) -> Iterator[Record]:
        """In dataset order, a few in memory at a time."""
        return self._database.iterate(lambda connection: read_records(connection, evaluation, status))

    def observations(self, evaluation_id: int) -> Iterator[Observation]:
        """Scores of done records in dataset order, repeats of a sample together.

        Equal scores of different samples may be the same `Score` objects: read them, don't change them.
        """
        return self._database.iterate(lambda connection: read_observations(connection, evaluation_id))

    async def counts(self, evaluation_id: int) -> Counts:
        """After everything that is queued."""
        self._writer.flush()
        with self._database.reading() as connection:
            return read_tallied(connection, evaluation_id).counts

    async def durations(self, key: str, sample_ids: Sequence[str]) -> dict[str, float]:
        """How long each sample worked when last done by the evaluation of this key, in any experiment."""
        with self._database.reading() as connection, self._known_lock, snapshot(connection):
            return read_durations(connection, key, sample_ids, self._known_keys)

    def measures(self, evaluation_id: int) -> Iterator[Measured]:
        """Status, row, time and calls of all records in dataset order."""
        return self._database.iterate(lambda connection: read_measures(connection, evaluation_id))

    def record(self, record_id: int) -> Record:
        with self._database.reading() as connection, snapshot(connection):
            found = read_record(connection, record_id)
        if found is None:
            raise NotFound(
                f"{self._database.place}: there is no record {record_id}; it may have been deleted"
            )
        return found

    def record_of(self, evaluation: EvaluationInfo, sample_id: str, repeat: int = 0) -> Record:
        with self._database.reading() as connection, self._known_lock, snapshot(connection):
            found = find_record(connection, evaluation.id, sample_id, repeat, self._known_keys)
        if found is None:
            which = f" (repeat {repeat})" if repeat else ""
            raise NotFound(
                f"{self._database.place}: {evaluation.spec.name} in experiment {evaluation.spec.experiment!r}"
                f" has no record of sample {sample_id!r}{which}"
            )
        return found

    def page(
        self,
        evaluation: EvaluationInfo,
        query: RecordQuery = ALL_RECORDS,
        *,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        with self._database.reading() as connection, snapshot(connection):
            return read_page(connection, evaluation, query, after, limit)

    def changes(
        self,
        evaluation: EvaluationInfo,
        query: RecordQuery = ALL_RECORDS,
        *,
        since: str,
        limit: int = 100,
    ) -> Page:
        with self._database.reading() as connection, snapshot(connection):
            return read_changes(connection, evaluation, query, since, limit)

    def live(self, experiment: str) -> list[LiveProgress]:
        with self._database.reading() as connection, snapshot(connection):
            self._expect(connection, experiment)
            return read_progress(connection, experiment, now_s=self._clock.utc_now().timestamp())

    def trace(self, record_id: int) -> list[dict[str, Any]]:
        """The events of the attempt that is recorded, in order; empty where it left none."""
        with self._database.reading() as connection:
            return read_trace(connection, record_id)

    def open_artefact(self, hash: str) -> BinaryIO:
        return self._database.artefacts.open(hash)

    # keeping house

    def rename(self, old: str, new: str) -> None:
        with self._database.writing() as connection:
            self._expect(connection, old)
            self._locks.refuse_if_held(connection, old, to="rename it")
            self._locks.refuse_if_held(connection, new, to="rename the other")
            if connection.execute("SELECT 1 FROM experiments WHERE name = ?", (new,)).fetchone():
                raise StorageError(
                    f"{self._database.place}: there is already an experiment {new!r};"
                    f" delete it, or give {old!r} another name"
                )
            connection.execute("UPDATE experiments SET name = ? WHERE name = ?", (new, old))
            connection.execute("DELETE FROM locks WHERE experiment = ?", (new,))
            connection.execute("UPDATE locks SET experiment = ? WHERE experiment = ?", (new, old))

    def delete(self, experiment: str) -> None:
        self._writer.flush()
        with self._database.writing() as connection:
            self._expect(connection, experiment)
            self._locks.refuse_if_held(connection, experiment, to="delete it")
            (experiment_id,) = connection.execute(
                "SELECT id FROM experiments WHERE name = ?", (experiment,)
            ).fetchone()
            runs = list[str]()
            for (evaluation_id,) in connection.execute(
                "SELECT id FROM evaluations WHERE experiment_id = ?", (experiment_id,)
            ).fetchall():
                runs += _run_ids(connection, evaluation_id)
                _empty(connection, evaluation_id)
            connection.execute("DELETE FROM evaluations WHERE experiment_id = ?", (experiment_id,))
            connection.execute("DELETE FROM experiments WHERE id = ?", (experiment_id,))
            connection.execute("DELETE FROM locks WHERE experiment = ?", (experiment,))
            used = {used for (used,) in connection.execute("SELECT DISTINCT hash FROM artefacts")}
            others_run = self._locks.others_run(connection)
        self._forget_spending(runs)
        if not others_run:  # they may have left files whose records are on their way; the next time, then
            self._database.artefacts.remove(set(self._database.artefacts.all_hashes()) - used)

    def close(self) -> None:
        """Write what is queued, release the locks taken here, close the file."""
        self._writer.close()
        self._locks.release_all()
        self._database.close()

    def _expect(self, connection: sqlite3.Connection, experiment: str) -> None:
        names = [name for (name,) in connection.execute("SELECT name FROM experiments")]
        if experiment not in names:
            raise NotFound(
                f"{self._database.place}: no experiment {experiment!r}{suggestion(experiment, names)}"
            )


def _evaluation_id(connection: sqlite3.Connection, experiment: str, key: str) -> int | None:
    row = connection.execute(
        "SELECT v.id FROM evaluations v JOIN experiments x ON x.id = v.experiment_id"
        " WHERE x.name = ? AND v.key = ?",
        (experiment, key),
    ).fetchone()
    return None if row is None else int(row[0])


def _nowhere(usd: float) -> None:
    """Of a store that dies with its process."""


def _run_ids(connection: sqlite3.Connection, evaluation_id: int) -> list[str]:
    rows = connection.execute("SELECT id FROM runs WHERE evaluation_id = ?", (evaluation_id,))
    return [run_id for (run_id,) in rows]


def _empty(connection: sqlite3.Connection, evaluation_id: int) -> list[str]:
    """Delete its records and all that belongs to them; the hashes of files that none refers to now."""
    room = record_range(evaluation_id)
    # ids are never given twice, so that another process notices that the records it knew are gone
    connection.execute(
        "UPDATE evaluations SET total = NULL, metrics = '[]', merged_id ="
        " max(merged_id, coalesce((SELECT max(id) FROM records WHERE id BETWEEN ? AND ?), 0)) WHERE id = ?",
        (*room, evaluation_id),
    )
    connection.execute("DELETE FROM record_keys WHERE evaluation_id = ?", (evaluation_id,))
    connection.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", room)
    connection.execute("DELETE FROM traces WHERE record_id BETWEEN ? AND ?", room)
    # the last ticket stays: who holds one must not miss what comes
    connection.execute(
        "DELETE FROM rewrites WHERE ticket BETWEEN ?1 AND ?2 AND ticket <"
        " (SELECT max(ticket) FROM rewrites WHERE ticket BETWEEN ?1 AND ?2)",
        room,
    )
    connection.execute("DELETE FROM tallies WHERE evaluation_id = ?", (evaluation_id,))
    connection.execute("UPDATE evaluations SET tallied = 1 WHERE id = ?", (evaluation_id,))
    connection.execute("DELETE FROM progress WHERE evaluation_id = ?", (evaluation_id,))
    connection.execute("DELETE FROM runs WHERE evaluation_id = ?", (evaluation_id,))
    unused = connection.execute(
        "SELECT DISTINCT hash FROM artefacts WHERE record_id BETWEEN ?1 AND ?2 AND hash NOT IN"
        " (SELECT hash FROM artefacts WHERE record_id NOT BETWEEN ?1 AND ?2)",
        room,
    ).fetchall()
    connection.execute("DELETE FROM artefacts WHERE record_id BETWEEN ? AND ?", room)
    return [content_hash for (content_hash,) in unused]
