"""A worker process as its parent sees it: started, told what to run, killed, mourned."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from evalve.contracts import CallLog, SampleContext
from evalve.engines.budgeting import WorkersSpending
from evalve.engines.channel import framed, received
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
    Release,
    Reserve,
    StopRun,
    Unread,
    WaitBegins,
    WaitEnds,
    Warned,
    Withdraw,
    Work,
)
from evalve.errors import CrossingError, WorkerDied
from evalve.traces import NotKept, Trace

READ_WITHIN_S = 1.0
"""How long what a dead worker has sent may take to be read, where somebody else holds its socket open."""
CLOSE_WITHIN_S = 5.0
"""How long a worker may take to end by itself: it keeps its answers, and what its calls have taught it."""

_ROOT = str(Path(__file__).parent.parent.parent)
_PROGRAM = "import sys; sys.path.insert(0, {root!r}); from evalve.worker_process import main; main({fd})"


class Child:
    """One worker process, in a process group of its own.

    The terminal's Ctrl-C does not reach it, and what its samples have started is killed together with it.
    """

    def __init__(self, on_death: Callable[[Child], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_death = on_death
        self._end, theirs = socket.socketpair()
        try:
            self._process = _started(theirs)
        except OSError:
            self._end.close()
            raise
        finally:
            theirs.close()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._dead = self._loop.create_future()
        self._is_expected_to_end = False
        self._is_read = False
        self._watcher = threading.Thread(target=self._watch, name="evalve-child", daemon=True)
        self._watcher.start()

    async def open(self, opening: Opening) -> None:
        """Return when it has imported the evaluation; `CrossingError` where it cannot."""
        self._end.setblocking(False)
        self._streams = await asyncio.open_connection(sock=self._end)
        await self._send(opening)
        answer = await self._next_message()
        if answer is None:
            how = await self._how_it_died()
            raise WorkerDied(f"a worker process {how} while it imported {opening.function.file}")
        if isinstance(answer, NotReady):
            raise CrossingError(answer.reason)

    async def run(self, work: Work, context: SampleContext) -> Answer:
        """One try of a sample; `WorkerDied` where the process does not survive it."""
        waits = _Waits(context, self, work.number)
        spending = WorkersSpending(context, self.tell)
        self._is_read = True
        counted = CallLog()
        await self._send(work)
        try:
            while (message := await self._next_message()) is not None:
                if isinstance(message, Warned):
                    logging.getLogger(message.logger).log(message.level, "%s", message.text)
                    continue
                if message.work != work.number:
                    continue  # of a thread that an earlier sample has left behind
                if isinstance(message, Answer | CallEnds | Release):
                    _count(message.calls.since(counted), context)
                    counted = message.calls
                if isinstance(message, Answer):
                    return message
                if isinstance(message, Event):
                    _trace(context).take_over(message.event_json)
                elif isinstance(message, Reserve | Withdraw | Release | Unread):
                    spending.take(message)
                elif isinstance(message, KeepFile):
                    self.tell(await _kept(message, _trace(context)))
                else:
                    waits.take(message)
                    await asyncio.sleep(0)  # one that begins or ends does so before the next message counts
        finally:
            self._is_read = False
            await spending.end()
            await waits.end()
        how = await self._how_it_died()
        raise WorkerDied(f"the worker process of sample {work.sample_id!r} of {work.evaluation} {how}")

    def tell(self, message: Any) -> None:
        """Without waiting for it."""
        if self._streams is not None:
            self._streams[1].write(framed(message))

    def kill(self) -> None:
        """With whatever its samples have started."""
        self._is_expected_to_end = True
        self._kill_group()
        self._disconnect()

    def let_go(self) -> None:
        """It ends by itself when the socket is closed."""
        self._is_expected_to_end = True
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._disconnect()

    def wait(self, within_s: float = CLOSE_WITHIN_S) -> None:
        """Until it has ended, by force after a while."""
        self._watcher.join(within_s)
        if self._watcher.is_alive():
            self._kill_group()
            self._watcher.join()

    # -- messages

    async def _send(self, message: Any) -> None:
        assert self._streams is not None
        writer = self._streams[1]
        with suppress(OSError):  # it is dead, and what is read next tells
            writer.write(framed(message))
            await writer.drain()

    async def _next_message(self) -> Any | None:
        assert self._streams is not None
        return await received(self._streams[0])

    # -- its end

    def _watch(self) -> None:
        """On a thread of its own: a program that a sample left running may hold the socket open."""
        self._process.wait()
        if not self._is_expected_to_end:
            self._kill_group()
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._has_died)

    def _has_died(self) -> None:
        if not self._dead.done():
            self._dead.set_result(None)
        if self._is_read:  # what it sent before it died comes first, and then the end of the socket
            self._loop.call_later(READ_WITHIN_S, self._disconnect)
        else:
            self._disconnect()
        self._on_death(self)

    async def _how_it_died(self) -> str:
        """The socket is closed: the process is dying, and killing it does not change its exit code."""
        self._kill_group()
        await self._dead
        self._disconnect()
        return died_in_words(self._process.returncode)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it is gone already
            os.killpg(self._process.pid, signal.SIGKILL)

    def _disconnect(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
        else:
            self._end.close()


def _started(end: socket.socket) -> subprocess.Popen[bytes]:
    """Not by multiprocessing, which runs a script once more if that has no `__main__` guard."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    program = _PROGRAM.format(root=_ROOT, fd=end.fileno())
    return subprocess.Popen(
        [sys.executable, *flags, "-c", program],
        pass_fds=(end.fileno(),),
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


def _count(made: CallLog, context: SampleContext) -> None:
    context.calls.add(made)
    if context.account is not None:
        context.account.count_elsewhere(made)


def _trace(context: SampleContext) -> Trace:
    assert context.trace is not None  # or the worker had none
    return context.trace


async def _kept(file: KeepFile, trace: Trace) -> FileKept:
    """In a thread, because copying may take a while."""
    try:
        keep = partial(trace.keep_file, Path(file.path), name=file.name)
        return FileKept(file.work, file.file, await asyncio.to_thread(keep))
    except NotKept as why:
        return FileKept(file.work, file.file, None, str(why))


class _Waits:
    """What a sample in a worker waits for, as waits of the attempt here."""

    def __init__(self, context: SampleContext, child: Child, work: int) -> None:
        self._context = context
        self._child = child
        self._work = work
        self._calls = 0
        self._waits: dict[int, tuple[asyncio.Future[None], asyncio.Task[None]]] = {}

    def take(self, message: Any) -> None:
        surroundings = self._context.surroundings
        if isinstance(message, WaitBegins):
            self._begin(message)
        elif isinstance(message, WaitEnds):
            _set(self._waits[message.wait][0])
        elif isinstance(message, StopRun):
            self._context.stop_run(message.reason, drops_sample=message.drops_sample)
        elif isinstance(message, CallBegins) and surroundings is not None:
            self._calls += 1
            surroundings.call_begins()
        elif isinstance(message, CallEnds) and surroundings is not None:
            self._calls -= 1
            surroundings.call_ends()

    async def end(self) -> None:
        """Whatever the worker did not tell the end of has ended with it."""
        for over, _ in self._waits.values():
            _set(over)
        await asyncio.gather(*(task for _, task in self._waits.values()))
        surroundings = self._context.surroundings
        while self._calls > 0 and surroundings is not None:
            self._calls -= 1
            surroundings.call_ends()

    def _begin(self, message: WaitBegins) -> None:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(self._wait(over, message))
        self._waits[message.wait] = over, task

    async def _wait(self, over: asyncio.Future[None], message: WaitBegins) -> None:
        try:
            await self._context.held(over, message.reason)
        except asyncio.CancelledError:  # the run stops: what the sample waits for will not come
            self._child.tell(EndWait(self._work, message.wait))


def died_in_words(exit_code: int) -> str:
    """`was killed by SIGKILL …`, `ended with exit code 3`."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code} before it answered"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if name == "SIGKILL":
        return "was killed by SIGKILL; a system out of memory does that, and fewer workers need less of it"
    return f"was killed by {name}"


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
