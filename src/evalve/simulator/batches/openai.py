"""OpenAI's Batch API: files with JSON lines, batches of them, and the files that come out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from evalve.simulator.apis.openai import OpenAIApi
from evalve.simulator.apis.responses import ResponsesApi
from evalve.simulator.apis.routes import usual_path
from evalve.simulator.apis.wire import Api, FailureKind, encoded
from evalve.simulator.asks import BadRequest
from evalve.simulator.batches.book import Batch, BatchedRequest, Fate
from evalve.simulator.batches.desk import Desk, batched_request, parsed, refuse_twins

_FILES = re.compile(r"/v1/files(?:/(?P<id>[^/]+)(?P<content>/content)?)?")
_BATCHES = re.compile(r"/v1/batches(?:/(?P<id>[^/]+)(?P<cancel>/cancel)?)?")
_LARGEST = 50_000
_MOST_METADATA = 16
_OUTPUT, _ERRORS = "file-out-", "file-err-"


class OpenAIBatches:
    """Everything below /v1/files and /v1/batches."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._chat = OpenAIApi()
        self._apis: dict[str, Api] = {"/v1/chat/completions": self._chat, "/v1/responses": ResponsesApi()}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        path = usual_path(request.rel_url.path)
        file, batch = _FILES.fullmatch(path), _BATCHES.fullmatch(path)
        if file is None and batch is None:
            return None
        try:
            key_hash = self._desk.key_of(self._chat, request)
            if file is not None:
                return await self._file(request, file, key_hash)
            assert batch is not None
            if batch["id"] is not None:
                return await self._about_one(batch["id"], batch["cancel"] is not None, key_hash)
            if request.method == "POST":
                return await self._create(request, key_hash)
            return self._list(request, key_hash)
        except PermissionError:
            return self._failed("key")
        except BadRequest as error:
            return self._failed("invalid", str(error))

    # -- files

    async def _file(
        self, request: web.BaseRequest, found: re.Match[str], key_hash: str
    ) -> web.StreamResponse:
        if found["id"] is None:
            return await self._upload(request)
        file_id = found["id"]
        if file_id.startswith((_OUTPUT, _ERRORS)):
            return await self._download(request, file_id, key_hash)
        content = self._desk.book.file(file_id)
        if content is None:
            return self._failed("not_found", f"No such File object: {file_id}")
        return web.Response(body=content) if found["content"] else _said(_shown_file(file_id, len(content)))

    async def _upload(self, request: web.BaseRequest) -> web.Response:
        if not request.content_type.startswith("multipart/"):
            raise BadRequest("a file is uploaded as multipart/form-data")
        purpose, content = "", None
        async for part in await request.multipart():
            name = getattr(part, "name", None)
            if name == "purpose":
                purpose = (await part.read()).decode()  # type: ignore[union-attr]
            elif name == "file":
                content = bytes(await part.read())  # type: ignore[union-attr]
        if purpose != "batch" or content is None:
            raise BadRequest("purpose must be 'batch', and there must be a file")
        await self._desk.reach("before_file")
        file_id = self._desk.book.keep_file(content)
        await self._desk.reach("after_file")
        return _said(_shown_file(file_id, len(content)))

    async def _download(self, request: web.BaseRequest, file_id: str, key_hash: str) -> web.StreamResponse:
        is_output = file_id.startswith(_OUTPUT)
        batch = self._desk.book.find("openai", key_hash, file_id.removeprefix(_OUTPUT).removeprefix(_ERRORS))
        if batch is None or not batch.has_ended(self._desk.clock.now_s()):
            return self._failed("not_found", f"No such File object: {file_id}")
        lines = self._output(batch) if is_output else self._errors(batch)
        return await self._desk.send_lines(request, lines, len(batch.requests) if is_output else 0)

    def _output(self, batch: Batch) -> Iterator[dict[str, Any]]:
        for request, fate in batch.fates():
            if fate == "succeeded":
                yield self._response(batch, request)

    def _response(self, batch: Batch, request: BatchedRequest) -> dict[str, Any]:
        api, status = self._apis[batch.endpoint], 200
        try:
            body: Mapping[str, Any] = self._desk.answered(api, batch, request)
        except BadRequest as error:
            failure = api.failure("invalid", str(error))
            status, body = failure.status, failure.body
        response = {"status_code": status, "request_id": f"req_{request.custom_id}", "body": body}
        return _line(batch, request, response=response)

    def _errors(self, batch: Batch) -> Iterator[dict[str, Any]]:
        for request, fate in batch.fates():
            if fate not in ("succeeded", "missing"):
                yield _line(batch, request, error=_error_of(fate))

    # -- batches

    async def _create(self, request: web.BaseRequest, key_hash: str) -> web.Response:
        desk, body = self._desk, parsed(await request.read())
        await desk.reach("before_create")
        file_id, endpoint = str(body.get("input_file_id")), str(body.get("endpoint"))
        content = desk.book.file(file_id)
        if content is None:
            raise BadRequest(f"input_file_id: there is no file {file_id!r}")
        if endpoint not in self._apis or body.get("completion_window") != "24h":
            raise BadRequest("endpoint or completion_window is not supported")
        metadata = body.get("metadata") or {}
        if not isinstance(metadata, dict) or len(metadata) > _MOST_METADATA:
            raise BadRequest(f"metadata: at most {_MOST_METADATA} texts")
        now_s, settings = desk.clock.now_s(), desk.behaviour().batches
        requests, failure = _read_lines(content, endpoint, settings.largest or _LARGEST)
        waiting = desk.book.waiting("openai", key_hash, now_s)
        limit = settings.queue_limit
        if failure is None and limit is not None and waiting + len(requests) > limit:
            failure = (
                "token_limit_exceeded",
                f"Enqueued token limit reached. Limit: {limit}. Please try again once some in_progress"
                " batches have been completed.",
            )
        batch = Batch(
            desk.book.next_id("batch_"),
            "openai",
            key_hash,
            requests,
            created_s=now_s,
            created_at_s=desk.utc_s(),
            settings=settings,
            seed=desk.behaviour().seed,
            endpoint=endpoint,
            input_file_id=file_id,
            metadata=metadata,
            failure=failure,
        )
        if failure is None:
            desk.take_in(batch)
        else:
            desk.book.add(batch)
        await desk.reach("after_create")
        return _said(self._shown(batch))

    def _list(self, request: web.BaseRequest, key_hash: str) -> web.Response:
        batches = self._desk.book.latest_first("openai", key_hash)
        query = request.rel_url.query
        if after := query.get("after"):
            ids = [batch.id for batch in batches]
            batches = batches[ids.index(after) + 1 :] if after in ids else []
        limit = min(100, int(query.get("limit", "20")))
        page = [self._shown(batch) for batch in batches[:limit]]
        return _said({"object": "list", "data": page, "has_more": len(batches) > limit})

    async def _about_one(self, batch_id: str, cancels: bool, key_hash: str) -> web.Response:
        batch = self._desk.book.find("openai", key_hash, batch_id)
        if batch is None:
            return self._failed("not_found", f"No batch found with id '{batch_id}'.")
        now_s = self._desk.clock.now_s()
        if cancels and not batch.has_ended(now_s):
            batch.cancelled_s = batch.cancelled_s or now_s
        elif not cancels:
            await self._desk.reach("status")
        return _said(self._shown(batch))

    def _shown(self, batch: Batch) -> dict[str, Any]:
        now_s = self._desk.clock.now_s()
        ended = batch.has_ended(now_s)
        if batch.failure is None:
            self._desk.count_ended(batch)
        counts = batch.counts() if ended and batch.failure is None else None
        failed = 0 if counts is None else len(batch.requests) - counts["succeeded"] - counts["missing"]
        code, message = batch.failure or ("", "")
        errors = {"object": "list", "data": [{"code": code, "message": message, "line": None, "param": None}]}
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "errors": errors if batch.failure else None,
            "input_file_id": batch.input_file_id,
            "completion_window": "24h",
            "status": _status(batch, ended),
            "output_file_id": f"{_OUTPUT}{batch.id}" if counts and counts["succeeded"] else None,
            "error_file_id": f"{_ERRORS}{batch.id}" if failed else None,
            "created_at": int(batch.created_at_s),
            "expires_at": int(batch.expires_at_s),
            "request_counts": {
                "total": len(batch.requests),
                "completed": 0 if counts is None else counts["succeeded"],
                "failed": failed,
            },
            "metadata": dict(batch.metadata or {}),
        }

    def _failed(self, kind: FailureKind, message: str = "") -> web.Response:
        failure = self._chat.failure(kind, message)
        self._desk.stats().rejections[kind] += 1
        return web.Response(
            status=failure.status, body=encoded(failure.body), headers={"content-type": "application/json"}
        )


def _status(batch: Batch, ended: bool) -> str:
    if batch.failure is not None:
        return "failed"
    if not ended:
        return "in_progress"
    if batch.cancelled_s is not None:
        return "cancelled"
    return "expired" if batch.is_expired else "completed"


def _read_lines(
    content: bytes, endpoint: str, largest: int
) -> tuple[list[BatchedRequest], tuple[str, str] | None]:
    """The requests of a file, or code and message of what is wrong with it: OpenAI tells that later."""
    try:
        lines = [parsed(line) for line in content.splitlines() if line.strip()]
        if any(line.get("url") != endpoint or line.get("method") != "POST" for line in lines):
            return [], ("invalid_url", "The URL of a request does not match the batch's endpoint.")
        requests = [batched_request(line.get("custom_id"), line.get("body"), endpoint) for line in lines]
        refuse_twins(requests)
    except BadRequest as error:
        return [], ("invalid_json_line", str(error))
    if not requests:
        return [], ("empty_file", "The batch file is empty.")
    if len({request.body.get("model") for request in requests}) > 1:
        return [], ("mismatched_model", "The models of a batch's requests must be the same.")
    if len(requests) > largest:
        return [], ("too_many_requests", f"A batch has at most {largest} requests.")
    return requests, None


def _line(
    batch: Batch, request: BatchedRequest, *, response: Any = None, error: Any = None
) -> dict[str, Any]:
    return {
        "id": f"batch_req_{request.custom_id}",
        "custom_id": request.custom_id,
        "response": response,
        "error": error,
    }


def _error_of(fate: Fate) -> dict[str, str]:
    if fate == "expired":
        return {"code": "batch_expired", "message": "This request could not be executed before it expired."}
    if fate == "canceled":
        return {"code": "batch_cancelled", "message": "The batch was cancelled."}
    return {"code": "server_error", "message": "The server had an error while processing your request."}


def _shown_file(file_id: str, size_bytes: int) -> dict[str, Any]:
    return {"id": file_id, "object": "file", "bytes": size_bytes, "purpose": "batch", "status": "processed"}


def _said(body: Mapping[str, Any]) -> web.Response:
    return web.Response(body=encoded(body), headers={"content-type": "application/json"})
