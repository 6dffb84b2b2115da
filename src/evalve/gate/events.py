"""Server-sent events from bytes that are split anywhere."""

from __future__ import annotations


class ServerEvents:
    """Feed it what arrives; it gives the data of every event that is complete."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        self._line.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._line).split(b"\n")
        self._line = [rest]
        return [event for line in lines if (event := self._with_line(line.rstrip(b"\r"))) is not None]

    def end(self) -> list[bytes]:
        """What is left where a server leaves out the last blank line."""
        return [*self.feed(b"\n"), *self.feed(b"\n")]

    def _with_line(self, line: bytes) -> bytes | None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            event = b"\n".join(self._data)
            self._data = []
            return event
        return None
