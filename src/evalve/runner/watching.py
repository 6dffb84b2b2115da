"""Notices an async evaluation that blocks the event loop, and says where and what to do instead."""

from __future__ import annotations

import asyncio
import faulthandler
import linecache
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType

BLOCKED_FOR_S = 0.2
_LOOK_EVERY_S = 0.05
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_IMPORTING = "<frozen importlib"
_PACKAGE = __file__.rpartition("runner/")[0]
_SYNC_CALLS = f"{_PACKAGE}gate/background.py"
_LONGEST_PATH = 500
"""What a dumped stack shows of a path."""


@contextmanager
def watching_for_blocking(
    function: Callable[..., object], name: str, *, tell: Callable[[str], None]
) -> Iterator[None]:
    """Tell once if `function` keeps the running loop to itself for longer than `BLOCKED_FOR_S`."""
    watch = _Watch(getattr(function, "__code__", None), name, tell)
    thread = threading.Thread(target=watch.look_on, name="evalve-watch", daemon=True)
    watch.beat()
    thread.start()
    try:
        yield
    finally:
        watch.end()


class _Watch:
    def __init__(self, code: CodeType | None, name: str, tell: Callable[[str], None]) -> None:
        self._code = code
        self._name = name
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._beat_s = time.monotonic()

    def beat(self) -> None:
        """Runs on the loop: as long as it comes round, nothing blocks."""
        self._beat_s = time.monotonic()
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self.beat)

    def end(self) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def look_on(self) -> None:
        """A turn of the loop may be long because many tasks take part in it: one that stays blocks."""
        step: tuple[object, float] | None = None
        since_s = 0.0
        while not self._ended.wait(_LOOK_EVERY_S):
            now_s = time.monotonic()
            running = (asyncio.current_task(self._loop), self._beat_s)
            if running[0] is None or running != step:
                step, since_s = running, now_s
                continue
            line = self._line_that_blocks() if now_s - since_s >= BLOCKED_FOR_S else None
            if line is not None:
                self._tell(self._message(line, now_s - since_s))
                return

    def _line_that_blocks(self) -> int | None:
        """The line in the evaluation function that does not return, if it is on the loop's stack."""
        code = self._code
        if code is None:
            return None
        path = code.co_filename.encode("ascii", "backslashreplace").decode()[:_LONGEST_PATH]
        own_lines = {line for _, _, line in code.co_lines()}
        below: list[str] = []
        for shown_path, line, name in _stack_of(self._loop_thread):
            if shown_path.startswith(_IMPORTING):
                return None  # the first use of a module: it blocks only once
            if line in own_lines and name == code.co_name and shown_path[:_LONGEST_PATH] == path:
                return None if _is_our_doing(below) else line
            below.append(shown_path)
        return None

    def _message(self, line: int, late_s: float) -> str:
        assert self._code is not None
        path = self._code.co_filename
        source = linecache.getline(path, line).strip()
        shown = f"`{source}` " if source else ""
        return (
            f"{self._name} blocks the event loop: {shown}({path}:{line}) has not returned "
            f"for {late_s:.1f} s, and no other sample runs meanwhile. Await an async call there, wrap it as "
            "`await asyncio.to_thread(...)`, or write the evaluation as `def` instead of `async def`."
        )


def _is_our_doing(paths: list[str]) -> bool:
    """Whether what takes so long is evalve's own, as when the first call opens the cache on a busy machine.

    A sync call of a model waits in evalve too, but for what the evaluation should have awaited.
    """
    return any(path.startswith(_PACKAGE) for path in paths) and _SYNC_CALLS not in paths


def _stack_of(thread: int) -> Iterator[tuple[str, int, str]]:
    """Path, line and function of each frame, innermost first.

    The interpreter writes them down while every thread stands still. Frames of a running thread that are
    followed from Python may be freed under way: that was seen to give a frame that was none.
    """
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        dumped = file.read().decode("ascii", "replace")
    is_asked_for = False
    for text in dumped.splitlines():
        if header := _THREAD.match(text):
            is_asked_for = int(header[1], 16) == thread
        elif is_asked_for and (frame := _FRAME.match(text)):
            yield frame[1], int(frame[2]), frame[3]
