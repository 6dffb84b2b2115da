"""`evalve.batches.submit` and `results`: requests of a person's own, with the durability of a run's.

They may stand as their provider writes them (`{"custom_id": …, "params": {…}}`, or `{"custom_id": …,
"method": "POST", "url": "/v1/chat/completions", "body": {…}}`), or as `{"model": "anthropic/…", "prompt": …}`
with whatever `model.generate` takes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from evalve import gating
from evalve.batches.desk import Desk, desk
from evalve.batches.reading import Line, lines_of
from evalve.errors import OptionError
from evalve.gate.background import SHARED
from evalve.gate.batches.drafts import Draft, digest_of, lines_in, number_in
from evalve.gate.batches.shapes import SENT_AGAIN, credentials_in, lane_of
from evalve.gate.batches.store import BatchRow, RequestRow
from evalve.gate.cache.entries import Entry, lasting_headers
from evalve.gate.messages import Request
from evalve.secrecy import secret


def submit(
    requests: Iterable[Mapping[str, Any]],
    *,
    name: str = "",
    api_key: str | None = None,
    base_url: str | None = None,
) -> str:
    """Send the requests as one batch, and return its id once the provider has it.

    The same requests again, after a crash or in another process, give the same batch: nothing is paid for
    twice. Answers that are in the cache are not asked for.
    """
    result: str = SHARED.call(submit_async(requests, name=name, api_key=api_key, base_url=base_url))
    return result


async def submit_async(
    requests: Iterable[Mapping[str, Any]],
    *,
    name: str = "",
    api_key: str | None = None,
    base_url: str | None = None,
) -> str:
    """`submit` for async code."""
    lines = lines_of(requests, api_key=api_key, base_url=base_url)
    if why := gating.house().batches().takes(lines[0].call, lines[0].request):
        raise OptionError(f"request {lines[0].custom_id!r} cannot go in a batch: {why}")
    at = desk()
    digest = digest_of(line.request.url.encode() + line.request.body for line in lines)
    batch = _submitted_before(at, digest) or _promised(at, lines, name, digest)
    if batch.state in ("intent", "sending"):
        keys = credentials_in(lines[0].request.headers)
        batch = await at.until(batch.intent, ("submitted", "ended", "collected"), credentials=keys)
    if batch.told and batch.state == "collected" and not batch.provider_id and batch.count:
        raise OptionError(f"{batch.intent} was not taken: {batch.told}")
    return batch.intent


def results(batch_id: str, *, resend: bool = True, api_key: str | None = None) -> list[dict[str, Any]]:
    """Wait for a batch and return its results in the order of its requests.

    Each has `custom_id`, `status` (`succeeded`, `invalid`, `errored`, `expired`, `canceled`, `missing`),
    `response` (the provider's answer) and `error`. With `resend`, what errored, expired or is missing is
    asked for live.
    """
    result: list[dict[str, Any]] = SHARED.call(results_async(batch_id, resend=resend, api_key=api_key))
    return result


async def results_async(
    batch_id: str, *, resend: bool = True, api_key: str | None = None
) -> list[dict[str, Any]]:
    """`results` for async code."""
    at = desk()
    at.api_key = secret(api_key)
    batch = await at.until(at.found(batch_id).intent, ("collected",))
    if resend:
        await _resend(at, batch)
    return [_result(row) for row in at.store.requests(batch.intent)]


def _submitted_before(at: Desk, digest: str) -> BatchRow | None:
    """The same requests in a batch that is open, or whose answers are still at hand."""
    for batch in at.store.batches():
        if batch.digest == digest and not batch.is_cancelled:
            counts = at.store.counts(batch.intent)
            if batch.state != "collected" or counts.get("succeeded", 0) == sum(counts.values()):
                return batch
    return None


def _promised(at: Desk, lines: list[Line], name: str, digest: str) -> BatchRow:
    first, apis = lines[0], at.minder.apis
    api = apis[first.call.dialect]
    lane = lane_of(first.request, first.call, meaning=first.dialect.meaning_headers, one_model=api.one_model)
    if api.one_model and len({line.call.model for line in lines}) > 1:
        raise OptionError(
            "the requests ask several models, and a batch of OpenAI's has one: submit them apart"
        )
    cache, draft, answered = gating.house().store, Draft(lane, api, at.store, name), list[RequestRow]()
    for number, line in enumerate(lines):
        row = RequestRow(number, line.key, line.call.model, line.custom_id)
        if cache.get(line.key) is not None:
            answered.append(RequestRow(number, line.key, line.call.model, line.custom_id, kind="succeeded"))
            continue
        if draft.is_full_with(line.request.body):
            raise OptionError(
                f"{len(lines)} requests are more than one batch takes ({api.largest:,}, or"
                f" {api.largest_bytes >> 20} MB): submit them in parts"
            )
        draft.add(row, line.request.body, time.monotonic())
    batch = draft.promised(lambda key: True, digest=digest, answered=answered)
    if batch is None:  # all of them are in the cache
        batch = BatchRow(
            draft.intent,
            lane,
            "collected",
            0,
            name,
            digest,
            time.time(),
            collected_s=time.time(),
            cost_usd=0.0,
        )
        at.store.add(batch, answered)
    return batch


def _result(row: RequestRow) -> dict[str, Any]:
    entry = gating.house().store.get(row.key) if row.kind == "succeeded" else None
    status = row.kind if entry is not None or row.kind != "succeeded" else "missing"
    return {
        "custom_id": row.custom_id or str(row.number),
        "status": status,
        "response": None if entry is None else json.loads(entry.body),
        "error": _plain(row.told) if row.told else None,
    }


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _resend(at: Desk, batch: BatchRow) -> None:
    """Live, within the limits: they are mostly few."""
    rows = {row.number: row for row in at.store.requests(batch.intent) if row.kind in SENT_AGAIN}
    path = at.store.body_path(batch.intent)
    if not rows or not path.exists():
        return
    headers = {**dict(batch.lane.headers), **at.credentials(batch.lane), "content-type": "application/json"}
    asked: list[tuple[RequestRow, Request]] = []
    for line in lines_in(path):
        plain = json.loads(line)
        number = number_in(plain["custom_id"], batch.intent)
        if number in rows:
            body = json.dumps(plain.get("params") or plain.get("body"), separators=(",", ":")).encode()
            asked.append((rows[number], Request("POST", batch.lane.url, headers, body)))
    await asyncio.gather(*(_ask_live(at, batch, row, request) for row, request in asked))


async def _ask_live(at: Desk, batch: BatchRow, row: RequestRow, request: Request) -> None:
    house = gating.house()
    reply = await house.gate.exchange(request, house.sender)
    if reply.problem is None and reply.status < 300:
        entry = Entry(
            reply.status,
            lasting_headers(reply.headers),
            reply.body,
            batch.lane.dialect,
            row.model,
            batch.name,
        )
        await house.store.put(row.key, entry)
        at.store.note_results(batch.intent, [(row.number, "succeeded", reply.status, None)])
    else:
        told = reply.body[:1000].decode(errors="replace")
        at.store.note_results(batch.intent, [(row.number, "errored", reply.status, told)])
