"""What a worker process does: it imports the evaluation once, then runs one sample after another.

The function runs on the main thread, as programs expect it. Another thread listens, so that the end of the
parent, which is the end of the socket, is noticed in the middle of a sample too.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from evalve.contracts import SAMPLE, CallLog, SampleContext
from evalve.engines.channel import Channel
from evalve.engines.crossing import (
    Answer,
    CallBegins,
    CallEnds,
    EndWait,
    NotReady,
    Opening,
    PackedError,
    Ready,
    StopRun,
    WaitBegins,
    WaitEnds,
    Work,
    cannot_cross,
    loaded,
    packed_error,
    packed_value,
    plain_events,
)
from evalve.engines.finding import Modules
from evalve.errors import CrossingError, EvalveError
from evalve.options import Options
from evalve.traces import Trace

T = TypeVar("T")

AccountFor = Callable[[Options], Any]
"""What the samples of this process carry as their account: cache mode and budget as the run's options say."""

_OUR_FOLDER = str(Path(__file__).parent)


def serve(end: socket.socket, *, account_for: AccountFor) -> None:
    """Work until the parent closes the socket."""
    _ignore_interrupts()
    channel = Channel(end)
    opening = channel.receive()
    if opening is None:
        return
    _die_with(opening.parent_pid)
    sys.path[:] = opening.sys_path
    sys.argv[:] = opening.sys_argv
    try:
        worker = _Worker(channel, opening, account_for(opening.options))
    except BaseException as error:  # whatever importing a person's module raises, the parent tells it
        channel.send(NotReady(_in_words(error, opening)))
        return
    channel.send(Ready())
    worker.run()


class _Worker:
    def __init__(self, channel: Channel, opening: Opening, account: Any) -> None:
        self._channel = channel
        self._account = account
        self._modules = Modules(opening.main)
        self._function = self._modules.function(opening.function)
        self._arguments = self._unpacked(opening.arguments, opening.function.qualname)
        self._leading = tuple(self._unpacked(opening.leading, opening.function.qualname).values())
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._surroundings: WorkerSurroundings | None = None

    def run(self) -> None:
        threading.Thread(target=self._listen, name="evalve-listen", daemon=True).start()
        while (work := self._inbox.get()) is not None:
            self._surroundings = WorkerSurroundings(self._channel, work.number)
            answer = contextvars.copy_context().run(self._answer, work, self._surroundings)
            surroundings, self._surroundings = self._surroundings, None
            _flush()
            with suppress(OSError):  # the parent is gone, and the other thread ends this process
                self._channel.send(answer)
            surroundings.call_back()

    def _listen(self) -> None:
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Work):
                self._inbox.put(message)
            elif isinstance(message, EndWait) and (surroundings := self._surroundings) is not None:
                surroundings.end_wait(message.wait)
        if self._surroundings is not None:
            os._exit(1)  # nobody waits for the sample any more
        self._inbox.put(None)

    def _answer(self, work: Work, surroundings: WorkerSurroundings) -> Answer:
        calls = CallLog(ordinals=dict(work.ordinals))
        trace = Trace() if work.leaves_trace else None
        SAMPLE.set(
            SampleContext(
                work.experiment,
                work.evaluation,
                work.sample_id,
                work.repeat,
                work.try_number,
                calls,
                surroundings=surroundings,
                trace=trace,
                account=self._account,
            )
        )
        value, error = self._called(work)
        return Answer(
            work.number, value, error, calls, plain_events(trace.events()) if trace is not None else []
        )

    def _called(self, work: Work) -> tuple[bytes | None, PackedError | None]:
        try:
            values = self._unpacked(work.values, f"{work.evaluation}, sample {work.sample_id!r}")
            value = self._function(*self._leading, **self._arguments, **values)
            return packed_value(value, work.evaluation), None
        except BaseException as error:  # the parent raises it, and knows what to do with it
            return None, packed_error(error, [_OUR_FOLDER])

    def _unpacked(self, sent: dict[str, Any], what: str) -> dict[str, Any]:
        values = {}
        for name, (data, files) in sent.items():
            self._modules.know(files)
            try:
                values[name] = loaded(data, self._modules.name_for)
            except Exception as error:  # unpickling runs whatever the value's class says
                raise CrossingError(cannot_cross(name, None, what, error)) from error
        return values


class WorkerSurroundings:
    """What a sample may ask for: the parent is told, whose deadlines and progress these are.

    A worker serves one sample at a time, so that one which is parked keeps its slot all the same.
    """

    def __init__(self, channel: Channel, work: int) -> None:
        self._channel = channel
        self._work = work
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = {}
        self._callbacks: list[Callable[[], None]] = []

    async def held(self, awaitable: Awaitable[T], reason: str) -> T:
        task = asyncio.current_task()
        assert task is not None
        number = next(self._numbers)
        self._waiting[number] = (asyncio.get_running_loop(), task)
        self._channel.send(WaitBegins(self._work, number, reason))
        try:
            return await awaitable
        finally:
            del self._waiting[number]
            self._channel.send(WaitEnds(self._work, number))

    async def parked(self, awaitable: Awaitable[T], reason: str) -> T:
        return await self.held(awaitable, reason)

    def call_begins(self) -> None:
        self._channel.send(CallBegins(self._work))

    def call_ends(self) -> None:
        self._channel.send(CallEnds(self._work))

    def stop_run(self, reason: str) -> None:
        self._channel.send(StopRun(self._work, reason))

    def when_committed(self, callback: Callable[[], None]) -> None:
        """When the sample has ended: of its record this process hears nothing."""
        self._callbacks.append(callback)

    def call_back(self) -> None:
        for callback in self._callbacks:
            callback()

    def end_wait(self, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None:
            loop, _ = waiting
            with suppress(RuntimeError):  # the loop is closed, and the wait has ended with it
                loop.call_soon_threadsafe(self._cancel, number)

    def _cancel(self, number: int) -> None:
        """On the task's own loop: meanwhile it may have been given what it waited for."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting[1].cancel()


def _ignore_interrupts() -> None:
    """The parent decides what Ctrl-C means, and the end of a terminal.

    Not by `SIG_IGN`: a sample's own programs would inherit it.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)


def _die_with(parent_pid: int) -> None:
    """Where the system can, die with the parent even in code that lets no other thread run."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


_PR_SET_PDEATHSIG = 1


def _in_words(error: BaseException, opening: Opening) -> str:
    if isinstance(error, EvalveError):
        return str(error)
    return (
        f"a worker process cannot import {opening.function.qualname} from {opening.function.file}: "
        + packed_error(error, [_OUR_FOLDER]).traceback.rstrip()
    )


def _flush() -> None:
    """What a sample printed is not lost with a process that is killed later."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()
