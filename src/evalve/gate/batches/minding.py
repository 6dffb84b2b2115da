"""A batch from its intent to its answers in the cache, one step at a time, in whatever process.

intent → sending → submitted → ended → collected; each state is stored before what follows from it is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from evalve.gate.batches.collecting import Collector
from evalve.gate.batches.courier import Courier, Gone, Later, Network, Refused, Uncertain
from evalve.gate.batches.drafts import number_in
from evalve.gate.batches.shapes import Api, Seen
from evalve.gate.batches.store import BatchRow, BatchStore

_LOG = logging.getLogger(__name__)
CLOCKS_DIFFER_S = 300.0
"""A batch may seem to be created before we submitted it: two clocks."""
_LOOK_AT_LEAST_EVERY_S = 60.0
_LOOK_AT_MOST_EVERY_S = 0.5
_SHARE_OF_AGE = 0.25
_LONGEST_WAIT_S = 120.0

Done = None
"""What a step returns when the batch is collected."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long is waited."""

    linger_s: float = 10.0
    """For another call, before a batch is closed while samples work."""

    @property
    def first_look_s(self) -> float:
        """After a batch was submitted; and between two looks at the least."""
        return min(_LOOK_AT_MOST_EVERY_S, self.linger_s / 20)

    @property
    def arriving_s(self) -> float:
        """A submission that has not appeared in the provider's list for so long has not arrived."""
        return 3 * self.linger_s


def look_again_in_s(age_s: float, at_most_every_s: float = _LOOK_AT_MOST_EVERY_S) -> float:
    """A quarter of the batch's age, within bounds: nobody learns much too late of its end."""
    return min(_LOOK_AT_LEAST_EVERY_S, max(at_most_every_s, _SHARE_OF_AGE * age_s))


class Minder:
    """Takes batches on. Who calls it holds the batch."""

    def __init__(
        self,
        *,
        store: BatchStore,
        network: Network,
        apis: Mapping[str, Api],
        collector: Collector,
        pace: Pace,
        queue_limit: Callable[[BatchRow], int | None] = lambda batch: None,
    ) -> None:
        self._store = store
        self._network = network
        self.apis = apis
        self._collector = collector
        self._pace = pace
        self._queue_limit = queue_limit
        self._troubles: dict[str, int] = {}
        """How often in a row something was in the way, by intent."""

    async def step(self, batch: BatchRow, credentials: Mapping[str, str]) -> float | None:
        """Do what its state asks for; seconds until the next step, or `None` when it is collected."""
        courier = Courier(self._network, self.apis[batch.lane.dialect], batch.lane, credentials)
        try:
            wait_s = await self._step(batch, courier)
        except Later as error:
            return self._in_trouble(batch, str(error), error.after_s)
        except Gone as error:
            self._collector.give_up(batch, f"the provider does not have it any more: {error}")
            return None
        except Refused as error:
            self._collector.refuse(batch, error.reply)
            return None
        self._troubles.pop(batch.intent, None)
        return wait_s

    async def _step(self, batch: BatchRow, courier: Courier) -> float | None:
        match batch.state:
            case "intent":
                return await self._submit(batch, courier)
            case "sending":
                return await self._find(batch, courier)
            case "submitted" | "ended":
                return await self._look(batch, courier)
        return None

    # -- out

    async def _submit(self, batch: BatchRow, courier: Courier) -> float | None:
        store, path = self._store, self._store.body_path(batch.intent)
        await self._wait_for_room(batch, courier)
        file_id = batch.file_id or await courier.upload(path)
        store.mark(batch.intent, file_id=file_id, state="sending", sending_s=time.time(), told="")
        try:
            seen = await courier.create(batch.intent, file_id, path)
        except Uncertain as error:
            store.mark(batch.intent, told=f"it may have been submitted: {error}")
            return self._pace.first_look_s
        except (Later, Gone, Refused):
            store.mark(batch.intent, state="intent", sending_s=None)
            raise
        return self._submitted(batch, seen)

    def _submitted(self, batch: BatchRow, seen: Seen) -> float:
        self._store.mark(
            batch.intent,
            state="submitted",
            provider_id=seen.id,
            status=seen.status,
            submitted_s=time.time(),
            expires_s=seen.expires_s,
            told="",
        )
        return self._pace.first_look_s

    async def _wait_for_room(self, batch: BatchRow, courier: Courier) -> None:
        """Where a person or a tier says how much the provider's queue takes."""
        limit = self._queue_limit(batch)
        if limit is None or batch.count > limit:
            return
        waiting = 0
        for other in self._store.batches():
            if other.state in ("sending", "submitted") and _same_account(other, batch):
                waiting += 0 if await self._has_ended(other, courier) else other.count
        if waiting + batch.count > limit:
            told = f"the queue takes {limit:,} requests, and {waiting:,} are in it"
            raise Later(told, self._pace.first_look_s * 4)

    async def _has_ended(self, other: BatchRow, courier: Courier) -> bool:
        """Perhaps nobody waits for it any more, and nobody has looked since."""
        if not other.provider_id:
            return False
        with suppress(Gone):
            seen = await courier.look(other.provider_id)
            if not seen.has_ended:
                return False
            self._store.mark(other.intent, state="ended", status=seen.status, ended_s=time.time())
        return True

    # -- a submission whose answer was lost

    async def _find(self, batch: BatchRow, courier: Courier) -> float | None:
        sent_s = batch.sending_s or batch.created_s
        known = {other.provider_id for other in self._store.batches()}
        candidates = [
            seen
            for seen in await courier.listed(since_s=sent_s - CLOCKS_DIFFER_S)
            if seen.id not in known and _may_be(seen, batch)
        ]
        undecided = 0
        for seen in candidates:
            is_ours = seen.intent == batch.intent or await self._is_ours(seen, batch, courier)
            if is_ours:
                _LOG.info("%s was found again as %s", batch.intent, seen.id)
                return self._submitted(batch, seen)
            undecided += is_ours is None
        age_s = time.time() - sent_s
        if undecided:
            of = "a batch" if undecided == 1 else f"one of {undecided} batches"
            told = f"its id was lost; it may be {of} whose results will tell"
            self._store.mark(batch.intent, told=told)
            return look_again_in_s(age_s, self._pace.first_look_s)
        if age_s < self._pace.arriving_s:
            return min(self._pace.first_look_s * 2, self._pace.arriving_s - age_s)
        self._store.mark(batch.intent, state="intent", sending_s=None, told="it had not arrived")
        return 0.0

    async def _is_ours(self, seen: Seen, batch: BatchRow, courier: Courier) -> bool | None:
        """By the id of its first result; `None` while it has none."""
        if not seen.has_ended:
            return None
        async for result in courier.results(seen):
            return number_in(result.custom_id, batch.intent) is not None
        return False

    # -- back

    async def _look(self, batch: BatchRow, courier: Courier) -> float | None:
        seen = await courier.look(batch.provider_id)
        if seen.queue_is_full:
            # it was taken and failed: nothing of it was done, and it goes again when there is room
            self._store.mark(batch.intent, state="intent", provider_id="", sending_s=None, told=seen.failure)
            raise Later(seen.failure, self._pace.first_look_s * 10)
        if seen.failure:
            self._collector.fail(batch, seen.failure)
            return None
        now_s = time.time()
        if not seen.has_ended:
            if seen.status != batch.status or batch.told:
                self._store.mark(batch.intent, status=seen.status, expires_s=seen.expires_s, told="")
            age_s = now_s - (batch.submitted_s or now_s)
            return look_again_in_s(age_s, self._pace.first_look_s)
        if batch.state != "ended":
            self._store.mark(batch.intent, state="ended", status=seen.status, ended_s=now_s, told="")
        await self._collector.collect(batch, courier.results(seen))
        return None

    async def cancel(self, batch: BatchRow, credentials: Mapping[str, str]) -> None:
        """Ask the provider to end it; what is done of it can be fetched."""
        courier = Courier(self._network, self.apis[batch.lane.dialect], batch.lane, credentials)
        await courier.cancel(batch.provider_id)
        self._store.mark(batch.intent, is_cancelled=1)

    def _in_trouble(self, batch: BatchRow, told: str, after_s: float | None) -> float:
        times = self._troubles[batch.intent] = self._troubles.get(batch.intent, 0) + 1
        self._store.mark(batch.intent, told=told)
        growing_s = min(_LONGEST_WAIT_S, self._pace.first_look_s * 1.6**times)
        return growing_s if after_s is None else max(after_s, self._pace.first_look_s)


def _may_be(seen: Seen, batch: BatchRow) -> bool:
    """By what its provider keeps of our name, else by its size."""
    return seen.intent == batch.intent if seen.intent else seen.count == batch.count


def _same_account(one: BatchRow, other: BatchRow) -> bool:
    return (one.lane.dialect, one.lane.key_hash, one.lane.model) == (
        other.lane.dialect,
        other.lane.key_hash,
        other.lane.model,
    )
