"""The supervisor as evalve sees it: started with the first agent, told what to run, replaced when it dies."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from evalve.agents.spec import Ending
from evalve.agents.supervisor import proc
from evalve.errors import InfrastructureError
from evalve.processes import here

HEAD_BYTES = 8_000_000
TAIL_BYTES = 1_000_000
"""Of each of the two outputs. Together they are less than what a trace keeps of a file."""
ENDS_WITHIN_S = 5.0
"""How long the supervisor may take to end its agents when evalve ends."""
AFTER_KILL_S = 3.0
"""How long the supervisor may take, after a grace, to tell of an end."""

_ROOT = str(Path(__file__).parent.parent.parent)
_PROGRAM = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from evalve.agents.supervisor.program import main; main({fd}, {owner}, {where!r})"
)


@dataclass(frozen=True, slots=True)
class Order:
    """What the supervisor is asked to run. Crosses as JSON."""

    command: list[str]
    directory: str
    environment: dict[str, str] = field(repr=False)
    stdout: str
    stderr: str
    startup_s: float | None = None
    silence_s: float | None = None
    total_s: float | None = None
    grace_s: float = 5.0
    memory_bytes: int | None = None
    landlock: dict[str, list[str]] | None = None
    head_bytes: int = HEAD_BYTES
    tail_bytes: int = TAIL_BYTES


_ORDER = tuple(one.name for one in fields(Order))


@dataclass(slots=True)
class Watch:
    """What is told of a running agent, on the loop that asked for it."""

    started: Callable[[], None] = lambda: None
    output: Callable[[int], None] = lambda output_bytes: None
    measured: Callable[[float, int, int], None] = lambda cpu_s, memory_bytes, output_bytes: None


TellingStill = Callable[[Callable[[bool], None]], AbstractContextManager[None]]
"""As `SampleContext.telling_still`."""


def _never_still(tell: Callable[[bool], None]) -> AbstractContextManager[None]:
    return nullcontext()


class CannotRun(Exception):
    """The program does not begin, or its output cannot be kept; `errno` says why, where the system does."""

    def __init__(self, message: str, errno: int | None) -> None:
        super().__init__(message)
        self.errno = errno


class Supervisor:
    """One for a process. Any loop and thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._numbers = itertools.count(1)

    async def run(self, order: Order, watch: Watch, *, telling_still: TellingStill | None = None) -> Ending:
        """Until the agent and all that it started have ended. Cancelled, it ends them first.

        Its clocks stand still whenever `telling_still` says so: a sample that waits for a limit does not age.
        """
        run = _Run(asyncio.get_running_loop(), watch)
        connection = self._connection
        if connection is None or not connection.is_usable():
            connection = await asyncio.to_thread(self._connected)
        number = next(self._numbers)
        connection.start(number, order, run)
        still = (telling_still or _never_still)(partial(connection.stand_still, number))
        try:
            with still:
                return await asyncio.shield(run.ended)  # it goes on being waited for when this is cancelled
        except asyncio.CancelledError:
            grace_s = min(order.grace_s, GRACE_OF_CANCELLED_S)
            connection.end(number, grace_s)
            await asyncio.wait({run.ended}, timeout=grace_s + AFTER_KILL_S)
            raise

    def close(self) -> None:
        """End all agents, and the supervisor."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None and connection.is_ours():
            connection.close()

    def _connected(self) -> _Connection:
        with self._lock:
            if self._connection is None or not self._connection.is_usable():
                self._connection = _Connection()
            return self._connection


GRACE_OF_CANCELLED_S = 2.0
"""Somebody waits at a terminal, or a deadline is over."""


class _Run:
    """One agent that is under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: Watch) -> None:
        self.loop = loop
        self.watch = watch
        self.pid: int | None = None
        self.ended: asyncio.Future[Ending] = loop.create_future()
        self.ended.add_done_callback(_seen)

    def take(self, message: dict[str, Any]) -> None:
        """From the thread that listens."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(self._taken, message)

    def fail(self, error: Exception) -> None:
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._failed, error)

    def _taken(self, message: dict[str, Any]) -> None:
        if self.ended.done():
            return
        if "started" in message:
            self.watch.started()
        elif "output" in message:
            self.watch.output(message["bytes"])
        elif "measured" in message:
            self.watch.measured(message["cpu_s"], message["memory_bytes"], message["bytes"])
        elif problem := message.get("problem"):
            self._failed(CannotRun(problem["error"], problem["errno"]))
        else:
            names = {one.name for one in fields(Ending)}
            self.ended.set_result(Ending(**{name: message[name] for name in names if name in message}))

    def _failed(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


def _seen(ended: asyncio.Future[Ending]) -> None:
    """Who was cancelled does not ask for the error, and need not be told that nobody did."""
    if not ended.cancelled():
        ended.exception()


class _Connection:
    """One supervisor process, and the thread that hears it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._runs: dict[int, _Run] = {}
        self._lock = threading.Lock()
        self._is_over = False
        self._said = ""
        self._where = hashlib.blake2b(here().encode(), digest_size=6).hexdigest()
        self._end, theirs = socket.socketpair()
        with theirs:
            program = _PROGRAM.format(root=_ROOT, fd=theirs.fileno(), owner=os.getpid(), where=self._where)
            self._process = subprocess.Popen(
                # by itself, without what a project or its site-packages do at the start of Python
                [sys.executable, "-I", "-S", "-c", program],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._listen, name="evalve-agents", daemon=True)
        self._thread.start()

    def is_ours(self) -> bool:
        """Not of the process that this one is a fork of."""
        return self._owner == os.getpid()

    def is_usable(self) -> bool:
        return self.is_ours() and not self._is_over

    def start(self, number: int, order: Order, run: _Run) -> None:
        with self._lock:
            self._runs[number] = run
            is_over = self._is_over
        if is_over:
            self._fail_all()
        else:
            # not `asdict`, which copies every string of the environment (measured: 0.2 ms)
            self._send({"id": number, **{name: getattr(order, name) for name in _ORDER}})

    def end(self, number: int, grace_s: float) -> None:
        self._send({"end": number, "grace_s": grace_s})

    def stand_still(self, number: int, is_still: bool) -> None:
        self._send({"still": number, "is_still": is_still})

    def close(self) -> None:
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(ENDS_WITHIN_S)

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock, suppress(OSError):  # it is dead, and the thread that listens tells
            self._end.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        with self._end.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                self._take(json.loads(line))
        self._mourn()

    def _take(self, message: dict[str, Any]) -> None:
        if "broken" in message:
            self._said = message["broken"]
            return
        number = next(message[kind] for kind in ("started", "output", "measured", "ended") if kind in message)
        with self._lock:
            run = self._runs.pop(number, None) if "ended" in message else self._runs.get(number)
        if run is not None:
            run.pid = message.get("pid", run.pid)
            run.take(message)

    def _mourn(self) -> None:
        """It has ended. What it could not end itself, because it was killed, is ended here."""
        with self._lock:
            self._is_over = True
            groups = [run.pid for run in self._runs.values() if run.pid is not None]
        self._process.wait()
        for group in groups:
            proc.kill_group(group)
        for pid in proc.marked(f"{self._where}.{self._process.pid}."):
            proc.kill(pid)
        self._fail_all()
        self._end.close()

    def _fail_all(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
            self._runs.clear()
        how = f"ended with {self._process.returncode}" + (f":\n{self._said}" if self._said else "")
        for run in runs:
            run.fail(InfrastructureError(f"the supervisor of agents {how}; its agents were ended with it"))
