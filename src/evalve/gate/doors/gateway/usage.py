"""OpenAI's streams say what they took only where they are asked: they are, unnoticed by clients. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from evalve.gate.doors.gateway.upstreams import Upstream
from evalve.gate.messages import Request

_OPENAI = "openai"
_PATH = "/chat/completions"
_BOUNDARY = re.compile(rb"\r?\n\r?\n")


def asking_for_usage(outgoing: Request, upstream: Upstream) -> Request | None:
    """The request with `include_usage`; `None` where it asks for it itself, or where that is no matter.

    Only for OpenAI: other servers that speak like it may refuse what they do not know.
    """
    if upstream.name != _OPENAI or not outgoing.url.partition("?")[0].endswith(_PATH):
        return None
    body = _object(outgoing.body) if b'"stream"' in outgoing.body else None
    if body is None or body.get("stream") is not True:
        return None
    said = body.get("stream_options")
    options = said if isinstance(said, dict) else {}
    if options.get("include_usage"):
        return None
    asking = {**body, "stream_options": {**options, "include_usage": True}}
    return replace(outgoing, body=json.dumps(asking, separators=(",", ":"), ensure_ascii=False).encode())


class WithoutUsage:
    """A stream without the event that has only the usage: clients that did not ask take it for a choice."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be handed on: whole events."""
        text = self._rest + chunk
        kept, start = [], 0
        for boundary in _BOUNDARY.finditer(text):
            event = text[start : boundary.end()]
            start = boundary.end()
            if not _has_only_usage(event):
                kept.append(event)
        self._rest = text[start:]
        return b"".join(kept)

    def end(self) -> bytes:
        """What is left where a server leaves out the last blank line."""
        rest, self._rest = self._rest, b""
        return b"" if _has_only_usage(rest) else rest


def _has_only_usage(event: bytes) -> bool:
    if b'"usage"' not in event:
        return False
    data = b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))
    said = _object(data)
    return said is not None and said.get("choices") == [] and isinstance(said.get("usage"), dict)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
