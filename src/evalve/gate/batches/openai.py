"""OpenAI's Batch API, as bytes: a file goes up, files come down. Pure."""

from __future__ import annotations

import json
from typing import Any

from evalve.gate.batches.resource import BatchResource, encoded, headers_of
from evalve.gate.batches.shapes import Kind, Lane, Result, Seen, one_line
from evalve.gate.messages import Call, Reply, Request

_ENDPOINTS = ("/chat/completions", "/responses", "/embeddings", "/completions")
_OVER = frozenset({"completed", "expired", "cancelled", "failed"})
_INTENT = "evalve_intent"
_CLIENT_ERRORS, _SERVER_ERRORS = 400, 500
_TRY_AGAIN = (408, 409, 429)


class OpenAIBatches(BatchResource):
    """Chat Completions, Responses and Embeddings, on OpenAI's host or any that has its batches."""

    name = "openai"
    after_name = "after"
    one_model = True
    largest = 50_000
    largest_bytes = 195 * 1024 * 1024
    """Of 200 MB."""
    kept_s = 30 * 86_400.0
    tells_intent = True

    def takes(self, call: Call, request: Request) -> str:
        if not request.url.partition("?")[0].endswith(_ENDPOINTS) or "/deployments/" in request.url:
            return f"{call.host} has no batches for {call.endpoint or 'such calls'}"
        return "an answer that is streamed cannot come in a batch" if call.streams else ""

    def line(self, lane: Lane, custom_id: str, body: bytes) -> bytes:
        return b'{"custom_id":"%s","method":"POST","url":"%s","body":%s}' % (
            custom_id.encode(),
            endpoint_of(lane.url).encode(),
            one_line(body),
        )

    def framing(self) -> tuple[bytes, bytes, bytes]:
        return b"", b"\n", b"\n"

    def upload(self, lane: Lane) -> Request | None:
        return Request("POST", f"{_base(lane)}/files", dict(lane.headers), b"")

    def uploaded(self, reply: Reply) -> str:
        return str(json.loads(reply.body)["id"])

    def create(self, lane: Lane, *, intent: str, file_id: str) -> Request:
        body = {
            "input_file_id": file_id,
            "endpoint": endpoint_of(lane.url),
            "completion_window": "24h",
            "metadata": {_INTENT: intent},
        }
        return Request("POST", self.batches_url(lane), headers_of(lane), json.dumps(body).encode())

    def batches_url(self, lane: Lane) -> str:
        return f"{_base(lane)}/batches"

    def seen_in(self, lane: Lane, said: dict[str, Any]) -> Seen:
        status = str(said["status"])
        files = (said.get("output_file_id"), said.get("error_file_id"))
        errors = ((said.get("errors") or {}).get("data")) or []
        codes = {str(one.get("code")) for one in errors}
        told = "; ".join(str(one.get("message") or one.get("code")) for one in errors[:3])
        return Seen(
            id=str(said["id"]),
            has_ended=status in _OVER,
            status=status,
            count=int((said.get("request_counts") or {}).get("total") or 0),
            created_s=float(said["created_at"]),
            expires_s=float(said["expires_at"]) if said.get("expires_at") else None,
            result_urls=tuple(f"{_base(lane)}/files/{file}/content" for file in files if file),
            intent=(said.get("metadata") or {}).get(_INTENT),
            queue_is_full=status == "failed" and "token_limit_exceeded" in codes,
            failure=(told or "it failed, and does not say why") if status == "failed" else "",
        )

    def result(self, line: bytes) -> Result:
        said = json.loads(line)
        custom_id, response, error = str(said["custom_id"]), said.get("response"), said.get("error")
        if isinstance(response, dict) and response.get("status_code"):
            status = int(response["status_code"])
            return Result(custom_id, _kind_by(status), status, encoded(response.get("body")))
        code = str((error or {}).get("code"))
        kind: Kind = {"batch_expired": "expired", "batch_cancelled": "canceled"}.get(code, "errored")  # type: ignore[assignment]
        return Result(custom_id, kind, _SERVER_ERRORS, encoded({"error": error}))


def endpoint_of(url: str) -> str:
    """As OpenAI names it, wherever a host has it."""
    return "/v1" + next(end for end in _ENDPOINTS if url.endswith(end))


def _kind_by(status: int) -> Kind:
    if status < _CLIENT_ERRORS:
        return "succeeded"
    return "errored" if status >= _SERVER_ERRORS or status in _TRY_AGAIN else "invalid"


def _base(lane: Lane) -> str:
    return lane.url[: -len(next(end for end in _ENDPOINTS if lane.url.endswith(end)))]
