"""Anthropic's Message Batches: create, look at, list, cancel, delete, and their results as JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from evalve.simulator.apis.anthropic import AnthropicApi
from evalve.simulator.apis.wire import FailureKind, encoded, rfc3339_exact
from evalve.simulator.asks import BadRequest
from evalve.simulator.batches.book import Batch, BatchedRequest, Fate, QueueFull
from evalve.simulator.batches.desk import Desk, batched_request, parsed, refuse_twins

_PATH = re.compile(r"/v1/messages/batches(?:/(?P<id>[^/]+)(?:/(?P<verb>cancel|results))?)?")
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LARGEST = 100_000
_MOST_LISTED = 1000
_COUNTED = ("processing", "succeeded", "errored", "canceled", "expired")


class AnthropicBatches:
    """Everything below /v1/messages/batches."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._api = AnthropicApi()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        found = _PATH.fullmatch(request.rel_url.path)
        if found is None:
            return None
        try:
            key_hash = self._desk.key_of(self._api, request)
            if found["id"] is None:
                if request.method == "POST":
                    return await self._create(request, key_hash)
                return self._list(request, key_hash)
            return await self._about_one(request, found["id"], found["verb"], key_hash)
        except PermissionError:
            return self._failed("key")
        except BadRequest as error:
            return self._failed("invalid", str(error))
        except QueueFull as error:
            error_body = {"type": "rate_limit_error", "message": str(error)}
            body = {"type": "error", "error": error_body}
            return web.Response(
                status=429,
                body=encoded(body),
                headers={"content-type": "application/json", "retry-after": "1"},
            )

    async def _create(self, request: web.BaseRequest, key_hash: str) -> web.Response:
        raw = await request.read()
        await self._desk.reach("before_create")
        requests = [_request(one) for one in _listed(parsed(raw))]
        refuse_twins(requests)
        settings, now_s = self._desk.behaviour().batches, self._desk.clock.now_s()
        largest = settings.largest or _LARGEST
        if len(requests) > largest:
            return self._failed("too_big", f"requests: a batch has at most {largest} requests")
        waiting = self._desk.book.waiting("anthropic", key_hash, now_s)
        if settings.queue_limit is not None and waiting + len(requests) > settings.queue_limit:
            raise QueueFull(
                f"This request would exceed your organization's limit of {settings.queue_limit} batch"
                " requests in the processing queue."
            )
        batch = self._desk.take_in(
            Batch(
                self._desk.book.next_id("msgbatch_"),
                "anthropic",
                key_hash,
                requests,
                created_s=now_s,
                created_at_s=self._desk.utc_s(),
                settings=settings,
                seed=self._desk.behaviour().seed,
            )
        )
        await self._desk.reach("after_create")
        return _said(self._shown(batch, request))

    def _list(self, request: web.BaseRequest, key_hash: str) -> web.Response:
        batches = self._desk.book.latest_first("anthropic", key_hash)
        query = request.rel_url.query
        if after := query.get("after_id"):
            ids = [batch.id for batch in batches]
            batches = batches[ids.index(after) + 1 :] if after in ids else []
        limit = min(_MOST_LISTED, int(query.get("limit", "20")))
        page = [self._shown(batch, request) for batch in batches[:limit]]
        ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
        return _said({"data": page, "has_more": len(batches) > limit, **ends})

    async def _about_one(
        self, request: web.BaseRequest, batch_id: str, verb: str | None, key_hash: str
    ) -> web.StreamResponse:
        desk = self._desk
        batch = desk.book.find("anthropic", key_hash, batch_id)
        if batch is None:
            return self._failed("not_found", f"batch {batch_id} not found")
        now_s = desk.clock.now_s()
        if verb == "results":
            if not batch.has_ended(now_s):
                return self._failed("not_found", f"batch {batch_id} has no available results")
            return await desk.send_lines(request, self._results(batch), len(batch.requests))
        if request.method == "DELETE":
            if not batch.has_ended(now_s):
                raise BadRequest("a batch that is being processed cannot be deleted")
            desk.book.forget(batch)
            return _said({"id": batch.id, "type": "message_batch_deleted"})
        if verb == "cancel":
            if not batch.has_ended(now_s):
                batch.cancelled_s = batch.cancelled_s or now_s
            return _said(self._shown(batch, request))
        await desk.reach("status")
        return _said(self._shown(batch, request))

    def _results(self, batch: Batch) -> Iterator[dict[str, Any]]:
        for request, fate in batch.fates():
            if fate != "missing":
                yield {"custom_id": request.custom_id, "result": self._result(batch, request, fate)}

    def _result(self, batch: Batch, request: BatchedRequest, fate: Fate) -> dict[str, Any]:
        if fate == "errored":
            return _errored("api_error", "Internal server error")
        if fate != "succeeded":
            return {"type": fate}
        try:
            message = self._desk.answered(self._api, batch, request)
        except BadRequest as error:
            return _errored("invalid_request_error", str(error))
        return {"type": "succeeded", "message": message}

    def _shown(self, batch: Batch, request: web.BaseRequest) -> dict[str, Any]:
        ended = batch.has_ended(self._desk.clock.now_s())
        self._desk.count_ended(batch)
        counts: dict[str, int] = dict.fromkeys(_COUNTED, 0)
        if ended:
            came = batch.counts()
            came["errored"] += came.pop("missing")
            counts |= {str(fate): count for fate, count in came.items()}
        else:
            counts["processing"] = len(batch.requests)
        cancelled = batch.cancelled_s is not None
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "canceling" if cancelled else "in_progress",
            "request_counts": counts,
            "created_at": rfc3339_exact(batch.created_at_s),
            "expires_at": rfc3339_exact(batch.expires_at_s),
            "ended_at": rfc3339_exact(batch.ended_at_s()) if ended else None,
            "cancel_initiated_at": rfc3339_exact(batch.ended_at_s()) if cancelled else None,
            "archived_at": None,
            "results_url": f"{request.url.origin()}/v1/messages/batches/{batch.id}/results"
            if ended
            else None,
        }

    def _failed(self, kind: FailureKind, message: str = "") -> web.Response:
        failure = self._api.failure(kind, message)
        self._desk.stats().rejections[kind] += 1
        return web.Response(
            status=failure.status, body=encoded(failure.body), headers={"content-type": "application/json"}
        )


def _listed(body: Mapping[str, Any]) -> list[Any]:
    requests = body.get("requests")
    if not isinstance(requests, list) or not requests:
        raise BadRequest("requests: at least one request is required")
    return requests


def _request(plain: Any) -> BatchedRequest:
    if not isinstance(plain, dict):
        raise BadRequest("requests: every request must be an object")
    request = batched_request(plain.get("custom_id"), plain.get("params"))
    if not _CUSTOM_ID.fullmatch(request.custom_id):
        raise BadRequest(f"custom_id: {request.custom_id!r} must match ^[a-zA-Z0-9_-]{{1,64}}$")
    return request


def _errored(kind: str, message: str) -> dict[str, Any]:
    return {"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": message}}}


def _said(body: Mapping[str, Any]) -> web.Response:
    return web.Response(body=encoded(body), headers={"content-type": "application/json"})
