"""Anthropic's Message Batches, as bytes. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from evalve.gate.batches.resource import BatchResource, encoded, headers_of
from evalve.gate.batches.shapes import Lane, Result, Seen, one_line
from evalve.gate.messages import Call, Reply, Request

_PERMANENT = frozenset(
    {"invalid_request_error", "not_found_error", "permission_error", "request_too_large", "billing_error"}
)
_STATUS = {"not_found_error": 404, "permission_error": 403, "request_too_large": 413, "billing_error": 402}


class AnthropicBatches(BatchResource):
    """The whole batch is the body of one POST."""

    name = "anthropic"
    after_name = "after_id"
    one_model = False
    largest = 100_000
    largest_bytes = 250 * 1024 * 1024
    """Of 256 MB; what stands around the lines is in it."""
    kept_s = 29 * 86_400.0
    tells_intent = False

    def takes(self, call: Call, request: Request) -> str:
        if call.endpoint != "messages" or not request.url.partition("?")[0].endswith("/v1/messages"):
            return f"{call.host} has no batches for {call.endpoint or 'such calls'}"
        if call.streams:
            return "an answer that is streamed cannot come in a batch"
        return "a batch has no fast mode" if call.pool.endswith("+fast") else ""

    def line(self, lane: Lane, custom_id: str, body: bytes) -> bytes:
        return b'{"custom_id":"%s","params":%s}' % (custom_id.encode(), one_line(body))

    def framing(self) -> tuple[bytes, bytes, bytes]:
        return b'{"requests":[\n', b",\n", b"\n]}"

    def upload(self, lane: Lane) -> Request | None:
        return None

    def uploaded(self, reply: Reply) -> str:
        return ""

    def create(self, lane: Lane, *, intent: str, file_id: str) -> Request:
        return Request("POST", self.batches_url(lane), headers_of(lane), b"")

    def batches_url(self, lane: Lane) -> str:
        return f"{lane.url}/batches"

    def seen_in(self, lane: Lane, said: dict[str, Any]) -> Seen:
        counts = said.get("request_counts") or {}
        status = str(said["processing_status"])
        ended = status == "ended"
        # not the address that it names: behind a proxy, there is another
        urls = (f"{lane.url}/batches/{said['id']}/results",) if ended else ()
        return Seen(
            id=str(said["id"]),
            has_ended=ended,
            status=status,
            count=sum(int(count) for count in counts.values()),
            created_s=_instant_s(said["created_at"]),
            expires_s=_instant_s(said["expires_at"]) if said.get("expires_at") else None,
            result_urls=urls,
        )

    def result(self, line: bytes) -> Result:
        said = json.loads(line)
        custom_id, result = str(said["custom_id"]), said["result"]
        match result["type"]:
            case "succeeded":
                return Result(custom_id, "succeeded", 200, encoded(result["message"]))
            case "errored":
                return _errored(custom_id, result.get("error") or {})
            case "expired":
                return Result(custom_id, "expired")
            case "canceled":
                return Result(custom_id, "canceled")
        raise ValueError(f"unknown type of result {result['type']!r}")


def _errored(custom_id: str, said: dict[str, Any]) -> Result:
    error = said.get("error") if isinstance(said.get("error"), dict) else said
    kind = str((error or {}).get("type"))
    body = encoded(said if said.get("type") == "error" else {"type": "error", "error": error})
    if kind in _PERMANENT:
        return Result(custom_id, "invalid", _STATUS.get(kind, 400), body)
    return Result(custom_id, "errored", 500, body)


def _instant_s(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
