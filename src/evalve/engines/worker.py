"""What a worker process does: it imports the evaluation once, then runs one sample after another.

The function runs on the main thread, as programs expect it. Another thread listens, so that the end of the
parent, which is the end of the socket, is noticed in the middle of a sample too.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from evalve.contracts import SAMPLE, CallLog, SampleContext
from evalve.engines.budgeting import ParentsBudget
from evalve.engines.channel import Channel
from evalve.engines.crossing import (
    Answer,
    CallBegins,
    CallEnds,
    EndWait,
    Event,
    FileKept,
    KeepFile,
    NotReady,
    Opening,
    PackedError,
    Ready,
    Reserved,
    StopRun,
    WaitBegins,
    WaitEnds,
    Warned,
    Work,
    cannot_cross,
    loaded,
    packed_error,
    packed_value,
)
from evalve.engines.finding import Modules
from evalve.errors import CrossingError, EvalveError
from evalve.options import Options
from evalve.records import Artefact
from evalve.traces import NotKept, Trace

T = TypeVar("T")

AccountFor = Callable[[Options], Any]
"""What the samples of this process carry as their account: cache mode and budget as the run's options say."""

_OUR_FOLDER = str(Path(__file__).parent)


def serve(end: socket.socket, *, account_for: AccountFor, secrets: Sequence[str] = ()) -> None:
    """Work until the parent closes the socket. No trace shows one of the secrets."""
    _ignore_interrupts()
    channel = Channel(end)
    opening = channel.receive()
    if opening is None:
        return
    _die_with(opening.parent_pid)
    sys.path[:] = opening.sys_path
    sys.argv[:] = opening.sys_argv
    try:
        worker = _Worker(channel, opening, account_for(opening.options), secrets)
    except BaseException as error:  # whatever importing a person's module raises, the parent tells it
        channel.send(NotReady(_in_words(error, opening)))
        return
    channel.send(Ready())
    logging.getLogger("evalve").addHandler(_Warnings(channel))
    worker.run()


class _Warnings(logging.Handler):
    """The parent says what evalve warns of here: of this process nobody may see the standard error."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the parent is gone
            self._channel.send(Warned(record.name, record.levelno, record.getMessage()))


class _Worker:
    def __init__(self, channel: Channel, opening: Opening, account: Any, secrets: Sequence[str]) -> None:
        self._channel = channel
        self._account = account
        self._secrets = secrets
        self._modules = Modules(opening.main)
        self._function = self._modules.function(opening.function)
        self._arguments = self._unpacked(opening.arguments, opening.function.qualname)
        self._leading = tuple(self._unpacked(opening.leading, opening.function.qualname).values())
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._surroundings: WorkerSurroundings | None = None
        self._files = Files(channel, work=-1)
        self._budget: ParentsBudget | None = None
        if opening.options.budget_usd is not None:
            self._budget = ParentsBudget(channel, opening.options.budget_usd, self._under_way)
            account.budget = self._budget

    def run(self) -> None:
        threading.Thread(target=self._listen, name="evalve-listen", daemon=True).start()
        while (work := self._inbox.get()) is not None:
            self._surroundings = WorkerSurroundings(self._channel, work)
            self._files = Files(self._channel, work.number)
            answer = contextvars.copy_context().run(self._answer, work, self._surroundings)
            surroundings, self._surroundings = self._surroundings, None
            self._files.close()
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
            elif isinstance(message, FileKept):
                self._files.take(message)
            elif isinstance(message, Reserved) and self._budget is not None:
                self._budget.take(message)
        if self._surroundings is not None:
            os._exit(1)  # nobody waits for the sample any more
        self._inbox.put(None)

    def _under_way(self) -> tuple[int, CallLog] | None:
        surroundings = self._surroundings
        return None if surroundings is None else (surroundings.work, surroundings.calls)

    def _answer(self, work: Work, surroundings: WorkerSurroundings) -> Answer:
        trace = self._trace(work.number) if work.leaves_trace else None
        SAMPLE.set(
            SampleContext(
                work.experiment,
                work.evaluation,
                work.sample_id,
                work.repeat,
                work.try_number,
                surroundings.calls,
                surroundings=surroundings,
                trace=trace,
                account=self._account,
            )
        )
        value, error = self._called(work)
        left_out = 0 if trace is None else trace.left_out
        return Answer(work.number, value, error, surroundings.calls, left_out)

    def _trace(self, work: int) -> Trace:
        def tell(event_json: str) -> None:
            self._channel.send(Event(work, event_json))

        return Trace(keep_file=self._files.keep, secrets=self._secrets, tell=tell)

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

    def __init__(self, channel: Channel, work: Work) -> None:
        self.calls = CallLog(ordinals=dict(work.ordinals))
        """What the sample's calls come to."""
        self._channel = channel
        self.work = work.number
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = {}
        self._calling: list[asyncio.Task[Any] | None] = []
        """The task of each call that is under way: it waits there too."""
        self._callbacks: list[Callable[[], None]] = []

    async def held(self, awaitable: Awaitable[T], reason: str) -> T:
        task = asyncio.current_task()
        assert task is not None
        number = next(self._numbers)
        self._waiting[number] = (asyncio.get_running_loop(), task)
        calls = self._calling.count(task)
        self._channel.send(WaitBegins(self.work, number, reason))
        self._send_each(CallEnds(self.work, self.calls), calls)  # to the parent, a call that waits is none
        try:
            return await awaitable
        finally:
            del self._waiting[number]
            self._send_each(CallBegins(self.work), calls)
            self._channel.send(WaitEnds(self.work, number))

    async def parked(self, awaitable: Awaitable[T], reason: str) -> T:
        return await self.held(awaitable, reason)

    def call_begins(self) -> None:
        self._calling.append(asyncio.current_task())
        self._channel.send(CallBegins(self.work))

    def call_ends(self) -> None:
        self._calling.remove(asyncio.current_task())
        self._channel.send(CallEnds(self.work, self.calls))

    def _send_each(self, message: Any, times: int) -> None:
        for _ in range(times):
            self._channel.send(message)

    def stop_run(self, reason: str, *, drops_sample: bool = False) -> None:
        self._channel.send(StopRun(self.work, reason, drops_sample))

    def when_committed(self, callback: Callable[[], None]) -> None:
        """When the sample has ended: of its record this process hears nothing."""
        self._callbacks.append(callback)

    when_recorded = when_committed

    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]:
        """Whether all that the sample does is a wait is known to its parent alone, and is not told here."""
        return nullcontext()

    def elsewhere(self) -> AbstractContextManager[None]:
        """The parent does not die of its workers: nothing is noted."""
        return nullcontext()

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


class Files:
    """Has the files of one sample kept by the parent, whose store it is. Any thread may ask."""

    def __init__(self, channel: Channel, work: int) -> None:
        self._channel = channel
        self._work = work
        self._lock = threading.Lock()
        self._asked: list[Future[Artefact]] = []
        self._is_over = False

    def keep(self, source: Path, *, name: str) -> Artefact:
        with self._lock:
            if self._is_over:
                raise NotKept("its sample has ended")
            number, kept = len(self._asked), Future[Artefact]()
            self._asked.append(kept)
        self._channel.send(KeepFile(self._work, number, str(source), name))
        return kept.result()

    def take(self, message: FileKept) -> None:
        with self._lock:
            if self._is_over or message.work != self._work:
                return  # whoever asked has heard that its sample has ended
            kept = self._asked[message.file]
            if message.artefact is not None:
                kept.set_result(message.artefact)
            else:
                kept.set_exception(NotKept(message.problem))

    def close(self) -> None:
        """The sample has ended: nobody answers a thread that it has left behind."""
        with self._lock:
            self._is_over = True
            for kept in self._asked:
                if not kept.done():
                    kept.set_exception(NotKept("its sample has ended"))


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
