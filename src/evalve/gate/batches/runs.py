"""One run's way to the batch queue: what its calls wait for, and what it is told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from evalve.gate.batches.asked import GATHERED, Asked, Delivery, Found
from evalve.gate.batches.store import BatchRow
from evalve.gate.messages import Call, Request

if TYPE_CHECKING:
    from evalve.gate.batches.queue import BatchQueue

_LOG = logging.getLogger(__name__)
_NOTED_AT_ONCE = 250
_TOLD_FOR_S = 1.0


class RunBatches:
    """One run's way to the queue."""

    def __init__(self, queue: BatchQueue, name: str) -> None:
        self._queue = queue
        self.name = name
        self.is_quiet = False
        """Whether no sample of it works, and none can begin."""
        self.resuming = 0
        """Calls whose batch is delivered and whose sample has not gone on yet."""
        self.intents: dict[str, int] = {}
        """How many of its calls have waited for which batch."""
        self.changed = 0
        """Samples that asked for something else than before they were interrupted."""
        self.live: dict[str, int] = {}
        """Calls that could not go in a batch, by the reason."""
        self.sent_again = 0
        self._given: dict[str, None] = {}
        """What samples have that are not recorded."""
        self._recorded: list[str] = []
        self._told, self._told_s = "", 0.0
        self.tell: Callable[[str], None] = lambda text: _LOG.warning("%s", text)

    def takes(self, call: Call, request: Request) -> bool:
        why = self._queue.takes(call, request)
        if why:
            if why not in self.live:
                self.tell(f"a call goes live instead of in a batch: {why}")
            self.live[why] = self.live.get(why, 0) + 1
        return not why

    async def answer(self, asked: Asked) -> Delivery:
        """Return when the batch of the call is collected."""
        while True:
            waiter = self._queue.ask(asked, self)
            try:
                came = await waiter.future
            finally:
                self._queue.has_resumed(asked.key, waiter)
            if came.fate in ("again", "live"):
                self._note_sent_again(came)
            if came.fate != "again":
                return came

    def found(self, attempt: str, place: int, key: str) -> Found:
        return self._queue.found(attempt, place, key)

    def quiet(self) -> str:
        """No sample of the run works, and none can begin; why it shall stop here, if it shall."""
        self.is_quiet = True
        if self._queue.is_gathering:
            return GATHERED
        self._queue.close_if_quiet()
        return ""

    def given(self, key: str) -> None:
        """A sample has the answer, and the run has counted what it cost, whatever becomes of the sample."""
        self._given[key] = None

    def was_recorded(self, key: str) -> None:
        """The sample that has the answer is recorded, with what it cost. From any thread."""
        self._given.pop(key, None)
        self._recorded.append(key)
        if len(self._recorded) >= _NOTED_AT_ONCE:
            self._note_recorded()

    def _note_recorded(self) -> None:
        recorded, self._recorded = self._recorded, []
        if recorded:
            self._queue.store.note_recorded(recorded)

    def leave(self) -> None:
        self._note_recorded()
        if self._given:
            self._queue.store.note_counted(list(self._given))
        self._queue.leave(self)

    def open_batches(self) -> list[BatchRow]:
        """Those that calls of the run have waited for and that are not collected."""
        rows = [self._queue.store.batch(intent) for intent in self.intents]
        return [row for row in rows if row is not None and row.state != "collected"]

    def in_words(self) -> str:
        """`9,990 for msgbatch_01, submitted 12 min ago`; empty where none waits. It is kept a second."""
        now_s = time.monotonic()
        if now_s - self._told_s > _TOLD_FOR_S:
            self._told_s = now_s
            self._told = ", ".join(f"{count:,} for {what}" for what, count in self._queue.waiting_of(self))
        return self._told

    def tell_changed(self) -> None:
        if self.changed == 1:
            self.tell(
                "a sample is non-deterministic: replayed, it asks for something else than before, so what"
                " it asked for then was paid for in vain. A date, a random number or a set in its prompt?"
                " (Or was the evaluation edited?)"
            )

    def _note_sent_again(self, came: Delivery) -> None:
        self.sent_again += 1
        if self.sent_again == 1:
            how = "live" if came.fate == "live" else "in another batch"
            self.tell(
                f"requests of {came.batch} that errored, expired or have no result are sent again {how}"
            )
