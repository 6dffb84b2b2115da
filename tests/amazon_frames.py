"""Amazon's frames as a server writes them, for tests."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any


def frame(kind: str, payload: Any, **headers: str) -> bytes:
    """One event; `headers` with `_` for `-`."""
    named = {":message-type": "event", ":event-type": kind, **_named(headers)}
    head = b"".join(_header(name, value) for name, value in named.items())
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(head) + len(body), len(head))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    whole = prelude + head + body
    return whole + struct.pack(">I", zlib.crc32(whole))


def chunk(event: Any) -> bytes:
    """An event of `invoke-with-response-stream`."""
    return frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()})


def failure(kind: str, message: str) -> bytes:
    return frame("", {"message": message}, message_type="exception", exception_type=kind)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {":" + name.replace("_", "-"): value for name, value in headers.items()}


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(text)) + text
