"""Results, in any order, go into the cache; then, and only then, whoever waits for them is told."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from evalve.gate.batches.drafts import number_in
from evalve.gate.batches.shapes import BATCH_HEADER, PRICE_SHARE, Kind, Result
from evalve.gate.batches.store import BatchRow, BatchStore, RequestRow
from evalve.gate.cache.entries import Entry
from evalve.gate.messages import Call, Dialect, Reply, Usage

_LOG = logging.getLogger(__name__)
_AT_ONCE = 250
_TOLD_AT_MOST = 4000


class Cache(Protocol):
    """Where answers are kept."""

    async def put(self, key: str, entry: Entry) -> bool: ...


class Collector:
    """Of one process; who calls it holds the batch."""

    def __init__(
        self,
        *,
        store: BatchStore,
        cache: Cache,
        dialects: Mapping[str, Dialect],
        price: Callable[[str, Usage], float | None],
    ) -> None:
        self._store = store
        self._cache = cache
        self._dialects = dialects
        self._price = price

    async def collect(self, batch: BatchRow, results: AsyncIterator[Result]) -> None:
        """All results of a batch that has ended. Begun again, it does again what it did."""
        rows = {row.number: row for row in self._store.requests(batch.intent)}
        cost_usd, gathered = 0.0, list[tuple[RequestRow, Result]]()
        async for result in results:
            number = number_in(result.custom_id, batch.intent)
            row = rows.pop(number, None) if number is not None else None
            if row is None:
                continue  # not ours, or told twice
            gathered.append((row, result))
            if len(gathered) == _AT_ONCE:
                cost_usd += await self._keep(batch, gathered)
                gathered = []
        cost_usd += await self._keep(batch, gathered)
        if missing := self._store.note_missing(batch.intent):
            _LOG.warning("%s: %d of %d requests have no result", batch.intent, missing, batch.count)
        if self._store.counts(batch.intent).get("canceled"):
            self._store.mark(batch.intent, is_cancelled=1)
        self._collected(batch, cost_usd=cost_usd)

    async def _keep(self, batch: BatchRow, gathered: Sequence[tuple[RequestRow, Result]]) -> float:
        noted: list[tuple[int, Kind, int, str | None]] = []
        puts, cost_usd = [], 0.0
        for row, result in gathered:
            kind, entry, usd = self._read(batch, row, result)
            cost_usd += usd
            told = None if kind == "succeeded" else result.body[:_TOLD_AT_MOST].decode(errors="replace")
            noted.append((row.number, kind, result.status, told))
            if entry is not None:
                puts.append(self._cache.put(row.key, entry))
        await asyncio.gather(*puts)
        self._store.note_results(batch.intent, noted)
        return cost_usd

    def _read(self, batch: BatchRow, row: RequestRow, result: Result) -> tuple[Kind, Entry | None, float]:
        if result.kind != "succeeded":
            return result.kind, None, 0.0
        call, dialect = call_in(batch, row.model), self._dialects[batch.lane.dialect]
        headers = {"content-type": "application/json", BATCH_HEADER: batch.provider_id or batch.intent}
        reply = Reply(result.status, headers, result.body)
        usage = dialect.usage(call, result.body)
        usd = (self._price(row.model, usage) or 0.0) * PRICE_SHARE if usage is not None else 0.0
        if dialect.problem(reply, call) is not None:
            return "errored", None, usd
        entry = Entry(result.status, headers, result.body, call.provider, row.model, batch.name, usage)
        return "succeeded", entry, usd

    # -- a batch that gives no results

    def give_up(self, batch: BatchRow, told: str) -> None:
        """Nobody can say what became of its requests: they are asked anew."""
        _LOG.warning("%s: %s; its requests are sent again", batch.intent, told)
        self._store.note_missing(batch.intent)
        self._collected(batch, told=told)

    def refuse(self, batch: BatchRow, reply: Reply) -> None:
        """The provider did not take it: each of its requests fails so."""
        told = reply.body[:_TOLD_AT_MOST].decode(errors="replace")
        self._all_came_to(batch, "invalid", reply.status, told)
        self._collected(batch, told=f"it was refused with HTTP {reply.status}: {told[:300]}")

    def fail(self, batch: BatchRow, told: str) -> None:
        """The provider took it, and did not begin it."""
        self._all_came_to(batch, "invalid", 400, told)
        self._collected(batch, told=told)

    def _all_came_to(self, batch: BatchRow, kind: Kind, status: int, told: str) -> None:
        noted = [(row.number, kind, status, told) for row in self._store.requests(batch.intent)]
        self._store.note_results(batch.intent, noted)

    def _collected(self, batch: BatchRow, *, cost_usd: float | None = None, told: str = "") -> None:
        self._store.mark(
            batch.intent, state="collected", collected_s=time.time(), cost_usd=cost_usd, told=told, holder=""
        )


def call_in(batch: BatchRow, model: str) -> Call:
    """A request of the batch as its dialect reads answers to it."""
    lane = batch.lane
    host, _, path = lane.url.partition("://")[2].partition("/")
    usual = {"anthropic": "api.anthropic.com", "openai": "api.openai.com"}
    endpoint = next(
        (end for end in ("messages", "chat/completions", "responses", "embeddings") if path.endswith(end)),
        path,
    )
    return Call(
        provider=lane.dialect if host == usual.get(lane.dialect) else host,
        host=host,
        model=model,
        pool=model,
        key_hash=lane.key_hash,
        input_bytes=0,
        max_output_tokens=None,
        streams=False,
        dialect=lane.dialect,
        endpoint=endpoint,
    )
