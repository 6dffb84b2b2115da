"""A kept answer, and its form in a row of the cache database. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalve.gate.cache.key import SECRET_HEADERS
from evalve.gate.messages import Reply, Usage

_OF_THE_MOMENT = frozenset(
    {
        "age",
        "connection",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "retry-after",
        "retry-after-ms",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-should-retry",
    }
)
_RATE_LIMITS = ("anthropic-ratelimit-", "anthropic-fast-", "ratelimit", "x-ratelimit-")

_COMPRESS_FROM_BYTES = 512  # below, zlib takes more time than it saves room
_PLAIN, _ZLIB = 0, 1

COLUMNS = (
    "key, provider, model, experiment, created_at, last_used_at, size, status, input_tokens, output_tokens,"
    " cache_read_tokens, cache_write_tokens, packing, checksum, headers, body"
)
_encoded = json.JSONEncoder(separators=(",", ":")).encode
Row = tuple[Any, ...]
"""The values of `COLUMNS`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer that was received completely, and whose it is."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    provider: str = ""
    model: str = ""
    experiment: str = ""
    usage: Usage | None = None

    def as_reply(self) -> Reply:
        return Reply(self.status, self.headers, self.body, cached=True)


class CorruptEntry(Exception):
    """A row is not what was written."""


def lasting_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """What of an answer's headers is still true later, and for anybody; names in lower case."""
    lowered = ((name.lower(), value) for name, value in headers.items())
    return {
        name: value
        for name, value in lowered
        if name not in _OF_THE_MOMENT and name not in SECRET_HEADERS and not name.startswith(_RATE_LIMITS)
    }


def row_of(key: str, entry: Entry, *, now_s: float) -> Row:
    raw_key = bytes.fromhex(key)
    headers = _encoded(dict(entry.headers)).encode()
    packing, body = _packed(entry.body)
    facts = (entry.status, *_counts(entry.usage), packing)
    return (
        raw_key,
        _text(entry.provider),
        _text(entry.model),
        _text(entry.experiment),
        int(now_s),
        int(now_s),
        len(headers) + len(body),
        *facts,
        _checksum(raw_key, facts, headers, body),
        headers,
        body,
    )


def entry_of(row: Row) -> Entry:
    """The entry in a row of `COLUMNS`; `CorruptEntry` where the row has been damaged."""
    key, provider, model, experiment, _, _, _, *facts, checksum, headers, body = row
    try:
        if _checksum(key, tuple(facts), headers, body) != checksum:
            raise CorruptEntry("its checksum is wrong")
        status, *counts, packing = facts
        return Entry(
            status,
            json.loads(headers),
            zlib.decompress(body) if packing == _ZLIB else body,
            provider,
            model,
            experiment,
            None if counts[0] is None else Usage(*counts),
        )
    except (zlib.error, ValueError, TypeError) as error:
        raise CorruptEntry(f"it cannot be read: {error}") from error


def _packed(body: bytes) -> tuple[int, bytes]:
    if len(body) >= _COMPRESS_FROM_BYTES:
        compressed = zlib.compress(body, 1)
        if len(compressed) < len(body):
            return _ZLIB, compressed
    return _PLAIN, bytes(body)


def _checksum(key: bytes, facts: tuple[int | None, ...], headers: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(headers, zlib.crc32(key, zlib.crc32(repr(facts).encode()))))


def _counts(usage: Usage | None) -> tuple[int | None, ...]:
    if usage is None:
        return None, None, None, None
    return usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens


def _text(text: str) -> str:
    """As SQLite takes it: a lone surrogate has no bytes in UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()
