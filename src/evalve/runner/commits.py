"""Records on their way to the store: how many, and what follows when they are committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from evalve.contracts import RecordDraft, RunningStore, Tally

_LOG = logging.getLogger(__name__)

MOST_UNCOMMITTED = 1000
"""A body waits for the store before it ends its turn where more records than this are on their way."""

Callbacks = Sequence[Callable[[], None]]


class Commits:
    """Hands drafts to the store, and counts those that are done when it tells."""

    def __init__(self, store: RunningStore, tally: Tally) -> None:
        self.last_commit_s: float | None = None
        self.on_commit: Callable[[], None] = lambda: None
        self.on_error: Callable[[BaseException], None] = lambda error: None
        self._store = store
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._on_their_way = 0
        self._room = asyncio.Event()
        self._callbacks: dict[int, Callbacks] = {}
        self._awaited: dict[int, asyncio.Future[None]] = {}
        self._calling_back: set[asyncio.Future[None]] = set()

    def owed(self) -> int:
        """Records that are not committed yet, and callbacks that have not returned."""
        return self._on_their_way + len(self._calling_back)

    async def add(self, draft: RecordDraft, callbacks: Callbacks = (), *, is_awaited: bool = False) -> None:
        """Return when the record is on its way; what it comes to is counted later.

        Where it `is_awaited`, return when it is committed.
        """
        self._on_their_way += 1
        if callbacks:
            self._callbacks[id(draft)] = callbacks
        self._store.add(draft, self)
        if is_awaited:
            committed = self._awaited[id(draft)] = self._loop.create_future()
            await committed
        while self._on_their_way > MOST_UNCOMMITTED:
            self._room.clear()
            await self._room.wait()

    async def keep(self, draft: RecordDraft) -> None:
        """Return when what there is of an attempt is stored. Where it cannot be, its record will tell."""
        kept = _Kept(self._loop)
        self._store.add(draft, kept)
        await kept.told

    def replace(self, draft: RecordDraft) -> None:
        """Put it in the place of an earlier record; nothing of this run counts it."""
        self._store.add(draft, _Replacing(self._loop, self.on_error))

    def call_back(self, callbacks: Callbacks) -> None:
        """In a thread, because they may take long: removing a directory, for one."""
        for callback in callbacks:
            called = self._loop.run_in_executor(None, _called, callback)
            self._calling_back.add(called)
            called.add_done_callback(self._has_called_back)

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        """Called by the store on its own thread, once per transaction."""
        self._loop.call_soon_threadsafe(self._count, drafts, error)

    def _count(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        tally = self._tally
        if error is None:
            for draft in drafts:
                if draft.status == "done":
                    tally.done += 1
                elif draft.status == "failed":
                    tally.failed += 1
                    failure_class = draft.failure_class or "code"
                    tally.failures[failure_class] = tally.failures.get(failure_class, 0) + 1
                else:
                    tally.skipped_now += 1
            self.last_commit_s = self._loop.time()
        else:
            self.on_error(error)
        for draft in drafts if self._callbacks else ():
            callbacks = self._callbacks.pop(id(draft), ())
            if error is None:  # else what would be undone is all that there is of the sample
                self.call_back(callbacks)
        for draft in drafts if self._awaited else ():
            awaited = self._awaited.pop(id(draft), None)
            if awaited is not None and not awaited.done():
                awaited.set_result(None)
        self._on_their_way -= len(drafts)
        self.on_commit()
        self._room.set()

    def _has_called_back(self, called: asyncio.Future[None]) -> None:
        self._calling_back.discard(called)
        self.on_commit()


class _Kept:
    """Waits for one draft that is not the record yet, and counts as nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.told: asyncio.Future[None] = loop.create_future()

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.told.get_loop().call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.told.done():
            self.told.set_result(None)


def _called(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception as error:  # the record is safe: what follows it must not end the run
        _LOG.warning("after a record was committed: %s: %s", type(error).__name__, error)


@dataclass(frozen=True, slots=True)
class _Replacing:
    """Told of records that nobody counts."""

    loop: asyncio.AbstractEventLoop
    on_error: Callable[[BaseException], None]

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        if error is not None:
            self.loop.call_soon_threadsafe(self.on_error, error)
