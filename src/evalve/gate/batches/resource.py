"""A batch as a resource over HTTP, as both providers have it: looked at, cancelled, listed in pages. Pure."""

from __future__ import annotations

import json
from typing import Any

from evalve.gate.batches.shapes import Lane, Seen
from evalve.gate.messages import Reply, Request

_PAGE = 100


class BatchResource:
    """What is the same wherever batches are and whatever they say of themselves."""

    after_name: str
    """How the listing is told where its next page begins."""

    def batches_url(self, lane: Lane) -> str:
        """Where batches are created and listed."""
        raise NotImplementedError

    def seen_in(self, lane: Lane, said: dict[str, Any]) -> Seen:
        """One batch as the provider describes it."""
        raise NotImplementedError

    def look(self, lane: Lane, batch_id: str) -> Request:
        return self._asked("GET", lane, f"/{batch_id}")

    def cancel(self, lane: Lane, batch_id: str) -> Request:
        return self._asked("POST", lane, f"/{batch_id}/cancel")

    def listing(self, lane: Lane, *, after: str) -> Request:
        more = f"&{self.after_name}={after}" if after else ""
        return self._asked("GET", lane, f"?limit={_PAGE}{more}")

    def page(self, lane: Lane, reply: Reply) -> tuple[list[Seen], str]:
        body = json.loads(reply.body)
        batches = [self.seen_in(lane, one) for one in body["data"]]
        return batches, batches[-1].id if body.get("has_more") and batches else ""

    def seen(self, lane: Lane, reply: Reply) -> Seen:
        return self.seen_in(lane, json.loads(reply.body))

    def _asked(self, method: str, lane: Lane, rest: str) -> Request:
        return Request(method, self.batches_url(lane) + rest, headers_of(lane), b"")


def headers_of(lane: Lane) -> dict[str, str]:
    return {**dict(lane.headers), "content-type": "application/json"}


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
