"""An agent's output on disk: its beginning and its end, with a bound on both."""

from __future__ import annotations

import os
from collections import deque

CHUNK_BYTES = 65_536


class KeptOutput:
    """Reads a pipe, and writes a file that never grows beyond its bound."""

    def __init__(self, path: str, *, head_bytes: int, tail_bytes: int) -> None:
        self.pipe: int | None = None
        self.seen_bytes = 0
        self.problem: OSError | None = None
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._head_left = head_bytes
        self._tail_bytes = tail_bytes
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._left_out = 0

    @property
    def left_out_bytes(self) -> int:
        return self._left_out

    def read(self) -> bool:
        """Take what is there now; false at the end of the pipe, which whoever listens to it closes."""
        if self.pipe is None:
            return False
        try:
            chunk = os.read(self.pipe, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            chunk = b""
        if not chunk:
            return False
        self.seen_bytes += len(chunk)
        head, rest = chunk[: self._head_left], chunk[self._head_left :]
        if head:
            self._head_left -= len(head)
            self._write(head)
        if rest:
            self._keep_in_tail(rest)
        return True

    def close_pipe(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def close(self) -> None:
        """Write the end, and what is missing before it."""
        self.close_pipe()
        if self._left_out:
            self._write(f"\n… {self._left_out:,} bytes left out …\n".encode())
        for chunk in self._tail:
            self._write(chunk)
        os.close(self._file)

    def _keep_in_tail(self, chunk: bytes) -> None:
        self._tail.append(chunk)
        self._in_tail += len(chunk)
        while self._in_tail > self._tail_bytes and len(self._tail) > 1:
            dropped = len(self._tail.popleft())
            self._in_tail -= dropped
            self._left_out += dropped

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:  # a full disk: the agent goes on, and its run tells
            self.problem = self.problem or error
            self._left_out += len(data)
