"""What is left to run: the dataset's samples, less what the store already has. This is resuming."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from evalve.contracts import Known, Placed, Rows, RunningStore
from evalve.records import Sample
from evalve.runner.lanes import Lane, LaneOf, Lanes, row_of, turns_in

CHUNK_IN_MEMORY = 256
CHUNK_LAZY = 64
LOOK_AHEAD_SIZED = 10_000
LOOK_AHEAD_LAZY = 1_000
MOST_DEATHS = 2
"""After so many a sample is recorded as failed, and not started again in this run."""


@dataclass(slots=True)
class Attempt:
    """One sample, to be run for one repeat."""

    sample: Sample
    repeat: int
    deaths: int = 0
    """How many processes have died while it was under way."""
    failed_calls_json: str | None = None
    """What its calls came to when it failed in an earlier run."""
    is_answered: bool = False
    """An earlier run has an answer, and only lacks scores."""
    lane: Lane | None = None
    is_recorded: bool = False
    """An earlier run has recorded it; it runs again if its lane does."""

    @property
    def runs_alone(self) -> bool:
        """A process has died of it, of one beside it, or of something else: this time it will be known."""
        return 0 < self.deaths < MOST_DEATHS

    @property
    def is_deadly(self) -> bool:
        return self.deaths >= MOST_DEATHS


class Plan:
    """Attempts in the order in which they shall start, read from the dataset as they are needed."""

    def __init__(
        self,
        rows: Rows,
        store: RunningStore,
        evaluation_id: int,
        *,
        key: str,
        repeat: int,
        longest_first: bool,
        scores_answers: bool = False,
        again: Collection[tuple[str, int]] = (),
        lane_of: LaneOf | None = None,
        whole_lanes: bool = False,
    ) -> None:
        """`again` are samples, each with its repeat, that run although they are recorded.

        With `lane_of`, an attempt is handed out when the one before it in its lane is recorded.

        With `whole_lanes`, a lane of which anything is missing runs again from its first attempt: what its
        attempts leave to each other is lost when a run ends.
        """
        self.exhausted = False
        self.rows_read = 0
        self.skipped = 0
        self.failed_before = 0
        self.rows_changed = 0
        self.deaths: Mapping[tuple[str, int], int] = {}
        """What earlier runs died of, by sample and repeat."""
        self.is_new = False
        """Whether nothing is recorded yet: then nobody need ask for it."""
        self.has_moved = False
        """Whether recorded samples have got other places."""
        self.run_again = 0
        """Attempts that were recorded, and run again with their lanes."""
        self.outdated: list[Attempt] = []
        """Those of them that follow an attempt that is missing."""
        self.on_replay: Callable[[], None] = lambda: None
        """Called when both are known, before any attempt is handed out."""
        self._wanted = again
        self._rows = rows
        self._store = store
        self._evaluation_id = evaluation_id
        self._key = key
        self._repeat = repeat
        self._scores_answers = scores_answers
        self._in_memory = rows.size() is not None
        self._queue: deque[Attempt] = deque()
        self._suspects: deque[Attempt] = deque()
        """What a process may have died of comes last: it shall not keep the others from running."""
        self._longest_first = longest_first
        self._looked_ahead = False
        self._is_broken = False
        self._heap: list[tuple[float, int, int, Attempt]] = []
        self._lanes = None if lane_of is None else Lanes(lane_of, longest_first=self._in_memory)
        self._whole_lanes = whole_lanes and self._lanes is not None

    @property
    def total(self) -> int | None:
        """How many attempts there are in all, once that is known."""
        size = self.rows_read if self.exhausted and not self._is_broken else self._rows.size()
        return None if size is None else size * self._repeat

    @property
    def waiting(self) -> int:
        """How many attempts have been read and not taken."""
        in_lanes = 0 if self._lanes is None else self._lanes.waiting
        return len(self._queue) + len(self._heap) + len(self._suspects) + in_lanes

    @property
    def reads_at_once(self) -> bool:
        """Whether the rows are in memory, and so few that one reading gets them all."""
        return (self._rows.size() or CHUNK_IN_MEMORY) < CHUNK_IN_MEMORY

    @property
    def is_over(self) -> bool:
        return self.exhausted and not self.waiting

    def take(self) -> Attempt | None:
        """The next attempt, or `None` where rows must be read first, or all lanes are busy."""
        if self._lanes is not None:
            return self._lanes.take(is_all_read=self.exhausted) if self._looked_ahead else None
        if self._heap and self._looked_ahead:
            return heapq.heappop(self._heap)[-1]
        if self._queue:
            return self._queue.popleft()
        return self._suspects.popleft() if self._suspects and self.exhausted and not self._heap else None

    def needs_rows(self) -> bool:
        if self.exhausted or self._whole_lanes:
            return not self.exhausted
        look_ahead = LOOK_AHEAD_SIZED if self._in_memory else LOOK_AHEAD_LAZY
        if self._lanes is not None and not self._in_memory:
            return not self._lanes.has_free and self._lanes.waiting < look_ahead
        if self._lanes is None and not self._longest_first:
            return not self._queue
        waiting = len(self._heap) if self._lanes is None else self._lanes.waiting
        return waiting < (look_ahead // 2 if self._looked_ahead else look_ahead)

    def ended(self, attempt: Attempt) -> bool:
        """Whether the attempt's lane goes on, now that it has ended and is recorded."""
        return self._lanes is not None and self._lanes.ended(attempt)

    def break_off(self) -> None:
        """The dataset broke: there is no more than what has been read."""
        self._is_broken = True
        self._end()

    async def refill(self, at_most: int) -> None:
        """Read on until there is something to run, or the end."""
        lazily = CHUNK_LAZY if self._longest_first else max(1, min(at_most, CHUNK_LAZY))
        while self.needs_rows():
            samples = await self._rows.next(CHUNK_IN_MEMORY if self._in_memory else lazily)
            if not samples:
                self._end()
                break
            self.rows_read += len(samples)
            await self._admit(samples)
            lazily = min(2 * lazily, CHUNK_LAZY)  # all done before: they take no room, so go faster
        self._looked_ahead = True

    def _end(self) -> None:
        """There are no more rows."""
        self.exhausted = self._looked_ahead = True
        if self._whole_lanes and self._lanes is not None:
            left_out, self.outdated = self._lanes.keep_unfinished()
            self.skipped += left_out
            self.run_again -= left_out
            if self.run_again:
                self.on_replay()

    async def _admit(self, samples: list[Sample]) -> None:
        known: Mapping[tuple[str, int], Known] = {}
        if not self.is_new:
            keys = [(sample.id, repeat) for sample in samples for repeat in range(self._repeat)]
            known = await self._store.known(self._evaluation_id, keys)
        attempts: list[Attempt] = []
        moved = []
        for sample in samples:
            has_changed = False
            for repeat in range(self._repeat):
                was = known.get((sample.id, repeat)) if known else None
                deaths = self.deaths.get((sample.id, repeat), 0) if self.deaths else 0
                if was is None:
                    attempts.append(Attempt(sample, repeat, deaths))
                    continue
                is_other_row = was.row_hash != sample.row_hash and None not in (
                    was.row_hash,
                    sample.row_hash,
                )
                has_changed = has_changed or is_other_row
                if is_other_row or was.index != sample.index:
                    moved.append(Placed(sample.id, sample.index, sample.row_hash))
                if is_other_row or self._runs_again(was, sample.id, repeat):
                    attempts.append(self._again(Attempt(sample, repeat, deaths), was, is_other_row))
                else:
                    self.skipped += 1
            self.rows_changed += has_changed
        if moved:
            self.has_moved = True
            self._store.reindex(self._evaluation_id, list(dict.fromkeys(moved)))
        if self.deaths and self._lanes is None:
            self._suspects.extend(attempt for attempt in attempts if attempt.runs_alone)
            attempts = [attempt for attempt in attempts if not attempt.runs_alone]
        if self._lanes is not None:
            await self._admit_to_lanes(self._lanes, attempts)
        elif self._longest_first:
            await self._admit_by_duration(attempts)
        else:
            self._queue.extend(attempts)

    def _runs_again(self, was: Known, sample_id: str, repeat: int) -> bool:
        """Whether it failed, or a score of it is missing; with whole lanes, whatever it came to."""
        is_answered = self._scores_answers and was.is_answered
        is_open = is_answered or was.status in ("failed", "answered")
        return self._whole_lanes or is_open or self._is_wanted(sample_id, repeat)

    def _is_wanted(self, sample_id: str, repeat: int) -> bool:
        return bool(self._wanted) and (sample_id, repeat) in self._wanted

    def _again(self, attempt: Attempt, was: Known, is_other_row: bool) -> Attempt:
        is_answered = self._scores_answers and was.is_answered and not is_other_row
        is_wanted = self._is_wanted(attempt.sample.id, attempt.repeat)
        if is_other_row or is_answered or is_wanted or was.status in ("failed", "answered"):
            attempt.failed_calls_json = None if is_other_row else was.failed_calls_json
            attempt.is_answered = is_answered and not self._whole_lanes  # the answer alone leaves no state
            self.failed_before += was.status == "failed" and not is_other_row
        else:
            attempt.is_recorded = True
            self.run_again += 1
        return attempt

    async def _admit_to_lanes(self, lanes: Lanes, attempts: list[Attempt]) -> None:
        """Weighed by what they took before, where that is asked for and known, else by their turns."""
        durations: Mapping[str, float] = {}
        if self._longest_first:
            durations = await self._store.durations(self._key, [attempt.sample.id for attempt in attempts])
        typical_s = sum(durations.values()) / len(durations) if durations else 0.0
        for attempt in attempts:
            row = row_of(attempt.sample)
            by_duration = durations.get(attempt.sample.id, typical_s)
            lanes.add(attempt, row, by_duration if durations else turns_in(row))

    async def _admit_by_duration(self, attempts: list[Attempt]) -> None:
        """Longest first; a sample of unknown duration counts as a typical one."""
        durations = await self._store.durations(self._key, [attempt.sample.id for attempt in attempts])
        typical_s = sum(durations.values()) / len(durations) if durations else 0.0
        for attempt in attempts:
            expected_s = durations.get(attempt.sample.id, typical_s)
            heapq.heappush(self._heap, (-expected_s, attempt.sample.index, attempt.repeat, attempt))
