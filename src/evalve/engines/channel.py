"""Messages over a private socket between this process and its own child: a length, then so many bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from typing import Any

from evalve.engines.crossing import dumped, loaded

_LENGTH = struct.Struct(">Q")


class Channel:
    """The child's end, which blocks. Any thread may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        data = framed(message)
        with self._sending:
            self._end.sendall(data)

    def receive(self) -> Any | None:
        """The next message; `None` where the other end is closed."""
        try:
            head = self._exactly(_LENGTH.size)
            return None if head is None else _read(self._exactly(_LENGTH.unpack(head)[0]))
        except OSError:
            return None

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            piece = self._end.recv(min(size - len(data), 1 << 20))
            if not piece:
                return None
            data += piece
        return bytes(data)


def framed(message: Any) -> bytes:
    data = dumped(message)
    return _LENGTH.pack(len(data)) + data


async def received(reader: asyncio.StreamReader) -> Any | None:
    """The next message for the parent; `None` where the child is gone."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return _read(await reader.readexactly(_LENGTH.unpack(head)[0]))
    except (asyncio.IncompleteReadError, OSError):
        return None


def _read(data: bytes | None) -> Any | None:
    return None if data is None else loaded(data)
