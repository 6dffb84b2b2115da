"""Notices an async evaluation that blocks the event loop, and says where and what to do instead."""

from __future__ import annotations

import asyncio
import linecache
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

BLOCKED_FOR_S = 0.2
_LOOK_EVERY_S = 0.05


@contextmanager
def watching_for_blocking(
    function: Callable[..., object], name: str, *, tell: Callable[[str], None]
) -> Iterator[None]:
    """Tell once if `function` keeps the running loop from turning for longer than `BLOCKED_FOR_S`."""
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
        while not self._ended.wait(_LOOK_EVERY_S):
            late_s = time.monotonic() - self._beat_s - _LOOK_EVERY_S
            if late_s < BLOCKED_FOR_S:
                continue
            place = self._place_in(sys._current_frames().get(self._loop_thread))
            if place is not None:
                self._tell(self._message(place, late_s))
                return

    def _place_in(self, innermost: FrameType | None) -> tuple[str, int] | None:
        """The line in the evaluation function that does not return, if it is on the stack."""
        frame = innermost
        while frame is not None:
            if frame.f_code is self._code:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None

    def _message(self, place: tuple[str, int], late_s: float) -> str:
        path, line = place
        source = linecache.getline(path, line).strip()
        shown = f"`{source}` " if source else ""
        return (
            f"{self._name} blocks the event loop: {shown}({path}:{line}) has not returned "
            f"for {late_s:.1f} s, and no other sample runs meanwhile. Await an async call there, wrap it as "
            "`await asyncio.to_thread(...)`, or write the evaluation as `def` instead of `async def`."
        )
