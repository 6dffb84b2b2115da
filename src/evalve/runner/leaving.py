"""Leaves behind what does not end although it was cancelled: a sample's coroutine, its tasks, its threads."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import threading
from asyncio import tasks as asyncio_tasks
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from weakref import WeakKeyDictionary, WeakSet

AFTER_DEADLINE_S = 10.0
"""How long a sample may clean up after its deadline has cancelled it."""
AFTER_CANCEL_S = 5.0
"""The same where somebody waits at a terminal for the run to end."""
PATIENCE_S = 5.0
"""How long a process may take to end where samples may have left threads behind."""
_LAST_CHANCE_S = 0.5
_LOOK_AGAIN_S = 1.0


class Leavable:
    """Await it in place of a coroutine: it passes everything on, until it is left.

    Only who cancels it for good says so (`expect_end`): a sample's own time-outs cancel it as well. Once it
    is left, the coroutine is never resumed, and a cancellation is raised in its place.
    """

    is_left = False
    _timer: asyncio.TimerHandle | None = None
    _look_timer: asyncio.TimerHandle | None = None
    _waits_for: Any = None

    def __init__(self, awaitable: Awaitable[Any], grace_s: Callable[[], float]) -> None:
        self._awaitable = awaitable
        self._grace_s = grace_s
        self._task = asyncio.current_task()

    def __await__(self) -> Generator[Any, Any, Any]:
        inner: Any = self._awaitable.__await__()
        self._task = asyncio.current_task()
        go_on: Callable[[], Any] = inner.__next__
        try:
            while True:
                try:
                    self._waits_for = waits_for = go_on()
                except StopIteration as end:
                    return end.value
                go_on = inner.__next__
                try:
                    yield waits_for
                except GeneratorExit:
                    inner.close()
                    raise
                except BaseException as error:
                    go_on = functools.partial(inner.throw, error)
                if self.is_left:
                    _keep_for_ever(inner)
                    raise asyncio.CancelledError
        finally:
            for timer in (self._timer, self._look_timer):
                if timer is not None:
                    timer.cancel()
            self._waits_for = None

    def expect_end(self) -> None:
        """It was cancelled, and has its grace from now on, or what is left of it."""
        assert self._task is not None
        loop = self._task.get_loop()
        leave_at_s = loop.time() + self._grace_s()
        if self._timer is None or leave_at_s < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(leave_at_s, self._leave)

    def expect_end_after(self, deadline: asyncio.Timeout) -> None:
        """The deadline may be put off; tasks that the sample made may swallow its cancellation unseen."""
        assert self._task is not None
        loop = self._task.get_loop()
        if deadline.expired():
            self.expect_end()
        else:
            due_s = deadline.when()
            look_s = loop.time() + _LOOK_AGAIN_S if due_s is None else due_s
            self._look_timer = loop.call_at(look_s, self.expect_end_after, deadline)

    def _leave(self) -> None:
        self.is_left = True
        assert self._task is not None
        if not _woken(self._task, self._waits_for):
            self._task.cancel()


def _keep_for_ever(left: object) -> None:
    """Closing what was left behind, also at the interpreter's end, would run more of it."""
    import ctypes  # late: it is seldom needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))


def _woken(task: asyncio.Task[Any], waits_for: Any) -> bool:
    """Let the task go on although what it waits for, a task that swallows its cancellation, does not end."""
    for callback, _ in getattr(waits_for, "_callbacks", None) or ():
        if getattr(callback, "__self__", None) is task:
            waits_for.remove_done_callback(callback)
            nothing: asyncio.Future[None] = task.get_loop().create_future()
            nothing.set_result(None)
            task.get_loop().call_soon(callback, nothing)
            return True
    return False


class LoopRuns:
    """The runs that are under way beside each other on one loop.

    A task does not tell whose it is, so what is left over is cancelled when the last of them ends.
    """

    def __init__(self) -> None:
        self.before = asyncio.all_tasks()
        """Those that were there when the first run began, the tasks of the runs themselves among them."""
        self.under_way = 0
        self.last_leaves = False

    async def leave_the_rest(self) -> None:
        """Now, where nobody else runs here; otherwise whoever ends last does it."""
        if self.under_way > 1:
            self.last_leaves = True
        else:
            await leave_the_rest(self.before)


_OF_RUNS: WeakSet[asyncio.Task[Any]] = WeakSet()
"""Tasks that no sample made, also while their own run prepares, or has only its end to record."""


def belongs_to_a_run(task: asyncio.Task[Any] | None = None) -> None:
    """What samples leave behind is not this task, the current one unless another is named."""
    task = task or asyncio.current_task()
    if task is not None:
        _OF_RUNS.add(task)


_ON_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopRuns] = WeakKeyDictionary()


@contextmanager
def runs_on_this_loop() -> Iterator[LoopRuns]:
    """In the block, a run is under way on the running loop."""
    loop = asyncio.get_running_loop()
    runs = _ON_LOOPS.get(loop)
    if runs is None:
        runs = _ON_LOOPS[loop] = LoopRuns()
    runs.under_way += 1
    try:
        yield runs
    finally:
        runs.under_way -= 1
        if not runs.under_way:
            _ON_LOOPS.pop(loop, None)


_LEFT: WeakSet[threading.Thread] = WeakSet()
"""Threads of which nobody waits for what runs in them."""


async def leave_the_rest(before: Collection[asyncio.Task[Any]]) -> int:
    """Cancel the tasks that samples made, or that read rows, and nobody waits for; how many do not end.

    Nobody waits for those, nor for functions in the loop's threads, when the loop is closed.
    """
    loop = asyncio.get_running_loop()
    if isinstance(executor := getattr(loop, "_default_executor", None), ThreadPoolExecutor):
        _LEFT.update(executor._threads)
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
    others = asyncio.all_tasks(loop) - {*before, asyncio.current_task(loop)}
    rest = [task for task in others if task not in _OF_RUNS]
    for task in rest:
        task.cancel()
    pending = (await asyncio.wait(rest, timeout=_LAST_CHANCE_S))[1] if rest else set()
    for task in pending:
        asyncio_tasks._unregister_task(task)
    for task in pending:
        _keep_for_ever(task)
    if pending:
        generators: set[Any] = getattr(loop, "_asyncgens", set())
        generators -= {one for one in generators if one.ag_running}  # they cannot be closed
    return len(pending)


# -- a program that ends although such threads do not


def let_program_end() -> None:
    """When the program ends, nobody waits for threads that were left behind; for others, as always."""
    if any(thread.is_alive() for thread in _LEFT) and not _ENDS.is_set():
        _ENDS.set()
        ends = threading.Event()
        threading._register_atexit(ends.set)  # type: ignore[attr-defined]  # atexit comes after that wait
        threading.Thread(target=_end_without_left, args=(ends,), name="evalve-end", daemon=True).start()


_ENDS = threading.Event()
"""Whether somebody sees to it already."""


def _end_without_left(ends: threading.Event) -> None:
    ends.wait()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread() and thread not in _LEFT:
            thread.join()
    raised = getattr(sys, "last_type", None)
    code = 0 if raised is None else 128 + signal.SIGINT if issubclass(raised, KeyboardInterrupt) else 1
    end_without_threads(code)


def let_program_end_with(code: int) -> None:
    """When the program ends, nobody waits for long for whatever thread there still is.

    Not before: it may be a worker of xdist that waits for the others, or go on after `pytest.main`.
    """
    ends = threading.Event()
    threading._register_atexit(ends.set)  # type: ignore[attr-defined]

    def end() -> None:
        ends.wait()
        end_without_threads(code)

    threading.Thread(target=end, name="evalve-end", daemon=True).start()


def end_without_threads(code: int) -> NoReturn:
    """A while later, unless the process has ended by itself. To be called in a daemon thread."""
    threading.Event().wait(PATIENCE_S)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        os.write(2, b"evalve: threads that samples left behind do not end: the process ends without them\n")
    os._exit(code)
