"""Calls gather here until they go out as a batch, and wait here until its answers are in the cache.

One for a process; any thread and loop may use it. What it does by itself, it does on the background loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from evalve.clock import LOOP_CLOCK, Clock
from evalve.contracts import SAMPLE
from evalve.gate.batches.asked import Asked, Delivery, Found, Gathered
from evalve.gate.batches.drafts import Draft, remove_strays
from evalve.gate.batches.minding import Minder, Pace
from evalve.gate.batches.runs import RunBatches
from evalve.gate.batches.shapes import SENT_AGAIN, Api, Lane, credentials_in, lane_of
from evalve.gate.batches.store import BatchRow, BatchStore, RequestRow
from evalve.gate.batches.waiting import Waiter, answered_now, fail, settle
from evalve.gate.batches.words import batch_in_words
from evalve.gate.dialects.request_parts import key_hash
from evalve.gate.messages import Call, Reply, Request

_LOG = logging.getLogger(__name__)
_LIVE_AT_MOST = 20
_LIVE_SHARE = 0.01
_MOST_BATCHES = 2
"""A request that has failed in so many is sent live."""
_ANOTHER_HOLDS_S = 1.0
_FORGET_AFTER_S = 30 * 86_400.0


class BatchQueue:
    """The drafts of a process, and everybody in it who waits for a batch."""

    def __init__(
        self,
        *,
        store: BatchStore,
        minder: Minder,
        apis: Mapping[str, Api],
        pace: Pace,
        in_background: Callable[[Coroutine[Any, Any, None]], object],
        is_cached: Callable[[str], bool],
        largest: Callable[[Call], int | None] = lambda call: None,
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        self.store = store
        self._minder = minder
        self._apis = apis
        self._pace = pace
        self._in_background = in_background
        self._is_cached = is_cached
        self._largest = largest
        self._clock = clock
        self._lock = threading.RLock()
        self._runs: list[RunBatches] = []
        self._drafts: dict[Lane, Draft] = {}
        self._waiting: dict[str, list[Waiter]] = {}
        self._credentials: dict[str, dict[str, str]] = {}
        """By intent: those of whoever asked last."""
        self._minding: set[str] = set()
        self.is_gathering = False
        self._gathered: Gathered | None = None
        self._unrecorded: dict[tuple[str, int], tuple[str, bool]] = {}
        """What samples of earlier runs asked for that have no record; and whether a run has counted it."""
        self._cancelled: dict[str, str] = {}
        """What was cancelled while several runs waited for it, and with which batch."""

    # -- several runs, one after another, that share their batches

    @contextmanager
    def gathering(self, *, is_replay: bool = False) -> Iterator[Gathered]:
        """In the block, runs stop when all of their samples wait; behind it, their calls are promised.

        What is yielded then has the batches that they wait for: new ones, which nobody has submitted yet, and
        those of earlier runs.
        """
        gathered = self._gathered = Gathered(is_replay=is_replay)
        self.is_gathering = True
        try:
            yield gathered
        finally:
            self.is_gathering = False
            with self._lock:
                drafts = list(self._drafts.values())
                self._drafts.clear()
                for draft in drafts:
                    draft.is_closed = True
                    draft.promised(self._is_wanted)
                rows = [self.store.batch(intent) for intent in gathered.waited_for]
                gathered.open = [row.intent for row in rows if row is not None and row.state != "collected"]
                self._gathered = None

    def credentials_of(self, intent: str) -> dict[str, str]:
        """Those with which its calls would have gone alone."""
        return self._credentials.get(intent, {})

    def fail_cancelled(self, batch: BatchRow) -> None:
        """Whoever is replayed is told so, instead of asking anew; answers that came before are used."""
        for row in self.store.requests(batch.intent):
            if row.kind == "canceled":
                self._cancelled[row.key] = batch.provider_id or batch.intent

    def _is_wanted(self, key: str) -> bool:
        return key in self._waiting or (self._gathered is not None and key in self._gathered.keys)

    # -- runs

    def join(self, name: str = "") -> RunBatches:
        """A run whose calls go in batches; it must be told when no sample of it works, and must leave."""
        run = RunBatches(self, name)
        with self._lock:
            if not self._runs:
                self.store.forget_older_than(_FORGET_AFTER_S)
                remove_strays(self.store)
                self._unrecorded = self.store.unrecorded()
            self._runs.append(run)
        return run

    def leave(self, run: RunBatches) -> None:
        with self._lock:
            self._runs = [each for each in self._runs if each is not run]
        self.close_if_quiet()

    def close_if_quiet(self) -> None:
        """Nobody works who could add to the drafts: they go out."""
        with self._lock:
            works = any(not run.is_quiet or run.resuming for run in self._runs)
            is_quiet = not works and not self.is_gathering
            drafts = list(self._drafts.values()) if is_quiet else []
        for draft in drafts:
            self._in_background(self._close(draft))

    # -- calls

    def takes(self, call: Call, request: Request) -> str:
        """Why a call cannot go in a batch, in words; empty where it can."""
        api = self._apis.get(call.dialect)
        if api is None:
            return f"there are no batches for {call.provider}"
        if key_hash(request.headers, request.url) == "none":
            return "batches need a key"
        return api.takes(call, request)

    def ask(self, asked: Asked, run: RunBatches) -> Waiter:
        """Wait for the batch that has the call already, or put it into the next."""
        with self._lock:
            run.is_quiet = False
            intent, is_answered = self.store.where(asked.key)
            full: Draft | None = None
            if intent is None and is_answered and self._is_cached(asked.key):
                # collected since the caller has looked: answers are in the cache before that is noted
                return answered_now(run, Delivery("answer", ""))
            if intent is None and asked.key in self._cancelled:
                return answered_now(run, Delivery("cancelled", self._cancelled[asked.key]))
            if intent is None and self.store.times_batched(asked.key) >= _MOST_BATCHES:
                return answered_now(run, Delivery("live", "earlier batches"))
            replay = self._gathered if self._gathered is not None and self._gathered.is_replay else None
            if intent is None and replay is not None and self._was_other(asked):
                replay.changed += 1
                return Waiter(run, "")  # nobody answers: the run stops, and asks in its own turn
            if intent is None:
                self._report_if_changed(asked, run)
                draft, full = self._draft_for(asked)
                intent = draft.intent
                row = RequestRow(
                    len(draft.requests), asked.key, asked.call.model, "", asked.attempt, asked.place
                )
                draft.add(row, asked.request.body, time.monotonic())
            else:
                self._begin_to_mind(intent)
            self._credentials[intent] = credentials_in(asked.request.headers)
            waiter = self._wait(asked.key, run, intent)
        if full is not None:
            self._in_background(self._close(full))
        return waiter

    def _draft_for(self, asked: Asked) -> tuple[Draft, Draft | None]:
        """The one that has room, and the one that is full."""
        api = self._apis[asked.call.dialect]
        meaning = asked.dialect.meaning_headers
        lane = lane_of(asked.request, asked.call, meaning=meaning, one_model=api.one_model)
        draft = self._drafts.get(lane)
        full = None
        if draft is not None and draft.is_full_with(asked.request.body, self._largest(asked.call)):
            full, draft = draft, None
        if draft is None:
            draft = self._drafts[lane] = Draft(lane, api, self.store, asked.name)
            self._in_background(self._linger(draft))
        return draft, full

    def _wait(self, key: str, run: RunBatches, intent: str) -> Waiter:
        waiter = Waiter(run, intent)
        self._waiting.setdefault(key, []).append(waiter)
        run.intents.setdefault(intent, 0)
        run.intents[intent] += 1
        return waiter

    def has_resumed(self, key: str, waiter: Waiter) -> None:
        """Its sample goes on, or is cancelled."""
        with self._lock:
            waiter.run.resuming -= waiter.is_resuming
            waiter.is_resuming = False
            if key not in self._waiting:
                return
            if self._gathered is not None:
                self._gathered.keys.add(key)
                self._gathered.waited_for.add(waiter.intent)
            left = [each for each in self._waiting.get(key, []) if each is not waiter]
            if left:
                self._waiting[key] = left
            else:
                self._waiting.pop(key, None)

    def _report_if_changed(self, asked: Asked, run: RunBatches) -> None:
        if self._was_other(asked):
            known, _ = self._unrecorded.pop((asked.attempt, asked.place))
            run.changed += 1
            self.store.note_recorded([known])
            run.tell_changed()

    def _was_other(self, asked: Asked) -> bool:
        """Whether the sample asked for something else at this place before it was stopped."""
        known, _ = self._unrecorded.get((asked.attempt, asked.place), (asked.key, False))
        return known != asked.key

    def found(self, attempt: str, place: int, key: str) -> Found:
        """A replayed sample has its answer from the cache: whether it came for it, and who has counted it."""
        known, is_counted = self._unrecorded.get((attempt, place), ("", False))
        if known != key:
            return ""
        with self._lock:
            self._unrecorded.pop((attempt, place), None)
        return "counted" if is_counted else "uncounted"

    # -- on the background loop

    async def _linger(self, draft: Draft) -> None:
        """Close it some seconds after the last call, for samples that work long on something else."""
        SAMPLE.set(None)
        while not draft.is_closed:
            left_s = self._pace.linger_s - (time.monotonic() - draft.last_added_s)
            if left_s <= 0 and draft.requests and not self.is_gathering:
                await self._close(draft)
                return
            await self._clock.sleep(max(left_s, self._pace.first_look_s))

    async def _close(self, draft: Draft) -> None:
        with self._lock:
            if draft.is_closed:
                return
            draft.is_closed = True
            if self._drafts.get(draft.lane) is draft:
                del self._drafts[draft.lane]
            try:
                batch = draft.promised(self._is_wanted)
            except Exception as error:  # whoever waits has to know
                self._fail([request.key for request in draft.requests], error)
                return
        if batch is not None:
            self._begin_to_mind(batch.intent)

    def _begin_to_mind(self, intent: str) -> None:
        with self._lock:
            if intent in self._minding:
                return
            self._minding.add(intent)
        self._in_background(self._mind(intent))

    async def _mind(self, intent: str) -> None:
        SAMPLE.set(None)
        try:
            while (wait_s := await self._minded(intent)) is not None:
                await self._clock.sleep(wait_s)
        except Exception as error:  # whoever waits has to know
            _LOG.exception("%s", intent)
            self._fail(self._keys_waiting_for(intent), error)
        finally:
            with self._lock:
                self._minding.discard(intent)

    async def _minded(self, intent: str) -> float | None:
        """One step, and seconds until the next; `None` where there is nothing left to do here."""
        batch = self.store.batch(intent)
        if batch is None or batch.state == "collected":
            self._deliver(intent, batch)
            return None
        if not self._keys_waiting_for(intent):
            self.store.release(intent)
            return None
        if not self.store.hold(intent):
            return _ANOTHER_HOLDS_S
        wait_s = await self._minder.step(batch, self._credentials.get(intent, {}))
        return 0.0 if wait_s is None else wait_s

    def _keys_waiting_for(self, intent: str) -> list[str]:
        with self._lock:
            return [key for key, waiters in self._waiting.items() if any(w.intent == intent for w in waiters)]

    def waiting_of(self, run: RunBatches) -> list[tuple[str, int]]:
        """For which batches how many calls of the run wait, and for how long they have been under way."""
        with self._lock:
            waiting = Counter(
                waiter.intent for waiters in self._waiting.values() for waiter in waiters if waiter.run is run
            )
        return [
            (batch_in_words(self.store.batch(intent), intent), count) for intent, count in waiting.items()
        ]

    def _deliver(self, intent: str, batch: BatchRow | None) -> None:
        counts = self.store.counts(intent)
        failed = sum(counts.get(kind, 0) for kind in SENT_AGAIN)
        self._expect_all_to_resume(intent)
        for row in self.store.requests(intent):
            with self._lock:
                waiters = self._waiting.pop(row.key, [])
            settle(waiters, self._came_to(row, batch, failed))
        if batch is not None and batch.state == "collected" and not batch.digest:
            self.store.body_path(intent).unlink(missing_ok=True)
        left = self._keys_waiting_for(intent)
        if left:  # a row that somebody removed
            self._answer(left, Delivery("live", intent))

    def _expect_all_to_resume(self, intent: str) -> None:
        """Before the first of them goes on: one that asks again must not be taken for the last that works."""
        with self._lock:
            for waiters in self._waiting.values():
                for waiter in waiters:
                    if waiter.intent == intent:
                        waiter.run.is_quiet = False
                        waiter.run.resuming += 1
                        waiter.is_resuming = True

    def _came_to(self, row: RequestRow, batch: BatchRow | None, failed: int) -> Delivery:
        name = (batch.provider_id if batch is not None else "") or (batch.intent if batch else "")
        match row.kind:
            case "succeeded":
                return Delivery("answer", name)
            case "invalid":
                body = (row.told or "").encode()
                return Delivery("failed", name, Reply(row.status or 400, {}, body))
            case "canceled":
                return Delivery("cancelled", name)
        of = batch.count if batch is not None else 0
        times = self.store.times_batched(row.key)
        return Delivery("live" if goes_live(failed, of, times) else "again", name)

    def _fail(self, keys: Iterable[str], error: Exception) -> None:
        for key in keys:
            with self._lock:
                waiters = self._waiting.pop(key, [])
            fail(waiters, error)

    def _answer(self, keys: Iterable[str], came: Delivery) -> None:
        for key in keys:
            with self._lock:
                waiters = self._waiting.pop(key, [])
            settle(waiters, came)


def goes_live(failed: int, of: int, times: int) -> bool:
    """Whether what failed in a batch is sent live rather than in another one."""
    return failed <= max(_LIVE_AT_MOST, of * _LIVE_SHARE) or times >= _MOST_BATCHES
