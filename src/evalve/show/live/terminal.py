"""Status lines below the cursor of a terminal, and a guard that keeps user output clear of them."""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

LONGEST_WAIT_S = 1.0
HELD_AT_MOST = 8192  # characters, as a text stream's own buffer

SAVE_CURSOR, RESTORE_CURSOR = "\x1b7", "\x1b8"
NEXT_LINE = "\r\x1b[B"
ERASE_LINE, ERASE_BELOW = "\x1b[2K", "\x1b[J"


def drawing(lines: Sequence[str]) -> str:
    """What draws the lines below the cursor, which stays where it was: half a line may stand before it."""
    body = "".join(f"{NEXT_LINE}{ERASE_LINE}{line}" for line in lines)
    return f"{_room(len(lines))}{SAVE_CURSOR}{body}{ERASE_BELOW}{RESTORE_CURSOR}"


def erasing(count: int) -> str:
    """What removes so many lines below the cursor."""
    return f"{_room(count)}{SAVE_CURSOR}{(NEXT_LINE + ERASE_LINE) * count}{RESTORE_CURSOR}"


def _room(count: int) -> str:
    # Index scrolls at the bottom and otherwise only moves. Also before erasing: a subprocess may have
    # written since, and on the last line "down" would stay on what it wrote.
    return "\x1bD" * count + f"\x1b[{count}A"


def write_all(fd: int, data: bytes) -> None:
    """One write, or more if the descriptor takes less; waits a little for one that does not block."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            if not select.select([], [fd], [], LONGEST_WAIT_S)[1]:
                return


class StatusArea:
    """The lines below the cursor. Whoever writes to the terminal meanwhile does so under its lock."""

    def __init__(self, fd: int, *, unicode: bool = True) -> None:
        self._fd: int | None = fd
        self._encoding = "utf-8" if unicode else "ascii"
        self._lines: tuple[str, ...] = ()
        # re-entrant: a signal handler may print while its thread is in here
        self.lock = threading.RLock()

    def size(self) -> tuple[int, int]:
        """Columns and rows; a usual size where the terminal does not tell."""
        try:
            found = os.get_terminal_size(self._fd if self._fd is not None else -1)
        except (OSError, ValueError):
            return 80, 24
        return found.columns or 80, found.lines or 24

    def show(self, lines: Sequence[str]) -> None:
        """Draw these instead of what was there."""
        with self.lock:
            self._lines = tuple(lines)
            if self._lines:
                self._write(drawing(self._lines))

    def clear(self) -> None:
        with self.lock:
            if self._lines:
                self._write(erasing(len(self._lines)))
            self._lines = ()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The lines are away while someone else writes."""
        with self.lock:
            if self._lines:
                self._write(erasing(len(self._lines)))
            try:
                yield
            finally:
                if self._lines:
                    self._write(drawing(self._lines))

    def print(self, text: str) -> None:
        """Write text on lines of its own, above the status lines."""
        columns, _ = self.size()
        with self.aside():
            # a row of blanks ends on this line if the cursor stood at its beginning, else on the next
            self._write(f"{' ' * columns}\r{text}\n")

    def _write(self, text: str) -> None:
        if self._fd is None:
            return
        try:
            write_all(self._fd, text.encode(self._encoding, "replace"))
        except OSError:
            # the terminal is gone: nothing to show it to
            self._fd = None


class GuardedStream:
    """Stands in for `sys.stdout` or `sys.stderr`: writes whole lines, with the status lines out of the way.

    Like the stream behind it on a terminal, it holds back half a line until its end, a carriage return or
    a flush; and it does so for each thread, so that lines of several threads stay whole. Once released, or
    in a forked child (where another thread may have held the lock for ever), it is only a name for that
    stream.
    """

    def __init__(self, stream: Any, area: StatusArea) -> None:
        self.guarded = stream
        self.released = False
        self._area = area
        self._pid = os.getpid()
        self._held: dict[int, str] = {}

    def write(self, text: str) -> int:
        if self._is_only_a_name():
            return int(self.guarded.write(text))
        thread = threading.get_ident()
        with self._area.lock:
            text_so_far = self._held.get(thread, "") + text
            end = max(text_so_far.rfind("\n"), text_so_far.rfind("\r")) + 1
            if len(text_so_far) - end > HELD_AT_MOST or self.released:
                end = len(text_so_far)
            self._held[thread] = text_so_far[end:]
            self._pass_on(text_so_far[:end])
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self._is_only_a_name():
            self.guarded.flush()
            return
        with self._area.lock:
            self._pass_on(self._held.pop(threading.get_ident(), ""))

    def release(self) -> None:
        """Write what was held back, and let everything through from now on."""
        with self._area.lock:
            self.released = True
            held, self._held = self._held, {}
            try:
                self._pass_on("".join(held.values()))
            except (OSError, ValueError):
                # the stream was closed, or its reader is gone
                pass

    @property
    def buffer(self) -> GuardedBuffer:
        return GuardedBuffer(self.guarded.buffer, self)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The status lines are away, if there are any."""
        if self._is_only_a_name():
            yield
        else:
            with self._area.aside():
                yield

    def _pass_on(self, text: str) -> None:
        if text:
            with self._area.aside():
                self.guarded.write(text)
                self.guarded.flush()

    def _is_only_a_name(self) -> bool:
        return self.released or os.getpid() != self._pid

    def __getattr__(self, name: str) -> Any:
        return getattr(self.guarded, name)


class GuardedBuffer:
    """The bytes side of a guarded stream."""

    def __init__(self, buffer: Any, stream: GuardedStream) -> None:
        self._buffer = buffer
        self._stream = stream

    def write(self, data: bytes) -> int:
        with self._stream.alone():
            written = int(self._buffer.write(data))
            self._buffer.flush()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)


class OutputGuard:
    """Puts guarded streams in the place of those that reach a terminal, also in logging, and back."""

    def __init__(self, area: StatusArea) -> None:
        self._area = area
        self._installed: dict[str, GuardedStream] = {}

    def install(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if _is_terminal(stream):
                self._installed[name] = GuardedStream(stream, self._area)
                setattr(sys, name, self._installed[name])
        _swap_in_logging({id(guard.guarded): guard for guard in self._installed.values()})

    def remove(self) -> None:
        for guard in self._installed.values():
            guard.release()
        behind = {id(guard): _behind(guard) for guard in self._installed.values()}
        for name, guard in self._installed.items():
            # someone else's stand-in stays: it may still lead to ours, which lets everything through
            if getattr(sys, name) is guard:
                setattr(sys, name, behind[id(guard)])
        _swap_in_logging(behind)
        self._installed.clear()


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except (AttributeError, ValueError):
        # a stand-in without the method, or a closed stream
        return False


def _behind(guard: GuardedStream) -> Any:
    """The stream behind a guard, and behind those that it was put on and that are no longer in use."""
    stream = guard.guarded
    while isinstance(stream, GuardedStream) and stream.released:
        stream = stream.guarded
    return stream


def _swap_in_logging(replacements: Mapping[int, Any]) -> None:
    """Give every handler that writes to one of these streams (by identity) the other one."""
    known = [logging.getLogger(), *logging.getLogger().manager.loggerDict.copy().values()]
    for logger in known:
        for handler in getattr(logger, "handlers", ()):
            stream = getattr(handler, "stream", None)
            if isinstance(handler, logging.StreamHandler) and id(stream) in replacements:
                handler.setStream(replacements[id(stream)])
