"""The events of a stream, from bytes that are split anywhere and framed in any of three ways.

Server-sent events, JSON lines (Ollama) and Amazon's binary frames are told apart by their first byte: servers
name the wrong content type.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

_LINE_END = re.compile(rb"\r\n|\n|\r")
_SPACE = b" \t\r\n"


class ServerEvents:
    """Feed it what arrives; it gives the data of every event that is complete."""

    def __init__(self) -> None:
        self._framing: _Sse | _Lines | _Frames | None = None
        self._start = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._framing is None:
            chunk = self._start = self._start + chunk
            if not chunk.strip(_SPACE):
                return []
            self._framing = _framing_of(chunk)
        return self._framing.feed(chunk)

    def end(self) -> list[bytes]:
        """What is left where a server leaves out the last blank line."""
        return [] if self._framing is None else self._framing.end()


def _framing_of(start: bytes) -> _Sse | _Lines | _Frames:
    if start.startswith(b"\0"):
        return _Frames()
    return _Lines() if start.lstrip(_SPACE).startswith((b"{", b"[")) else _Sse()


class _Split:
    """Lines from chunks; a line may end with CR, LF or both."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        self._rest.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        *lines, rest = _LINE_END.split(b"".join(self._rest))
        self._rest = [rest]
        return lines


class _Sse:
    def __init__(self) -> None:
        self._lines = _Split()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        return [event for line in self._lines.feed(chunk) if (event := self._with_line(line)) is not None]

    def end(self) -> list[bytes]:
        return [*self.feed(b"\n"), *self.feed(b"\n")]

    def _with_line(self, line: bytes) -> bytes | None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            event = b"\n".join(self._data)
            self._data = []
            return event
        return None


class _Lines:
    """One JSON value a line; what is spread over several lines is one value, and comes whole at the end."""

    def __init__(self) -> None:
        self._lines = _Split()
        self._open: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        events = []
        for line in self._lines.feed(chunk):
            if self._open or (line.strip() and not _is_value(line)):
                self._open.append(line)
            elif line.strip():
                events.append(line)
        return events

    def end(self) -> list[bytes]:
        events = self.feed(b"\n")
        return [*events, b"\n".join(self._open).rstrip()] if self._open else events


def _is_value(line: bytes) -> bool:
    """By its ends alone: a line that only begins a value ends with something else."""
    line = line.strip()
    return len(line) > 1 and line[:1] + line[-1:] in (b"{}", b"[]")


class _Frames:
    """Amazon's event stream. An event is given as JSON: `{"messageStop": {…}}`, or what a chunk carries."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        self._buffer += chunk
        return list(self._complete())

    def end(self) -> list[bytes]:
        return []

    def _complete(self) -> Iterator[bytes]:
        while len(self._buffer) >= _PRELUDE_BYTES:
            total, headers = struct.unpack_from(">II", self._buffer)
            if not _PRELUDE_BYTES + headers + _CHECKSUM_BYTES <= total <= _LARGEST_FRAME_BYTES:
                return  # not a frame: what follows cannot be found either, and the stream has no end
            if len(self._buffer) < total:
                return
            frame = bytes(self._buffer[:total])
            del self._buffer[:total]
            body = _PRELUDE_BYTES + headers
            yield _event(_string_headers(frame[_PRELUDE_BYTES:body]), frame[body:-_CHECKSUM_BYTES])


_PRELUDE_BYTES = 12
_CHECKSUM_BYTES = 4
_LARGEST_FRAME_BYTES = 32 * 2**20
_FIXED_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Header values of a known length, by type; 6 (bytes) and 7 (text) say theirs."""


def _string_headers(raw: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    while at < len(raw):
        named = at + 1 + raw[at]
        name, kind = raw[at + 1 : named].decode("utf-8", "replace"), raw[named] if named < len(raw) else 0
        at = named + 1
        if kind in (6, 7):
            (length,) = struct.unpack_from(">H", raw.ljust(at + 2, b"\0"), at)
            headers[name] = raw[at + 2 : at + 2 + length].decode("utf-8", "replace")
            at += 2 + length
        else:
            at += _FIXED_BYTES.get(kind, len(raw))
    return headers


def _event(headers: dict[str, str], payload: bytes) -> bytes:
    try:
        said: Any = json.loads(payload or b"{}")
    except ValueError:
        said = {"message": payload.decode("utf-8", "replace")}
    failure = headers.get(":exception-type") or headers.get(":error-code")
    if failure:
        message = headers.get(":error-message") or (said.get("message") if isinstance(said, dict) else "")
        return json.dumps({"error": {"type": failure, "message": message or ""}}).encode()
    if (
        headers.get(":event-type") == "chunk"
        and isinstance(said, dict)
        and isinstance(said.get("bytes"), str)
    ):
        try:
            return base64.b64decode(said["bytes"])
        except ValueError:
            pass
    return json.dumps({headers.get(":event-type", "event"): said}).encode()
